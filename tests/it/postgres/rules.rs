//! The rules of the functions, each as a scenario that goes wrong where its rule is broken. Rows of `tests/mutants` break
//! them.

use std::future::Future;
use std::time::Duration;

use tokio::time::timeout;

use leasehold::store::{self, TableSettings};

use super::functions::{Functions, LONG_MS, pass_ms};
use crate::harness::postgres_server::{Database, PostgresServer};

/// How long a stranger keeps a row.
const KEPT: u64 = 500;

/// Two connections to one database.
struct Pair {
    one: Functions,
    two: Functions,
    _database: Database,
}

impl Pair {
    /// The functions wait a second for a lock, so that a stranger can keep a row for a while.
    async fn fresh() -> Self {
        let database = PostgresServer::database().await;
        let setup = store::init_script(&database.url(), TableSettings::default());
        let setup = setup.expect("a URL in order");
        let patient = setup.replace("SET lock_timeout = '100ms'", "SET lock_timeout = '1s'");
        assert_ne!(setup, patient);
        let made = database.connect().await.batch_execute(&patient).await;
        made.expect("the functions are made");
        Self {
            one: Functions::of(&database, "leasehold").await,
            two: Functions::of(&database, "leasehold").await,
            _database: database,
        }
    }

    /// Does this while the other connection keeps the row of this name locked, and lets go of it in between.
    async fn beside_a_lock<T>(&self, name: &str, what: impl Future<Output = T>) -> T {
        self.two.run("BEGIN").await.expect("begun");
        let lock = format!("SELECT FROM leasehold.lease WHERE name = '{name}' FOR UPDATE");
        self.two.run(&lock).await.expect("locked");
        let (outcome, ()) = tokio::join!(what, async {
            pass_ms(KEPT).await;
            self.two.run("COMMIT").await.expect("let go");
        });
        outcome
    }
}

/// How long a lease still runs, in microseconds of the server's clock.
async fn left_us(leases: &Functions, name: &str) -> i64 {
    let left = "(extract(epoch FROM ends_at - clock_timestamp()) * 1000000)::bigint";
    let sql = format!("SELECT {left} FROM leasehold.lease WHERE name = '{name}'");
    leases.number(&sql).await
}

#[tokio::test]
async fn time_is_not_that_of_the_transactions_begin() {
    let pair = Pair::fresh().await;
    pair.one.run("BEGIN").await.expect("begun");
    pair.one.run("SELECT 1").await.expect("a snapshot");
    pass_ms(KEPT).await;
    pair.one.acquire("a", "h", 2_000).await;
    pair.one.run("COMMIT").await.expect("done");
    let left = left_us(&pair.one, "a").await;
    assert!(left > 1_700_000, "left_us={left} of 2 s");
}

#[tokio::test]
async fn the_clock_is_read_after_the_lock_was_waited_for() {
    let pair = Pair::fresh().await;
    pair.one.acquire("a", "h", KEPT / 2).await;
    // It runs out while the claim waits for the row.
    let again = pair.beside_a_lock("a", pair.one.acquire("a", "h", KEPT / 2));
    let again = again.await;
    let left = left_us(&pair.one, "a").await;
    assert!(
        again.outcome != "granted" || left > 0,
        "{again:?} left_us={left}"
    );
}

#[tokio::test]
async fn a_grant_has_its_full_ttl_though_it_waited() {
    let pair = Pair::fresh().await;
    pair.one.acquire("a", "h", LONG_MS).await;
    pair.one.release("a", "h").await;
    let grant = pair.beside_a_lock("a", pair.one.acquire("a", "h2", 2_000));
    let grant = grant.await;
    assert!(grant.outcome == "granted", "{grant:?}");
    let left = left_us(&pair.one, "a").await;
    assert!(left > 1_700_000, "left_us={left} of 2 s");
}

/// Rules 4 and 5.
#[tokio::test]
async fn a_release_sees_who_joined_while_it_waited() {
    let pair = Pair::fresh().await;
    pair.one.acquire("a", "h", LONG_MS).await;
    pair.two.run("BEGIN").await.expect("begun");
    let joined = pair.two.queue("a", "c").await;
    assert!(joined.ahead == Some(0), "{joined:?}");
    let (released, ()) = tokio::join!(pair.one.release("a", "h"), async {
        pass_ms(KEPT / 2).await;
        pair.two.run("COMMIT").await.expect("done");
    });
    assert!(released.0 == "released", "{released:?}");
    let row = pair.one.row("a").await;
    assert!(row == Some((0, "c-1".into())), "{row:?}, and not granted");
}

/// The other way round: the name was freed while the claim waited for the row.
#[tokio::test]
async fn a_client_that_joins_sees_that_the_name_was_freed() {
    let pair = Pair::fresh().await;
    pair.one.acquire("a", "h", LONG_MS).await;
    pair.two.run("BEGIN").await.expect("begun");
    pair.two.release("a", "h").await;
    let (joined, ()) = tokio::join!(pair.one.queue("a", "c"), async {
        pass_ms(KEPT / 2).await;
        pair.two.run("COMMIT").await.expect("done");
    });
    assert!(joined.outcome == "granted", "{joined:?}");
}

#[tokio::test]
async fn a_claim_that_gives_up_waits_for_no_lock_of_the_lease() {
    let pair = Pair::fresh().await;
    pair.one.acquire("a", "h", LONG_MS).await;
    pair.one.queue("a", "c").await;
    pair.two.run("BEGIN").await.expect("begun");
    let lock = "SELECT FROM leasehold.lease WHERE name = 'a' FOR UPDATE";
    pair.two.run(lock).await.expect("locked");
    let left = timeout(Duration::from_millis(KEPT), pair.one.release("a", "c-1"));
    let left = left.await;
    pair.two.run("COMMIT").await.expect("let go");
    assert!(left == Ok(("not_held".into(), false)), "{left:?}");
    pair.one.release("a", "h").await;
    let row = pair.one.row("a").await;
    assert!(row == Some((4, String::new())), "{row:?}");
}

/// Rule 4: what a look or a release of the waiting client is writing at this moment counts.
#[tokio::test]
async fn a_place_is_granted_as_its_client_leaves_it() {
    let pair = Pair::fresh().await;
    let left = async || left_us(&pair.one, "a").await;
    for (what, sql) in [
        (
            "looks",
            "SELECT FROM leasehold.acquire_1('a', 'c-2', 30000, '{}', 0, 20000)",
        ),
        ("gives up", "SELECT FROM leasehold.release_1('a', 'c-1', 0)"),
    ] {
        pair.one.acquire("a", "h", LONG_MS).await;
        pair.one.queue_for("a", "c-1", 5_000).await;
        pair.two.run("BEGIN").await.expect("begun");
        pair.two.run(sql).await.expect(what);
        let (released, ()) = tokio::join!(pair.one.release("a", "h"), async {
            pass_ms(KEPT / 2).await;
            pair.two.run("COMMIT").await.expect("done");
        });
        assert!(released.0 == "released", "{what}: {released:?}");
        let row = pair.one.row("a").await;
        if what == "looks" {
            assert!(row == Some((0, "c-2".into())), "{what}: {row:?}");
            let left = left().await;
            assert!(left > 10_000_000, "left_us={left} of the new term");
            pair.one.release("a", "c-2").await;
        } else {
            assert!(row == Some((4, String::new())), "{what}: {row:?}");
        }
    }
}

/// The release of a claim that is granted the name at this moment gives it back.
#[tokio::test]
async fn a_claim_that_gives_up_while_it_is_granted_the_name_frees_it() {
    let pair = Pair::fresh().await;
    pair.one.acquire("a", "h", LONG_MS).await;
    pair.one.queue("a", "c").await;
    pair.two.run("BEGIN").await.expect("begun");
    assert_eq!(pair.two.release("a", "h").await.0, "released");
    let (released, ()) = tokio::join!(pair.one.release("a", "c-1"), async {
        pass_ms(KEPT / 2).await;
        pair.two.run("COMMIT").await.expect("done");
    });
    let row = pair.one.row("a").await;
    assert!(
        released.0 == "released" && row == Some((4, String::new())),
        "{released:?} {row:?}"
    );
}

#[tokio::test]
async fn a_locked_row_keeps_no_other_name_from_its_notices() {
    let pair = Pair::fresh().await;
    pair.one.acquire("locked", "h", LONG_MS).await;
    pair.one.acquire("a", "h", LONG_MS).await;
    pair.two.run("BEGIN").await.expect("begun");
    let lock = "SELECT FROM leasehold.lease WHERE name = 'locked' FOR UPDATE";
    pair.two.run(lock).await.expect("locked");
    // Its row is there only once this transaction is over.
    pair.two.acquire("coming", "h", LONG_MS).await;
    let sql = "SELECT leasehold.await_1(ARRAY['coming', 'a', 'locked', 'new'])";
    let marked = pair.one.run(sql).await;
    pair.two.run("COMMIT").await.expect("let go");
    let rows = marked.expect("marked");
    let channels: Vec<Option<String>> = rows[0].get(0);
    let is_marked: Vec<_> = channels.iter().map(Option::is_some).collect();
    assert!(is_marked == [false, true, false, true], "{channels:?}");
    let again: Vec<Option<String>> = pair.one.run(sql).await.expect("answered")[0].get(0);
    assert!(again.iter().all(Option::is_some), "{again:?}");
}

#[tokio::test]
async fn a_subscription_lasts_for_three_pulses() {
    let pair = Pair::fresh().await;
    pair.one.acquire("a", "h", LONG_MS).await;
    let mark = "SELECT leasehold.await_1(ARRAY['a', 'b'])";
    pair.one.run(mark).await.expect("marked");
    let left = "SELECT min(extract(epoch FROM awaited_until - clock_timestamp())::bigint) FROM leasehold.lease";
    let left = pair.one.number(left).await;
    assert!((13..=15).contains(&left), "{left} s");
}

#[tokio::test]
async fn a_client_that_claims_again_keeps_its_place_for_longer() {
    let pair = Pair::fresh().await;
    pair.one.acquire("a", "h", LONG_MS).await;
    pair.one.queue("a", "b").await;
    pair.one.queue("a", "c").await;
    let near = "UPDATE leasehold.queue SET alive_until = clock_timestamp() + interval '2 s'";
    let left =
        "SELECT extract(epoch FROM alive_until - clock_timestamp())::bigint FROM leasehold.queue
        WHERE client = 'c'";
    // While another holder has the name, and when its lease is over and it is another client's turn.
    for end in ["ends_at", "'-infinity'"] {
        pair.one.run(near).await.expect("its time is nearly over");
        let ended = format!("UPDATE leasehold.lease SET ends_at = {end}");
        pair.one.run(&ended).await.expect("ended");
        pair.one.queue("a", "c").await;
        let left = pair.one.number(left).await;
        assert!(left >= 7, "{left} s, ends_at={end}");
    }
}

#[tokio::test]
async fn old_rows_are_removed_and_no_others() {
    let pair = Pair::fresh().await;
    let leases = &pair.one;
    let names = [
        "free", "live", "awaited", "waited", "dead", "lifted", "recent", "passed",
    ];
    for name in names {
        leases.acquire(name, "h", LONG_MS).await;
    }
    leases.release("free", "h").await;
    leases.queue("waited", "c").await;
    leases.queue("dead", "c").await;
    let awaited = "SELECT leasehold.await_1(ARRAY['awaited'])";
    leases.run(awaited).await.expect("marked");
    for sql in [
        "UPDATE leasehold.lineage SET max_ttl_ms = 2 * 86400000",
        "UPDATE leasehold.lease SET ends_at = ends_at - interval '3 days', token = token - 86400000000 WHERE name <> 'live'",
        "UPDATE leasehold.lease SET ends_at = ends_at + interval '2 days' WHERE name = 'recent'",
        "UPDATE leasehold.queue SET alive_until = alive_until - interval '3 days' WHERE name = 'dead'",
        "UPDATE leasehold.lease SET token = leasehold.micros_1(clock_timestamp()) + 60000000 WHERE name = 'lifted'",
        // A claim that waits for its lock may have read the clock before.
        "UPDATE leasehold.lease SET token = leasehold.micros_1(clock_timestamp()) - 1000000 WHERE name = 'passed'",
    ] {
        leases.run(sql).await.expect(sql);
    }
    let count = "SELECT count(*) FROM leasehold.lease";
    leases.acquire("live", "h2", LONG_MS).await;
    assert!(
        leases.number(count).await == 8,
        "a claim of a known name removed rows"
    );
    leases.acquire("new", "h", LONG_MS).await;
    for name in names {
        let is_kept = !["free", "dead"].contains(&name);
        let row = leases.row(name).await;
        assert!(row.is_some() == is_kept, "{name}: {row:?}");
    }
    let queued = leases.number("SELECT count(*) FROM leasehold.queue").await;
    assert!(queued == 1, "{queued} clients in queues");
    // A first claim in the queue does so as well.
    let old = "UPDATE leasehold.lease SET ends_at = '-infinity', token = 1 WHERE name = 'live'";
    leases.run(old).await.expect("aged");
    leases.queue("newer", "c").await;
    let row = leases.row("live").await;
    assert!(row.is_none(), "live: {row:?}");
}

#[tokio::test]
async fn a_wait_for_the_lock_of_another_program_ends_by_itself() {
    let pair = Pair::fresh().await;
    pair.one.acquire("a", "h", LONG_MS).await;
    pair.two.run("BEGIN").await.expect("begun");
    let lock = "SELECT FROM leasehold.lease WHERE name = 'a' FOR UPDATE";
    pair.two.run(lock).await.expect("locked");
    let waited = timeout(
        Duration::from_secs(3),
        pair.one.try_acquire("a", "h", LONG_MS),
    )
    .await;
    pair.two.run("ROLLBACK").await.expect("ended");
    let code = waited.map(|answer| answer.err().and_then(|error| error.code().cloned()));
    let code = code.map(|code| code.map(|code| code.code().to_owned()));
    assert!(code == Ok(Some("55P03".into())), "{code:?}");
}

#[tokio::test]
async fn what_is_answered_is_flushed() {
    let pair = Pair::fresh().await;
    pair.one
        .run("SET synchronous_commit = off")
        .await
        .expect("set");
    for call in [
        "leasehold.acquire_1('a', 'h', 30000, '{}', 0, NULL)",
        "leasehold.renew_1(ARRAY['a'], ARRAY['h'], ARRAY[1], ARRAY[30000])",
        "leasehold.evict_1('a', 'marked')",
        "leasehold.release_1('a', 'h', 0)",
    ] {
        pair.one.run("BEGIN").await.expect("begun");
        pair.one
            .run(&format!("SELECT * FROM {call}"))
            .await
            .expect("answered");
        let rows = pair
            .one
            .run("SHOW synchronous_commit")
            .await
            .expect("answered");
        pair.one.run("COMMIT").await.expect("done");
        let found: String = rows[0].get(0);
        assert!(
            found == "on",
            "synchronous_commit={found} at the commit of {call}"
        );
    }
}

#[tokio::test]
async fn a_locked_row_spoils_no_other_of_its_batch() {
    let pair = Pair::fresh().await;
    for name in ["a", "b", "c"] {
        pair.one.acquire(name, "h", LONG_MS).await;
    }
    pair.two.run("BEGIN").await.expect("begun");
    let lock = "SELECT FROM leasehold.lease WHERE name = 'b' FOR UPDATE";
    pair.two.run(lock).await.expect("locked");
    let batch = [("a", "h"), ("b", "h"), ("c", "h")];
    let letters = timeout(Duration::from_millis(800), pair.one.renew(&batch)).await;
    pair.two.run("ROLLBACK").await.expect("ended");
    assert!(letters.as_deref() == Ok("yxy"), "{letters:?}");
}

#[tokio::test]
async fn only_its_holder_renews_a_lease() {
    let pair = Pair::fresh().await;
    pair.one.acquire("a", "h", LONG_MS).await;
    let letters = pair.two.renew(&[("a", "other")]).await;
    assert!(letters == "n", "{letters}");
}

#[tokio::test]
async fn a_later_grant_is_not_renewed_under_an_earlier_token() {
    let pair = Pair::fresh().await;
    let first = pair.one.acquire("a", "h", LONG_MS).await;
    let evict = "SELECT FROM leasehold.evict_1('a', 'now')";
    pair.one.run(evict).await.expect("evicted");
    let second = pair.one.acquire("a", "h", LONG_MS).await;
    let tokens = [first, second].map(|grant| grant.token.expect("granted"));
    let letters = pair.two.renew_under(&[("a", "h"), ("a", "h")], &tokens);
    let letters = letters.await;
    assert!(letters == "ny", "{letters}");
}

#[tokio::test]
async fn a_lease_is_over_at_its_end() {
    let pair = Pair::fresh().await;
    pair.one.acquire("a", "h", 1_000).await;
    // To the microsecond: an end that is now is over.
    let at_the_end = "UPDATE leasehold.lease SET ends_at = '-infinity'";
    pair.one.run(at_the_end).await.expect("ended");
    let letters = pair.one.renew(&[("a", "h")]).await;
    let next = pair.two.acquire("a", "h2", LONG_MS).await;
    assert!(
        letters == "n" && next.outcome == "granted",
        "{letters} {next:?}"
    );
}

#[tokio::test]
async fn a_token_rises_though_the_clock_is_behind() {
    let pair = Pair::fresh().await;
    let ahead = "UPDATE leasehold.lease SET token = token + 3600000000 RETURNING token";
    pair.one.acquire("a", "h", LONG_MS).await;
    pair.one.release("a", "h").await;
    let before = pair.one.number(ahead).await;
    let next = pair.one.acquire("a", "h", LONG_MS).await.token;
    assert!(next > Some(before), "{next:?} after {before}");
    pair.one.release("a", "h").await;
    // Where a place is left whose claim gave up, and where one is granted.
    pair.one.acquire("a", "h", LONG_MS).await;
    pair.one.queue("a", "c").await;
    pair.one.release("a", "c-1").await;
    pair.one.release("a", "h").await;
    let before = pair.one.number(ahead).await;
    let next = pair.one.acquire("a", "h", LONG_MS).await.token;
    assert!(
        next > Some(before),
        "{next:?} after {before}, beside a place"
    );
    pair.one.queue("a", "c").await;
    let before = pair.one.number(ahead).await;
    pair.one.release("a", "h").await;
    let granted = pair.one.queue("a", "c").await.token;
    assert!(
        granted > Some(before),
        "{granted:?} after {before}, by a release"
    );
}

#[tokio::test]
async fn two_claims_at_once_have_one_grant() {
    let pair = Pair::fresh().await;
    pair.two.run("BEGIN").await.expect("begun");
    let first = pair.two.acquire("a", "h2", LONG_MS).await;
    let (second, ()) = tokio::join!(pair.one.acquire("a", "h1", LONG_MS), async {
        pass_ms(KEPT / 2).await;
        pair.two.run("COMMIT").await.expect("done");
    });
    let outcomes = [first.outcome.as_str(), second.outcome.as_str()];
    assert!(outcomes == ["granted", "held"], "{outcomes:?}");
}

#[tokio::test]
async fn nothing_is_granted_where_the_tables_came_from_elsewhere() {
    let pair = Pair::fresh().await;
    let first = pair.one.acquire("mine", "h", LONG_MS).await;
    assert!(first.outcome == "granted", "{first:?}");
    // A server does not read its origin again while it runs.
    let seen = "SELECT count(*) FROM leasehold.lineage WHERE started = pg_postmaster_start_time()";
    assert_eq!(pair.one.number(seen).await, 1);
    pair.one
        .run("UPDATE leasehold.lineage SET started = NULL, origin = 'another server', max_ttl_ms = 60000")
        .await
        .expect("moved");
    for client in [None, Some("c")] {
        let kept_out = match client {
            None => pair.two.acquire("a", "h2", LONG_MS).await,
            Some(client) => pair.two.queue("a", client).await,
        };
        assert!(
            kept_out.outcome == "held" && kept_out.state == Some(5),
            "{kept_out:?}"
        );
        let left = kept_out.left_us.unwrap_or_default();
        assert!((50_000_000..=60_000_000).contains(&left), "left_us={left}");
    }
    // What lives goes on.
    let (again, letters) = (
        pair.one.acquire("mine", "h", LONG_MS).await,
        pair.one.renew(&[("mine", "h")]).await,
    );
    assert!(
        again.outcome == "granted" && letters == "y",
        "{again:?} {letters}"
    );
    let released = pair.one.release("mine", "h").await;
    assert!(released.0 == "released", "{released:?}");
    let kept_out = pair.one.acquire("mine", "h", LONG_MS).await;
    assert!(kept_out.state == Some(5), "{kept_out:?}");
    pair.one
        .run("UPDATE leasehold.lineage SET quiet_until = clock_timestamp()")
        .await
        .expect("over");
    let next = pair.two.queue("a", "c").await;
    assert!(next.outcome == "granted", "{next:?}");
    let next = pair.two.acquire("mine", "h2", LONG_MS).await;
    assert!(next.outcome == "granted", "{next:?}");
}

#[tokio::test]
async fn the_first_claim_after_a_start_delays_no_other() {
    let pair = Pair::fresh().await;
    pair.two.run("BEGIN").await.expect("begun");
    pair.two.acquire("a", "h", LONG_MS).await;
    let other = pair.one.acquire("b", "h", LONG_MS);
    let other = timeout(Duration::from_millis(KEPT), other).await;
    let other = other.expect("it waits for the commit of the first");
    assert!(other.outcome == "granted", "{other:?}");
    pair.two.run("COMMIT").await.expect("done");
}

/// In the quiet time, and on a server that no claim has asked since its start: it may have forgotten a later grant.
#[tokio::test]
async fn a_release_grants_nothing_on_a_server_that_may_have_forgotten_grants() {
    let pair = Pair::fresh().await;
    for (what, sql) in [
        (
            "quiet",
            "UPDATE leasehold.lineage SET quiet_until = clock_timestamp() + interval '60 s'",
        ),
        (
            "started",
            "UPDATE leasehold.lineage SET quiet_until = '-infinity', started = '-infinity'",
        ),
    ] {
        pair.one.acquire("a", "h", LONG_MS).await;
        pair.one.queue("a", "c").await;
        pair.one.queue("a", "d").await;
        pair.one.run(sql).await.expect(what);
        assert_eq!(pair.one.release("a", "h").await.0, "released", "{what}");
        let row = pair.one.row("a").await;
        assert!(row == Some((4, String::new())), "{what}: {row:?}");
        if what == "quiet" {
            let kept_out = pair.one.queue("a", "c").await;
            assert!(
                kept_out.state == Some(5) && kept_out.ahead == Some(0),
                "{kept_out:?}"
            );
            let over = "UPDATE leasehold.lineage SET quiet_until = clock_timestamp()";
            pair.one.run(over).await.expect("over");
        }
        // The first claim of whomever asks, and then no claim overtakes a place.
        assert_eq!(pair.two.acquire("a", "h2", LONG_MS).await.outcome, "held");
        let row = pair.one.row("a").await;
        assert!(row == Some((0, "c-1".into())), "{what}: {row:?}");
        let over = "UPDATE leasehold.lease SET ends_at = '-infinity', has_queue = false";
        pair.one
            .run("DELETE FROM leasehold.queue")
            .await
            .expect("gone");
        pair.one.run(over).await.expect("over");
    }
}

/// A claim that finds it locked knows as well that the server has forgotten nothing.
#[tokio::test]
async fn no_claim_overtakes_a_place_while_another_notes_the_start_of_the_server() {
    let pair = Pair::fresh().await;
    pair.one.acquire("a", "h", LONG_MS).await;
    pair.one.queue("a", "c").await;
    let freed = "UPDATE leasehold.lease SET ends_at = '-infinity'";
    pair.one.run(freed).await.expect("ended");
    let started = "UPDATE leasehold.lineage SET started = '-infinity'";
    pair.one.run(started).await.expect("started");
    pair.two.run("BEGIN").await.expect("begun");
    pair.two.acquire("b", "h", LONG_MS).await;
    let rival = pair.one.acquire("a", "h2", LONG_MS).await;
    pair.two.run("COMMIT").await.expect("done");
    assert!(rival.outcome == "held", "{rival:?}");
    let row = pair.one.row("a").await;
    assert!(row == Some((0, "c-1".into())), "{row:?}");
}

#[tokio::test]
async fn a_place_written_by_a_clock_that_was_ahead_is_granted_for_its_term_at_most() {
    let (_database, leases) = Functions::fresh().await;
    leases.acquire("a", "h", LONG_MS).await;
    leases.queue_for("a", "c-1", 1_500).await;
    let ahead = "UPDATE leasehold.queue SET alive_until = alive_until + interval '1 day'";
    leases.run(ahead).await.expect("the clock was ahead");
    leases.release("a", "h").await;
    assert_eq!(leases.row("a").await, Some((0, "c-1".into())));
    let left = left_us(&leases, "a").await;
    assert!(left <= 1_500_000, "left_us={left}");
}

#[tokio::test]
async fn an_end_written_by_a_clock_that_was_ahead_is_no_further_than_its_ttl() {
    let (_database, leases) = Functions::fresh().await;
    leases.acquire("dead", "h", 1_500).await;
    leases.acquire("kept", "h", 1_500).await;
    // What is kept for longer than the ttl stays so.
    leases.release_keeping("kept", "h", LONG_MS).await;
    let ahead =
        "UPDATE leasehold.lease SET ends_at = ends_at + interval '1 day' WHERE name = 'dead'";
    leases.run(ahead).await.expect("the clock was ahead");
    let found = leases.acquire("dead", "h2", 1_500).await;
    let left = found.left_us.expect("held");
    assert!(left <= 1_500_000, "left_us={left}");
    let found = leases.acquire("kept", "h2", 1_500).await;
    assert!(found.left_us.expect("kept") > 20_000_000, "{found:?}");
    pass_ms(1_600).await;
    let next = leases.acquire("dead", "h2", 1_500).await;
    assert!(next.outcome == "granted", "{next:?}");
    // The same for the quiet time.
    let quiet = "UPDATE leasehold.lineage
        SET max_ttl_ms = 1500, quiet_until = clock_timestamp() + interval '1 day'";
    leases.run(quiet).await.expect("a promotion");
    let kept_out = leases.acquire("new", "h", 1_000).await;
    assert!(kept_out.state == Some(5), "{kept_out:?}");
    assert!(
        kept_out.left_us.expect("an end") <= 1_500_000,
        "{kept_out:?}"
    );
    pass_ms(1_600).await;
    let next = leases.acquire("new", "h", 1_000).await;
    assert!(next.outcome == "granted", "{next:?}");
}
