//! A small HTTP server: five pages, GET and HEAD only, one request a connection.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic, wall_clock};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::page::{self, Snapshot};
use super::recorder::Recorder;
use crate::exit::Failure;

/// The longest head of a request; a scraper's has some hundred bytes.
const MAX_HEAD: usize = 8 * 1024;

/// Limit for a request, from its first byte to the last of its answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Most requests that are answered at the same time; more wait.
const AT_ONCE: usize = 16;

/// Interval at which samples are moved out of the way while nothing reads them.
const TIDY: Duration = Duration::from_secs(30);

const OK: &str = "200 OK";

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

/// What is served. The job or the scan writes the content.
pub struct Pages {
    recorder: Recorder,
    pub content: watch::Sender<Content>,
}

/// The content of the pages besides the metrics.
#[derive(Debug, Default)]
pub struct Content {
    pub is_ready: bool,
    pub status: Value,
    /// The contents of the page for people. A job has none.
    pub snapshot: Option<Snapshot>,
}

/// An answer before it is written.
struct Response {
    status: &'static str,
    kind: &'static str,
    body: String,
}

impl Pages {
    /// Pages that are not ready yet, with the metrics of this recorder.
    pub fn new(recorder: Recorder) -> Self {
        let content = watch::Sender::default();
        Self { recorder, content }
    }
}

/// Reads `9464`, `:9464`, `localhost:9464`, `0.0.0.0:9464` or `[::]:9464`. A port alone is one of this machine.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").unwrap_or(text);
    let port = port.strip_prefix(':').unwrap_or(port);
    if let Ok(port) = port.parse() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| {
        "expected a port of this machine such as 9464, or an address and a port such as 0.0.0.0:9464"
            .into()
    })
}

/// Binds the address, and serves the pages there on a thread of its own for as long as the process lives. Returns the
/// address, whose port was chosen if none was given.
pub fn serve(address: SocketAddr, pages: Arc<Pages>) -> Result<SocketAddr, Failure> {
    let refused = |error: std::io::Error| {
        Failure::usage(format!(
            "metrics address {address} refused: {error}; expected an address of this machine and a free port"
        ))
    };
    let listener = TcpListener::bind(address).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    std::thread::Builder::new()
        .name("metrics".into())
        .spawn(move || crate::block_on(accept(listener, pages)))
        .map_err(|error| Failure::internal("cannot start a thread", &error))?;
    Ok(address)
}

async fn accept(listener: TcpListener, pages: Arc<Pages>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::internal("cannot serve metrics", &error);
    let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
    let places = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let place = places.clone().acquire_owned().await;
        let Ok(accepted) = timeout(TIDY, listener.accept()).await else {
            pages.recorder.tidy();
            continue;
        };
        let Ok((stream, _)) = accepted else {
            // Out of descriptors: some are given back soon.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let pages = pages.clone();
        tokio::spawn(async move {
            // A client that goes away, or is too slow, gets no answer.
            let _ = timeout(LIMIT, answer(stream, &pages)).await;
            drop(place);
        });
    }
}

async fn answer(mut stream: tokio::net::TcpStream, pages: &Pages) -> std::io::Result<()> {
    let mut head = Vec::new();
    let is_whole = |head: &[u8]| head.windows(4).any(|end| end == b"\r\n\r\n");
    while !is_whole(&head) && head.len() < MAX_HEAD {
        let mut bytes = [0; 1024];
        match stream.read(&mut bytes).await? {
            0 => return Ok(()),
            length => head.extend_from_slice(&bytes[..length]),
        }
    }
    let response = if is_whole(&head) {
        let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        respond(&String::from_utf8_lossy(line), pages)
    } else {
        let status = "431 Request Header Fields Too Large";
        Response::plain(status, "the head is too long\n")
    };
    let has_body = !head.starts_with(b"HEAD ");
    let written = response.written(has_body);
    stream.write_all(written.as_bytes()).await?;
    stream.shutdown().await
}

/// The answer to the request with this first line.
fn respond(line: &str, pages: &Pages) -> Response {
    let words: Vec<_> = line.split(' ').collect();
    let (method, target) = match words[..] {
        [method, target, version] if version.starts_with("HTTP/1.") => (method, target),
        _ => return Response::plain("400 Bad Request", "no request of HTTP/1.1\n"),
    };
    if !["GET", "HEAD"].contains(&method) {
        return Response::plain("405 Method Not Allowed", "only GET and HEAD are answered\n");
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let content = || pages.content.borrow();
    match path {
        "/metrics" => Response::new(OK, METRICS, pages.recorder.text()),
        "/healthz" => Response::plain(OK, "ok\n"),
        "/readyz" if content().is_ready => Response::plain(OK, "ready\n"),
        "/readyz" => Response::plain("503 Service Unavailable", "not ready\n"),
        "/status" => Response::new(OK, JSON, format!("{}\n", content().status)),
        "/" => match &content().snapshot {
            Some(snapshot) => {
                let page = page::html(snapshot, query, Monotonic.now(), wall_clock());
                Response::new(OK, HTML, page)
            }
            None => not_found(),
        },
        _ => not_found(),
    }
}

fn not_found() -> Response {
    let pages = "there are /metrics, /healthz, /readyz and /status\n";
    Response::plain("404 Not Found", pages)
}

impl Response {
    fn new(status: &'static str, kind: &'static str, body: impl Into<String>) -> Self {
        let body = body.into();
        Self { status, kind, body }
    }

    fn plain(status: &'static str, body: &str) -> Self {
        Self::new(status, TEXT, body)
    }

    fn written(&self, has_body: bool) -> String {
        let Self { status, kind, body } = self;
        let header = match *kind {
            // Should markup of a stranger ever get into the page, it can do nothing.
            HTML => "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n",
            _ if status.starts_with("405") => "Allow: GET, HEAD\r\n",
            _ => "",
        };
        let length = body.len();
        let body = if has_body { body } else { "" };
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{header}Connection: close\r\n\r\n{body}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_that_is_written_out_leads_outside() {
        for (text, expected) in [
            ("9464", "127.0.0.1:9464"),
            (":9464", "127.0.0.1:9464"),
            ("localhost:0", "127.0.0.1:0"),
            ("0.0.0.0:9464", "0.0.0.0:9464"),
            ("[::]:1", "[::]:1"),
        ] {
            assert_eq!(address(text).map(|it| it.to_string()), Ok(expected.into()));
        }
        for text in ["", ":", "*:9464", "db:9464", "0.0.0.0", "99999"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    fn status(line: &str) -> &'static str {
        let pages = Pages::new(Recorder::of_test());
        respond(line, &pages)
            .status
            .split_once(' ')
            .expect("a code")
            .0
    }

    #[test]
    fn only_get_and_head_of_a_known_page_are_answered() {
        for (line, expected) in [
            ("GET /metrics HTTP/1.1", "200"),
            ("GET /metrics?x=1 HTTP/1.0", "200"),
            ("GET /healthz HTTP/1.1", "200"),
            ("GET /readyz HTTP/1.1", "503"),
            ("GET /status HTTP/1.1", "200"),
            ("GET / HTTP/1.1", "404"),
            ("GET /metrics/ HTTP/1.1", "404"),
            ("POST /metrics HTTP/1.1", "405"),
            ("HEAD /metrics HTTP/1.1", "200"),
            ("HEAD /nowhere HTTP/1.1", "404"),
            ("GET /metrics", "400"),
            ("GET /metrics HTTP/2", "400"),
            ("", "400"),
        ] {
            assert_eq!(status(line), expected, "{line}");
        }
    }

    #[test]
    fn the_page_for_people_is_made_for_no_other_path() {
        let pages = Arc::new(Pages::new(Recorder::of_test()));
        let (answered, answer) = std::sync::mpsc::sync_channel(1);
        let asked = pages.clone();
        pages.content.send_modify(|_| {
            std::thread::spawn(move || {
                answered.send(respond("GET /healthz HTTP/1.1", &asked).status)
            });
            let answer = answer.recv_timeout(LIMIT);
            assert_eq!(answer, Ok(OK), "it waits for the page's contents");
        });
    }

    #[test]
    fn a_method_that_is_not_allowed_is_told_which_is() {
        let pages = Pages::new(Recorder::of_test());
        let written = respond("POST / HTTP/1.1", &pages).written(true);
        assert!(written.contains("\r\nAllow: GET, HEAD\r\n"), "{written}");
        let written = respond("GET /metrics HTTP/1.1", &pages).written(true);
        assert!(written.contains("version=0.0.4"), "{written}");
        assert!(!written.contains("Allow"), "{written}");
    }

    #[test]
    fn head_gets_the_length_of_the_page_without_the_page() {
        let pages = Pages::new(Recorder::of_test());
        let written = respond("HEAD /healthz HTTP/1.1", &pages).written(false);
        assert!(written.contains("Content-Length: 3\r\n"), "{written}");
        assert!(written.ends_with("\r\n\r\n"), "{written}");
    }
}
