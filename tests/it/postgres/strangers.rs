//! What another role has planted, in the schemas of the search path or in our own, is never run.

use leasehold::store::postgres::Postgres;
use leasehold::store::{self, Eviction, Store, TableSettings, Topic};
use leasehold::{Error, ErrorKind, Name};

use super::{open, set_up};
use crate::harness::asking::{Asking, asked, chain, claim, granted, held, released, renewed};
use crate::harness::postgres_server::{Database, PostgresServer};
use crate::harness::times::{LIMIT, LONG};

/// Plants an operator for every pair of types that the functions use, a function instead of each one of the server's
/// that they call, and types and views with the names of the server's. Whatever of it is run fails. Casts are not among it: only the owner of a
/// type can make one from it, and the functions use types of the server alone.
const PLANTED: &str = "
CREATE SCHEMA planted;
CREATE FUNCTION planted.boom() RETURNS boolean LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'planted code was run'; END $$;
DO $plant$
DECLARE
  types text[] := ARRAY['bigint', 'integer', 'smallint', 'numeric', 'double precision', 'interval', 'timestamptz', 'text',
    'boolean', 'name', 'oid', 'tid', 'xid', 'bigint[]', 'text[]', 'pg_lsn', 'regclass'];
  operators text[] := ARRAY['=', '<>', '<', '>', '<=', '>=', '+', '-', '*', '/', '||', '%', '~~'];
  a text;
  b text;
  o text;
  f record;
BEGIN
  FOREACH a IN ARRAY types LOOP
    FOREACH b IN ARRAY types LOOP
      BEGIN
        EXECUTE format('CREATE FUNCTION planted.boom(%s, %s) RETURNS boolean LANGUAGE plpgsql
          AS $f$ BEGIN RAISE EXCEPTION ''a planted operator was run''; END $f$', a, b);
        FOREACH o IN ARRAY operators LOOP
          EXECUTE format('CREATE OPERATOR planted.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = planted.boom)', o, a, b);
        END LOOP;
      EXCEPTION WHEN OTHERS THEN NULL;
      END;
    END LOOP;
  END LOOP;
  FOR f IN
    SELECT p.proname, pg_get_function_identity_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result
    FROM pg_proc p
    WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind IN ('f', 'a') AND p.proname IN (
      'array_agg', 'block_size', 'ceil', 'cardinality', 'clock_timestamp', 'count', 'current_setting', 'floor', 'format',
      'isfinite', 'left', 'max', 'md5', 'pg_advisory_xact_lock', 'pg_backend_pid', 'pg_control_system',
      'pg_current_wal_lsn', 'pg_has_role', 'pg_is_in_recovery', 'pg_notification_queue_usage', 'pg_notify',
      'pg_relation_size', 'pg_walfile_name', 'random', 'row_to_json', 'set_config', 'starts_with', 'string_agg',
      'to_regclass', 'unnest')
  LOOP
    BEGIN
      EXECUTE format('CREATE FUNCTION planted.%I(%s) RETURNS %s LANGUAGE plpgsql
        AS $f$ BEGIN RAISE EXCEPTION ''a planted function was run''; END $f$', f.proname, f.arguments, f.result);
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
  END LOOP;
  FOREACH a IN ARRAY ARRAY['text', 'timestamptz', 'record', 'regclass', 'tid'] LOOP
    EXECUTE format('CREATE DOMAIN planted.%I AS pg_catalog.text CHECK (planted.boom())', a);
  END LOOP;
  FOREACH a IN ARRAY ARRAY['pg_class', 'pg_namespace', 'pg_prepared_xacts', 'pg_replication_slots', 'pg_stat_activity',
    'pg_stat_replication'] LOOP
    EXECUTE format('CREATE VIEW planted.%I AS SELECT planted.boom()', a);
  END LOOP;
END
$plant$;
";

/// Every request of a store, with every answer that it can have.
async fn every_request(store: &dyn Store) {
    let freed: Asking = claim("freed", LONG);
    let notices = store.notices().await.expect("answered");
    let notices = notices.expect("there are notices");
    notices.follow(&Topic::Freed(freed.name.clone()));
    granted(store, &freed).await;
    granted(store, &freed).await;
    let mut rival = claim("freed", LONG);
    held(store, &rival).await;
    rival.ask.queued = Some(leasehold::store::Queued::new(LONG));
    held(store, &rival).await;
    held(store, &rival).await;
    let outcome = renewed(store, &freed).await;
    assert!(
        matches!(outcome, leasehold::store::Outcome::Renewed),
        "{outcome:?}"
    );
    let name: &Name = &freed.name;
    assert!(
        store
            .inspect(name, LIMIT)
            .await
            .expect("answered")
            .is_some()
    );
    assert_eq!(store.list("", LIMIT).await.expect("answered").len(), 1);
    released(store, &freed).await;
    granted(store, &rival).await;
    let evicted = store.evict(name, Eviction::Marked, LIMIT).await;
    assert!(evicted.expect("answered"));
    let evicted = store.evict(name, Eviction::Now, LIMIT).await;
    assert!(evicted.expect("answered"));
    let kept = claim("kept", LONG);
    granted(store, &kept).await;
    let released = store.release(&kept.name, kept.holder, Some(LONG), LIMIT);
    released.await.expect("answered");
    let too_long = asked(store, &claim("long", LONG * 60), LIMIT).await;
    too_long.expect_err("longer than the longest ttl");
    store.hazards(LIMIT).await.expect("answered");
    store.members(LIMIT).await.expect("answered");
}

async fn planted(path: &str) -> Database {
    let database = PostgresServer::database().await;
    let administrator = database.connect().await;
    administrator.batch_execute(PLANTED).await.expect("planted");
    let in_public = PLANTED
        .replace("CREATE SCHEMA planted;", "")
        .replace("planted.", "public.");
    administrator
        .batch_execute(&in_public)
        .await
        .expect("planted");
    let sql = format!(
        "ALTER DATABASE {} SET search_path = {path}",
        database.name()
    );
    administrator.batch_execute(&sql).await.expect("set");
    // It is there: without care the planted operator is run.
    let careless = database.connect().await;
    let run = careless
        .batch_execute("SELECT 1::bigint * interval '1 s', clock_timestamp()")
        .await;
    let error = run.expect_err("it is planted");
    assert!(error.as_db_error().is_some(), "{error:?}");
    database
}

#[tokio::test]
async fn nothing_that_another_role_planted_is_run_by_init_or_by_any_request() {
    for path in ["public, planted", "planted, pg_catalog"] {
        let database = planted(path).await;
        let url = database.url();
        // Twice, and as a database administrator would do it.
        set_up(&url).await;
        set_up(&url).await;
        let sql = store::init_script(&url, TableSettings::default());
        let sql = sql.expect("a URL in order");
        let administrator = database.connect().await;
        administrator.batch_execute(&sql).await.expect("made");
        // What the end of the set-up notes is left out where a function of it fails.
        let origin = "SELECT count(*) FROM leasehold.lineage WHERE origin IS NOT NULL";
        let plain = database.connect().await;
        plain
            .batch_execute("SET search_path = pg_catalog")
            .await
            .expect("set");
        let row = plain.query_one(origin, &[]).await.expect("answered");
        assert_eq!(row.get::<_, i64>(0), 1, "{path}");
        every_request(&Postgres::open(&url).expect("a URL in order")).await;
        // Rows of names that are no longer used are removed as well.
        let aged = "UPDATE leasehold.lease SET state = 4, ends_at = '-infinity', awaited_until = '-infinity', token = 1";
        let client = database.connect().await;
        client
            .batch_execute("SET search_path = pg_catalog")
            .await
            .expect("set");
        client.batch_execute(aged).await.expect("aged");
        let store = Postgres::open(&url).expect("a URL in order");
        granted(&store, &claim("new", LONG)).await;
        let old = "SELECT count(*) FROM leasehold.lease WHERE token = 1";
        let row = client.query_one(old, &[]).await.expect("answered");
        assert_eq!(row.get::<_, i64>(0), 0, "{path}");
    }
}

/// Runs these statements as the administrator.
async fn administer(database: &Database, statements: &str) {
    let administrator = database.connect().await;
    let done = administrator.batch_execute(statements).await;
    done.expect(statements);
}

/// What `init` answers as the administrator, in a database where a role has planted this. `EVE` stands for its name.
async fn init_after(planted: &str) -> (Database, String, Result<(), Error>) {
    let database = PostgresServer::database().await;
    let eve = format!("eve_{}", database.name());
    let planted = format!("CREATE ROLE EVE LOGIN; {planted}").replace("EVE", &eve);
    administer(&database, &planted).await;
    let made = store::init(&database.url(), TableSettings::default(), LIMIT).await;
    (database, eve, made)
}

#[tokio::test]
async fn init_runs_nothing_of_another_role_in_its_schema() {
    let trigger = "
        SET ROLE EVE;
        CREATE TABLE leasehold.lineage (
            one int PRIMARY KEY, origin text, max_ttl_ms bigint, quiet_until timestamptz DEFAULT '-infinity');
        CREATE FUNCTION leasehold.boom() RETURNS trigger LANGUAGE plpgsql
            AS $$ BEGIN RAISE EXCEPTION 'planted code was run'; END $$;
        CREATE TRIGGER boom BEFORE INSERT ON leasehold.lineage FOR EACH ROW EXECUTE FUNCTION leasehold.boom()";
    let function = "
        SET ROLE EVE;
        CREATE FUNCTION leasehold.micros_1(moment timestamptz) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'";
    let (of_eve, for_eve) = (
        "CREATE SCHEMA leasehold AUTHORIZATION EVE;",
        "CREATE SCHEMA leasehold; GRANT CREATE, USAGE ON SCHEMA leasehold TO EVE;",
    );
    for planted in [
        of_eve.into(),
        format!("{of_eve} {trigger}"),
        format!("{for_eve} {trigger}"),
        format!("{for_eve} {function}"),
    ] {
        let (_database, eve, made) = init_after(&planted).await;
        let error = made.expect_err(&planted);
        assert_eq!(error.kind(), ErrorKind::Denied, "{}", chain(&error));
        assert!(chain(&error).contains(&eve), "{}", chain(&error));
    }
}

#[tokio::test]
async fn init_as_the_owner_sets_up_a_schema_that_an_administrator_made() {
    let (database, eve, made) = init_after("CREATE SCHEMA leasehold AUTHORIZATION EVE").await;
    made.expect_err("it belongs to another role");
    let url = database.url_as(&eve);
    for _ in 0..2 {
        set_up(&url).await;
    }
    granted(&*open(&url), &claim("a", LONG)).await;
    // Of a superuser it takes what could be taken anyway.
    let owned = "ALTER SCHEMA leasehold OWNER TO postgres; GRANT ALL ON SCHEMA leasehold TO EVE";
    let owned = owned.replace("EVE", &eve);
    administer(&database, &owned).await;
    set_up(&url).await;
}

#[tokio::test]
async fn the_owner_of_a_database_sets_its_public_schema_up() {
    let (database, eve, made) = init_after("").await;
    made.expect("made");
    let owned = format!("ALTER DATABASE {} OWNER TO {eve}", database.name());
    administer(&database, &owned).await;
    set_up(&format!("{}&schema=public", database.url_as(&eve))).await;
}
