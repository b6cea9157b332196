//! A Prometheus for one test, on a free loopback port, with its data in a temporary folder.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};
use serde_json::Value;
use tempfile::TempDir;

use super::child::GuardedChild;
use super::ports::free_port;

/// The command that installs the server.
const INSTALL: &str = "apt-get install -y --no-install-recommends prometheus";

/// How long it may take to start, or to answer.
const LIMIT: Duration = Duration::from_secs(60);

/// A running server. It ends on drop.
#[derive(Debug)]
pub struct PrometheusServer {
    // Before the folder, so that the server ends before its folder is removed.
    process: GuardedChild,
    port: u16,
    folder: TempDir,
}

impl PrometheusServer {
    /// Starts one with this configuration, and returns once it is ready.
    pub fn start(config: &str) -> Self {
        // Another program can take a free port before the server does.
        let started = (0..5).find_map(|_| Self::try_start(config));
        started.expect("Prometheus becomes ready")
    }

    fn try_start(config: &str) -> Option<Self> {
        let folder = TempDir::new().expect("a temporary folder");
        let file = folder.path().join("prometheus.yml");
        std::fs::write(&file, config).expect("the folder can be written");
        let port = free_port();
        let mut server = Self {
            process: GuardedChild::spawn(command(folder.path(), port), INSTALL),
            port,
            folder,
        };
        let end = Monotonic.now().after(LIMIT);
        while Monotonic.now() < end && server.process.ended().is_none() {
            if server.asked("/-/ready").is_some() {
                return Some(server);
            }
            sleep_thread(Duration::from_millis(20));
        }
        eprintln!("{}", server.said());
        None
    }

    /// Its log so far.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// The `data` of the answer to this path of its API.
    pub fn data(&self, path: &str) -> Value {
        let body = self.asked(&format!("/api/v1/{path}"));
        let body = body.unwrap_or_else(|| panic!("no answer to {path}: {}", self.said()));
        let mut answer: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].take()
    }

    /// Its time, in seconds.
    pub fn time(&self) -> f64 {
        self.data("query?query=time()")["result"][0]
            .as_f64()
            .expect("a number")
    }

    /// The series that a query has now: each has its labels in `metric`.
    pub fn query(&self, expression: &str) -> Vec<Value> {
        let data = self.data(&format!("query?query={}", escaped(expression)));
        data["result"].as_array().expect("a vector").clone()
    }

    /// The values, in steps of a second, that all series of a query have had since this time.
    pub fn values_since(&self, expression: &str, start: f64) -> Vec<f64> {
        let (query, end) = (escaped(expression), self.time());
        let path = format!("query_range?query={query}&start={start}&end={end}&step=1");
        let data = self.data(&path);
        let series = data["result"].as_array().expect("a matrix").iter();
        let pairs = series.flat_map(|series| series["values"].as_array().expect("values"));
        let values = pairs.map(|pair| pair[1].as_str().expect("text").parse());
        values.map(|value| value.expect("a number")).collect()
    }

    /// The body of the answer, if it is a good one.
    fn asked(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(LIMIT)).ok()?;
        // Of HTTP/1.0, so that the body comes in one piece.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let is_good = head.split(' ').nth(1) == Some("200");
        is_good.then(|| body.to_owned())
    }
}

fn command(folder: &Path, port: u16) -> Command {
    let log = std::fs::File::create(folder.join("log")).expect("the folder can be written");
    let mut command = Command::new("prometheus");
    command
        .current_dir(folder)
        .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .arg("--log.level=warn")
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a file"))
        .stderr(log);
    command
}

fn escaped(text: &str) -> String {
    let bytes = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    });
    bytes.collect()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a server sends no event; polled within a limit"
)]
fn sleep_thread(length: Duration) {
    std::thread::sleep(length);
}
