//! Servers of etcd on free loopback ports, alone or as a cluster: the program comes with a crate.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use leasehold::clock::{Clock, Monotonic};
use reqwest::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::child::GuardedChild;
use super::ports::free_port;
use super::tls::Certificate;

const LIMIT: Duration = Duration::from_secs(60);
const INSTALL: &str = "cargo fetch";
/// The user that may do all, where there are users; its password is its name.
const ROOT: &str = "root";

static SHARED: OnceCell<EtcdServer> = OnceCell::const_new();

/// A running server. It ends on drop.
#[derive(Debug)]
pub struct EtcdServer {
    /// `None`: it was killed.
    process: Option<GuardedChild>,
    port: u16,
    /// Where it says without TLS whether it is well.
    health: u16,
    arguments: Vec<String>,
    scheme: &'static str,
    // After the process, so that it ends before its folder is removed.
    folder: TempDir,
}

/// Three servers that are one cluster.
#[derive(Debug)]
pub struct EtcdCluster {
    pub servers: Vec<EtcdServer>,
}

impl EtcdServer {
    /// Returns the server of this run, which the tests share: each has a prefix of its own.
    pub async fn shared() -> &'static Self {
        SHARED.get_or_init(Self::start).await
    }

    /// Starts one that is a cluster by itself.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same with these arguments in addition.
    pub async fn start_with(more: &[&str]) -> Self {
        let more = more.iter().map(ToString::to_string).collect();
        Self::start_as("http", more).await
    }

    /// Starts one that speaks TLS alone. If it is asking, clients must show a certificate of the same authority.
    pub async fn start_behind(certificate: &Certificate, is_asking: bool) -> Self {
        let shown = |path: PathBuf| path.display().to_string();
        let mut more = vec![
            format!("--cert-file={}", shown(certificate.path())),
            format!("--key-file={}", shown(certificate.key())),
        ];
        if is_asking {
            more.push("--client-cert-auth".into());
            more.push(format!(
                "--trusted-ca-file={}",
                shown(certificate.authority())
            ));
        }
        Self::start_as("https", more).await
    }

    async fn start_as(scheme: &'static str, more: Vec<String>) -> Self {
        // Another program can take a free port before the server does.
        for _ in 0..5 {
            let [port, peers] = [free_port(), free_port()];
            let cluster = format!("m0=http://127.0.0.1:{peers}");
            let mut server = Self::spawn(0, port, peers, &cluster, scheme, &more);
            if server.is_ready().await {
                return server;
            }
        }
        panic!("etcd becomes ready")
    }

    fn spawn(
        index: usize,
        port: u16,
        peers: u16,
        cluster: &str,
        scheme: &'static str,
        more: &[String],
    ) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let health = free_port();
        let well = format!("http://127.0.0.1:{health}");
        let clients = format!("{scheme}://127.0.0.1:{port}");
        let peers = format!("http://127.0.0.1:{peers}");
        let mut arguments: Vec<String> = [
            ("name", &*format!("m{index}")),
            (
                "data-dir",
                &folder.path().join("data").display().to_string(),
            ),
            ("listen-client-urls", &clients),
            ("advertise-client-urls", &clients),
            ("listen-peer-urls", &peers),
            ("initial-advertise-peer-urls", &peers),
            ("initial-cluster", cluster),
            ("listen-metrics-urls", &well),
            ("log-level", "warn"),
        ]
        .map(|(name, value)| format!("--{name}={value}"))
        .into();
        arguments.push("--unsafe-no-fsync".into());
        arguments.extend_from_slice(more);
        let mut server = Self {
            process: None,
            port,
            health,
            arguments,
            scheme,
            folder,
        };
        server.run();
        server
    }

    /// Starts the program on its data, also after it was killed.
    pub fn run(&mut self) {
        let log = fs::File::options()
            .append(true)
            .create(true)
            .open(self.folder.path().join("log"));
        let log = log.expect("the folder is ours");
        let program = etcd_bin_vendored::etcd_bin_path().expect("the crate has this platform");
        let mut command = Command::new(program);
        command
            .args(&self.arguments)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.process = Some(GuardedChild::spawn(command, INSTALL));
    }

    /// Waits until it answers. `false`: it has ended.
    async fn is_ready(&mut self) -> bool {
        let end = Monotonic.now().after(LIMIT);
        while Monotonic.now() < end {
            let process = self.process.as_mut().expect("it was started");
            if process.ended().is_some() {
                eprintln!(
                    "{}",
                    fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
                );
                return false;
            }
            let health = format!("http://127.0.0.1:{}/health", self.health);
            if let Ok(answer) = client().get(health).send().await
                && answer.status().is_success()
            {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("etcd answers in time")
    }

    /// Kills it. Its data stays.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Stops it, so that it is silent and its sockets stay open.
    pub fn pause(&self) {
        self.process.as_ref().expect("it runs").pause();
    }

    pub fn resume(&self) {
        self.process.as_ref().expect("it runs").resume();
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The URL of leases that no other test has.
    pub fn url(&self) -> String {
        self.url_with("", &format!("{:016x}", fastrand::u64(..)))
    }

    /// The URL of the leases under this prefix, with a login that ends in `@`, or without.
    pub fn url_with(&self, login: &str, prefix: &str) -> String {
        let scheme = self.scheme.replace("http", "etcd");
        format!("{scheme}://{login}127.0.0.1:{}?prefix={prefix}", self.port)
    }

    async fn try_call(&self, path: &str, body: &Value) -> Option<Value> {
        let url = format!("http://127.0.0.1:{}/v3/{path}", self.port);
        let request = client().post(url).body(body.to_string());
        let answer = request.send().await.ok()?.text().await.ok()?;
        serde_json::from_str(&answer).ok()
    }

    /// Makes an operator's request, as `etcdctl` does, and returns the answer.
    pub async fn call(&self, path: &str, body: Value) -> Value {
        let answer = self.try_call(path, &body).await;
        let answer = answer.expect("it answers");
        assert!(answer["error"].is_null(), "{path} {body}: {answer}");
        answer
    }

    /// Writes a key as another program would.
    pub async fn write(&self, key: &str, value: &str) {
        self.put(key, value, 0).await;
    }

    /// Writes a key that ends after this time.
    pub async fn write_for(&self, seconds: u64, key: &str, value: &str) {
        let id = fastrand::i64(1..);
        self.call("lease/grant", json!({ "TTL": seconds, "ID": id }))
            .await;
        self.put(key, value, id).await;
    }

    /// Deletes a key, as another program would.
    pub async fn delete(&self, key: &str) {
        let key = json!({ "key": BASE64_STANDARD.encode(key) });
        self.call("kv/deleterange", key).await;
    }

    async fn put(&self, key: &str, value: &str, lease: i64) {
        let [key, value] = [key, value].map(|text| BASE64_STANDARD.encode(text));
        let put = json!({ "key": key, "value": value, "lease": lease });
        self.call("kv/put", put).await;
    }

    /// Returns the keys that begin with this text, each with its lease.
    pub async fn keys(&self, prefix: &str) -> Vec<(String, String)> {
        let mut end = prefix.as_bytes().to_vec();
        *end.last_mut().expect("a prefix") += 1;
        let range = json!({
            "key": BASE64_STANDARD.encode(prefix),
            "range_end": BASE64_STANDARD.encode(end),
        });
        let found = self.call("kv/range", range).await;
        let text = |value: &Value| {
            let bytes = BASE64_STANDARD.decode(value.as_str().expect("a text"));
            String::from_utf8(bytes.expect("base64")).expect("a name")
        };
        let keys = found["kvs"].as_array().cloned().unwrap_or_default();
        let keys = keys.iter().map(|kv| {
            let lease = kv["lease"].as_str().unwrap_or_default();
            (text(&kv["key"]), lease.to_owned())
        });
        keys.collect()
    }

    /// Returns the number of leases.
    pub async fn leases(&self) -> usize {
        let leases = self.call("lease/leases", json!({})).await;
        leases["leases"].as_array().map_or(0, Vec::len)
    }

    /// Makes this user, whose password is its name, with a role for the keys of this prefix, and the user root; then
    /// has the server ask who comes.
    pub async fn ask_for_users(&self, user: &str, prefix: &str) {
        let mut end = format!("{prefix}/").into_bytes();
        *end.last_mut().expect("a prefix") += 1;
        let right = json!({
            "permType": "READWRITE",
            "key": BASE64_STANDARD.encode(format!("{prefix}/")),
            "range_end": BASE64_STANDARD.encode(end),
        });
        self.call("auth/role/add", json!({ "name": "leases" }))
            .await;
        self.call(
            "auth/role/grant",
            json!({ "name": "leases", "perm": right }),
        )
        .await;
        for (user, role) in [(ROOT, ROOT), (user, "leases")] {
            self.call("auth/user/add", json!({ "name": user, "password": user }))
                .await;
            self.call("auth/user/grant", json!({ "user": user, "role": role }))
                .await;
        }
        self.call("auth/enable", json!({})).await;
    }
}

fn client() -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().timeout(Duration::from_secs(5)).build();
    client.expect("a client")
}

impl EtcdCluster {
    /// Starts three members, and returns once they have a leader.
    pub async fn start() -> Self {
        for _ in 0..5 {
            let ports: Vec<[u16; 2]> = (0..3).map(|_| [free_port(), free_port()]).collect();
            let members = ports.iter().enumerate();
            let members =
                members.map(|(index, [_, peers])| format!("m{index}=http://127.0.0.1:{peers}"));
            let members = members.collect::<Vec<_>>().join(",");
            let servers = ports.iter().enumerate();
            let servers = servers.map(|(index, [port, peers])| {
                EtcdServer::spawn(index, *port, *peers, &members, "http", &[])
            });
            let mut cluster = Self {
                servers: servers.collect(),
            };
            let mut are_ready = true;
            for server in &mut cluster.servers {
                are_ready &= server.is_ready().await;
            }
            if are_ready {
                return cluster;
            }
        }
        panic!("a cluster of etcd becomes ready")
    }

    /// The URL of leases that no other test has, by way of all members.
    pub fn url(&self) -> String {
        self.url_from(0)
    }

    /// The same, with this member as the first.
    pub fn url_from(&self, first: usize) -> String {
        let servers = self.servers[first..].iter().chain(&self.servers[..first]);
        let servers = servers.map(|server| format!("127.0.0.1:{}", server.port));
        let servers = servers.collect::<Vec<_>>().join(",");
        format!("etcd://{servers}?prefix={:016x}", fastrand::u64(..))
    }

    /// Returns which member leads.
    pub async fn leader(&self) -> usize {
        let end = Monotonic.now().after(LIMIT);
        while Monotonic.now() < end {
            for (index, server) in self.servers.iter().enumerate() {
                let status = match server.process {
                    Some(_) => server.try_call("maintenance/status", &json!({})).await,
                    None => None,
                };
                if status.is_some_and(|status| status["leader"] == status["header"]["member_id"]) {
                    return index;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("a leader is elected")
    }
}
