//! The checks of a fence in other languages, as the page on fences gives them, in jobs of the tool.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::put;
use leasehold::fence::gate::Gate;
use leasehold::fence::tower::FenceLayer;
use leasehold::fence::{self, Pass};
use leasehold::{ClientId, Holder, Name, Token};

use super::{Ended, Sandbox};
use crate::harness::bucket_server::{BucketServer, target};
use crate::harness::postgres_server::PostgresServer;

/// The block of the page that begins so.
fn documented(language: &str, start: &str) -> &'static str {
    let page = include_str!("../../../src/fence/README.md");
    let opened = format!("```{language}\n{start}");
    let at = page.find(&opened).expect("the page has the block");
    let block = &page[at + language.len() + 4..];
    block.split_once("```").expect("the block ends").0
}

/// A pass under the same name that is far ahead of every grant.
fn newer() -> Pass {
    Pass::new(
        Name::new("x").expect("valid"),
        Holder::new(ClientId::from_u128(7), 1),
        Token::MAX,
    )
}

/// A job of this script, with this environment.
async fn job(script: &str, environment: &[(&str, String)]) -> Ended {
    let (script, environment) = (script.to_owned(), owned(environment));
    let ended = tokio::task::spawn_blocking(move || {
        let sandbox = Sandbox::new();
        let mut command = sandbox.tool(&["run", "x", "--", "sh", "-c", &script]);
        command.envs(environment);
        sandbox.start(command).end()
    });
    ended.await.expect("no panic")
}

fn owned(environment: &[(&str, String)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, String)| ((*name).to_owned(), value.clone());
    environment.iter().map(owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psql_as_documented_writes_under_the_jobs_pass_and_fails_when_it_is_stale() {
    let database = PostgresServer::database().await;
    let mut client = database.connect().await;
    let fence = fence::tokio_postgres::Fence::new("ledger").expect("valid");
    fence.create_table(&client).await.expect("made");
    let table = "CREATE TABLE ledger (total INT); INSERT INTO ledger VALUES (0)";
    client.batch_execute(table).await.expect("made");
    let script = documented("sh", "psql");
    let environment = [("DATABASE_URL", database.url())];
    for _ in 0..2 {
        let ended = job(script, &environment).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    let raised = fence.begin(&mut client, &newer()).await.expect("raised");
    raised.commit().await.expect("committed");
    let ended = job(script, &environment).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stderr.contains("division by zero"), "{ended:?}");
    let row = client.query_one("SELECT total FROM ledger", &[]).await;
    assert_eq!(row.expect("read").get::<_, i32>(0), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_as_documented_writes_under_the_jobs_pass_and_fails_when_it_is_stale() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let gate = Gate::open(folder.path().join("fences")).await;
    let gate = gate.expect("opened");
    let writes = Arc::<Mutex<Vec<String>>>::default();
    let written = writes.clone();
    let write = async move |body: String| written.lock().unwrap().push(body);
    let service = Router::new()
        .route("/ledger", put(write))
        .layer(FenceLayer::new(gate.clone(), |_| "ledger".into()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move { axum::serve(listener, service).await });

    let script = documented("sh", "curl");
    let environment = [("LEDGER_URL", format!("http://{address}/ledger"))];
    let ended = job(script, &environment).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(*writes.lock().unwrap(), ["total=7"]);
    gate.raise("ledger", &newer()).await.expect("raised");
    let ended = job(script, &environment).await;
    assert_eq!(ended.code, Some(22), "{ended:?}");
    assert!(
        ended.stdout.contains("urn:leasehold:fence:stale"),
        "{ended:?}"
    );
    assert_eq!(writes.lock().unwrap().len(), 1);
}

/// A part of `faults::object_store`.
pub(crate) async fn python_writes_under_the_jobs_pass_and_fails_when_it_is_stale() {
    let server = BucketServer::shared().await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("job.py");
    std::fs::write(&file, documented("python", "import json")).expect("written");
    let script = format!(
        "exec {} {}",
        target().join("moto/bin/python").display(),
        file.display()
    );
    let mut environment = server.environment().to_vec();
    environment.push(("BUCKET", server.bucket_name().into()));

    // The page's path is shared by all jobs: this is the only test that has it.
    let fence = fence::object_store::Fence::new(server.bucket(), "ledger/total").expect("valid");
    for total in ["1", "2"] {
        let ended = job(&script, &environment).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let object = fence.read().await.expect("the page's format");
        assert_eq!(object.expect("written").content, total);
    }
    let raised = fence.raise(&newer()).await.expect("raised");
    let ended = job(&script, &environment).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("stale: the ledger"), "{ended:?}");
    let object = fence.read().await.expect("read").expect("written");
    assert_eq!((object.content, object.pass), (raised.content, raised.pass));
}
