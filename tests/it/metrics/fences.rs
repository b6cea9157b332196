//! Checks at guarded storage, in a process that has no client: each kind of fence moves its own series.

use http::{Request, Response};
use leasehold::fence::gate::Gate;
use leasehold::fence::tower::FenceLayer;
use leasehold::fence::{self, Pass, Refusal};
use leasehold::{ClientId, Error, Holder, Name, Token};
use tower_service::Service;

use super::exporter::{Exporter, run};
use crate::harness::postgres_server::PostgresServer;
use crate::harness::redis_server::RedisServer;

fn pass_of_a(claim: u64, token: u64) -> Pass {
    let holder = Holder::new(ClientId::from_u128(7), claim);
    Pass::new(Name::new("a").unwrap(), holder, Token::new(token).unwrap())
}

/// How often this fence had this outcome, as the exporter is told without being brought up to date.
fn checks(seen: &Exporter, fence: &str, outcome: &str) -> f64 {
    let labels = [
        &format!("fence=\"{fence}\"") as &str,
        &format!("outcome=\"{outcome}\""),
    ];
    let value = seen.value("leasehold_fence_checks_total", &labels);
    value.unwrap_or_default()
}

/// How many checks of this fence were timed.
fn timed(seen: &Exporter, fence: &str) -> Option<f64> {
    let label = format!("fence=\"{fence}\"");
    seen.value("leasehold_fence_check_duration_seconds_count", &[&label])
}

/// Has a fence admit a pass, and refuse one that is stale and one that is in conflict.
async fn are_counted(seen: &Exporter, fence: &str, raise: impl AsyncFn(Pass) -> Result<(), Error>) {
    raise(pass_of_a(1, 5)).await.unwrap();
    raise(pass_of_a(1, 4)).await.unwrap_err();
    raise(pass_of_a(2, 5)).await.unwrap_err();
    for outcome in ["admitted", "stale", "conflict"] {
        assert_eq!(checks(seen, fence, outcome), 1.0, "{outcome}");
    }
    assert_eq!(timed(seen, fence), Some(3.0));
}

#[test]
fn each_outcome_of_a_check_is_counted_and_timed() {
    run(async |seen| {
        let folder = tempfile::tempdir().unwrap();
        let gate = Gate::open(folder.path().join("fences")).await.unwrap();
        let raise = async |pass: Pass| gate.enter("ledger", &pass).await.map(drop);
        are_counted(&seen, "gate", raise).await;
        let inside = gate.enter("ledger", &pass_of_a(1, 5)).await.unwrap();
        let hasty = gate.clone().with_patience(std::time::Duration::ZERO);
        hasty.enter("ledger", &pass_of_a(3, 6)).await.unwrap_err();
        drop(inside);
        assert_eq!(checks(&seen, "gate", "failed"), 1.0);
        assert_eq!(timed(&seen, "gate"), Some(5.0));
    });
}

#[test]
fn checks_in_redis_are_counted() {
    run(async |seen| {
        let server = RedisServer::start().await;
        let connection = server.connect().await.unwrap();
        let fence = fence::redis::Fence::new("ledger").unwrap();
        let raise = async |pass| fence.raise(&mut connection.clone(), &pass).await;
        are_counted(&seen, "redis", raise).await;
        drop(server);
        fence
            .raise(&mut connection.clone(), &pass_of_a(3, 6))
            .await
            .unwrap_err();
        assert_eq!(checks(&seen, "redis", "failed"), 1.0);
    });
}

#[test]
fn checks_in_sqlite_are_counted() {
    run(async |seen| {
        let file = tempfile::NamedTempFile::new().unwrap();
        let connect = || rusqlite::Connection::open(file.path()).unwrap();
        let fence = fence::rusqlite::Fence::new("ledger").unwrap();
        fence.create_table(&connect()).unwrap();
        let raise = async |pass: Pass| {
            let mut connection = connect();
            let transaction = fence.begin(&mut connection, &pass)?;
            transaction.commit().unwrap();
            Ok(())
        };
        are_counted(&seen, "rusqlite", raise).await;
    });
}

#[test]
fn checks_in_postgres_are_counted_by_driver() {
    run(async |seen| {
        let database = PostgresServer::database().await;
        let fence = fence::tokio_postgres::Fence::new("ledger").unwrap();
        let client = database.connect().await;
        fence.create_table(&client).await.unwrap();
        let raise = async |pass: Pass| {
            let mut client = database.connect().await;
            let transaction = fence.begin(&mut client, &pass).await?;
            transaction.commit().await.unwrap();
            Ok(())
        };
        are_counted(&seen, "tokio_postgres", raise).await;

        let pool = sqlx::PgPool::connect(&database.url()).await.unwrap();
        let fence = fence::sqlx::Fence::new("other").unwrap();
        let raise = async |pass: Pass| {
            let transaction = fence.begin(&pool, &pass).await?;
            transaction.commit().await.unwrap();
            Ok(())
        };
        are_counted(&seen, "sqlx", raise).await;
    });
}

#[test]
fn a_refusal_that_came_over_http_is_counted_on_both_sides() {
    run(async |seen| {
        let folder = tempfile::tempdir().unwrap();
        let gate = Gate::open(folder.path().join("fences")).await.unwrap();
        let layer = FenceLayer::new(gate, |_| "ledger".into());
        let ask = async |pass: Pass| {
            let mut service = tower_layer::Layer::layer(&layer, Handler);
            let mut request = Request::put("/").body(()).unwrap();
            fence::http::insert_pass(request.headers_mut(), &pass).unwrap();
            let response = service.call(request).await.unwrap();
            let (status, body) = (response.status(), response.body().as_bytes());
            fence::http::check_response(&pass, "ledger", &pass, status, body)
        };
        are_counted(&seen, "gate", ask).await;
        for outcome in ["stale", "conflict"] {
            assert_eq!(checks(&seen, "http", outcome), 1.0, "{outcome}");
        }
    });
}

/// A service that has nothing to do.
#[derive(Clone)]
struct Handler;

impl Service<Request<()>> for Handler {
    type Response = Response<String>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        std::future::ready(Ok(Response::new(String::new())))
    }
}

#[test]
fn a_refusal_by_a_guard_of_the_users_own_is_counted() {
    run(async |seen| {
        let stored = Token::new(6).unwrap();
        let shown = pass_of_a(1, 5);
        let error = fence::refused(&shown, "ledger", &shown, Refusal::Stale { stored });
        assert_eq!(error.kind(), leasehold::ErrorKind::Stale);
        assert_eq!(checks(&seen, "other", "stale"), 1.0);
    });
}
