//! What else takes a name in Postgres with two statements, on one connection each, prepared once.

use leasehold::{ClientId, Holder};
use tokio_postgres::{NoTls, Statement};

/// A way to take a name and free it.
pub(crate) trait Baseline: Send + Sync + Sized + 'static {
    const NAME: &'static str;

    fn connect(url: &str) -> impl Future<Output = Self>;

    fn pair(&self, name: &str) -> impl Future<Output = ()> + Send;
}

/// The least that mints a rising token: one row a name, no queue, no notice, no info, no repeated claim.
#[derive(Debug)]
pub(crate) struct Bare(Statements);

/// ShedLock's `JdbcTemplateLockProvider` with database time, as its `PostgresSqlServerTimeStatementsSource` has it. It has
/// no token and no renewal.
#[derive(Debug)]
pub(crate) struct ShedLock(Statements);

#[derive(Debug)]
struct Statements {
    client: tokio_postgres::Client,
    take: Statement,
    free: Statement,
}

impl Statements {
    async fn prepare(url: &str, table: &str, take: &str, free: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("it is up");
        tokio::spawn(connection);
        client
            .batch_execute(table)
            .await
            .expect("the table is made");
        Self {
            take: client.prepare(take).await.expect("in order"),
            free: client.prepare(free).await.expect("in order"),
            client,
        }
    }

    async fn pair(&self, name: &str, holder: &str) {
        for statement in [&self.take, &self.free] {
            let changed = self.client.execute(statement, &[&name, &holder]).await;
            assert_eq!(changed.expect("answered"), 1, "{name} is free, then ours");
        }
    }
}

impl Baseline for Bare {
    const NAME: &'static str = "bare";

    async fn connect(url: &str) -> Self {
        Self(
            Statements::prepare(
                url,
                "CREATE TABLE IF NOT EXISTS bare (
                   name text PRIMARY KEY, token bigint NOT NULL, holder text NOT NULL, ends_at timestamptz NOT NULL
                 ) WITH (fillfactor = 80)",
                "INSERT INTO bare AS b VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, $2,
                   clock_timestamp() + interval '30 s')
                 ON CONFLICT (name) DO UPDATE SET token = greatest(b.token + 1, excluded.token), holder = excluded.holder,
                   ends_at = clock_timestamp() + interval '30 s'
                 WHERE b.ends_at <= clock_timestamp() RETURNING token",
                "UPDATE bare SET ends_at = clock_timestamp() WHERE name = $1 AND holder = $2 AND ends_at > clock_timestamp()",
            )
            .await,
        )
    }

    async fn pair(&self, name: &str) {
        let holder = Holder::draw(ClientId::draw())
            .expect("random bits")
            .to_string();
        self.0.pair(name, &holder).await;
    }
}

impl Baseline for ShedLock {
    const NAME: &'static str = "shedlock";

    async fn connect(url: &str) -> Self {
        Self(
            Statements::prepare(
                url,
                "CREATE TABLE IF NOT EXISTS shedlock (
                   name varchar(64) NOT NULL PRIMARY KEY, lock_until timestamp NOT NULL, locked_at timestamp NOT NULL,
                   locked_by varchar(255) NOT NULL
                 )",
                "INSERT INTO shedlock(name, lock_until, locked_at, locked_by)
                 VALUES ($1, timezone('utc', CURRENT_TIMESTAMP) + cast('30 seconds' as interval),
                   timezone('utc', CURRENT_TIMESTAMP), $2)
                 ON CONFLICT (name) DO UPDATE SET
                   lock_until = timezone('utc', CURRENT_TIMESTAMP) + cast('30 seconds' as interval),
                   locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = $2
                 WHERE shedlock.name = $1 AND shedlock.lock_until <= timezone('utc', CURRENT_TIMESTAMP)",
                "UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) WHERE name = $1 AND locked_by = $2",
            )
            .await,
        )
    }

    async fn pair(&self, name: &str) {
        self.0.pair(name, "bench").await;
    }
}
