//! Words for calling the functions by hand, and what each answers step by step.

use std::time::Duration;

use tokio_postgres::{Client, Error, Row};

use super::{database, open};
use crate::harness::asking::{claim, granted};
use crate::harness::postgres_server::Database;
use crate::harness::times::LONG;

/// Long enough that no busy machine lets it run out within a test.
pub(crate) const LONG_MS: u64 = 30_000;

/// A connection, and the schema whose functions it calls.
pub(crate) struct Functions {
    pub(crate) client: Client,
    schema: String,
}

/// What `acquire_1` answers.
#[derive(Debug)]
pub(crate) struct Acquired {
    pub(crate) outcome: String,
    pub(crate) token: Option<i64>,
    pub(crate) state: Option<i16>,
    pub(crate) holder: Option<String>,
    pub(crate) left_us: Option<i64>,
    pub(crate) height: Option<i64>,
    pub(crate) ahead: Option<i64>,
    pub(crate) detail: Option<String>,
}

impl Functions {
    /// Those of a fresh database.
    pub(crate) async fn fresh() -> (Database, Self) {
        let database = database().await;
        let functions = Self::of(&database, "leasehold").await;
        (database, functions)
    }

    pub(crate) async fn of(database: &Database, schema: &str) -> Self {
        Self {
            client: database.connect().await,
            schema: schema.into(),
        }
    }

    pub(crate) async fn run(&self, sql: &str) -> Result<Vec<Row>, Error> {
        let sql = sql.replace("leasehold.", &format!("{}.", self.schema));
        self.client.query(&sql, &[]).await
    }

    /// A single number.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.run(sql).await.expect(sql)[0].get(0)
    }

    /// A claim that does not wait.
    pub(crate) async fn try_acquire(
        &self,
        name: &str,
        holder: &str,
        ttl: u64,
    ) -> Result<Acquired, Error> {
        self.ask(name, holder, ttl, "0, NULL").await
    }

    pub(crate) async fn acquire(&self, name: &str, holder: &str, ttl: u64) -> Acquired {
        self.try_acquire(name, holder, ttl).await.expect("answered")
    }

    /// A claim of this client that waits, with the holder `CLIENT-1`.
    pub(crate) async fn queue(&self, name: &str, client: &str) -> Acquired {
        self.queue_for(name, &format!("{client}-1"), LONG_MS).await
    }

    /// A claim of this holder that waits, with a place for this term.
    pub(crate) async fn queue_for(&self, name: &str, holder: &str, term: u64) -> Acquired {
        let rest = format!("0, {term}");
        let answer = self.ask(name, holder, LONG_MS, &rest).await;
        answer.expect("answered")
    }

    /// A claim with a floor.
    pub(crate) async fn acquire_above(&self, name: &str, holder: &str, floor: i64) -> Acquired {
        let rest = format!("{floor}, NULL");
        let answer = self.ask(name, holder, LONG_MS, &rest).await;
        answer.expect("answered")
    }

    async fn ask(&self, name: &str, holder: &str, ttl: u64, rest: &str) -> Result<Acquired, Error> {
        let sql = format!(
            "SELECT * FROM leasehold.acquire_1('{name}', '{holder}', {ttl}, '{{}}', {rest})"
        );
        let row = self.run(&sql).await?.remove(0);
        Ok(Acquired {
            outcome: row.get("outcome"),
            token: row.get("token"),
            state: row.get("state"),
            holder: row.get("holder"),
            left_us: row.get("left_us"),
            height: row.get("height"),
            ahead: row.get("ahead"),
            detail: row.get("detail"),
        })
    }

    /// The letters of a batch of names and holders, under the tokens that the names have.
    pub(crate) async fn renew(&self, batch: &[(&str, &str)]) -> String {
        let names = batch.iter().map(|(name, _)| *name);
        let names = names.collect::<Vec<_>>().join("','");
        let sql = format!(
            "SELECT coalesce(l.token, 1) FROM unnest(ARRAY['{names}']) WITH ORDINALITY AS u (name, i)
            LEFT JOIN leasehold.lease l USING (name) ORDER BY u.i"
        );
        let rows = self.run(&sql).await.expect("answered");
        let tokens: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        self.renew_under(batch, &tokens).await
    }

    /// The letters of a batch of names and holders, each under its token.
    pub(crate) async fn renew_under(&self, batch: &[(&str, &str)], tokens: &[i64]) -> String {
        let list = |texts: Vec<&str>| format!("ARRAY['{}']", texts.join("','"));
        let names = list(batch.iter().map(|(name, _)| *name).collect());
        let holders = list(batch.iter().map(|(_, holder)| *holder).collect());
        let ttls = format!("array_fill({LONG_MS}::bigint, ARRAY[{}])", batch.len());
        let sql = format!(
            "SELECT letters FROM leasehold.renew_1({names}, {holders}, ARRAY{tokens:?}::bigint[], {ttls})"
        );
        self.run(&sql).await.expect("answered")[0].get(0)
    }

    /// The outcome, and whether a notice is to be sent.
    pub(crate) async fn release(&self, name: &str, holder: &str) -> (String, bool) {
        self.release_keeping(name, holder, 0).await
    }

    pub(crate) async fn release_keeping(
        &self,
        name: &str,
        holder: &str,
        ms: u64,
    ) -> (String, bool) {
        let sql = format!("SELECT * FROM leasehold.release_1('{name}', '{holder}', {ms})");
        let row = self.run(&sql).await.expect("answered").remove(0);
        (row.get("outcome"), row.get("tell"))
    }

    pub(crate) async fn evict(&self, name: &str, how: &str) -> String {
        let sql = format!("SELECT outcome FROM leasehold.evict_1('{name}', '{how}')");
        self.run(&sql).await.expect("answered")[0].get(0)
    }

    /// State and holder of a row, whether it counts or not.
    pub(crate) async fn row(&self, name: &str) -> Option<(i16, String)> {
        let sql = format!("SELECT state, holder FROM leasehold.lease WHERE name = '{name}'");
        let rows = self.run(&sql).await.expect("answered");
        rows.first().map(|row| (row.get(0), row.get(1)))
    }
}

/// Lets real time pass.
pub(crate) async fn pass_ms(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

#[tokio::test]
async fn a_claim_is_granted_held_and_granted_again() {
    let (_database, leases) = Functions::fresh().await;
    let first = leases.acquire("a", "h1", LONG_MS).await;
    assert_eq!(first.outcome, "granted");
    let again = leases.acquire("a", "h1", LONG_MS).await;
    assert_eq!(
        (again.outcome.as_str(), again.token),
        ("granted", first.token)
    );
    let held = leases.acquire("a", "h2", LONG_MS).await;
    assert_eq!((held.outcome.as_str(), held.state), ("held", Some(0)));
    assert_eq!(held.holder.as_deref(), Some("h1"));
    assert!(held.left_us.expect("it has an end") > 29_000_000);
    assert_eq!(leases.release("a", "h2").await.0, "not_held");
    assert_eq!(leases.release("a", "h1").await.0, "released");
    assert_eq!(leases.release("a", "h1").await.0, "not_held");
    let next = leases.acquire("a", "h2", LONG_MS).await;
    assert!(next.token > first.token);
}

#[tokio::test]
async fn an_argument_out_of_its_limits_changes_nothing() {
    let (_database, leases) = Functions::fresh().await;
    for ttl in [0, 600_001] {
        let refused = leases.acquire("a", "h", ttl).await;
        assert_eq!(refused.outcome, "invalid");
        assert!(refused.detail.expect("said").contains("max_ttl_ms=600000"));
    }
    for floor in [-1, 9_007_199_254_740_991] {
        let refused = leases.acquire_above("a", "h", floor).await;
        assert_eq!(refused.outcome, "invalid");
        assert!(refused.detail.expect("said").contains("floor="));
    }
    assert_eq!(leases.row("a").await, None);
}

#[tokio::test]
async fn a_batch_is_answered_in_its_order() {
    let (_database, leases) = Functions::fresh().await;
    for name in ["c", "a", "b"] {
        leases.acquire(name, "h", LONG_MS).await;
    }
    assert_eq!(leases.evict("b", "marked").await, "evicted");
    let batch = [
        ("c", "h"),
        ("z", "h"),
        ("a", "other"),
        ("b", "h"),
        ("a", "h"),
    ];
    assert_eq!(leases.renew(&batch).await, "ynney");
}

#[tokio::test]
async fn a_lease_named_twice_in_a_batch_is_never_called_refused() {
    let (_database, leases) = Functions::fresh().await;
    leases.acquire("a", "h", LONG_MS).await;
    let letters = leases.renew(&[("a", "h"), ("a", "h")]).await;
    assert!(letters.contains('y') && !letters.contains('n'), "{letters}");
}

#[tokio::test]
async fn a_kept_name_has_no_holder() {
    let (_database, leases) = Functions::fresh().await;
    leases.acquire("a", "h", LONG_MS).await;
    assert_eq!(leases.release_keeping("a", "h", 500).await.0, "released");
    assert_eq!(leases.renew(&[("a", "h")]).await, "n");
    assert_eq!(leases.release("a", "h").await.0, "not_held");
    assert_eq!(leases.evict("a", "marked").await, "not_held");
    assert_eq!(leases.acquire("a", "h2", LONG_MS).await.state, Some(2));
    pass_ms(600).await;
    assert_eq!(leases.acquire("a", "h2", LONG_MS).await.outcome, "granted");
}

#[tokio::test]
async fn names_that_were_used_once_are_removed_as_fast_as_new_ones_come() {
    let (database, leases) = Functions::fresh().await;
    let fill =
        "INSERT INTO leasehold.lease (name, token, state, holder, ttl_ms, since, ends_at, info)
        SELECT 'old' || i, 1, 4, '', 30000, now(), now() - interval '1 day', repeat('x', 150)
        FROM generate_series(1, 5000) i";
    leases.run(fill).await.expect("filled");
    let store = open(&database.url());
    for index in 0..1_000 {
        let claim = claim(&format!("new{index}"), LONG);
        granted(&*store, &claim).await;
    }
    let old = "SELECT count(*) FROM leasehold.lease WHERE name LIKE 'old%'";
    let left = leases.number(old).await;
    assert!(left < 500, "{left} of 5000 old rows are left");
}

#[tokio::test]
async fn a_token_near_the_end_of_the_numbers_is_refused_unharmed() {
    let (_database, leases) = Functions::fresh().await;
    leases.acquire("a", "h", LONG_MS).await;
    leases.release("a", "h").await;
    let lift = "UPDATE leasehold.lease SET token = 9007199254740989";
    leases.run(lift).await.expect("lifted");
    let refused = leases.acquire("a", "h", LONG_MS).await;
    assert_eq!((refused.outcome.as_str(), refused.token), ("broken", None));
    assert_eq!(leases.row("a").await, Some((4, String::new())));
}
