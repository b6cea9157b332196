//! On Postgres: one statement that calls the store's function for each of its claims, and one for each of its releases. All
//! of one statement commit at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::store::{self, TableSettings};
use leasehold::{ClientId, Holder};
use leasehold_benches::postgres::Server;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Statement};

use crate::gather::{Count, Gathered};
use crate::{Way, carried, compare};

const INFO: &str = r#"{"host":"bench","pid":1}"#;
const PAIRS: usize = 8_000;
/// As many as the store opens at most, unless it is told otherwise.
const CONNECTIONS: usize = 10;

const ACQUIRE: &str = "SELECT outcome FROM leasehold.acquire_1($1, $2, 30000, $3, 0, NULL)";
const RELEASE: &str = "SELECT outcome FROM leasehold.release_1($1, $2, 0)";
// In the order of their names: two statements that lock the rows of the same names do not wait for each other in a circle.
const ACQUIRE_MANY: &str = "SELECT a.outcome
    FROM (SELECT * FROM unnest($1::text[], $2::text[]) AS c(name, holder) ORDER BY name OFFSET 0) AS c
    CROSS JOIN LATERAL leasehold.acquire_1(c.name, c.holder, 30000, $3, 0, NULL) AS a";
const RELEASE_MANY: &str = "SELECT r.outcome
    FROM (SELECT * FROM unnest($1::text[], $2::text[]) AS c(name, holder) ORDER BY name OFFSET 0) AS c
    CROSS JOIN LATERAL leasehold.release_1(c.name, c.holder, 0) AS r";

/// A connection with its statements.
struct Session {
    client: Client,
    acquire: Statement,
    release: Statement,
}

impl Session {
    async fn open(url: &str, acquire: &str, release: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("it is up");
        tokio::spawn(connection);
        Self {
            acquire: client.prepare(acquire).await.expect("in order"),
            release: client.prepare(release).await.expect("in order"),
            client,
        }
    }
}

fn drawn(client: ClientId) -> String {
    Holder::draw(client).expect("random bits").to_string()
}

/// A request for each claim and each release, over as many connections as the store has.
#[derive(Clone)]
struct Single {
    sessions: Arc<Vec<Session>>,
    next: Arc<AtomicUsize>,
    client: ClientId,
}

impl Way for Single {
    async fn pair(&self, name: &str) {
        let session = self.next.fetch_add(1, Ordering::Relaxed) % self.sessions.len();
        let session = &self.sessions[session];
        let holder = drawn(self.client);
        let asked: [&(dyn ToSql + Sync); 3] = [&name, &holder, &INFO];
        let granted = session.client.query_one(&session.acquire, &asked).await;
        assert_eq!(granted.expect("answered").get::<_, &str>(0), "granted");
        let released = session.client.query_one(&session.release, &asked[..2]);
        let released = released.await.expect("answered");
        assert_eq!(released.get::<_, &str>(0), "released");
    }
}

/// A name and the holder.
type Asked = (String, String);

/// One connection for claims and one for releases.
#[derive(Clone)]
struct Together {
    claims: Gathered<Asked, String>,
    releases: Gathered<Asked, String>,
    client: ClientId,
}

impl Together {
    async fn start(url: &str, count: &Count) -> Self {
        let claims = Arc::new(Session::open(url, ACQUIRE_MANY, RELEASE_MANY).await);
        let releases = Arc::new(Session::open(url, ACQUIRE_MANY, RELEASE_MANY).await);
        Self {
            claims: Gathered::start(1, count, move |asked| {
                let session = claims.clone();
                async move { ask(&session.client, &session.acquire, asked, Some(INFO)).await }
            }),
            releases: Gathered::start(1, count, move |asked| {
                let session = releases.clone();
                async move { ask(&session.client, &session.release, asked, None).await }
            }),
            client: ClientId::draw(),
        }
    }
}

/// Returns the outcomes in the order of the names. All of them are alike, or the bench ends.
async fn ask(
    client: &Client,
    statement: &Statement,
    asked: Vec<Asked>,
    info: Option<&str>,
) -> Vec<String> {
    let (names, holders): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
    let rows = match info {
        Some(info) => client.query(statement, &[&names, &holders, &info]).await,
        None => client.query(statement, &[&names, &holders]).await,
    };
    let rows = rows.expect("answered");
    rows.iter().map(|row| row.get(0)).collect()
}

impl Way for Together {
    async fn pair(&self, name: &str) {
        let holder = drawn(self.client);
        let granted = self.claims.ask((name.to_owned(), holder.clone())).await;
        assert_eq!(granted, "granted");
        let released = self.releases.ask((name.to_owned(), holder)).await;
        assert_eq!(released, "released");
    }
}

pub(crate) async fn measure() {
    let server = Server::start().await;
    let url = server.url();
    let (settings, limit) = (TableSettings::default(), Duration::from_secs(10));
    store::init(&url, settings, limit).await.expect("set up");
    let mut sessions = Vec::new();
    for _ in 0..CONNECTIONS {
        sessions.push(Session::open(&url, ACQUIRE, RELEASE).await);
    }
    let single = Single {
        sessions: Arc::new(sessions),
        next: Arc::default(),
        client: ClientId::draw(),
    };
    for (tasks, pairs) in [(1, PAIRS / 8), (64, PAIRS)] {
        let count = Count::default();
        let together = Together::start(&url, &count).await;
        together.pair("warm").await;
        single.pair("warm").await;
        let ways = (together, single.clone());
        compare("postgres_1_under_way", ways, (tasks, pairs), server.id()).await;
        carried("postgres_1_under_way", tasks, &count);
    }
}
