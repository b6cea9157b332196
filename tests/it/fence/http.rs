//! The fence over HTTP: a real service behind the layer, and a client on a socket.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::routing::{get, put};
use axum::{Extension, Router};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use leasehold::fence::gate::Gate;
use leasehold::fence::tower::FenceLayer;
use leasehold::fence::{Blocked, Pass, Refusal, http as fence};
use leasehold::{Error, ErrorKind};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Guard, keeps_the_contract, pass, pass_for};

type Writes = Arc<Mutex<Vec<(String, Pass)>>>;

struct Service {
    address: SocketAddr,
    writes: Writes,
    gate: Gate,
    _folder: TempDir,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Service {
    async fn start() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let gate = Gate::open(folder.path().join("fences"))
            .await
            .expect("opened");
        let gate = gate.with_patience(Duration::from_millis(50));
        let writes = Writes::default();
        let fence = FenceLayer::new(gate.clone(), |request| request.uri.path().into());
        let service = Router::new()
            .route("/devices/{id}", get(async || "read").put(take_write))
            .with_state(writes.clone())
            .layer(fence);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        tokio::spawn(async move { axum::serve(listener, service).await });
        Self {
            address,
            writes,
            gate,
            _folder: folder,
        }
    }

    async fn send(&self, method: &str, headers: &HeaderMap) -> Answer {
        send_request(self.address, method, "/devices/7", headers, "").await
    }

    /// As a client of the fence's: shows its pass, and hears the answer.
    async fn write(&self, pass: &Pass) -> Result<(), Error> {
        let mut headers = HeaderMap::new();
        let shown = fence::insert_pass(&mut headers, pass)?;
        let answer = self.send("PUT", &headers).await;
        fence::check_response(
            pass,
            "/devices/7",
            &shown,
            answer.status,
            answer.body.as_bytes(),
        )?;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        Ok(())
    }

    fn writes(&self) -> Vec<Pass> {
        let writes = self.writes.lock().unwrap();
        writes.iter().map(|(_, pass)| pass.clone()).collect()
    }
}

async fn send_request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &HeaderMap,
    body: &str,
) -> Answer {
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {}\r\n", value.to_str().expect("ASCII")));
    }
    request.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    let mut stream = TcpStream::connect(address).await.expect("it is up");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    Answer::parse(&answer)
}

impl Answer {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let headers = lines.filter_map(|line| {
            let (name, value) = line.split_once(": ")?;
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            Some((name, HeaderValue::from_str(value).expect("a value")))
        });
        Self {
            status: status.expect("a status").parse().expect("a number"),
            headers: headers.collect(),
            body: body.into(),
        }
    }
}

async fn take_write(
    State(writes): State<Writes>,
    Path(id): Path<String>,
    Extension(pass): Extension<Pass>,
) -> &'static str {
    writes.lock().unwrap().push((id, pass));
    "written"
}

fn headers_of(pass: &Pass) -> HeaderMap {
    HeaderMap::from_iter([(fence::HEADER, fence::header_value(pass))])
}

/// The page says 400 of a malformed header alone: the sender could mend nothing here.
#[tokio::test]
async fn a_resource_that_the_layer_cannot_name_is_no_malformed_header() {
    let service = Service::start().await;
    let mut headers = HeaderMap::new();
    fence::insert_pass(&mut headers, &pass(1, 1)).expect("a pass");
    let path = format!("/devices/{}", "a".repeat(600));
    let answer = send_request(service.address, "PUT", &path, &headers, "").await;
    assert_eq!(
        answer.status,
        StatusCode::INTERNAL_SERVER_ERROR,
        "{}",
        answer.body
    );
    assert!(!answer.body.contains("aaa"), "{}", answer.body);
}

#[tokio::test]
async fn a_stale_writer_is_answered_412_and_its_handler_does_not_run() {
    let service = Service::start().await;
    let (older, successor) = (pass(1, 1), pass(2, 2));
    service.write(&older).await.expect("written");
    service.write(&successor).await.expect("written");
    let error = service.write(&older).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Stale);
    let stored = successor.token;
    assert_eq!(Refusal::of(&error), Some(&Refusal::Stale { stored }));
    assert_eq!(service.writes(), [older, successor]);
}

#[tokio::test]
async fn the_answers_have_their_documented_form() {
    let service = Service::start().await;
    service.write(&pass(2, 2)).await.expect("written");
    let other = pass_for("weekly", 3, 3);
    for (headers, status, kind, stored) in [
        (
            headers_of(&pass(1, 1)),
            412,
            "urn:leasehold:fence:stale",
            Some("2"),
        ),
        (
            headers_of(&other),
            412,
            "urn:leasehold:fence:conflict",
            Some("{"),
        ),
        (HeaderMap::new(), 428, "urn:leasehold:fence:missing", None),
        (
            HeaderMap::from_iter([(fence::HEADER, HeaderValue::from_static("2"))]),
            400,
            "urn:leasehold:fence:malformed",
            None,
        ),
    ] {
        let answer = service.send("PUT", &headers).await;
        assert_eq!(answer.status, status, "{}", answer.body);
        assert_eq!(answer.headers["content-type"], "application/problem+json");
        assert_eq!(answer.headers["cache-control"], "no-store");
        let body: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
        assert_eq!(body["type"], kind);
        assert_eq!(body["status"], status);
        let seen = body.get("stored").map(ToString::to_string);
        assert_eq!(seen.is_some(), stored.is_some(), "{body}");
        assert!(
            seen.unwrap_or_default()
                .starts_with(stored.unwrap_or_default())
        );
    }
    assert_eq!(service.writes().len(), 1);
}

#[tokio::test]
async fn a_reader_that_shows_a_pass_raises_the_fence_and_one_without_reads_on() {
    let service = Service::start().await;
    let (older, successor) = (pass(1, 1), pass(2, 2));
    service.write(&older).await.expect("written");
    let answer = service.send("GET", &headers_of(&successor)).await;
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (StatusCode::OK, "read")
    );
    assert!(service.write(&older).await.is_err());
    let answer = service.send("GET", &HeaderMap::new()).await;
    assert_eq!(answer.status, StatusCode::OK);
    let answer = service.send("GET", &headers_of(&older)).await;
    assert_eq!(answer.status, StatusCode::PRECONDITION_FAILED);
}

#[tokio::test]
async fn a_blocked_raise_may_be_tried_again() {
    let service = Service::start().await;
    let (older, successor) = (pass(1, 1), pass(2, 2));
    let entry = service
        .gate
        .enter("/devices/7", &older)
        .await
        .expect("let in");
    let answer = service.send("PUT", &headers_of(&successor)).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.headers["retry-after"], "1");
    let error = service.write(&successor).await.expect_err("blocked");
    assert!(Blocked::of(&error).is_some());
    drop(entry);
    service.write(&successor).await.expect("written");
}

/// A service of registers: `PUT` writes one, `POST` only raises its fence. The path is the resource in hex digits.
#[derive(Debug)]
struct Registers {
    address: SocketAddr,
    values: Values,
    gate: Gate,
    _folder: TempDir,
}

type Values = Arc<Mutex<HashMap<String, String>>>;

impl Registers {
    async fn start() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let gate = Gate::open(folder.path().join("fences"))
            .await
            .expect("opened");
        let values = Values::default();
        let resource = |request: &http::request::Parts| request.uri.path()[1..].into();
        let service = Router::new()
            .route("/{resource}", put(set_value).post(async || ()))
            .with_state(values.clone())
            .layer(FenceLayer::new(gate.clone(), resource));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        tokio::spawn(async move { axum::serve(listener, service).await });
        Self {
            address,
            values,
            gate,
            _folder: folder,
        }
    }

    async fn ask(
        &self,
        method: &str,
        resource: &str,
        shown: Option<&Pass>,
        body: &str,
    ) -> Result<(), Error> {
        let headers = shown.map(self::headers_of).unwrap_or_default();
        let path = format!("/{}", hex(resource));
        let answer = send_request(self.address, method, &path, &headers, body).await;
        // A request without a pass is told of the refusal, too.
        let nobody = pass(0, 1);
        let shown = shown.unwrap_or(&nobody);
        fence::check_response(
            shown,
            resource,
            shown,
            answer.status,
            answer.body.as_bytes(),
        )?;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        Ok(())
    }
}

async fn set_value(State(values): State<Values>, Path(resource): Path<String>, value: String) {
    values.lock().unwrap().insert(resource, value);
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

impl Guard for Registers {
    async fn raise(&self, resource: &str, shown: Option<&Pass>) -> Result<(), Error> {
        self.ask("POST", resource, shown, "").await
    }

    async fn write(&self, resource: &str, shown: Option<&Pass>, value: &str) -> Result<(), Error> {
        self.ask("PUT", resource, shown, value).await
    }

    async fn read(&self, resource: &str) -> Option<String> {
        self.values.lock().unwrap().get(&hex(resource)).cloned()
    }

    async fn row(&self, resource: &str) -> Option<Pass> {
        self.gate.row(&hex(resource)).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_behind_the_layer_keeps_the_contract() {
    keeps_the_contract(Registers::start().await).await;
}
