//! What a fence costs: one write of user data with it and without it, for each guard.
//!
//! ```text
//! cargo bench -p leasehold-benches --bench fence
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures with the clock that stands still in no suspend it would survive"
)]

use std::fs::File;
use std::io::Write;
use std::time::Instant;

use ::http::{HeaderMap, HeaderValue, Request};
use alternating::alternating;
use axum::body::Body;
use axum::{Router, routing::put};
use deadpool_redis::redis;
use harness::bucket_server::{BucketServer, Program};
use leasehold::ClientId;
use leasehold::fence::gate::Gate;
use leasehold::fence::tower::FenceLayer;
use leasehold::fence::{self, Pass};
use leasehold::{Holder, Name, Token};
use leasehold_benches as yardstick;
use leasehold_benches::alternating;
use leasehold_benches::postgres;
use leasehold_harness as harness;
use object_store::ObjectStoreExt;
use rusqlite::TransactionBehavior;
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgPoolOptions;
use tokio_postgres::NoTls;
use tower_service::Service;
use yardstick::{Server, case, figure, median, seconds};

const RUNS: usize = 7;
const BLOCKS: usize = 6;
/// Writes in one block; ours and the other alternate block by block, so that both meet the same noise of the machine.
const BLOCK: usize = 50;

/// Measures one write in two forms, alternating block by block.
async fn compare(name: &str, mut fenced: impl AsyncFnMut(), mut plain: impl AsyncFnMut()) {
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(alternating(BLOCKS, BLOCK, &mut fenced, &mut plain).await);
    }
    case(&format!("fenced_write_vs_plain_{name}"), "us", &runs);
}

fn pass(token: u64) -> Pass {
    let holder = Holder::draw(ClientId::draw()).expect("random bits");
    let name = Name::new("bench").expect("valid");
    Pass::new(name, holder, Token::new(token).expect("valid"))
}

async fn on_redis() {
    let server = Server::start().await;
    let (mut ours, mut other) = (server.connect().await, server.connect().await);
    let fence = fence::redis::Fence::new("bench").expect("valid");
    let pass = pass(1);
    let mut commands = redis::pipe();
    commands.set("value:{bench}", "a value of twenty by");
    compare(
        "redis",
        async || {
            let written = fence.write::<()>(&mut ours, &pass, &commands).await;
            written.expect("written");
        },
        async || {
            let written = commands.query_async::<()>(&mut other).await;
            written.expect("written");
        },
    )
    .await;
}

async fn on_rusqlite() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let open = || {
        let connection = rusqlite::Connection::open(folder.path().join("data")).expect("a file");
        connection
            .pragma_update(None, "journal_mode", "wal")
            .expect("a local file");
        connection
            .pragma_update(None, "synchronous", "normal")
            .expect("known");
        connection
    };
    let (mut ours, mut other) = (open(), open());
    let fence = fence::rusqlite::Fence::new("bench").expect("valid");
    fence.create_table(&ours).expect("made");
    ours.execute_batch("CREATE TABLE data (total INTEGER); INSERT INTO data VALUES (0)")
        .expect("made");
    let pass = pass(1);
    let write = |transaction: rusqlite::Transaction<'_>| {
        let mut statement = transaction
            .prepare_cached("UPDATE data SET total = total + 1")
            .expect("valid");
        statement.execute([]).expect("written");
        drop(statement);
        transaction.commit().expect("committed");
    };
    compare(
        "rusqlite",
        async || write(fence.begin(&mut ours, &pass).expect("raised")),
        async || {
            let begun = other.transaction_with_behavior(TransactionBehavior::Immediate);
            write(begun.expect("begun"));
        },
    )
    .await;
}

const UPDATE: &str = "UPDATE data SET total = total + 1 WHERE id = ";

async fn on_tokio_postgres(server: &postgres::Server) {
    let connect = async || {
        let connected = tokio_postgres::connect(&server.url(), NoTls).await;
        let (client, connection) = connected.expect("it is up");
        tokio::spawn(connection);
        client
    };
    let (mut ours, mut other) = (connect().await, connect().await);
    let fence = fence::tokio_postgres::Fence::new("bench").expect("valid");
    fence.create_table(&ours).await.expect("made");
    let tables = "CREATE TABLE data (id INT PRIMARY KEY, total BIGINT);
                  INSERT INTO data SELECT id, 0 FROM generate_series(1, 4) AS id";
    ours.batch_execute(tables).await.expect("made");
    let pass = pass(1);
    let write = async |transaction: tokio_postgres::Transaction<'_>, id: i32| {
        let update = format!("{UPDATE}{id}");
        transaction.batch_execute(&update).await.expect("written");
        transaction.commit().await.expect("committed");
    };
    compare(
        "tokio_postgres",
        async || write(fence.begin(&mut ours, &pass).await.expect("raised"), 1).await,
        async || write(other.transaction().await.expect("begun"), 2).await,
    )
    .await;
}

async fn on_sqlx(server: &postgres::Server) {
    let pool = PgPoolOptions::new().max_connections(1);
    let pool = pool.connect(&server.url()).await.expect("it is up");
    let fence = fence::sqlx::Fence::new("bench sqlx").expect("valid");
    fence.create_table(&pool).await.expect("made");
    let pass = pass(1);
    let write = async |mut transaction: sqlx::Transaction<'static, sqlx::Postgres>, id: i32| {
        let update = sqlx::query(AssertSqlSafe(format!("{UPDATE}{id}")));
        update.execute(&mut *transaction).await.expect("written");
        transaction.commit().await.expect("committed");
    };
    compare(
        "sqlx",
        async || write(fence.begin(&pool, &pass).await.expect("raised"), 3).await,
        async || write(pool.begin().await.expect("begun"), 4).await,
    )
    .await;
}

/// Compares with the least that a service does for a write: an unflushed line into a file.
async fn on_gate() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let gate = Gate::open(folder.path().join("fences"))
        .await
        .expect("opened");
    let mut file = File::create(folder.path().join("data")).expect("a file");
    let mut other = file.try_clone().expect("a second handle");
    let pass = pass(1);
    compare(
        "gate",
        async || {
            let _entry = gate.enter("bench", &pass).await.expect("let in");
            file.write_all(b"a value of twenty by\n").expect("written");
        },
        async || other.write_all(b"a value of twenty by\n").expect("written"),
    )
    .await;
}

/// Calls the handler in this process: what a socket would cost in addition is the same for both.
async fn on_tower() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let gate = Gate::open(folder.path().join("fences"))
        .await
        .expect("opened");
    let layer = FenceLayer::new(gate, |request| request.uri.path().into());
    let mut other: Router = Router::new().route("/data", put(async |body: String| body));
    let mut ours = other.clone().layer(layer);
    let shown = HeaderMap::from_iter([(fence::http::HEADER, fence::http::header_value(&pass(1)))]);
    let call = async |service: &mut Router, value: Option<&HeaderValue>| {
        let mut request = Request::put("/data");
        if let Some(value) = value {
            request = request.header(fence::http::HEADER, value);
        }
        let request = request
            .body(Body::from("a value of twenty by"))
            .expect("valid");
        let answer = service.call(request).await.expect("answered");
        assert!(answer.status().is_success());
    };
    let value = shown.get(fence::http::HEADER);
    compare(
        "tower",
        async || call(&mut ours, value).await,
        async || call(&mut other, None).await,
    )
    .await;
}

/// Compares with a put without a condition, of as many bytes, to the same server.
async fn on_object_store(program: Program) {
    let server = BucketServer::start(program).await;
    let (ours, other) = (server.bucket(), server.bucket());
    let fence = fence::object_store::Fence::new(ours, "bench/fenced").expect("valid");
    let pass = pass(1);
    let content = || vec![b'a'; 4_096];
    fence.raise(&pass).await.expect("raised");
    compare(
        &format!("object_store_{program:?}").to_lowercase(),
        async || {
            let written = fence.commit(&pass, |_| content()).await;
            written.expect("written");
        },
        async || {
            let put = other.put(&"bench/plain".into(), content().into()).await;
            put.expect("written");
        },
    )
    .await;
}

/// Measures what a new holder pays once: its raise, flushed to the disk.
async fn raise_of_gate() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let gate = Gate::open(folder.path().join("fences"))
        .await
        .expect("opened");
    let mut runs = Vec::new();
    let mut token = 0;
    for _ in 0..RUNS {
        let mut times = Vec::new();
        for _ in 0..BLOCK {
            token += 1;
            let pass = pass(token);
            let start = Instant::now();
            gate.raise("bench", &pass).await.expect("raised");
            times.push(seconds(start) * 1e6);
        }
        runs.push(median(times));
    }
    figure("gate_raise", "us", &runs);
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    on_redis().await;
    on_rusqlite().await;
    let server = postgres::Server::start().await;
    on_tokio_postgres(&server).await;
    on_sqlx(&server).await;
    drop(server);
    on_gate().await;
    on_tower().await;
    on_object_store(Program::Moto).await;
    on_object_store(Program::Versitygw).await;
    raise_of_gate().await;
}
