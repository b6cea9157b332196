//! Through `tokio-postgres`.

use std::time::Duration;

use leasehold::fence::tokio_postgres::Fence;
use leasehold::fence::{Blocked, Pass, Refusal, judge};
use leasehold::{Error, ErrorKind};
use tokio_postgres::{Client, IsolationLevel};

use crate::fence::{Guard, keeps_the_contract, pass, pass_for, repeated};
use crate::harness::postgres_server::{Database, PostgresServer};

/// A database with a register for each resource, and a few connections, as processes have one each.
#[derive(Debug)]
struct Registers {
    clients: pool::Clients,
    reader: Client,
    isolation: IsolationLevel,
}

/// A pool of the test's own.
mod pool {
    use tokio::sync::{Mutex, MutexGuard};
    use tokio_postgres::Client;

    #[derive(Debug)]
    pub(super) struct Clients(Vec<Mutex<Client>>);

    impl Clients {
        pub(super) fn new(clients: Vec<Client>) -> Self {
            Self(clients.into_iter().map(Mutex::new).collect())
        }

        pub(super) async fn any(&self) -> MutexGuard<'_, Client> {
            for client in &self.0 {
                if let Ok(client) = client.try_lock() {
                    return client;
                }
            }
            self.0[0].lock().await
        }
    }
}

fn fence(resource: &str) -> Fence {
    Fence::new(resource).expect("a valid resource")
}

async fn prepare(database: &Database) -> Client {
    let client = database.connect().await;
    fence("any").create_table(&client).await.expect("made");
    client
        .batch_execute("CREATE TABLE register (resource TEXT PRIMARY KEY, value TEXT)")
        .await
        .expect("made");
    client
}

async fn set(client: &impl tokio_postgres::GenericClient, resource: &str, value: &str) {
    const SET: &str = "
        INSERT INTO register VALUES ($1, $2)
        ON CONFLICT (resource) DO UPDATE SET value = excluded.value";
    client
        .execute(SET, &[&resource, &value])
        .await
        .expect("written");
}

async fn get(client: &impl tokio_postgres::GenericClient, resource: &str) -> Option<String> {
    let row = client
        .query_opt(
            "SELECT value FROM register WHERE resource = $1",
            &[&resource],
        )
        .await
        .expect("read")?;
    row.get(0)
}

impl Registers {
    async fn new(isolation: IsolationLevel) -> Self {
        let database = PostgresServer::database().await;
        let reader = prepare(&database).await;
        let mut clients = Vec::new();
        for _ in 0..6 {
            clients.push(database.connect().await);
        }
        Self {
            clients: pool::Clients::new(clients),
            reader,
            isolation,
        }
    }

    /// One attempt; the user's part of what a serialization failure asks for is `repeated`.
    async fn attempt(&self, resource: &str, pass: &Pass, value: Option<&str>) -> Result<(), Error> {
        let mut client = self.clients.any().await;
        let transaction = client
            .build_transaction()
            .isolation_level(self.isolation)
            .start()
            .await
            .expect("begun");
        fence(resource).raise(&transaction, pass).await?;
        if let Some(value) = value {
            set(&transaction, resource, value).await;
        }
        transaction.commit().await.expect("committed");
        Ok(())
    }
}

impl Guard for Registers {
    async fn raise(&self, resource: &str, shown: Option<&Pass>) -> Result<(), Error> {
        let pass = Pass::required(shown)?;
        repeated(|| self.attempt(resource, pass, None)).await
    }

    async fn write(&self, resource: &str, shown: Option<&Pass>, value: &str) -> Result<(), Error> {
        let pass = Pass::required(shown)?;
        repeated(|| self.attempt(resource, pass, Some(value))).await
    }

    async fn read(&self, resource: &str) -> Option<String> {
        get(&self.reader, resource).await
    }

    async fn row(&self, resource: &str) -> Option<Pass> {
        fence(resource).row(&self.reader).await.expect("read")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokio_postgres_keeps_the_contract_at_read_committed() {
    keeps_the_contract(Registers::new(IsolationLevel::ReadCommitted).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokio_postgres_keeps_the_contract_at_repeatable_read() {
    keeps_the_contract(Registers::new(IsolationLevel::RepeatableRead).await).await;
}

#[tokio::test]
async fn a_raise_behind_a_paused_transaction_is_blocked_and_typed() {
    let database = PostgresServer::database().await;
    let mut paused = prepare(&database).await;
    let open = fence("a")
        .begin(&mut paused, &pass(1, 1))
        .await
        .expect("raised");
    let mut successor = database.connect().await;
    let impatient = fence("a")
        .with_lock_timeout(Duration::from_millis(50))
        .expect("valid");
    let error = impatient
        .begin(&mut successor, &pass(2, 2))
        .await
        .err()
        .expect("blocked");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:?}");
    assert!(Blocked::of(&error).is_some(), "{error:?}");
    set(&open, "a", "late but first").await;
    open.commit().await.expect("committed");
    let raised = impatient
        .begin(&mut successor, &pass(2, 2))
        .await
        .expect("raised");
    assert_eq!(get(&raised, "a").await.as_deref(), Some("late but first"));
    raised.commit().await.expect("committed");
    let error = fence("a")
        .begin(&mut paused, &pass(1, 1))
        .await
        .err()
        .expect("refused");
    let stored = pass(2, 2).token;
    assert_eq!(Refusal::of(&error), Some(&Refusal::Stale { stored }));
}

#[tokio::test]
async fn a_waiting_successor_reads_what_the_paused_holder_committed_or_begins_again() {
    for isolation in [
        IsolationLevel::ReadCommitted,
        IsolationLevel::RepeatableRead,
        IsolationLevel::Serializable,
    ] {
        let database = PostgresServer::database().await;
        let mut older = prepare(&database).await;
        let first = fence("a")
            .begin(&mut older, &pass(1, 1))
            .await
            .expect("raised");
        set(&first, "a", "before").await;
        first.commit().await.expect("committed");
        // Under the row's own pass: nothing in the row changes, and yet a snapshot from before it must not be read.
        let open = fence("a")
            .begin(&mut older, &pass(1, 1))
            .await
            .expect("raised");
        set(&open, "a", "after").await;
        let mut client = database.connect().await;
        let successor = client
            .build_transaction()
            .isolation_level(isolation)
            .start()
            .await
            .expect("begun");
        let (fence, successor_pass) = (fence("a"), pass(2, 2));
        let mut raise = Box::pin(fence.raise(&successor, &successor_pass));
        let waiting = tokio::time::timeout(Duration::from_millis(50), &mut raise).await;
        assert!(waiting.is_err(), "the raise waits for the open write");
        open.commit().await.expect("committed");
        match raise.await {
            Ok(()) => assert_eq!(
                get(&successor, "a").await.as_deref(),
                Some("after"),
                "{isolation:?}"
            ),
            Err(error) => {
                assert_ne!(format!("{isolation:?}"), "ReadCommitted");
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                assert!(
                    error.to_string().contains("retry the whole transaction"),
                    "{error}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_read_before_the_raise_is_refused() {
    let database = PostgresServer::database().await;
    let mut client = prepare(&database).await;
    let transaction = client.transaction().await.expect("begun");
    assert_eq!(get(&transaction, "a").await, None);
    let error = fence("a")
        .raise(&transaction, &pass(1, 1))
        .await
        .expect_err("too late");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
    assert!(error.to_string().contains("first statement"), "{error}");
    transaction.rollback().await.expect("rolled back");
    assert_eq!(fence("a").row(&client).await.expect("read"), None);
}

#[tokio::test]
async fn several_fences_are_raised_in_one_transaction() {
    let database = PostgresServer::database().await;
    let mut client = prepare(&database).await;
    let transaction = fence("a")
        .begin(&mut client, &pass(1, 1))
        .await
        .expect("raised");
    let other = pass_for("weekly", 2, 9);
    fence("b")
        .raise_also(&transaction, &other)
        .await
        .expect("raised");
    transaction.commit().await.expect("committed");
    assert_eq!(
        fence("a").row(&client).await.expect("read"),
        Some(pass(1, 1))
    );
    assert_eq!(fence("b").row(&client).await.expect("read"), Some(other));
}

#[tokio::test]
async fn a_missing_table_is_named() {
    let database = PostgresServer::database().await;
    let mut client = database.connect().await;
    let error = fence("a")
        .begin(&mut client, &pass(1, 1))
        .await
        .err()
        .expect("no table");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.to_string().contains("create_table"), "{error}");
}

#[tokio::test]
async fn a_table_of_another_role_earlier_in_the_path_is_not_used() {
    let database = PostgresServer::database().await;
    let mut client = prepare(&database).await;
    let role = format!("stranger_of_{}", database.name());
    let planted = format!(
        "CREATE ROLE {role}; CREATE SCHEMA early AUTHORIZATION {role}; SET ROLE {role}; SET search_path = early"
    );
    client.batch_execute(&planted).await.expect("planted");
    fence("a").create_table(&client).await.expect("made");
    let grant = "GRANT ALL ON SCHEMA early TO PUBLIC; GRANT ALL ON early.leasehold_fence TO PUBLIC; RESET ROLE";
    client.batch_execute(grant).await.expect("granted");
    let path = "SET search_path = early, public";
    client.batch_execute(path).await.expect("set");
    let error = fence("a").begin(&mut client, &pass(1, 1)).await;
    let error = error.err().expect("the table is another role's");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.to_string().contains("search_path"), "{error}");
    let rows = client.query_one("SELECT count(*) FROM early.leasehold_fence", &[]);
    assert_eq!(rows.await.expect("counted").get::<_, i64>(0), 0);
    client
        .batch_execute("SET search_path = public")
        .await
        .expect("set");
    fence("a")
        .begin(&mut client, &pass(1, 1))
        .await
        .expect("raised");
}

#[tokio::test]
async fn a_read_only_transaction_cannot_raise() {
    let database = PostgresServer::database().await;
    let mut client = prepare(&database).await;
    let transaction = client
        .build_transaction()
        .read_only(true)
        .start()
        .await
        .expect("begun");
    let error = fence("a")
        .raise(&transaction, &pass(1, 1))
        .await
        .expect_err("read-only");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}

#[tokio::test]
async fn a_transaction_cut_off_by_the_server_leaves_no_raise() {
    let database = PostgresServer::database().await;
    let mut client = prepare(&database).await;
    let administrator = database.connect().await;
    let transaction = fence("a")
        .begin(&mut client, &pass(1, 1))
        .await
        .expect("raised");
    set(&transaction, "a", "cut off").await;
    administrator
        .execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()", &[])
        .await
        .expect("ended");
    assert!(transaction.commit().await.is_err());
    assert_eq!(fence("a").row(&administrator).await.expect("read"), None);
    let error = fence("a")
        .begin(&mut client, &pass(1, 1))
        .await
        .err()
        .expect("gone");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}

/// The statement as the page on fences gives it.
fn documented_one_row_form() -> &'static str {
    let page = include_str!("../../../../src/fence/README.md");
    let (_, rest) = page
        .split_once("```sql\n")
        .expect("the page has the statement");
    rest.split_once("```").expect("the statement ends").0
}

#[tokio::test]
async fn the_documented_one_row_form_keeps_to_the_rule() {
    let database = PostgresServer::database().await;
    let client = database.connect().await;
    let table = "CREATE TABLE account (id INT, balance INT, fence_token BIGINT, fence_holder TEXT, fence_name TEXT)";
    client.batch_execute(table).await.expect("made");
    let row = "INSERT INTO account VALUES (7, 0, 2, $1, 'nightly')";
    let known = pass(1, 2);
    client
        .execute(row, &[&known.holder.to_string()])
        .await
        .expect("made");
    let statement = client
        .prepare(documented_one_row_form())
        .await
        .expect("it is SQL");
    let mut stored = known.clone();
    for (balance, shown) in [
        known,
        pass(1, 1),
        pass(2, 2),
        pass_for("weekly", 3, 9),
        pass(2, 3),
        pass(1, 2),
    ]
    .into_iter()
    .enumerate()
    {
        let balance = i32::try_from(balance).expect("a few");
        let (token, holder) = (shown.token.get().cast_signed(), shown.holder.to_string());
        let changed = client
            .execute(
                &statement,
                &[&balance, &token, &holder, &7, &shown.name.as_str()],
            )
            .await
            .expect("answered");
        let admitted = judge(Some(&stored), &shown).is_ok();
        assert_eq!(changed == 1, admitted, "{shown:?}");
        if admitted {
            stored = shown;
        }
    }
    assert_eq!(stored, pass(2, 3));
}

#[tokio::test]
async fn no_temporary_table_and_no_second_one_in_the_path_is_taken_for_the_fence() {
    let database = PostgresServer::database().await;
    let mut client = prepare(&database).await;
    let named = || fence("a").in_schema("public").expect("a name");
    let raised = named().begin(&mut client, &pass(2, 1)).await;
    raised.expect("raised").commit().await.expect("done");
    let second = "CREATE SCHEMA second; SET search_path = second";
    client.batch_execute(second).await.expect("made");
    fence("a").create_table(&client).await.expect("made");
    let temporary = "CREATE TEMP TABLE leasehold_fence (LIKE public.leasehold_fence INCLUDING ALL)";
    for (what, path) in [("", "second, public"), (temporary, "public")] {
        client.batch_execute(what).await.expect("made");
        let path = format!("SET search_path = {path}");
        client.batch_execute(&path).await.expect("set");
        // A pass that storage has seen superseded.
        let error = fence("a").begin(&mut client, &pass(1, 1)).await;
        let error = error.err().expect("the table may be another one");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{path}: {error:?}");
        let error = named().begin(&mut client, &pass(1, 1)).await;
        let error = error.err().expect("superseded");
        assert_eq!(error.kind(), ErrorKind::Stale, "{path}: {error:?}");
        named()
            .begin(&mut client, &pass(2, 1))
            .await
            .expect("its own");
    }
}

/// The row as it was committed.
async fn row_of_fence(client: &Client) -> Option<Pass> {
    fence("a").row(client).await.expect("read")
}

#[tokio::test]
async fn a_transaction_whose_raise_was_refused_commits_nothing() {
    let database = PostgresServer::database().await;
    let mut client = prepare(&database).await;
    let reader = database.connect().await;
    let names = ["nightly", "week\"ly' é \\ «»"];
    for (name, shown) in names.iter().flat_map(|name| {
        let passes = [
            pass_for(name, 1, 1),
            pass_for(name, 1, 2),
            pass_for("other", 3, 9),
        ];
        passes.map(|pass| (name, pass))
    }) {
        client
            .batch_execute("TRUNCATE leasehold_fence")
            .await
            .expect("emptied");
        let stored = pass_for(name, 2, 2);
        let raised = fence("a")
            .begin(&mut client, &stored)
            .await
            .expect("raised");
        raised.commit().await.expect("committed");
        let transaction = client.transaction().await.expect("begun");
        let error = fence("a")
            .raise(&transaction, &shown)
            .await
            .expect_err("refused");
        let expected = judge(Some(&stored), &shown).expect_err("refused");
        assert_eq!(Refusal::of(&error), Some(&expected), "{error:?}");
        // The caller ignores the error, and commits.
        let write = "INSERT INTO register VALUES ('a', 'stale') ON CONFLICT DO NOTHING";
        transaction
            .batch_execute(write)
            .await
            .expect_err("the transaction has failed");
        let _ = transaction.commit().await;
        assert_eq!(get(&reader, "a").await, None, "{shown:?}");
        assert_eq!(row_of_fence(&reader).await, Some(stored));
    }
}

#[tokio::test]
async fn a_raise_that_a_trigger_swallows_is_not_taken_for_one() {
    let database = PostgresServer::database().await;
    let mut client = prepare(&database).await;
    let trigger = "
        CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        CREATE TRIGGER swallow BEFORE INSERT ON leasehold_fence FOR EACH ROW EXECUTE FUNCTION swallow()";
    client.batch_execute(trigger).await.expect("made");
    let error = fence("a").begin(&mut client, &pass(1, 1)).await;
    let error = error.err().expect("nothing was written");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
}

/// As the page says: what a savepoint takes back of a further raise.
#[tokio::test]
async fn after_a_rollback_to_a_savepoint_the_fences_raised_before_it_stand_and_no_others() {
    let database = PostgresServer::database().await;
    let (mut client, other) = (prepare(&database).await, database.connect().await);
    let mut transaction = fence("a")
        .begin(&mut client, &pass(2, 2))
        .await
        .expect("raised");
    let savepoint = transaction.transaction().await.expect("a savepoint");
    // The first raise cannot be taken back alone.
    let error = fence("b")
        .raise(&savepoint, &pass(2, 2))
        .await
        .expect_err("too late");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
    savepoint.rollback().await.expect("rolled back");
    let savepoint = transaction.transaction().await.expect("a savepoint");
    fence("b")
        .raise_also(&savepoint, &pass(2, 2))
        .await
        .expect("raised");
    set(&savepoint, "a", "taken back").await;
    savepoint.rollback().await.expect("rolled back");
    // Nor is a refusal inside one the end of the transaction.
    let savepoint = transaction.transaction().await.expect("a savepoint");
    let error = fence("a")
        .raise_also(&savepoint, &pass(1, 1))
        .await
        .expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Stale, "{error:?}");
    savepoint.rollback().await.expect("rolled back");
    set(&transaction, "a", "kept").await;
    transaction.commit().await.expect("committed");
    assert_eq!(get(&other, "a").await.as_deref(), Some("kept"));
    assert_eq!(row_of_fence(&other).await, Some(pass(2, 2)));
    assert_eq!(fence("b").row(&other).await.expect("read"), None);
}
