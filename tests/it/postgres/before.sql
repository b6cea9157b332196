-- The tables and functions as clients of the version before call them: those that are not in here have stayed as they
-- were.
CREATE SCHEMA leasehold;

CREATE TABLE leasehold.lease (
  name text COLLATE "C" PRIMARY KEY,
  token bigint NOT NULL CHECK (token BETWEEN 0 AND 9007199254740991),
  state smallint NOT NULL,
  holder text COLLATE "C" NOT NULL,
  ttl_ms bigint NOT NULL,
  since timestamptz NOT NULL,
  ends_at timestamptz NOT NULL,
  info text NOT NULL,
  has_queue boolean NOT NULL DEFAULT false,
  awaited_until timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE leasehold.queue (
  name text COLLATE "C" NOT NULL,
  place bigint GENERATED ALWAYS AS IDENTITY,
  client text COLLATE "C" NOT NULL,
  alive_until timestamptz NOT NULL,
  PRIMARY KEY (name, place),
  UNIQUE (name, client)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE leasehold.lineage (
  one int PRIMARY KEY CHECK (one = 1),
  origin text,
  started timestamptz,
  seen_as oid,
  max_ttl_ms bigint NOT NULL CHECK (max_ttl_ms > 0),
  quiet_until timestamptz NOT NULL DEFAULT '-infinity'
);

CREATE FUNCTION leasehold.origin_1() RETURNS text
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  IF pg_is_in_recovery() THEN
    RETURN 'standby';
  END IF;
  RETURN (
    SELECT c.system_identifier::text || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)
    FROM pg_control_system() c
  );
EXCEPTION WHEN OTHERS THEN
  RETURN NULL;
END
$$;

CREATE FUNCTION leasehold.keep_1() RETURNS void
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

CREATE FUNCTION leasehold.micros_1(moment timestamptz) RETURNS bigint
LANGUAGE sql STABLE
AS $$ SELECT (extract(epoch FROM moment) * 1000000)::bigint $$;

CREATE FUNCTION leasehold.left_1(ends_at timestamptz) RETURNS bigint
LANGUAGE sql
AS $$
  SELECT CASE WHEN isfinite(ends_at) THEN
    greatest(0, (extract(epoch FROM ends_at - clock_timestamp()) * 1000000)::bigint)
  END
$$;

CREATE FUNCTION leasehold.pass_on_1(p_name text, p_offer_ms bigint, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
  v_place bigint;
  v_client text;
  v_quiet timestamptz;
  v_tell boolean;
BEGIN
  SELECT q.place, q.client
  INTO v_place, v_client
  FROM leasehold.queue q
  WHERE q.name = p_name AND q.alive_until > p_now
  ORDER BY q.place
  LIMIT 1;
  DELETE FROM leasehold.queue q
  WHERE q.name = p_name AND (v_place IS NULL OR q.place <= v_place);
  SELECT g.quiet_until
  INTO v_quiet
  FROM leasehold.lineage g;
  UPDATE leasehold.lease l
  SET state = CASE WHEN v_place IS NULL THEN 4 ELSE 3 END,
    holder = coalesce(v_client, ''),
    info = '{}',
    ends_at = CASE WHEN v_place IS NULL THEN p_now
      ELSE greatest(p_now, v_quiet) + p_offer_ms * interval '1 millisecond' END,
    has_queue = EXISTS (SELECT FROM leasehold.queue q WHERE q.name = p_name)
  WHERE l.name = p_name
  RETURNING l.awaited_until > p_now
  INTO v_tell;
  RETURN v_tell;
END
$$;

CREATE FUNCTION leasehold.join_1(p_name text, p_client text, p_patience_ms bigint) RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  v_place bigint;
BEGIN
  INSERT INTO leasehold.queue AS q (name, client, alive_until)
  VALUES (p_name, p_client, clock_timestamp() + p_patience_ms * interval '1 millisecond')
  ON CONFLICT ON CONSTRAINT queue_name_client_key DO UPDATE
  SET alive_until = excluded.alive_until
  RETURNING q.place
  INTO v_place;
  UPDATE leasehold.lease l
  SET has_queue = true
  WHERE l.name = p_name AND NOT l.has_queue;
  RETURN v_place;
END
$$;

CREATE FUNCTION leasehold.ahead_1(p_name text, p_place bigint) RETURNS bigint
LANGUAGE sql
AS $$
  SELECT count(*)
  FROM leasehold.queue q
  WHERE q.name = p_name
    AND (p_place IS NULL OR q.place < p_place)
    AND q.alive_until > clock_timestamp()
$$;

CREATE FUNCTION leasehold.sweep_1() RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_page bigint;
  v_before timestamptz;
  v_passed bigint := leasehold.micros_1(clock_timestamp() - interval '1 minute');
  v_names text[];
BEGIN
  SELECT clock_timestamp() - greatest(interval '1 hour', g.max_ttl_ms * interval '1 millisecond'),
    floor(random() * (pg_relation_size(to_regclass(format('%I.lease', 'leasehold')))
      / current_setting('block_size')::bigint))::bigint
  INTO v_before, v_page
  FROM leasehold.lineage g;
  v_names := ARRAY(
    SELECT l.name
    FROM leasehold.lease l
    WHERE l.ctid >= format('(%s,0)', v_page)::tid
      AND l.ctid < format('(%s,0)', v_page + 1)::tid
      AND l.ends_at < v_before
      AND l.awaited_until < v_before
      AND l.token < v_passed
    FOR UPDATE SKIP LOCKED
  );
  IF cardinality(v_names) > 0 THEN
    DELETE FROM leasehold.queue q
    WHERE q.name = ANY (v_names) AND q.alive_until < v_before;
    DELETE FROM leasehold.lease l
    WHERE l.name = ANY (v_names) AND NOT EXISTS (SELECT FROM leasehold.queue q WHERE q.name = l.name);
  END IF;
END
$$;

CREATE FUNCTION leasehold.take_1(
  p_name text,
  p_holder text,
  p_ttl_ms bigint,
  p_info text,
  p_floor bigint,
  p_client text,
  p_more bigint,
  p_patience_ms bigint,
  p_offer_ms bigint,
  OUT outcome text,
  OUT token bigint,
  OUT state smallint,
  OUT holder text,
  OUT info text,
  OUT since_us bigint,
  OUT left_us bigint,
  OUT ahead bigint,
  OUT tell boolean,
  OUT detail text
)
LANGUAGE plpgsql
AS $$
DECLARE
  v_now timestamptz;
  v_quiet timestamptz;
  v_row record;
  v_is_live boolean;
  v_is_offered boolean;
  v_first text;
  v_place bigint;
BEGIN
  tell := false;
  INSERT INTO leasehold.lease (name, token, state, holder, ttl_ms, since, ends_at, info)
  SELECT p_name, 0, 4, '', p_ttl_ms, clock_timestamp(), clock_timestamp(), '{}'
  WHERE NOT EXISTS (SELECT FROM leasehold.lease l WHERE l.name = p_name)
  ON CONFLICT ON CONSTRAINT lease_pkey DO NOTHING;
  IF FOUND THEN
    PERFORM leasehold.sweep_1();
  END IF;
  SELECT l.*
  INTO v_row
  FROM leasehold.lease l
  WHERE l.name = p_name
  FOR UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the row of this name was deleted meanwhile'
    USING ERRCODE = 'serialization_failure';
  END IF;
  v_now := clock_timestamp();
  SELECT g.quiet_until
  INTO v_quiet
  FROM leasehold.lineage g;
  v_is_live := v_row.state <> 4 AND v_row.ends_at > v_now;
  v_is_offered := coalesce(v_is_live AND v_row.state = 3 AND v_row.holder = p_client, false);

  IF v_is_live AND v_row.state = 0 AND v_row.holder = p_holder THEN
    UPDATE leasehold.lease l
    SET ttl_ms = p_ttl_ms,
      ends_at = v_now + p_ttl_ms * interval '1 millisecond'
    WHERE l.name = p_name;
    outcome := 'granted';
    token := v_row.token;
    RETURN;
  END IF;

  IF NOT v_is_live AND v_row.has_queue THEN
    SELECT q.client
    INTO v_first
    FROM leasehold.queue q
    WHERE q.name = p_name AND q.alive_until > v_now
    ORDER BY q.place
    LIMIT 1;
  END IF;

  IF v_quiet <= v_now AND (v_is_offered OR NOT v_is_live AND (v_first IS NULL OR v_first IS NOT DISTINCT FROM p_client)) THEN
    token := greatest(v_row.token + 1, leasehold.micros_1(v_now), p_floor + 1);
    IF token > 9007199254740989 THEN
      outcome := 'broken';
      detail := 'token=' || v_row.token;
      token := NULL;
      RETURN;
    END IF;
    IF v_row.has_queue THEN
      DELETE FROM leasehold.queue q
      WHERE q.name = p_name AND (q.client = p_client OR q.alive_until <= v_now);
    END IF;
    UPDATE leasehold.lease l
    SET token = take_1.token,
      state = 0,
      holder = p_holder,
      ttl_ms = p_ttl_ms,
      since = v_now,
      ends_at = v_now + p_ttl_ms * interval '1 millisecond',
      info = p_info,
      has_queue = v_row.has_queue AND EXISTS (SELECT FROM leasehold.queue q WHERE q.name = p_name)
    WHERE l.name = p_name;
    IF p_client IS NOT NULL AND p_more > 0 THEN
      PERFORM leasehold.join_1(p_name, p_client, p_patience_ms);
    END IF;
    outcome := 'granted';
    RETURN;
  END IF;

  IF NOT v_is_live AND v_quiet <= v_now THEN
    tell := leasehold.pass_on_1(p_name, p_offer_ms, v_now);
    SELECT l.*
    INTO v_row
    FROM leasehold.lease l
    WHERE l.name = p_name;
  ELSIF v_is_offered OR NOT v_is_live THEN
    v_row.state := 5;
    v_row.ends_at := v_quiet;
  END IF;
  outcome := 'held';
  state := v_row.state;
  holder := v_row.holder;
  token := v_row.token;
  info := v_row.info;
  since_us := leasehold.micros_1(v_row.since);
  left_us := leasehold.left_1(v_row.ends_at);
  IF v_is_offered THEN
    ahead := 0;
  ELSIF p_client IS NOT NULL THEN
    v_place := leasehold.join_1(p_name, p_client, p_patience_ms);
    ahead := leasehold.ahead_1(p_name, v_place);
  END IF;
END
$$;

CREATE FUNCTION leasehold.acquire_1(
  p_name text,
  p_holder text,
  p_ttl_ms bigint,
  p_info text,
  p_floor bigint,
  p_client text,
  p_more bigint,
  p_patience_ms bigint,
  p_offer_ms bigint,
  OUT outcome text,
  OUT token bigint,
  OUT state smallint,
  OUT holder text,
  OUT info text,
  OUT since_us bigint,
  OUT left_us bigint,
  OUT ahead bigint,
  OUT tell boolean,
  OUT detail text
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '100ms'
AS $$
DECLARE
  v_ttl interval := p_ttl_ms * interval '1 millisecond';
  v_us bigint := leasehold.micros_1(clock_timestamp());
  v_lineage record;
  v_longest interval;
  v_left_us bigint;
  v_is_new boolean;
  v_place bigint;
BEGIN
  tell := false;
  SELECT g.quiet_until, g.max_ttl_ms,
    g.origin IS NOT NULL AND g.started IS DISTINCT FROM pg_postmaster_start_time()
      OR g.seen_as IS DISTINCT FROM g.tableoid AS is_restarted
  INTO v_lineage
  FROM leasehold.lineage g;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the row of lineage is gone'
    USING ERRCODE = 'LH001';
  END IF;
  IF p_ttl_ms NOT BETWEEN 1 AND v_lineage.max_ttl_ms THEN
    detail := format('ttl_ms=%s max_ttl_ms=%s', p_ttl_ms, v_lineage.max_ttl_ms);
  ELSIF p_floor NOT BETWEEN 0 AND v_us + 86400000000 THEN
    PERFORM
    FROM leasehold.lease l
    WHERE l.name = p_name AND l.token >= p_floor AND p_floor >= 0;
    IF NOT FOUND THEN
      detail := format('floor=%s clock_us=%s', p_floor, v_us);
    END IF;
  END IF;
  IF detail IS NOT NULL THEN
    outcome := 'invalid';
    RETURN;
  END IF;
  PERFORM leasehold.keep_1();
  IF v_lineage.is_restarted THEN
    UPDATE leasehold.lineage g
    SET origin = coalesce(leasehold.origin_1(), g.origin),
      seen_as = g.tableoid,
      quiet_until = clock_timestamp() + g.max_ttl_ms * interval '1 millisecond'
    WHERE g.origin <> leasehold.origin_1() OR g.seen_as <> g.tableoid;
    UPDATE leasehold.lineage g
    SET started = pg_postmaster_start_time(),
      seen_as = g.tableoid
    WHERE g.one IN (SELECT o.one FROM leasehold.lineage o FOR NO KEY UPDATE SKIP LOCKED);
    SELECT g.quiet_until
    INTO v_lineage.quiet_until
    FROM leasehold.lineage g;
  END IF;
  v_longest := v_lineage.max_ttl_ms * interval '1 millisecond';
  IF v_lineage.quiet_until > clock_timestamp() + v_longest THEN
    UPDATE leasehold.lineage g
    SET quiet_until = clock_timestamp() + v_longest
    WHERE g.quiet_until > clock_timestamp() + v_longest
    RETURNING g.quiet_until
    INTO v_lineage.quiet_until;
  END IF;
  IF p_client IS NULL AND v_lineage.quiet_until <= clock_timestamp() THEN
    INSERT INTO leasehold.lease AS l (name, token, state, holder, ttl_ms, since, ends_at, info)
    SELECT p_name, greatest(v_us, p_floor + 1), 0, p_holder, p_ttl_ms, clock_timestamp(), clock_timestamp() + v_ttl, p_info
    WHERE NOT EXISTS (
      SELECT
      FROM leasehold.lease l
      WHERE l.name = p_name AND l.state <> 4 AND l.ends_at > clock_timestamp()
    )
    ON CONFLICT ON CONSTRAINT lease_pkey DO UPDATE
    SET token = greatest(l.token + 1, v_us, p_floor + 1),
      state = 0,
      holder = p_holder,
      ttl_ms = p_ttl_ms,
      since = clock_timestamp(),
      ends_at = clock_timestamp() + v_ttl,
      info = p_info
    WHERE NOT l.has_queue
      AND (l.state = 4 OR l.ends_at <= clock_timestamp())
      AND l.token < 9007199254740989
    RETURNING 'granted', l.token, l.xmax = 0
    INTO outcome, token, v_is_new;
    IF v_is_new THEN
      PERFORM leasehold.sweep_1();
    END IF;
    IF outcome IS NOT NULL THEN
      RETURN;
    END IF;
  END IF;
  SELECT 'held', l.token, l.state, l.holder, l.info, leasehold.micros_1(l.since), leasehold.left_1(l.ends_at)
  INTO outcome, token, state, holder, info, since_us, left_us
  FROM leasehold.lease l
  WHERE l.name = p_name
    AND l.state <> 4
    AND l.ends_at > clock_timestamp()
    AND (l.holder <> p_holder OR l.state <> 0)
    AND (p_client IS NULL OR l.holder <> p_client);
  IF FOUND THEN
    UPDATE leasehold.lease l
    SET ends_at = clock_timestamp() + l.ttl_ms * interval '1 millisecond'
    WHERE l.name = p_name
      AND l.state < 3
      AND l.ends_at > clock_timestamp() + (l.ttl_ms + 1000) * interval '1 millisecond'
    RETURNING leasehold.left_1(l.ends_at)
    INTO v_left_us;
    left_us := coalesce(v_left_us, left_us);
    IF p_client IS NULL THEN
      RETURN;
    END IF;
    UPDATE leasehold.queue q
    SET alive_until = clock_timestamp() + p_patience_ms * interval '1 millisecond'
    WHERE q.name = p_name AND q.client = p_client
    RETURNING q.place
    INTO v_place;
    IF FOUND THEN
      ahead := leasehold.ahead_1(p_name, v_place);
      RETURN;
    END IF;
    SELECT 'held', l.token, l.state, l.holder, l.info, leasehold.micros_1(l.since), leasehold.left_1(l.ends_at)
    INTO outcome, token, state, holder, info, since_us, left_us
    FROM leasehold.lease l
    WHERE l.name = p_name
      AND l.has_queue
      AND l.state <> 4
      AND l.ends_at > clock_timestamp()
      AND (l.holder <> p_holder OR l.state <> 0)
      AND l.holder <> p_client
    FOR KEY SHARE;
    IF FOUND THEN
      v_place := leasehold.join_1(p_name, p_client, p_patience_ms);
      ahead := leasehold.ahead_1(p_name, v_place);
      RETURN;
    END IF;
  END IF;

  SELECT t.*
  INTO outcome, token, state, holder, info, since_us, left_us, ahead, tell, detail
  FROM leasehold.take_1(
    p_name, p_holder, p_ttl_ms, p_info, p_floor, p_client, p_more, p_patience_ms, p_offer_ms
  ) t;
END
$$;

CREATE FUNCTION leasehold.release_1(
  p_name text,
  p_holder text,
  p_keep_ms bigint,
  p_offer_ms bigint,
  OUT outcome text,
  OUT tell boolean
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '100ms'
AS $$
DECLARE
  v_now timestamptz;
BEGIN
  PERFORM leasehold.keep_1();
  IF p_keep_ms > 0 THEN
    UPDATE leasehold.lease l
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
  UPDATE leasehold.lease l
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
  outcome := 'not_held';
  tell := false;
  PERFORM
  FROM leasehold.lease l
  WHERE l.name = p_name AND l.holder = p_holder AND l.state IN (0, 1)
  FOR UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  v_now := clock_timestamp();
  PERFORM
  FROM leasehold.lease l
  WHERE l.name = p_name AND l.ends_at > v_now;
  IF FOUND THEN
    outcome := 'released';
    tell := leasehold.pass_on_1(p_name, p_offer_ms, v_now);
  END IF;
END
$$;

CREATE FUNCTION leasehold.leave_1(
  p_name text,
  p_client text,
  p_offer_ms bigint,
  OUT tell boolean
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '100ms'
AS $$
DECLARE
  v_row record;
BEGIN
  tell := false;
  SELECT l.*
  INTO v_row
  FROM leasehold.lease l
  WHERE l.name = p_name
  FOR UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  DELETE FROM leasehold.queue q
  WHERE q.name = p_name AND q.client = p_client;
  IF v_row.state = 3 AND v_row.holder = p_client AND v_row.ends_at > clock_timestamp() THEN
    tell := leasehold.pass_on_1(p_name, p_offer_ms, clock_timestamp());
  END IF;
END
$$;

CREATE FUNCTION leasehold.channel_1(p_name text) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$ SELECT 'lh_' || to_hex(hashtextextended('leasehold' || '.' || p_name, 0)) $$;

CREATE FUNCTION leasehold.tell_1(p_names text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  v_row record;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  FOR v_row IN
    SELECT l.name, leasehold.channel_1(l.name) AS channel, l.holder, first.client AS next_client,
      ceil(leasehold.left_1(l.ends_at) / 1000.0)::bigint AS left_ms,
      CASE WHEN l.ends_at > clock_timestamp() THEN l.state ELSE 4 END AS state
    FROM leasehold.lease l
    LEFT JOIN LATERAL (
      SELECT q.client
      FROM leasehold.queue q
      WHERE q.name = l.name AND q.alive_until > clock_timestamp()
      ORDER BY q.place
      LIMIT 1
    ) first ON l.has_queue
    WHERE l.name = ANY (p_names)
  LOOP
    IF v_row.state IN (2, 4) THEN
      PERFORM pg_notify(v_row.channel, 'f ' || v_row.name);
    ELSIF v_row.state = 3 THEN
      PERFORM pg_notify(v_row.channel, format('t %s %s', v_row.holder, v_row.name));
    END IF;
    IF v_row.state IN (2, 3) AND v_row.next_client IS NOT NULL THEN
      PERFORM pg_notify(v_row.channel, format('n %s %s %s', v_row.next_client, v_row.left_ms, v_row.name));
    END IF;
  END LOOP;
END
$$;

INSERT INTO leasehold.lineage (one, max_ttl_ms, origin) VALUES (1, 600000, leasehold.origin_1());
