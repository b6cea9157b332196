//! A small HTTP server: five pages, GET and HEAD only, one request per connection.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic, wall_clock};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::job::JobStatus;
use super::page::{self, Snapshot};
use super::recorder::Recorder;
use super::scan::Scanned;
use crate::exit::Failure;

/// Maximum size of the head of a request; a scraper's has a few hundred bytes.
const MAX_HEAD: u64 = 8 * 1024;

/// Limit for the head of a request, which a scraper sends at once.
const HEAD_LIMIT: Duration = Duration::from_secs(1);

/// Time limit for an answer, counted from when its request was read.
const LIMIT: Duration = Duration::from_secs(10);

/// Maximum number of requests that are answered at the same time; more wait.
const AT_ONCE: usize = 16;

/// Maximum number of connections whose request was not read yet. Beyond it the oldest is closed, so that clients that
/// send nothing do not block others.
const UNREAD: usize = 256;

/// Interval between clean-ups of samples while nothing reads them.
const TIDY: Duration = Duration::from_secs(30);

const OK: &str = "200 OK";

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

/// The served pages. The job or the scan writes the content.
pub struct Pages {
    recorder: Recorder,
    pub content: watch::Sender<Content>,
}

/// The content of the pages besides the metrics.
#[derive(Debug)]
pub struct Content {
    pub is_ready: bool,
    pub status: Status,
    /// The contents of the page for people. A job has none.
    pub snapshot: Option<Snapshot>,
}

/// The content of `/status`.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Status {
    Store(Scanned),
    Job(JobStatus),
}

impl Status {
    pub fn json(&self) -> String {
        // Structs of texts and numbers are always JSON.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// An answer before it is written: its status, the kind of its body, and the body.
type Answer = (&'static str, &'static str, String);

impl Pages {
    /// Makes pages with the metrics of this recorder, and with this content until it is replaced.
    pub fn new(recorder: Recorder, first: Content) -> Self {
        let content = watch::Sender::new(first);
        Self { recorder, content }
    }
}

/// Reads `9464`, `:9464`, `localhost:9464`, `0.0.0.0:9464` or `[::]:9464`. A port alone is one of this machine.
pub fn address(text: &str) -> Result<SocketAddr, Failure> {
    let port = text.strip_prefix("localhost:").unwrap_or(text);
    let port = port.strip_prefix(':').unwrap_or(port);
    if let Ok(port) = port.parse() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| {
        Failure::usage(format!(
            "metrics address {text:?} refused: expected a port of this machine such as 9464, or an address and a port such as 0.0.0.0:9464"
        ))
    })
}

/// Binds the address.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Makes the failure of an address that cannot be bound.
pub fn refused(address: SocketAddr, error: &io::Error) -> Failure {
    Failure::usage(format!(
        "metrics address {address} refused: {error}; expected an address of this machine and a free port"
    ))
}

/// Serves the pages on a separate thread for as long as the process lives. Returns the address, with the port that was
/// chosen if none was given.
pub fn serve(listener: TcpListener, pages: Arc<Pages>) -> Result<SocketAddr, Failure> {
    let failed = |error: io::Error| Failure::internal("cannot serve metrics", &error);
    let address = listener.local_addr().map_err(failed)?;
    std::thread::Builder::new()
        .name("metrics".into())
        .spawn(move || crate::block_on(accept(listener, pages)))
        .map_err(failed)?;
    Ok(address)
}

async fn accept(listener: TcpListener, pages: Arc<Pages>) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::internal("cannot serve metrics", &error);
    let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
    let connections = Arc::new(Semaphore::new(AT_ONCE));
    let mut unread: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok(accepted) = timeout(TIDY, listener.accept()).await else {
            pages.recorder.tidy();
            continue;
        };
        unread.retain(|head| !head.is_finished());
        if accepted.is_err() || unread.len() >= UNREAD {
            unread.pop_front().inspect(AbortHandle::abort);
        }
        let Ok((mut stream, _)) = accepted else {
            // Out of descriptors: some are given back soon.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (pages, connections) = (pages.clone(), connections.clone());
        let reading = tokio::spawn(async move {
            // A client that goes away, or is too slow, gets no answer.
            if let Ok(Ok(request)) = timeout(HEAD_LIMIT, read(&mut stream)).await {
                tokio::spawn(async move {
                    let _connection = connections.acquire().await;
                    let _ = timeout(LIMIT, answer(stream, request, &pages)).await;
                });
            }
        });
        unread.push_back(reading.abort_handle());
    }
}

/// Reads the head of a request. Returns its first line; `None` if the head is too long, or was not sent whole.
async fn read(stream: &mut TcpStream) -> io::Result<Option<String>> {
    let mut head = BufReader::new(stream.take(MAX_HEAD)).split(b'\n');
    let mut first = None;
    while let Some(line) = head.next_segment().await? {
        let line = String::from_utf8_lossy(line.trim_ascii()).into_owned();
        if line.is_empty() {
            return Ok(Some(first.unwrap_or_default()));
        }
        first.get_or_insert(line);
    }
    Ok(None)
}

async fn answer(mut stream: TcpStream, request: Option<String>, pages: &Pages) -> io::Result<()> {
    let answer = match &request {
        Some(request) => respond(request, pages),
        None => plain(
            "431 Request Header Fields Too Large",
            "the head is too long, or was not sent whole\n",
        ),
    };
    let is_head = request.is_some_and(|request| request.starts_with("HEAD "));
    let written = written(answer, !is_head);
    stream.write_all(written.as_bytes()).await?;
    stream.shutdown().await
}

/// The answer to the request with this first line.
fn respond(line: &str, pages: &Pages) -> Answer {
    let words: Vec<_> = line.split(' ').collect();
    let (method, target) = match words[..] {
        [method, target, version] if version.starts_with("HTTP/1.") => (method, target),
        _ => return plain("400 Bad Request", "no request of HTTP/1.1\n"),
    };
    if !["GET", "HEAD"].contains(&method) {
        return plain("405 Method Not Allowed", "only GET and HEAD are answered\n");
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let content = || pages.content.borrow();
    match path {
        "/metrics" => (OK, METRICS, pages.recorder.text()),
        "/healthz" => plain(OK, "ok\n"),
        "/readyz" if content().is_ready => plain(OK, "ready\n"),
        "/readyz" => plain("503 Service Unavailable", "not ready\n"),
        "/status" => (OK, JSON, format!("{}\n", content().status.json())),
        "/" => match &content().snapshot {
            Some(snapshot) => (
                OK,
                HTML,
                page::html(snapshot, query, Monotonic.now(), wall_clock()),
            ),
            None => not_found(),
        },
        _ => not_found(),
    }
}

fn not_found() -> Answer {
    plain(
        "404 Not Found",
        "there are /metrics, /healthz, /readyz and /status\n",
    )
}

fn plain(status: &'static str, body: &str) -> Answer {
    (status, TEXT, body.into())
}

fn written((status, kind, body): Answer, has_body: bool) -> String {
    let header = match kind {
        // Should foreign markup ever get into the page, it can do nothing.
        HTML => "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n",
        _ if status.starts_with("405") => "Allow: GET, HEAD\r\n",
        _ => "",
    };
    let length = body.len();
    let body = if has_body { &*body } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{header}Connection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::job::{self, State};

    #[test]
    fn only_an_address_that_is_written_out_leads_outside() {
        for (text, expected) in [
            ("9464", "127.0.0.1:9464"),
            (":9464", "127.0.0.1:9464"),
            ("localhost:0", "127.0.0.1:0"),
            ("0.0.0.0:9464", "0.0.0.0:9464"),
            ("[::]:1", "[::]:1"),
        ] {
            let read = address(text).expect("good");
            assert_eq!(read.to_string(), expected);
        }
        for text in ["", ":", "*:9464", "db:9464", "0.0.0.0", "99999"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    /// The pages of a job that waits.
    fn pages() -> Pages {
        let labels = ["group", "name"].map(|label| metrics::Label::new(label, "x"));
        Pages::new(Recorder::of_test(), job::content(&labels, State::Waiting))
    }

    fn status(line: &str) -> &'static str {
        let pages = pages();
        let (status, _, _) = respond(line, &pages);
        status.split_once(' ').expect("a code").0
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
        let pages = Arc::new(pages());
        let (answered, answer) = std::sync::mpsc::sync_channel(1);
        let asked = pages.clone();
        pages.content.send_modify(|_| {
            std::thread::spawn(move || {
                let (status, _, _) = respond("GET /healthz HTTP/1.1", &asked);
                answered.send(status)
            });
            let answer = answer.recv_timeout(LIMIT);
            assert_eq!(answer, Ok(OK), "it waits for the page's contents");
        });
    }

    #[test]
    fn a_method_that_is_not_allowed_is_told_which_is() {
        let pages = pages();
        let text = written(respond("POST / HTTP/1.1", &pages), true);
        assert!(text.contains("\r\nAllow: GET, HEAD\r\n"), "{text}");
        let text = written(respond("GET /metrics HTTP/1.1", &pages), true);
        assert!(text.contains("version=0.0.4"), "{text}");
        assert!(!text.contains("Allow"), "{text}");
    }

    #[test]
    fn head_gets_the_length_of_the_page_without_the_page() {
        let pages = pages();
        let text = written(respond("HEAD /healthz HTTP/1.1", &pages), false);
        assert!(text.contains("Content-Length: 3\r\n"), "{text}");
        assert!(text.ends_with("\r\n\r\n"), "{text}");
    }
}
