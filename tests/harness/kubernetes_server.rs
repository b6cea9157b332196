//! A real API server of Kubernetes on etcd, on free loopback ports, which the tests of a run share: each makes a
//! namespace of its own.
//!
//! `tests/run --faults` builds both below the target folder, from the Go module next to this file.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{OnceCell, mpsc};

use super::bucket_server::target;
use super::child::GuardedChild;
use super::ports::free_port;

const LIMIT: Duration = Duration::from_secs(60);
const INSTALL: &str = "tests/harness/kubernetes/build";
/// May do all.
const ADMINISTRATOR: &str = "administrator";
/// Has the rights that a role gives it, and no others.
pub const ACCOUNT: &str = "account";
/// The group and version of leases in a path.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces";

static SHARED: OnceCell<Arc<KubernetesServer>> = OnceCell::const_new();

/// A running server. It ends on drop.
#[derive(Debug)]
pub struct KubernetesServer {
    // Before the folder, so that the servers end before their folder is removed.
    pub process: GuardedChild,
    _etcd: GuardedChild,
    port: u16,
    folder: TempDir,
    client: Client,
    namespaces: AtomicUsize,
}

/// A namespace of a server.
#[derive(Debug)]
pub struct Namespace {
    pub server: Arc<KubernetesServer>,
    pub name: String,
}

/// An answer as it came.
#[derive(Debug, Clone)]
pub struct Answered {
    pub code: StatusCode,
    pub date: String,
    pub body: String,
}

/// Writes a kubeconfig of one context into this folder, and returns its path.
pub fn kubeconfig(folder: &Path, cluster: &Value, user: &Value) -> String {
    static WRITTEN: AtomicUsize = AtomicUsize::new(0);
    let index = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("kubeconfig-{index}"));
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tests",
        "contexts": [{ "name": "tests", "context": { "cluster": "tests", "user": "tests" } }],
        "clusters": [{ "name": "tests", "cluster": cluster }],
        "users": [{ "name": "tests", "user": user }],
    });
    fs::write(&path, text.to_string()).expect("the folder can be written");
    path.display().to_string()
}

/// A program that leads as client-go does. It ends on drop.
#[derive(Debug)]
pub struct Elected {
    process: Child,
    said: mpsc::Receiver<String>,
}

impl Elected {
    /// Returns once it has said this.
    pub async fn says(&mut self, expected: &str) {
        let said = tokio::time::timeout(LIMIT, self.said.recv()).await;
        assert_eq!(said.expect("it says it in time").as_deref(), Some(expected));
    }

    /// Returns whether it has said nothing more.
    pub fn is_silent(&self) -> bool {
        self.said.is_empty()
    }

    /// Makes it release the names that it leads, and end.
    pub fn end(&mut self) {
        drop(self.process.stdin.take());
    }
}

impl Drop for Elected {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl KubernetesServer {
    /// Returns the server of this run.
    pub async fn shared() -> Arc<Self> {
        let start = async || Arc::new(Self::start().await);
        SHARED.get_or_init(start).await.clone()
    }

    /// Returns whether the programs are there.
    pub fn is_built() -> bool {
        target().join("kubernetes/kube-apiserver").exists()
    }

    pub async fn start() -> Self {
        for _ in 0..5 {
            if let Some(server) = Self::try_start().await {
                return server;
            }
        }
        panic!("the API server becomes ready")
    }

    async fn try_start() -> Option<Self> {
        let folder = TempDir::new().expect("a temporary folder");
        let ports = [free_port(), free_port(), free_port()];
        let etcd = GuardedChild::spawn(etcd(folder.path(), ports), INSTALL);
        let process = GuardedChild::spawn(api_server(folder.path(), ports), INSTALL);
        let _ = rustls::crypto::ring::default_provider().install_default();
        // A connection that is kept ends with the runtime of the test that opened it, under the next one's request.
        let client = Client::builder()
            .danger_accept_invalid_certs(true)
            .pool_max_idle_per_host(0);
        let mut server = Self {
            process,
            _etcd: etcd,
            port: ports[2],
            folder,
            client: client.build().expect("a client"),
            namespaces: AtomicUsize::new(0),
        };
        let end = Monotonic.now().after(LIMIT);
        while Monotonic.now() < end && server.process.ended().is_none() {
            let ready = server.told(Method::GET, "/readyz", None).await;
            if ready.is_some_and(|(code, _)| code == StatusCode::OK) {
                return Some(server);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let log = fs::read_to_string(server.folder.path().join("log"));
        eprintln!("{}", log.unwrap_or_default());
        None
    }

    /// Sends a request as the administrator. `None`: there was no answer.
    async fn told(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Option<(StatusCode, Value)> {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let answer = self.pass(&method, path, body).await?;
        let body = serde_json::from_str(&answer.body).unwrap_or_default();
        Some((answer.code, body))
    }

    /// Passes a request on as the administrator's.
    async fn pass(&self, method: &Method, path: &str, body: String) -> Option<Answered> {
        let url = format!("https://127.0.0.1:{}{path}", self.port);
        let request = self.client.request(method.clone(), url);
        let kind = match *method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = request.bearer_auth(ADMINISTRATOR);
        let request = request.header("content-type", kind).body(body);
        let response = request.send().await.ok()?;
        let date = response.headers().get("date");
        let date = date.and_then(|date| Some(date.to_str().ok()?.to_owned()));
        Some(Answered {
            code: response.status(),
            date: date.unwrap_or_default(),
            body: response.text().await.ok()?,
        })
    }

    /// The entry of a kubeconfig for this cluster, at this address.
    fn cluster(&self, host_port: &str) -> Value {
        json!({
            "server": format!("https://{host_port}"),
            "certificate-authority": self.folder.path().join("apiserver.crt"),
            "tls-server-name": "kubernetes",
        })
    }
}

impl Namespace {
    /// Makes a namespace on the server of this run.
    pub async fn make() -> Self {
        Self::on(KubernetesServer::shared().await).await
    }

    /// The same on this server.
    pub async fn on(server: Arc<KubernetesServer>) -> Self {
        let index = server.namespaces.fetch_add(1, Ordering::Relaxed);
        let name = format!("tests-{index}");
        let namespace = json!({ "metadata": { "name": name } });
        let made = server.told(Method::POST, "/api/v1/namespaces", Some(namespace));
        let (code, answer) = made.await.expect("it listens");
        assert_eq!(code, StatusCode::CREATED, "{answer}");
        Self { server, name }
    }

    /// The URL of the leases here, for the administrator.
    pub fn url(&self) -> String {
        self.url_as(ADMINISTRATOR)
    }

    /// The same for this account, whose token is its name.
    pub fn url_as(&self, account: &str) -> String {
        self.url_at(account, &format!("127.0.0.1:{}", self.server.port))
    }

    /// The same by way of this address.
    pub fn url_at(&self, account: &str, host_port: &str) -> String {
        let cluster = self.server.cluster(host_port);
        self.url_with(&cluster, &json!({ "token": account }))
    }

    /// The entry of a kubeconfig for the cluster.
    pub fn cluster(&self) -> Value {
        self.server.cluster(&format!("127.0.0.1:{}", self.port()))
    }

    /// The URL with a kubeconfig that has this cluster and this user.
    pub fn url_with(&self, cluster: &Value, user: &Value) -> String {
        let kubeconfig = kubeconfig(self.server.folder.path(), cluster, user);
        format!("kubernetes:{}?kubeconfig={kubeconfig}&skew=1s", self.name)
    }

    /// Starts a program that leads by this name as client-go's leader election does, with a lease of so many seconds.
    pub fn elect(&self, name: &str, seconds: u64) -> Elected {
        let mut process = self
            .elector(name, seconds)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start elect: {error}; to build it: {INSTALL}"));
        let (sender, said) = mpsc::channel(8);
        let lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        std::thread::spawn(move || {
            let mut lines = lines.map_while(Result::ok);
            while lines
                .next()
                .is_some_and(|line| sender.blocking_send(line).is_ok())
            {}
        });
        Elected { process, said }
    }

    /// The program with client-go, as the administrator. With the argument `pairs` it leads and releases for each line
    /// that it reads, and answers with one.
    pub fn elector(&self, name: &str, seconds: u64) -> Command {
        let user = json!({ "token": ADMINISTRATOR });
        let kubeconfig = kubeconfig(self.server.folder.path(), &self.cluster(), &user);
        let mut command = Command::new(target().join("kubernetes/elect"));
        command.args([&kubeconfig, &self.name, name, &seconds.to_string()]);
        command
    }

    /// Passes a request on to the server as the administrator's.
    pub async fn pass(&self, method: &Method, path: &str, body: String) -> Answered {
        let answer = self.server.pass(method, path, body).await;
        answer.expect("it listens")
    }

    pub fn port(&self) -> u16 {
        self.server.port
    }

    /// Removes an object, as an operator does.
    pub async fn remove(&self, name: &str) {
        let path = format!("{LEASES}/{}/leases/{name}", self.name);
        let told = self.server.told(Method::DELETE, &path, None).await;
        let (code, answer) = told.expect("it listens");
        assert_eq!(code, StatusCode::OK, "{answer}");
    }

    /// Gives the account these verbs on leases, and no others.
    pub async fn allow(&self, verbs: &[&str]) {
        let path = format!(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/{}",
            self.name
        );
        let role = json!({
            "metadata": { "name": "leases" },
            "rules": [{ "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs }],
        });
        let binding = json!({
            "metadata": { "name": "leases" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "leases" },
            "subjects": [{ "kind": "User", "name": ACCOUNT }],
        });
        for (kind, object) in [("roles", role), ("rolebindings", binding)] {
            let (all, one) = (format!("{path}/{kind}"), format!("{path}/{kind}/leases"));
            self.server.told(Method::DELETE, &one, None).await;
            if verbs.is_empty() {
                continue;
            }
            let made = self.server.told(Method::POST, &all, Some(object));
            let (code, answer) = made.await.expect("it listens");
            assert_eq!(code, StatusCode::CREATED, "{answer}");
        }
    }

    /// Returns the objects here, by name.
    pub async fn objects(&self) -> Vec<Value> {
        let path = format!("{LEASES}/{}/leases", self.name);
        let (_, list) = self
            .server
            .told(Method::GET, &path, None)
            .await
            .expect("it listens");
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Returns an object.
    pub async fn object(&self, name: &str) -> Value {
        let objects = self.objects().await;
        let mut objects = objects.into_iter();
        let found = objects.find(|object| object["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no object {name}"))
    }

    /// Writes an object as another program would: creates it, or changes the given fields.
    pub async fn write(&self, name: &str, mut object: Value) {
        object["metadata"]["name"] = name.into();
        let path = format!("{LEASES}/{}/leases", self.name);
        let one = format!("{path}/{name}");
        let told = self
            .server
            .told(Method::PATCH, &one, Some(object.clone()))
            .await;
        let (code, _) = told.expect("it listens");
        if code == StatusCode::NOT_FOUND {
            let told = self.server.told(Method::POST, &path, Some(object)).await;
            let (code, answer) = told.expect("it listens");
            assert_eq!(code, StatusCode::CREATED, "{answer}");
        }
    }
}

fn etcd(folder: &Path, [clients, peers, _]: [u16; 3]) -> Command {
    let mut command = Command::new(target().join("kubernetes/etcd"));
    let [clients, peers] = [clients, peers].map(|port| format!("http://127.0.0.1:{port}"));
    command
        .arg("--data-dir")
        .arg(folder.join("etcd"))
        .args([
            "--listen-client-urls",
            &clients,
            "--advertise-client-urls",
            &clients,
        ])
        .args([
            "--listen-peer-urls",
            &peers,
            "--initial-advertise-peer-urls",
            &peers,
        ])
        .args([
            "--initial-cluster",
            &format!("default={peers}"),
            "--unsafe-no-fsync",
        ]);
    logged(command, folder)
}

fn api_server(folder: &Path, [etcd, _, port]: [u16; 3]) -> Command {
    let key = folder.join("accounts.key");
    let made = Command::new("openssl")
        .args(["genrsa", "-out"])
        .arg(&key)
        .arg("2048")
        .stderr(Stdio::null())
        .status();
    assert!(made.expect("openssl is installed").success());
    let tokens =
        format!("{ADMINISTRATOR},{ADMINISTRATOR},1,\"system:masters\"\n{ACCOUNT},{ACCOUNT},2\n");
    let token_file = folder.join("tokens.csv");
    fs::write(&token_file, tokens).expect("the folder is ours");
    let with = |option: &str, path: &Path| format!("{option}={}", path.display());
    let mut command = Command::new(target().join("kubernetes/kube-apiserver"));
    command.args([
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        with("--cert-dir", folder),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        with("--service-account-key-file", &key),
        with("--service-account-signing-key-file", &key),
        with("--token-auth-file", &token_file),
        "--authorization-mode=RBAC".into(),
        "--service-cluster-ip-range=10.0.0.0/24".into(),
    ]);
    logged(command, folder)
}

fn logged(mut command: Command, folder: &Path) -> Command {
    let log = fs::File::options()
        .append(true)
        .create(true)
        .open(folder.join("log"));
    let log = log.expect("the folder can be written");
    command
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a file"))
        .stderr(log);
    command
}
