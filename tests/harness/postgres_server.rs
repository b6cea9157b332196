//! Postgres servers for the tests alone, on unix sockets in temporary folders.
//!
//! Setting up a server takes seconds, so most tests of one run share a server and have a database each. Tests that
//! stop, crash or promote a server have their own.

use std::fs;
use std::io::Write;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::sync::OnceCell;
use tokio_postgres::{Client, Config, NoTls};

use super::full_disk::FullDisk;
use super::ports::free_port;
use super::server_clock::ServerClock;
use super::tls::Certificate;
use super::wait::until;

/// The command that installs the server.
const INSTALL: &str = "apt-get install -y postgresql-15";

/// The path of the programs on Debian, which are not in `PATH`.
const PROGRAMS: &str = "/usr/lib/postgresql";

/// The port in the name of the socket, and the TCP port if the server has one.
const PORT: u16 = 5432;

/// Runs the server, sends it signals and starts it again on request, and ends it at the end of this pipe, however the
/// test process ends. It sends `QUIT` and not `KILL`, so that the server frees its shared memory.
const GUARD: &str = r#"
    folder=$1; shift
    "$@" >>"$folder/log" 2>&1 &
    server=$!
    while read order; do
        case $order in
            start) "$@" >>"$folder/log" 2>&1 & server=$! ;;
            *) kill -$order $server; wait $server ;;
        esac
    done
    kill -QUIT $server
    wait $server
    rm -rf "$folder"
"#;

static SHARED: OnceCell<PostgresServer> = OnceCell::const_new();
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A running server.
#[derive(Debug)]
pub struct PostgresServer {
    folder: PathBuf,
    port: u16,
    // Its stdin is the pipe: the server ends with this process, when the system closes it.
    guard: Mutex<Child>,
}

impl PostgresServer {
    /// Returns a new database on the server of this run.
    pub async fn database() -> Database {
        let shared = || Self::start(&["fsync=off", "max_connections=100"]);
        let server = SHARED.get_or_init(shared).await;
        let name = format!("test_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        server
            .administrator()
            .await
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .await
            .expect("a database is made");
        Database {
            folder: server.folder.clone(),
            port: server.port,
            name,
        }
    }

    /// Starts a server for one test, with these settings.
    pub async fn start(settings: &[&str]) -> Self {
        let (folder, data) = new_folder();
        initialize(&data);
        Self::run(folder, &data, PORT, settings, |_| {}).await
    }

    /// Starts a server whose clock the test moves.
    pub async fn start_with_clock(settings: &[&str]) -> (Self, ServerClock) {
        let (server, clock, _) = Self::start_on_own_machine(settings).await;
        (server, clock)
    }

    /// Starts a server whose disk the test fills.
    pub async fn start_with_disk(settings: &[&str]) -> (Self, FullDisk) {
        let (server, _, disk) = Self::start_on_own_machine(settings).await;
        (server, disk)
    }

    /// Starts a server whose clock the test moves, and whose disk it fills.
    pub async fn start_on_own_machine(settings: &[&str]) -> (Self, ServerClock, FullDisk) {
        let (folder, data) = new_folder();
        initialize(&data);
        let clock = ServerClock::in_folder(&folder);
        let disk = FullDisk::in_folder(&folder, &["/base/", "/pg_wal/"]);
        let rule = |command: &mut Command| {
            clock.rule(command);
            disk.rule(command);
        };
        let server = Self::run(folder, &data, PORT, settings, rule).await;
        (server, clock, disk)
    }

    /// Starts the same behind TLS on a port of this machine; it accepts no connection without TLS.
    pub async fn start_behind_tls(certificate: &Certificate) -> Self {
        Self::behind_tls(certificate, "").await
    }

    /// Starts a server that accepts only clients that show its own certificate.
    pub async fn start_for_known_clients(certificate: &Certificate) -> Self {
        Self::behind_tls(certificate, "clientcert=verify-ca").await
    }

    async fn behind_tls(certificate: &Certificate, option: &str) -> Self {
        let (folder, data) = new_folder();
        initialize(&data);
        if let Some(user) = unprivileged_user() {
            certificate.give_to(user);
        }
        let rules = format!(
            "local all all trust\nhostssl all all 127.0.0.1/32 trust {option}\nhostssl all all ::1/128 trust {option}\n"
        );
        fs::write(data.join("pg_hba.conf"), rules).expect("root writes anywhere");
        let port = free_port();
        let settings = [
            "listen_addresses=localhost".into(),
            "fsync=off".into(),
            "ssl=on".into(),
            format!("ssl_cert_file={}", certificate.path().display()),
            format!("ssl_key_file={}", certificate.key().display()),
            format!("ssl_ca_file={}", certificate.authority().display()),
        ];
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        Self::run(folder, &data, port, &settings, |_| {}).await
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Starts a standby of this server, which streams from then on.
    pub async fn standby(&self, settings: &[&str]) -> Self {
        let Backup { folder, data } = self.backup(&["--write-recovery-conf"]);
        Self::run(folder, &data, PORT, settings, |_| {}).await
    }

    /// Starts a standby that takes no connections, as one that has not come so far.
    pub async fn cold_standby(&self) -> Self {
        let Backup { folder, data } = self.backup(&["--write-recovery-conf"]);
        let server = Self::spawn(folder, &data, PORT, &["hot_standby=off"], |_| {});
        until("the socket", async || {
            let socket = server.folder.join(format!(".s.PGSQL.{PORT}"));
            socket.exists().then_some(())
        })
        .await;
        server
    }

    /// Copies the server's data as it is now.
    pub fn backup(&self, options: &[&str]) -> Backup {
        let (folder, data) = new_folder();
        let copied = as_user(&programs().join("pg_basebackup"))
            .args(["--checkpoint=fast", "--no-sync"])
            .args(options)
            .args(["--username=postgres", "--pgdata"])
            .arg(&data)
            .arg("--host")
            .arg(&self.folder)
            .output()
            .expect("pg_basebackup starts");
        assert!(copied.status.success(), "pg_basebackup failed: {copied:?}");
        Backup { folder, data }
    }

    /// Starts a server on a copy, which recovers from an archive as these settings say.
    pub async fn recover(backup: Backup, settings: &[&str]) -> Self {
        let Backup { folder, data } = backup;
        fs::write(data.join("recovery.signal"), "").expect("the folder can be written");
        if let Some((uid, gid)) = unprivileged_user() {
            let signal = data.join("recovery.signal");
            chown(signal, Some(uid), Some(gid)).expect("root gives it away");
        }
        Self::run(folder, &data, PORT, settings, |_| {}).await
    }

    async fn run(
        folder: PathBuf,
        data: &Path,
        port: u16,
        settings: &[&str],
        rule: impl FnOnce(&mut Command),
    ) -> Self {
        let server = Self::spawn(folder, data, port, settings, rule);
        server.wait_until_it_answers().await;
        server
    }

    fn spawn(
        folder: PathBuf,
        data: &Path,
        port: u16,
        settings: &[&str],
        rule: impl FnOnce(&mut Command),
    ) -> Self {
        let server = as_user(&programs().join("postgres"));
        let mut guard = Command::new("sh");
        guard
            .args(["-c", GUARD, "guard"])
            .arg(&folder)
            .arg(server.get_program())
            .args(server.get_args())
            .arg("-D")
            .arg(data)
            .arg("-k")
            .arg(&folder)
            .args(["-p", &port.to_string()])
            .args(["-c", "listen_addresses="]);
        for setting in settings {
            guard.args(["-c", setting]);
        }
        rule(&mut guard);
        let guard = guard
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh starts");
        Self {
            folder,
            port,
            guard: Mutex::new(guard),
        }
    }

    /// Sends the server a signal that ends it: `INT` stops it, `QUIT` crashes it.
    pub async fn end(&self, signal: &str) {
        self.order(signal);
        until("the end of Postgres", async || {
            self.connect("postgres").await.err()
        })
        .await;
    }

    /// Sends the server's first process a signal, and does not wait for the effect.
    pub fn signal(&self, signal: Signal) {
        let file = fs::read_to_string(self.folder.join("data/postmaster.pid"));
        let file = file.expect("it runs");
        let pid = file.lines().next().and_then(|pid| pid.parse().ok());
        let pid = Pid::from_raw(pid.expect("a number")).expect("a process");
        kill_process(pid, signal).expect("it is ours");
    }

    /// The same for a server that may have ended by itself.
    pub fn order_end(&self, signal: &str) {
        self.order(signal);
    }

    /// Starts it again after its end.
    pub async fn start_again(&self) {
        self.order("start");
        self.wait_until_it_answers().await;
    }

    /// Makes a primary of a standby.
    pub async fn promote(&self) {
        let promoted = self
            .administrator()
            .await
            .query_one("SELECT pg_promote()", &[])
            .await;
        assert!(promoted.expect("answered").get::<_, bool>(0), "promoted");
    }

    /// Returns an existing database with this name.
    pub fn database_named(&self, name: &str) -> Database {
        Database {
            folder: self.folder.clone(),
            port: self.port,
            name: name.into(),
        }
    }

    async fn administrator(&self) -> Client {
        self.connect("postgres").await.expect("it answers")
    }

    fn order(&self, order: &str) {
        let mut guard = self.guard.lock().expect("no test panicked here");
        let pipe = guard.stdin.as_mut().expect("it is piped");
        writeln!(pipe, "{order}").expect("the guard reads");
    }

    async fn wait_until_it_answers(&self) {
        until("the first answer of Postgres", async || {
            self.connect("postgres").await.ok()
        })
        .await;
    }

    async fn connect(&self, database: &str) -> Result<Client, tokio_postgres::Error> {
        connect(&self.folder, self.port, database, "postgres").await
    }
}

/// The data of a server, copied.
#[derive(Debug)]
pub struct Backup {
    folder: PathBuf,
    data: PathBuf,
}

async fn connect(
    folder: &Path,
    port: u16,
    database: &str,
    user: &str,
) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = Config::new()
        .host_path(folder)
        .port(port)
        .user(user)
        .dbname(database)
        .connect(NoTls)
        .await?;
    // The task ends with the client.
    tokio::spawn(connection);
    Ok(client)
}

/// A database of one test.
#[derive(Debug, Clone)]
pub struct Database {
    folder: PathBuf,
    port: u16,
    name: String,
}

impl Database {
    /// Opens a new connection.
    pub async fn connect(&self) -> Client {
        self.connect_as("postgres").await.expect("it answers")
    }

    /// Opens a new connection as another role.
    pub async fn connect_as(&self, user: &str) -> Result<Client, tokio_postgres::Error> {
        connect(&self.folder, self.port, &self.name, user).await
    }

    /// Returns its URL, for processes that connect by themselves.
    pub fn url(&self) -> String {
        self.url_as("postgres")
    }

    /// Returns the same for another role.
    pub fn url_as(&self, user: &str) -> String {
        let folder = self.folder.display();
        format!("postgresql:///{}?user={user}&host={folder}", self.name)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the folder of the server's socket.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of the server's socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.join(format!(".s.PGSQL.{}", self.port))
    }
}

fn initialize(data: &Path) {
    let made = as_user(&programs().join("initdb"))
        .args(["--auth=trust", "--username=postgres", "--encoding=UTF8"])
        .args(["--no-locale", "--no-sync", "--pgdata"])
        .arg(data)
        .output()
        .expect("initdb starts");
    assert!(made.status.success(), "initdb failed: {made:?}");
}

/// Makes a folder for a server, and one in it for its data.
fn new_folder() -> (PathBuf, PathBuf) {
    let folder = TempDir::new().expect("a temporary folder").keep();
    if let Some((uid, gid)) = unprivileged_user() {
        chown(&folder, Some(uid), Some(gid)).expect("root gives the folder away");
    }
    let data = folder.join("data");
    (folder, data)
}

/// Returns the newest installed programs.
pub fn programs() -> PathBuf {
    let versions = fs::read_dir(PROGRAMS).into_iter().flatten().flatten();
    let mut found: Vec<_> = versions
        .map(|version| version.path().join("bin"))
        .filter(|programs| programs.join("initdb").exists())
        .collect();
    found.sort();
    found.pop().unwrap_or_else(|| {
        panic!("no Postgres under {PROGRAMS}; to install it: {INSTALL}");
    })
}

/// Returns the user that runs the server, by number, because Postgres refuses to run as root.
pub fn unprivileged_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("there are users");
    let line = users.lines().find(|line| line.starts_with("postgres:"));
    let mut fields = line
        .unwrap_or_else(|| panic!("no user postgres; to make it: {INSTALL}"))
        .split(':');
    let mut number = |index| fields.nth(index).and_then(|field| field.parse().ok());
    Some((number(2).expect("a uid"), number(0).expect("a gid")))
}

/// Returns the command for this program as that user.
pub fn as_user(program: &Path) -> Command {
    let Some((uid, gid)) = unprivileged_user() else {
        return Command::new(program);
    };
    let mut command = Command::new("setpriv");
    command
        .args([&format!("--reuid={uid}"), &format!("--regid={gid}")])
        .args(["--clear-groups", "--"])
        .arg(program);
    command
}
