-- Leases in Postgres: the tables, and the functions that are the protocol. README.md beside this file describes it.
--
-- `leasehold init --store URL` sends this file, or prints it with `--print`. Sent again it repairs what is missing and
-- changes nothing else; only a `--max-ttl` that is given is written again.
--
-- Rules of the functions. Each was seen to break a promise when it was not kept.
--   1  Only clock_timestamp() tells the time: now() is from before the wait for the lock, and older still if a
--      transaction was open already.
--   2  The clock is read after the lock is held.
--   3  `excluded` was computed before the wait for the lock: the end of a lease is computed again.
--   4  A decision made while waiting for the row's lock depends on that row alone (has_queue, awaited_until): other
--      tables are seen as they were before. And a place is locked before it is granted: its client may be writing it.
--   5  A client that joins the queue locks the lease's row until its commit, so that a release waits for it and then sees
--      the queue. The first one writes the row. The others share a lock, with each other and with renewals: a crowd that
--      joins would otherwise keep the row from its holder. A client that has a place writes that alone.
--   6  Locks are taken in one order: the lease, then its queue. Where several leases are locked, those that another
--      transaction has locked are skipped.
--   7  A wait for a lock ends after 100 ms, by a clause of the function, because requests for other names wait behind it
--      on its connection; the client sends it again. Nothing is set on the session.
--   8  If synchronous_commit is off, it is turned on for this transaction: what is answered must survive a crash. And the
--      WARNING of a commit that no standby has must reach the client, whatever client_min_messages says.
--   9  No EXCEPTION block on a common path: each is a subtransaction.
--  10  Every function that a client calls finds operators, types and functions in pg_catalog alone, by a clause of the
--      function, and so do those that it calls: another role may have planted its own in a schema of the search path.

BEGIN;

-- Rule 10.
SET LOCAL search_path = pg_catalog, pg_temp;

-- A lock that is waited for makes all others wait for it that come afterwards.
SET LOCAL lock_timeout = '1s';

-- One run at a time: of two that run at once, CREATE ... IF NOT EXISTS fails in the second. Once there is a table, its
-- lock needs a permission. Before, any role can take the advisory lock, so it is waited for for a moment only.
DO $init$
BEGIN
  FOR i IN 1..40 LOOP
    EXIT WHEN to_regclass(format('%I.lineage', {schema_text})) IS NOT NULL;
    EXIT WHEN pg_try_advisory_xact_lock(7810773120193241);
    PERFORM pg_sleep(0.05);
  END LOOP;
  IF to_regclass(format('%I.lineage', {schema_text})) IS NOT NULL THEN
    LOCK TABLE {schema}.lineage IN SHARE ROW EXCLUSIVE MODE;
  END IF;
  -- A name is any text. SQL_ASCII takes whatever bytes it is sent.
  IF current_setting('server_encoding') NOT IN ('UTF8', 'SQL_ASCII') THEN
    RAISE feature_not_supported USING MESSAGE =
      format('the encoding of the database is %s: leases need a database in UTF8', current_setting('server_encoding'));
  END IF;
END
$init$;

DO $init$
BEGIN
  -- CREATE SCHEMA IF NOT EXISTS needs the permission to create one even if it exists.
  IF NOT EXISTS (SELECT FROM pg_namespace n WHERE n.nspname = {schema_text}) THEN
    CREATE SCHEMA {schema};
  END IF;
END
$init$;

-- One row for each name. It stays after a release, because it has the token. There is no index but the key: one on the
-- deadline would prevent HOT updates.
CREATE TABLE IF NOT EXISTS {schema}.lease (
  -- "C": no upgrade of a locale library breaks the index, and a prefix is a range.
  name text COLLATE "C" PRIMARY KEY,
  -- The last token that was granted; 0 for none.
  token bigint NOT NULL CHECK (token BETWEEN 0 AND 9007199254740991),
  -- 0 live, 1 evicted, 2 kept after its release, 4 free.
  state smallint NOT NULL,
  -- Empty if free.
  holder text COLLATE "C" NOT NULL,
  ttl_ms bigint NOT NULL,
  since timestamptz NOT NULL,
  ends_at timestamptz NOT NULL,
  -- JSON as text: jsonb refuses \u0000 and costs more.
  info text NOT NULL,
  -- Whether the queue may have rows of this name.
  has_queue boolean NOT NULL DEFAULT false,
  -- Until when a client wants a notice when the name is freed.
  awaited_until timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

-- The clients that wait for a name in turn: a place is kept for a term, and with it the claim that a freed name is granted
-- to.
CREATE TABLE IF NOT EXISTS {schema}.queue (
  name text COLLATE "C" NOT NULL,
  place bigint GENERATED ALWAYS AS IDENTITY,
  client text COLLATE "C" NOT NULL,
  -- The end of the term.
  alive_until timestamptz NOT NULL,
  -- Of the claim; NULL once it was released: another caller of the client may take the place.
  holder text COLLATE "C",
  floor bigint,
  info text,
  term_ms bigint,
  PRIMARY KEY (name, place),
  UNIQUE (name, client)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

-- Functions in SQL are checked against the columns that there are.
DO $init$
BEGIN
  -- ADD COLUMN IF NOT EXISTS locks the table even if the column exists.
  IF NOT EXISTS (
    SELECT
    FROM pg_attribute a
    WHERE a.attrelid = to_regclass(format('%I.queue', {schema_text})) AND a.attname = 'holder' AND NOT a.attisdropped
  ) THEN
    ALTER TABLE {schema}.queue
      ADD COLUMN holder text COLLATE "C",
      ADD COLUMN floor bigint,
      ADD COLUMN info text,
      ADD COLUMN term_ms bigint;
  END IF;
END
$init$;

-- One row: where these tables are, and until when nothing is granted after they were moved.
CREATE TABLE IF NOT EXISTS {schema}.lineage (
  one int PRIMARY KEY CHECK (one = 1),
  -- The last result of origin_1(); NULL if the server does not show it.
  origin text,
  -- When the server started that had this origin: while it runs, and grants, it keeps it.
  started timestamptz,
  -- The table's own number when that origin was seen: a dump that is restored brings that of another table.
  seen_as oid,
  max_ttl_ms bigint NOT NULL CHECK (max_ttl_ms > 0),
  quiet_until timestamptz NOT NULL DEFAULT '-infinity'
);

-- Identifies this server and its timeline, to tell it from the one that a standby, a backup or a dump was taken from: a
-- promotion and a recovery to a point in time begin a new timeline, and another server has another identifier. NULL if the
-- role that made it may not read them: clients need no permission of their own.
CREATE OR REPLACE FUNCTION {schema}.origin_1() RETURNS text
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  -- A standby has no timeline of its own, but writes nothing anyway.
  IF pg_is_in_recovery() THEN
    RETURN 'standby';
  END IF;
  RETURN (
    SELECT c.system_identifier::text || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)
    FROM pg_control_system() c
  );
EXCEPTION WHEN OTHERS THEN
  -- A server that does not show them. The hazards report what that costs.
  RETURN NULL;
END
$$;

-- Makes sure of rule 8, in each function that answers what must be kept.
CREATE OR REPLACE FUNCTION {schema}.keep_1() RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  IF current_setting('client_min_messages') IN ('error', 'fatal', 'panic') THEN
    PERFORM set_config('client_min_messages', 'warning', true);
  END IF;
END
$$;

-- Microseconds since 1970.
CREATE OR REPLACE FUNCTION {schema}.micros_1(moment timestamptz) RETURNS bigint
LANGUAGE sql STABLE
AS $$ SELECT (extract(epoch FROM moment) * 1000000)::bigint $$;

-- Microseconds from now to an end; NULL for none.
CREATE OR REPLACE FUNCTION {schema}.left_1(ends_at timestamptz) RETURNS bigint
LANGUAGE sql
AS $$
  SELECT CASE WHEN isfinite(ends_at) THEN
    greatest(0, (extract(epoch FROM ends_at - clock_timestamp()) * 1000000)::bigint)
  END
$$;

-- Whether the server was started, or the tables were restored, since a claim last asked whether grants may be forgotten.
CREATE OR REPLACE FUNCTION {schema}.is_restarted_1(p_origin text, p_started timestamptz, p_seen_as oid, p_is oid)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
  SELECT p_origin IS NOT NULL AND p_started IS DISTINCT FROM pg_postmaster_start_time() OR p_seen_as IS DISTINCT FROM p_is
$$;

-- Passes on a name that no holder has any more: grants it to the first place whose client lives, for the rest of its term,
-- or frees it. The caller holds the row's lock. The notice of the grant is of this transaction, unless it is for the
-- holder that asks. Returns whether tell_1 is to be called.
--
-- Nothing is granted in the quiet time, nor by a release while no claim has asked yet whether one has to begin.
CREATE OR REPLACE FUNCTION {schema}.pass_on_1(p_name text, p_asking text, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
  v_next record;
  v_token bigint;
  v_is_awaited boolean;
BEGIN
  SELECT q.*
  INTO v_next
  FROM {schema}.queue q
  JOIN {schema}.lease l ON l.name = q.name
  JOIN {schema}.lineage g ON g.quiet_until <= p_now
    AND (p_asking IS NOT NULL OR NOT {schema}.is_restarted_1(g.origin, g.started, g.seen_as, g.tableoid))
  WHERE q.name = p_name
    AND q.holder IS NOT NULL
    AND q.alive_until > p_now
    -- Where no tokens are left, each claim is told so when it asks.
    AND l.token < 9007199254740989
  ORDER BY q.place
  LIMIT 1
  -- Rule 4.
  FOR UPDATE OF q;
  DELETE FROM {schema}.queue q
  WHERE q.name = p_name AND (q.place = v_next.place OR q.alive_until <= p_now);
  UPDATE {schema}.lease l
  -- Above the height of each place, so by the clock of this moment.
  SET token = CASE WHEN v_next.place IS NULL THEN l.token
      ELSE greatest(l.token + 1, {schema}.micros_1(clock_timestamp()), v_next.floor + 1) END,
    state = CASE WHEN v_next.place IS NULL THEN 4 ELSE 0 END,
    holder = coalesce(v_next.holder, ''),
    ttl_ms = coalesce(v_next.term_ms, l.ttl_ms),
    since = CASE WHEN v_next.place IS NULL THEN l.since ELSE p_now END,
    -- A place that was written while the clock was ahead lasts for its term at most.
    ends_at = coalesce(least(v_next.alive_until, p_now + v_next.term_ms * interval '1 millisecond'), p_now),
    info = coalesce(v_next.info, '{}'),
    has_queue = EXISTS (SELECT FROM {schema}.queue q WHERE q.name = p_name)
  WHERE l.name = p_name
  RETURNING l.token, l.awaited_until > p_now
  INTO v_token, v_is_awaited;
  IF v_next.place IS NULL THEN
    RETURN v_is_awaited;
  END IF;
  -- Where the server's queue of notices is full a commit with one would fail, and the client hears of its grant when it
  -- polls again.
  IF v_is_awaited AND v_next.holder IS DISTINCT FROM p_asking AND pg_notification_queue_usage() < 0.9 THEN
    PERFORM pg_notify({schema}.channel_1(p_name), format('g %s %s %s', v_next.holder, v_token, p_name));
  END IF;
  RETURN false;
END
$$;

-- Keeps the place of this holder's client with this claim, for a term from now. Returns it; NULL if it has none.
CREATE OR REPLACE FUNCTION {schema}.stay_1(
  p_name text,
  p_holder text,
  p_info text,
  p_floor bigint,
  p_term_ms bigint
) RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_place bigint;
BEGIN
  UPDATE {schema}.queue q
  SET holder = p_holder,
    info = p_info,
    floor = p_floor,
    -- Its time never becomes less.
    term_ms = greatest(q.term_ms, p_term_ms),
    alive_until = clock_timestamp() + greatest(q.term_ms, p_term_ms) * interval '1 millisecond'
  WHERE q.name = p_name
    AND q.client = split_part(p_holder, '-', 1)
    AND q.alive_until > clock_timestamp()
  RETURNING q.place
  INTO v_place;
  RETURN v_place;
END
$$;

-- The same, and puts the client at the end of the queue if it has no place. The caller holds the row's lock.
CREATE OR REPLACE FUNCTION {schema}.join_1(
  p_name text,
  p_holder text,
  p_info text,
  p_floor bigint,
  p_term_ms bigint
) RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_place bigint := {schema}.stay_1(p_name, p_holder, p_info, p_floor, p_term_ms);
BEGIN
  IF v_place IS NULL THEN
    -- Its time is over.
    DELETE FROM {schema}.queue q
    WHERE q.name = p_name AND q.client = split_part(p_holder, '-', 1) AND q.alive_until <= clock_timestamp();
    INSERT INTO {schema}.queue AS q (name, client, alive_until, holder, info, floor, term_ms)
    VALUES (
      p_name, split_part(p_holder, '-', 1), clock_timestamp() + p_term_ms * interval '1 millisecond',
      p_holder, p_info, p_floor, p_term_ms
    )
    ON CONFLICT ON CONSTRAINT queue_name_client_key DO NOTHING
    RETURNING q.place
    INTO v_place;
    -- Another claim of the client joined at this moment.
    v_place := coalesce(v_place, {schema}.stay_1(p_name, p_holder, p_info, p_floor, p_term_ms));
    -- Rule 5.
    UPDATE {schema}.lease l
    SET has_queue = true
    WHERE l.name = p_name AND NOT l.has_queue;
  END IF;
  RETURN v_place;
END
$$;

-- How many living clients wait at a place before this one; with NULL, how many do at all.
CREATE OR REPLACE FUNCTION {schema}.ahead_1(p_name text, p_place bigint) RETURNS bigint
LANGUAGE sql
AS $$
  SELECT count(*)
  FROM {schema}.queue q
  WHERE q.name = p_name
    AND (p_place IS NULL OR q.place < p_place)
    AND q.holder IS NOT NULL
    AND q.alive_until > clock_timestamp()
$$;

-- Removes the rows on one page of the table that are no longer needed, after a new row was inserted: as each page has
-- room for several rows, they are removed as fast as new ones come, and no call ever reads the whole table.
CREATE OR REPLACE FUNCTION {schema}.sweep_1() RETURNS void
LANGUAGE plpgsql
-- A plan for each page would cost more than all the rest.
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_page bigint;
  v_before timestamptz;
  v_passed bigint := {schema}.micros_1(clock_timestamp() - interval '1 minute');
  v_names text[];
BEGIN
  SELECT clock_timestamp() - greatest(interval '1 hour', g.max_ttl_ms * interval '1 millisecond'),
    floor(random() * (pg_relation_size(to_regclass(format('%I.lease', {schema_text})))
      / current_setting('block_size')::bigint))::bigint
  INTO v_before, v_page
  FROM {schema}.lineage g;
  v_names := ARRAY(
    SELECT l.name
    FROM {schema}.lease l
    WHERE l.ctid >= format('(%s,0)', v_page)::tid
      AND l.ctid < format('(%s,0)', v_page + 1)::tid
      AND l.ends_at < v_before
      AND l.awaited_until < v_before
      -- A token that a floor or a wrong clock has lifted is remembered until the clock has passed it, also that of a
      -- claim which read the clock before it waited for its lock.
      AND l.token < v_passed
    FOR UPDATE SKIP LOCKED
  );
  IF cardinality(v_names) > 0 THEN
    DELETE FROM {schema}.queue q
    WHERE q.name = ANY (v_names) AND q.alive_until < v_before;
    DELETE FROM {schema}.lease l
    WHERE l.name = ANY (v_names) AND NOT EXISTS (SELECT FROM {schema}.queue q WHERE q.name = l.name);
  END IF;
END
$$;

-- The part of acquire_1 that holds the row's lock.
CREATE OR REPLACE FUNCTION {schema}.take_1(
  p_name text,
  p_holder text,
  p_ttl_ms bigint,
  p_info text,
  p_floor bigint,
  p_term_ms bigint,
  OUT outcome text,
  OUT token bigint,
  OUT state smallint,
  OUT holder text,
  OUT info text,
  OUT since_us bigint,
  OUT left_us bigint,
  OUT place bigint,
  OUT detail text
)
LANGUAGE plpgsql
AS $$
DECLARE
  v_now timestamptz;
  v_quiet timestamptz;
  v_row record;
  v_is_live boolean;
BEGIN
  INSERT INTO {schema}.lease (name, token, state, holder, ttl_ms, since, ends_at, info)
  SELECT p_name, 0, 4, '', p_ttl_ms, clock_timestamp(), clock_timestamp(), '{}'
  WHERE NOT EXISTS (SELECT FROM {schema}.lease l WHERE l.name = p_name)
  ON CONFLICT ON CONSTRAINT lease_pkey DO NOTHING;
  SELECT l.*
  INTO v_row
  FROM {schema}.lease l
  WHERE l.name = p_name
  FOR UPDATE;
  IF NOT FOUND THEN
    -- The row was removed between the two statements: the client has to send the claim again.
    RAISE EXCEPTION 'the row of this name was deleted meanwhile'
    USING ERRCODE = 'serialization_failure';
  END IF;
  -- Rule 2.
  v_now := clock_timestamp();
  SELECT g.quiet_until
  INTO v_quiet
  FROM {schema}.lineage g;
  v_is_live := v_row.state <> 4 AND v_row.ends_at > v_now;

  IF NOT v_is_live AND v_row.has_queue AND v_quiet <= v_now THEN
    -- No claim overtakes a place. Its client's own has this claim from now on.
    IF p_term_ms IS NOT NULL THEN
      PERFORM {schema}.stay_1(p_name, p_holder, p_info, p_floor, p_term_ms);
    END IF;
    PERFORM {schema}.pass_on_1(p_name, p_holder, v_now);
    SELECT l.*
    INTO v_row
    FROM {schema}.lease l
    WHERE l.name = p_name;
    v_is_live := v_row.state <> 4;
  END IF;

  IF v_is_live AND v_row.state = 0 AND v_row.holder = p_holder THEN
    UPDATE {schema}.lease l
    SET ttl_ms = p_ttl_ms,
      ends_at = v_now + p_ttl_ms * interval '1 millisecond'
    WHERE l.name = p_name;
    outcome := 'granted';
    token := v_row.token;
    RETURN;
  END IF;

  IF NOT v_is_live AND v_quiet <= v_now THEN
    token := greatest(v_row.token + 1, {schema}.micros_1(v_now), p_floor + 1);
    IF token > 9007199254740989 THEN
      outcome := 'broken';
      detail := 'token=' || v_row.token;
      token := NULL;
      RETURN;
    END IF;
    UPDATE {schema}.lease l
    SET token = take_1.token,
      state = 0,
      holder = p_holder,
      ttl_ms = p_ttl_ms,
      since = v_now,
      ends_at = v_now + p_ttl_ms * interval '1 millisecond',
      info = p_info
    WHERE l.name = p_name;
    outcome := 'granted';
    RETURN;
  END IF;

  IF NOT v_is_live THEN
    v_row.state := 5;
    v_row.ends_at := v_quiet;
  END IF;
  outcome := 'held';
  state := v_row.state;
  holder := v_row.holder;
  token := v_row.token;
  info := v_row.info;
  since_us := {schema}.micros_1(v_row.since);
  left_us := {schema}.left_1(v_row.ends_at);
  IF p_term_ms IS NOT NULL THEN
    place := {schema}.join_1(p_name, p_holder, p_info, p_floor, p_term_ms);
  END IF;
END
$$;

-- Takes a name, or returns its holder.
--
-- p_floor    the token is above it; 0 for none
-- p_term_ms  of a claim that waits: for how long its client's place in the queue is kept; NULL for others. If the name is
--            freed meanwhile it is granted to this claim, for the rest of this time
--
-- outcome  'granted'  token; also when the holder asks again, with the full ttl again
--          'held'     the facts of the row; state 5: nothing is granted for now. Of a claim that waits also `height`,
--                     the highest token that can have been granted until now, and `ahead`, how many wait before it
--          'invalid'  `detail` names the argument, `since_us` is the server's clock; nothing was changed
--          'broken'   no tokens are left; nothing was changed
CREATE OR REPLACE FUNCTION {schema}.acquire_1(
  p_name text,
  p_holder text,
  p_ttl_ms bigint,
  p_info text,
  p_floor bigint,
  p_term_ms bigint,
  OUT outcome text,
  OUT token bigint,
  OUT state smallint,
  OUT holder text,
  OUT info text,
  OUT since_us bigint,
  OUT left_us bigint,
  OUT height bigint,
  OUT ahead bigint,
  OUT detail text
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '100ms'
AS $$
DECLARE
  v_ttl interval := p_ttl_ms * interval '1 millisecond';
  v_us bigint := {schema}.micros_1(clock_timestamp());
  v_lineage record;
  v_longest interval;
  v_left_us bigint;
  v_is_new boolean;
  v_place bigint;
BEGIN
  SELECT g.quiet_until, g.max_ttl_ms,
    {schema}.is_restarted_1(g.origin, g.started, g.seen_as, g.tableoid) AS is_restarted
  INTO v_lineage
  FROM {schema}.lineage g;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the row of lineage is gone'
    USING ERRCODE = 'LH001';
  END IF;
  IF p_ttl_ms NOT BETWEEN 1 AND v_lineage.max_ttl_ms THEN
    detail := format('ttl_ms=%s max_ttl_ms=%s', p_ttl_ms, v_lineage.max_ttl_ms);
  ELSIF p_floor NOT BETWEEN 0 AND v_us + 86400000000 THEN
    -- A floor more than a day ahead is taken for a mistake, because its effect would be permanent. One that the last token
    -- has reached has no effect.
    PERFORM
    FROM {schema}.lease l
    WHERE l.name = p_name AND l.token >= p_floor AND p_floor >= 0;
    IF NOT FOUND THEN
      detail := format('floor=%s clock_us=%s', p_floor, v_us);
    END IF;
  END IF;
  IF detail IS NOT NULL THEN
    outcome := 'invalid';
    RETURN;
  END IF;
  -- Rule 8.
  PERFORM {schema}.keep_1();
  IF v_lineage.is_restarted THEN
    -- Of several claims at once only the first one to write it finds the other origin.
    UPDATE {schema}.lineage g
    SET origin = coalesce({schema}.origin_1(), g.origin),
      seen_as = g.tableoid,
      quiet_until = clock_timestamp() + g.max_ttl_ms * interval '1 millisecond'
    WHERE g.origin <> {schema}.origin_1() OR g.seen_as <> g.tableoid;
    -- With the same origin no claim waits for another one, whose commit may take long.
    UPDATE {schema}.lineage g
    SET started = pg_postmaster_start_time(),
      seen_as = g.tableoid
    WHERE g.one IN (SELECT o.one FROM {schema}.lineage o FOR NO KEY UPDATE SKIP LOCKED);
    SELECT g.quiet_until
    INTO v_lineage.quiet_until
    FROM {schema}.lineage g;
  END IF;
  -- Written while the clock was ahead: no end is further away than its own length.
  v_longest := v_lineage.max_ttl_ms * interval '1 millisecond';
  IF v_lineage.quiet_until > clock_timestamp() + v_longest THEN
    UPDATE {schema}.lineage g
    SET quiet_until = clock_timestamp() + v_longest
    WHERE g.quiet_until > clock_timestamp() + v_longest
    RETURNING g.quiet_until
    INTO v_lineage.quiet_until;
  END IF;

  -- Usually no client waits, and one statement grants. It locks nothing if another holder has the name.
  IF v_lineage.quiet_until <= clock_timestamp() THEN
    INSERT INTO {schema}.lease AS l (name, token, state, holder, ttl_ms, since, ends_at, info)
    SELECT p_name, greatest(v_us, p_floor + 1), 0, p_holder, p_ttl_ms, clock_timestamp(), clock_timestamp() + v_ttl, p_info
    WHERE NOT EXISTS (
      SELECT
      FROM {schema}.lease l
      WHERE l.name = p_name AND l.state <> 4 AND l.ends_at > clock_timestamp()
    )
    ON CONFLICT ON CONSTRAINT lease_pkey DO UPDATE
    SET token = greatest(l.token + 1, v_us, p_floor + 1),
      state = 0,
      holder = p_holder,
      ttl_ms = p_ttl_ms,
      since = clock_timestamp(),
      -- Rule 3.
      ends_at = clock_timestamp() + v_ttl,
      info = p_info
    -- Rule 4.
    WHERE NOT l.has_queue
      AND (l.state = 4 OR l.ends_at <= clock_timestamp())
      AND l.token < 9007199254740989
    -- An update locks the row that it replaces, and an insert has none to lock.
    RETURNING 'granted', l.token, l.xmax = 0
    INTO outcome, token, v_is_new;
    IF v_is_new THEN
      PERFORM {schema}.sweep_1();
    END IF;
    IF outcome IS NOT NULL THEN
      RETURN;
    END IF;
  END IF;

  -- A client in the queue of a name that is held writes only its own place: so the holder's renewals wait for no lock.
  SELECT 'held', l.token, l.state, l.holder, l.info, {schema}.micros_1(l.since), {schema}.left_1(l.ends_at)
  INTO outcome, token, state, holder, info, since_us, left_us
  FROM {schema}.lease l
  WHERE l.name = p_name
    AND l.state <> 4
    AND l.ends_at > clock_timestamp()
    AND (l.holder <> p_holder OR l.state <> 0);
  IF FOUND THEN
    -- Again an end that was written while the clock was ahead. Its holder's own is earlier, because it is counted from
    -- before its last renewal.
    UPDATE {schema}.lease l
    SET ends_at = clock_timestamp() + l.ttl_ms * interval '1 millisecond'
    WHERE l.name = p_name
      AND l.state < 3
      AND l.ends_at > clock_timestamp() + (l.ttl_ms + 1000) * interval '1 millisecond'
    RETURNING {schema}.left_1(l.ends_at)
    INTO v_left_us;
    left_us := coalesce(v_left_us, left_us);
    IF p_term_ms IS NULL THEN
      RETURN;
    END IF;
    v_place := {schema}.stay_1(p_name, p_holder, p_info, p_floor, p_term_ms);
    IF v_place IS NULL THEN
      -- Rule 5. A release, which wants the row for itself, waits for this one.
      PERFORM
      FROM {schema}.lease l
      WHERE l.name = p_name
        AND l.has_queue
        AND l.state <> 4
        AND l.ends_at > clock_timestamp()
        AND (l.holder <> p_holder OR l.state <> 0)
      FOR KEY SHARE;
      IF FOUND THEN
        v_place := {schema}.join_1(p_name, p_holder, p_info, p_floor, p_term_ms);
      END IF;
    END IF;
  END IF;

  IF v_place IS NULL THEN
    SELECT t.outcome, t.token, t.state, t.holder, t.info, t.since_us, t.left_us, t.detail, t.place
    INTO outcome, token, state, holder, info, since_us, left_us, detail, v_place
    FROM {schema}.take_1(p_name, p_holder, p_ttl_ms, p_info, p_floor, p_term_ms) t;
  END IF;
  IF v_place IS NOT NULL THEN
    -- After the place was written: no grant to it comes in between.
    SELECT greatest(l.token, {schema}.micros_1(clock_timestamp())), {schema}.ahead_1(p_name, v_place)
    INTO height, ahead
    FROM {schema}.lease l
    WHERE l.name = p_name;
  END IF;
END
$$;

-- Extends each lease of a batch to its full ttl, if its holder still has it by the same grant, which the token tells.
-- Never creates a lease.
--
-- A row that another program has locked is skipped, so that it does not delay its batch.
--
-- letters    one for each, in the order of the arguments: y renewed, n refused, e evicted, x unknown, ask again
-- server_us  the server's clock
CREATE OR REPLACE FUNCTION {schema}.renew_1(
  p_names text[],
  p_holders text[],
  p_tokens bigint[],
  p_ttls_ms bigint[],
  OUT letters text,
  OUT server_us bigint
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '100ms'
-- By the key, even while the planner takes the table for small.
SET enable_seqscan = off
AS $$
BEGIN
  -- Rule 8: a renewal that a crash takes back frees a name that its holder still has.
  PERFORM {schema}.keep_1();
  WITH asked AS (
    SELECT u.*
    FROM unnest(p_names, p_holders, p_tokens, p_ttls_ms) WITH ORDINALITY AS u (name, holder, token, ttl_ms, i)
  ), mine AS MATERIALIZED (
    SELECT l.name, l.state, l.ends_at, a.ttl_ms, a.i
    FROM asked a
    JOIN {schema}.lease l ON l.name = a.name AND l.holder = a.holder AND l.token = a.token
    WHERE l.state IN (0, 1)
    -- Rule 6.
    ORDER BY l.name
    FOR NO KEY UPDATE OF l SKIP LOCKED
  ), done AS (
    UPDATE {schema}.lease l
    SET ends_at = clock_timestamp() + m.ttl_ms * interval '1 millisecond',
      ttl_ms = m.ttl_ms
    FROM mine m
    WHERE l.name = m.name AND m.state = 0 AND m.ends_at > clock_timestamp()
    RETURNING m.i
  )
  SELECT string_agg(
    CASE
      WHEN d.i IS NOT NULL THEN 'y'
      WHEN m.ends_at <= clock_timestamp() THEN 'n'
      WHEN m.state = 1 THEN 'e'
      -- The name is in the batch twice.
      WHEN m.i IS NOT NULL THEN 'x'
      WHEN EXISTS (
        SELECT
        FROM {schema}.lease l
        WHERE l.name = a.name AND l.holder = a.holder AND l.token = a.token AND l.state IN (0, 1)
      ) THEN 'x'
      ELSE 'n'
    END, '' ORDER BY a.i)
  FROM asked a
  LEFT JOIN mine m ON m.i = a.i
  LEFT JOIN done d ON d.i = a.i
  INTO letters;
  server_us := {schema}.micros_1(clock_timestamp());
END
$$;

-- Extends one lease, like renew_1, and waits for its row.
CREATE OR REPLACE FUNCTION {schema}.renew_locked_1(
  p_name text,
  p_holder text,
  p_token bigint,
  p_ttl_ms bigint,
  OUT letters text,
  OUT server_us bigint
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '100ms'
AS $$
BEGIN
  PERFORM
  FROM {schema}.lease l
  WHERE l.name = p_name AND l.holder = p_holder AND l.token = p_token
  FOR NO KEY UPDATE;
  SELECT r.*
  INTO letters, server_us
  FROM {schema}.renew_1(ARRAY[p_name], ARRAY[p_holder], ARRAY[p_token], ARRAY[p_ttl_ms]) r;
END
$$;

-- Frees a name if this holder has it, at once or (p_keep_ms above 0) after a time in which no holder can renew it. A claim
-- of this holder that waits is taken out of its place, which its client keeps for another one until its time is over.
--
-- outcome  'released', or 'not_held'
-- tell     whether to call tell_1 with this name
CREATE OR REPLACE FUNCTION {schema}.release_1(
  p_name text,
  p_holder text,
  p_keep_ms bigint,
  OUT outcome text,
  OUT tell boolean
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '100ms'
AS $$
DECLARE
  v_ends_at timestamptz;
  v_is_its_own boolean;
  v_now timestamptz;
BEGIN
  PERFORM {schema}.keep_1();
  IF p_keep_ms > 0 THEN
    -- An evicted holder cannot keep the name: an operator wants it free.
    UPDATE {schema}.lease l
    SET state = 2,
      ttl_ms = p_keep_ms,
      ends_at = clock_timestamp() + p_keep_ms * interval '1 millisecond'
    WHERE l.name = p_name
      AND l.holder = p_holder
      AND l.state = 0
      AND l.ends_at > clock_timestamp()
    RETURNING 'released', l.awaited_until > clock_timestamp()
    INTO outcome, tell;
    IF FOUND THEN
      RETURN;
    END IF;
  END IF;
  -- Usually no client waits in the queue, and the row itself says so: rule 4.
  UPDATE {schema}.lease l
  SET state = 4,
    holder = '',
    info = '{}',
    ends_at = clock_timestamp()
  WHERE l.name = p_name
    AND l.holder = p_holder
    AND l.state IN (0, 1)
    AND l.ends_at > clock_timestamp()
    AND NOT l.has_queue
  RETURNING 'released', l.awaited_until > clock_timestamp()
  INTO outcome, tell;
  IF FOUND THEN
    RETURN;
  END IF;
  -- Twice, because the claim may have been granted the name after the first read of its row. Rule 6: whoever holds no lock
  -- of the lease locks its own place alone.
  FOR i IN 1..2 LOOP
    SELECT l.ends_at
    INTO v_ends_at
    FROM {schema}.lease l
    WHERE l.name = p_name AND l.holder = p_holder AND l.state IN (0, 1)
    FOR UPDATE;
    v_is_its_own := FOUND;
    UPDATE {schema}.queue q
    SET holder = NULL
    WHERE q.name = p_name AND q.client = split_part(p_holder, '-', 1) AND q.holder = p_holder;
    EXIT WHEN v_is_its_own OR FOUND;
  END LOOP;
  outcome := 'not_held';
  tell := false;
  v_now := clock_timestamp();
  IF v_ends_at > v_now THEN
    outcome := 'released';
    tell := {schema}.pass_on_1(p_name, NULL::text, v_now);
  END IF;
END
$$;

-- Evicts the holder of a name, for an operator. p_how is 'marked': the holder is told at its next renewal, and the name
-- stays taken for the rest of its ttl; or 'now': the name is free at once.
--
-- outcome  'evicted', or 'not_held': nothing was changed
-- tell     whether to call tell_1 with this name
CREATE OR REPLACE FUNCTION {schema}.evict_1(
  p_name text,
  p_how text,
  OUT outcome text,
  OUT tell boolean
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '100ms'
AS $$
DECLARE
  v_row record;
  v_now timestamptz;
BEGIN
  PERFORM {schema}.keep_1();
  outcome := 'not_held';
  tell := false;
  SELECT l.*
  INTO v_row
  FROM {schema}.lease l
  WHERE l.name = p_name
  FOR UPDATE;
  v_now := clock_timestamp();
  IF NOT FOUND OR v_row.state = 4 OR v_row.ends_at <= v_now THEN
    RETURN;
  END IF;
  IF p_how = 'now' THEN
    outcome := 'evicted';
    tell := {schema}.pass_on_1(p_name, NULL::text, v_now);
  ELSIF p_how = 'marked' AND v_row.state IN (0, 1) THEN
    outcome := 'evicted';
    UPDATE {schema}.lease l
    SET state = 1
    WHERE l.name = p_name;
  END IF;
END
$$;

-- Returns the holders of all names with this prefix, in name order.
CREATE OR REPLACE FUNCTION {schema}.list_1(
  p_prefix text,
  OUT name text,
  OUT token bigint,
  OUT state smallint,
  OUT holder text,
  OUT info text,
  OUT since_us bigint,
  OUT left_us bigint,
  OUT waiting bigint
) RETURNS SETOF record
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
  SELECT l.name, l.token, l.state, l.holder, l.info, {schema}.micros_1(l.since), {schema}.left_1(l.ends_at),
    CASE WHEN l.has_queue THEN {schema}.ahead_1(l.name, NULL::bigint) ELSE 0 END
  FROM {schema}.lease l
  WHERE l.name >= p_prefix
    AND starts_with(l.name, p_prefix)
    AND l.state <> 4
    AND l.ends_at > clock_timestamp()
  ORDER BY l.name
$$;

-- Returns the holder of this name: one row, or none.
CREATE OR REPLACE FUNCTION {schema}.inspect_1(
  p_name text,
  OUT token bigint,
  OUT state smallint,
  OUT holder text,
  OUT info text,
  OUT since_us bigint,
  OUT left_us bigint,
  OUT waiting bigint
) RETURNS SETOF record
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
  SELECT l.token, l.state, l.holder, l.info, {schema}.micros_1(l.since), {schema}.left_1(l.ends_at),
    CASE WHEN l.has_queue THEN {schema}.ahead_1(l.name, NULL::bigint) ELSE 0 END
  FROM {schema}.lease l
  WHERE l.name = p_name
    AND l.state <> 4
    AND l.ends_at > clock_timestamp()
$$;

-- Returns the channel of a name's notices. Names are longer than the identifiers that LISTEN takes.
CREATE OR REPLACE FUNCTION {schema}.channel_1(p_name text) RETURNS text
LANGUAGE sql IMMUTABLE
-- md5() fails on a server in FIPS mode.
AS $$ SELECT 'lh_' || to_hex(hashtextextended({schema_text} || '.' || p_name, 0)) $$;

-- Subscribes to notices of these names for 15 s. Returns their channels, in the order of the names; NULL for a name whose
-- row another transaction has locked: ask again soon. A client that listens to a channel before it checks the name misses
-- nothing.
CREATE OR REPLACE FUNCTION {schema}.await_1(p_names text[]) RETURNS text[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
-- Of one insert, which another transaction may be about to do.
SET lock_timeout = '20ms'
AS $$
DECLARE
  v_name text;
  v_soon timestamptz := clock_timestamp() + interval '10 s';
  v_channels text[];
BEGIN
  -- A crash ends the subscription as well.
  PERFORM set_config('synchronous_commit', 'off', true);
  FOR v_name IN
    SELECT u.name
    FROM unnest(p_names) AS u (name)
    WHERE NOT EXISTS (SELECT FROM {schema}.lease l WHERE l.name = u.name)
  LOOP
    BEGIN
      INSERT INTO {schema}.lease (name, token, state, holder, ttl_ms, since, ends_at, info)
      VALUES (v_name, 0, 4, '', 1, clock_timestamp(), clock_timestamp(), '{}')
      ON CONFLICT ON CONSTRAINT lease_pkey DO NOTHING;
    EXCEPTION WHEN lock_not_available THEN
      NULL;
    END;
  END LOOP;
  WITH unlocked AS MATERIALIZED (
    SELECT l.name
    FROM {schema}.lease l
    -- Other clients may wait for it too.
    WHERE l.name = ANY (p_names) AND l.awaited_until < v_soon
    FOR NO KEY UPDATE SKIP LOCKED
  ), marked AS (
    UPDATE {schema}.lease l
    SET awaited_until = clock_timestamp() + interval '15 s'
    FROM unlocked n
    WHERE l.name = n.name
    RETURNING l.name
  )
  SELECT array_agg(
    CASE WHEN m.name IS NOT NULL OR l.name IS NOT NULL THEN {schema}.channel_1(u.name) END
    ORDER BY u.i)
  FROM unnest(p_names) WITH ORDINALITY AS u (name, i)
  LEFT JOIN marked m ON m.name = u.name
  LEFT JOIN {schema}.lease l ON l.name = u.name AND l.awaited_until >= v_soon
  INTO v_channels;
  RETURN v_channels;
END
$$;

-- Sends the notices that these names were freed. Never in the transaction that freed them: a commit with NOTIFY holds a
-- lock of the whole server through its flush, and fails if the queue of notices is full.
--
-- Notices  'f NAME'                 freed, or kept for a while
--          'l CLIENT NAME'          the same, to the client that waits at the first place
--          'g HOLDER TOKEN NAME'    granted to this claim, which waited; sent by pass_on_1
CREATE OR REPLACE FUNCTION {schema}.tell_1(p_names text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  -- If a notice is lost, its client checks again after some time.
  PERFORM set_config('synchronous_commit', 'off', true);
  PERFORM pg_notify({schema}.channel_1(l.name), n.message)
  FROM {schema}.lease l
  CROSS JOIN LATERAL (
    SELECT 'f ' || l.name
    UNION ALL
    (
      SELECT 'l ' || q.client || ' ' || l.name
      FROM {schema}.queue q
      WHERE q.name = l.name AND q.holder IS NOT NULL AND q.alive_until > clock_timestamp()
      ORDER BY q.place
      LIMIT 1
    )
  ) AS n (message)
  WHERE l.name = ANY (p_names) AND (l.state IN (2, 4) OR l.ends_at <= clock_timestamp());
END
$$;

-- Returns what there is to know about the server and the tables, as JSON, for an operator. A value that the role may not
-- read is null.
CREATE OR REPLACE FUNCTION {schema}.survey_1() RETURNS text
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
  SELECT row_to_json(f)::text
  FROM (
    SELECT
      pg_is_in_recovery() AS is_standby,
      current_setting('server_version') AS version,
      g.max_ttl_ms,
      {schema}.left_1(g.quiet_until) AS quiet_us,
      g.origin IS NOT NULL AND {schema}.origin_1() IS NOT NULL AS tells_origin,
      current_setting('synchronous_commit') AS synchronous_commit,
      current_setting('fsync') AS fsync,
      current_setting('full_page_writes') AS full_page_writes,
      current_setting('server_encoding') AS encoding,
      current_setting('default_transaction_isolation') AS isolation,
      current_setting('autovacuum') AS autovacuum,
      current_setting('synchronous_standby_names') AS synchronous_standbys,
      current_setting('max_connections')::bigint AS max_connections,
      (SELECT count(*) FROM pg_stat_activity a WHERE a.backend_type = 'client backend') AS connections,
      (
        SELECT count(*)
        FROM pg_stat_activity a
        WHERE a.usename = current_user AND a.datname = current_database() AND a.backend_type = 'client backend'
      ) AS own_connections,
      -- For this role: what the server has for roles that are no superusers, the role and the database. -1 is no limit.
      least(
        current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint,
        (SELECT nullif(r.rolconnlimit, -1) FROM pg_roles r WHERE r.rolname = current_user),
        (SELECT nullif(d.datconnlimit, -1) FROM pg_database d WHERE d.datname = current_database())
      ) AS room,
      (SELECT count(*) FROM pg_stat_activity a WHERE a.wait_event = 'SyncRep') AS waits_for_standby,
      pg_has_role('pg_read_all_stats', 'USAGE') AS sees_transactions,
      (SELECT count(*) FROM pg_stat_replication r WHERE r.state = 'streaming') AS standbys,
      (
        SELECT extract(epoch FROM max(clock_timestamp() - a.xact_start))::bigint
        FROM pg_stat_activity a
        WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid()
      ) AS oldest_snapshot_s,
      (SELECT extract(epoch FROM max(clock_timestamp() - p.prepared))::bigint FROM pg_prepared_xacts p) AS oldest_prepared_s,
      (
        SELECT count(*)
        FROM pg_replication_slots s
        WHERE NOT s.active AND (s.xmin IS NOT NULL OR s.catalog_xmin IS NOT NULL)
      ) AS idle_slots,
      (100 * pg_notification_queue_usage())::bigint AS notices_percent,
      extract(epoch FROM current_setting('idle_session_timeout', true)::interval)::bigint AS idle_session_s,
      {schema}.micros_1(clock_timestamp()) AS clock_us,
      c.relpersistence = 'u' AS is_unlogged,
      pg_relation_size(c.oid) AS bytes,
      t.n_live_tup AS live,
      t.n_dead_tup AS dead
    FROM (SELECT 1) one
    LEFT JOIN {schema}.lineage g ON true
    LEFT JOIN pg_class c ON c.oid = to_regclass(format('%I.lease', {schema_text}))
    LEFT JOIN pg_stat_user_tables t ON t.relid = c.oid
  ) f
$$;

-- The statements after this one run code of what was here before: a trigger of the table, a function that is replaced
-- and keeps its owner. Another role's would run with the permissions of this one.
DO $init$
DECLARE
  v_stranger name;
BEGIN
  SELECT r.rolname
  INTO v_stranger
  FROM pg_namespace n
  JOIN pg_database d ON d.datname = current_database()
  LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname IN ('lease', 'queue', 'lineage')
  LEFT JOIN pg_proc p ON p.pronamespace = n.oid AND right(p.proname, 2) = '_1'
  JOIN pg_roles r ON r.oid IN (
    -- The schema `public` belongs to a role that stands for the owner of the database.
    CASE pg_get_userbyid(n.nspowner) WHEN 'pg_database_owner' THEN d.datdba ELSE n.nspowner END,
    c.relowner,
    p.proowner
  )
  WHERE n.nspname = {schema_text} AND r.rolname <> current_user AND NOT r.rolsuper
  LIMIT 1;
  IF FOUND THEN
    RAISE insufficient_privilege USING MESSAGE =
      format('the schema, or what leasehold has in it, belongs to another role: run init as role %I', v_stranger);
  END IF;
END
$init$;

DO $init$
BEGIN
  -- ADD COLUMN IF NOT EXISTS locks the table even if the column exists.
  IF NOT EXISTS (
    SELECT
    FROM pg_attribute a
    WHERE a.attrelid = to_regclass(format('%I.lineage', {schema_text})) AND a.attname = 'started' AND NOT a.attisdropped
  ) THEN
    ALTER TABLE {schema}.lineage ADD COLUMN started timestamptz;
  END IF;
  IF NOT EXISTS (
    SELECT
    FROM pg_attribute a
    WHERE a.attrelid = to_regclass(format('%I.lineage', {schema_text})) AND a.attname = 'seen_as' AND NOT a.attisdropped
  ) THEN
    ALTER TABLE {schema}.lineage ADD COLUMN seen_as oid;
  END IF;
END
$init$;

INSERT INTO {schema}.lineage (one, max_ttl_ms)
VALUES (1, {max_ttl_ms})
ON CONFLICT (one) DO UPDATE
SET max_ttl_ms = {max_ttl_ms_again};

UPDATE {schema}.lineage g
SET origin = {schema}.origin_1()
WHERE g.origin IS NULL;

COMMIT;
