//! Servers that speak S3, on free loopback ports, each with a bucket for the tests.
//!
//! `tests/run` installs moto below the target folder, and with `--faults` the others.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path as Key;
use object_store::signer::Signer;
use object_store::{ClientOptions, RetryConfig};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::child::GuardedChild;
use super::ports::free_port;

/// How long it may take to start.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long a request may take.
const LIMIT: Duration = Duration::from_secs(10);
const BUCKET: &str = "tests";
const ACCESS_KEY: &str = "leasehold";
const SECRET_KEY: &str = "leasehold-tests";

/// Serves one request at a time: `moto_server` has threads, of which one that reads an object while another replaces it
/// fails.
const MOTO: &str = "
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
run_simple('127.0.0.1', int(sys.argv[1]), DomainDispatcherApplication(create_backend_app))
";

static SHARED: OnceCell<BucketServer> = OnceCell::const_new();

/// A program that speaks S3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// In memory; it compares versions.
    Moto,
    /// In files whose extended attributes have the versions; it compares versions.
    Versitygw,
    /// In files; it compares versions, and writes later.
    S3sFs,
}

/// A running server. It ends on drop.
#[derive(Debug)]
pub struct BucketServer {
    // Before the folder, so that the server ends before its folder is removed.
    pub process: GuardedChild,
    port: u16,
    folder: TempDir,
}

impl BucketServer {
    /// Returns the moto of this run, which the tests share.
    pub async fn shared() -> &'static Self {
        SHARED.get_or_init(|| Self::start(Program::Moto)).await
    }

    /// Starts one, and returns once it has a bucket.
    pub async fn start(program: Program) -> Self {
        // Another program can take a free port before the server does.
        for _ in 0..5 {
            if let Some(server) = Self::try_start(program).await {
                return server;
            }
        }
        panic!("{program:?} becomes ready")
    }

    async fn try_start(program: Program) -> Option<Self> {
        let folder = TempDir::new().expect("a temporary folder");
        let port = free_port();
        let command = program.command(folder.path(), port);
        let mut server = Self {
            process: GuardedChild::spawn(command, program.install()),
            port,
            folder,
        };
        let end = Monotonic.now().after(START_LIMIT);
        while Monotonic.now() < end && server.process.ended().is_none() {
            if server.make_bucket().await.is_some() {
                return Some(server);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        eprintln!("{}", server.said());
        None
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The URL of its bucket, as [`bucket`] takes it.
    pub fn url(&self) -> String {
        url(self.port)
    }

    /// A client of its own for its bucket.
    pub fn bucket(&self) -> Arc<AmazonS3> {
        bucket(&self.url())
    }

    /// The URL of leases in its bucket, below this prefix.
    pub fn leases_url(&self, prefix: &str) -> String {
        self.leases_url_by(prefix, self.port)
    }

    /// The same by way of this port.
    pub fn leases_url_by(&self, prefix: &str, port: u16) -> String {
        let credentials = self.folder.path().join("credentials");
        let text = format!(
            "[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
        );
        std::fs::write(&credentials, text).expect("the folder is ours");
        let credentials = credentials.display();
        format!(
            "s3://{BUCKET}/{prefix}?endpoint=http://127.0.0.1:{port}&credentials={credentials}&skew=1s"
        )
    }

    pub const fn bucket_name(&self) -> &'static str {
        BUCKET
    }

    /// The variables that programs in other languages need.
    pub fn environment(&self) -> [(&'static str, String); 4] {
        [
            (
                "AWS_ENDPOINT_URL",
                format!("http://127.0.0.1:{}", self.port),
            ),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.into()),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.into()),
            ("AWS_DEFAULT_REGION", "us-east-1".into()),
        ]
    }

    /// Its log so far.
    fn said(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// The crate makes no buckets, but signs a request for the address that one would have.
    async fn make_bucket(&self) -> Option<()> {
        let put = http::Method::PUT;
        let signed = self.bucket().signed_url(put, &Key::default(), LIMIT).await;
        let signed = signed.expect("signed");
        let (path, query) = (signed.path(), signed.query()?);
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(LIMIT)).ok()?;
        let head = "Connection: close\r\nContent-Length: 0";
        let host = format!("Host: 127.0.0.1:{}", self.port);
        write!(
            stream,
            "PUT {path}?{query} HTTP/1.1\r\n{host}\r\n{head}\r\n\r\n"
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let is_made = answer.split(' ').nth(1)? == "200";
        assert!(is_made, "{answer}");
        Some(())
    }
}

/// The URL of the bucket on this port.
pub fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}/{BUCKET}")
}

/// A client for the bucket of this URL, with connections of its own. It repeats no request.
pub fn bucket(url: &str) -> Arc<AmazonS3> {
    let retries = RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    };
    Arc::new(builder(url).with_retry(retries).build().expect("valid"))
}

/// The same, with the crate's own retries.
pub fn repeating_bucket(url: &str) -> Arc<AmazonS3> {
    Arc::new(builder(url).build().expect("valid"))
}

fn builder(url: &str) -> AmazonS3Builder {
    // Once in a process; the client asks for it even without TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (endpoint, bucket) = url.rsplit_once('/').expect("the URL of a bucket");
    AmazonS3Builder::new()
        .with_endpoint(endpoint)
        .with_bucket_name(bucket)
        .with_region("us-east-1")
        .with_access_key_id(ACCESS_KEY)
        .with_secret_access_key(SECRET_KEY)
        .with_client_options(
            ClientOptions::new()
                .with_timeout(LIMIT)
                .with_allow_http(true),
        )
}

impl Program {
    const fn install(self) -> &'static str {
        match self {
            Self::Moto => {
                "python3 -m venv target/moto && target/moto/bin/pip install -r tests/harness/moto.txt"
            }
            Self::Versitygw => {
                "GOBIN=$PWD/target/versitygw go install github.com/versity/versitygw/cmd/versitygw@v1.8.0"
            }
            Self::S3sFs => {
                "cargo install s3s-fs --version 0.14.1 --features binary --locked --root target/s3s-fs"
            }
        }
    }

    fn command(self, folder: &Path, port: u16) -> Command {
        let log = std::fs::File::create(folder.join("log")).expect("the folder can be written");
        let data = folder.join("data");
        std::fs::create_dir(&data).expect("the folder is ours");
        let host = format!("127.0.0.1:{port}");
        let mut command = Command::new(target().join(match self {
            Self::Moto => "moto/bin/python",
            Self::Versitygw => "versitygw/versitygw",
            Self::S3sFs => "s3s-fs/bin/s3s-fs",
        }));
        match self {
            Self::Moto => command.args(["-c", MOTO, &port.to_string()]),
            Self::Versitygw => command
                .args(["--port", &host, "--access", ACCESS_KEY])
                .args(["--secret", SECRET_KEY, "posix"])
                .arg(&data),
            Self::S3sFs => command
                .args(["--host", "127.0.0.1", "--port", &port.to_string()])
                .args(["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY])
                .arg(&data),
        };
        command
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log);
        command
    }
}

/// Where `tests/run` installs them.
pub fn target() -> PathBuf {
    crate::tree::temporary()
        .parent()
        .expect("it is a folder in it")
        .into()
}
