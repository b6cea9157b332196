//! Servers of MariaDB on free loopback ports and on sockets in temporary folders, from Debian's package, which is unpacked
//! and not installed.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};
use leasehold::store::{TableSettings, init};
use mysql_async::prelude::{FromRow, Queryable as _};
use mysql_async::{Conn, OptsBuilder};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::bucket_server::target;
use super::child::GuardedChild;
use super::ports::free_port;
use super::server_clock::ServerClock;
use super::tls::Certificate;

const PATIENCE: Duration = Duration::from_secs(60);
const INSTALL: &str = "tests/run --faults unpacks it, as its function mysql_server says";
/// Has the tables of users made for nobody but root, who needs no password.
const BEGIN: &str = "CREATE DATABASE mysql;\nUSE mysql;\n\
                     SET @skip_auth_anonymous = 1, @auth_root_socket = NULL, @current_hostname = 'localhost';\n";
/// Small and quick files, which a crash of the machine may damage.
const SETTINGS: [&str; 4] = [
    "--innodb-log-file-size=4M",
    "--innodb-buffer-pool-size=16M",
    "--innodb-flush-method=nosync",
    "--user=root",
];

static SHARED: OnceCell<MysqlServer> = OnceCell::const_new();
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A running server. It ends on drop.
#[derive(Debug)]
pub struct MysqlServer {
    /// `None`: it was killed.
    process: Option<GuardedChild>,
    clock: Option<Arc<ServerClock>>,
    port: u16,
    arguments: Vec<String>,
    // After the process, so that it ends before its folder is removed.
    folder: TempDir,
}

/// What one user does over one connection.
#[derive(Debug)]
pub struct Session(Conn);

impl MysqlServer {
    /// Returns the server of this run, which the tests share: each has a database of its own.
    pub async fn shared() -> &'static Self {
        SHARED.get_or_init(Self::start).await
    }

    /// Returns whether the program is there.
    pub fn is_unpacked() -> bool {
        root().join("usr/sbin/mariadbd").exists()
    }

    /// Starts one for one test.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same with these arguments in addition.
    pub async fn start_with(more: &[&str]) -> Self {
        Self::start_as(more, |_| None).await.0
    }

    /// Starts one whose clock the test moves.
    pub async fn start_with_clock() -> (Self, Arc<ServerClock>) {
        let (server, clock) =
            Self::start_as(&[], |folder| Some(ServerClock::in_folder(folder))).await;
        (server, clock.expect("it was made"))
    }

    async fn start_as(
        more: &[&str],
        clock: impl Fn(&Path) -> Option<ServerClock>,
    ) -> (Self, Option<Arc<ServerClock>>) {
        // Another program can take a free port before the server does.
        for _ in 0..5 {
            let folder = TempDir::new().expect("a temporary folder");
            let port = free_port();
            let copied = Command::new("cp")
                .arg("-r")
                .arg(prepared())
                .arg(data(&folder))
                .status();
            assert!(copied.expect("cp starts").success());
            let socket = folder.path().join("s");
            let mut arguments = vec![
                format!("--datadir={}", data(&folder).display()),
                format!("--socket={}", socket.display()),
                format!("--pid-file={}", folder.path().join("pid").display()),
                format!("--port={port}"),
                "--bind-address=127.0.0.1".into(),
            ];
            arguments.extend(more.iter().map(ToString::to_string));
            let clock = clock(folder.path()).map(Arc::new);
            let mut server = Self {
                process: None,
                clock: clock.clone(),
                port,
                arguments,
                folder,
            };
            server.run();
            if server.is_ready().await {
                return (server, clock);
            }
        }
        panic!("MariaDB becomes ready")
    }

    /// Starts one that can speak TLS. It trusts the clients that the same authority does.
    pub async fn start_behind(certificate: &Certificate) -> Self {
        Self::start_with(&[
            &format!("--ssl-cert={}", certificate.path().display()),
            &format!("--ssl-key={}", certificate.key().display()),
            &format!("--ssl-ca={}", certificate.authority().display()),
        ])
        .await
    }

    /// Starts the program on its data, also after it was killed.
    pub fn run(&mut self) {
        let log = fs::File::options()
            .append(true)
            .create(true)
            .open(self.log());
        let mut command = program();
        command
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("the folder is ours"));
        if let Some(clock) = &self.clock {
            clock.rule(&mut command);
        }
        self.process = Some(GuardedChild::spawn(command, INSTALL));
    }

    /// Waits until it answers. `false`: it has ended.
    pub async fn is_ready(&mut self) -> bool {
        let end = Monotonic.now().after(PATIENCE);
        while Monotonic.now() < end {
            let process = self.process.as_mut().expect("it was started");
            if process.ended().is_some() {
                eprintln!("{}", fs::read_to_string(self.log()).unwrap_or_default());
                return false;
            }
            if self.connect().await.is_ok() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("MariaDB answers in time")
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

    pub const fn port(&self) -> u16 {
        self.port
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    async fn connect(&self) -> mysql_async::Result<Conn> {
        let root = OptsBuilder::default().user(Some("root"));
        let socket = self.socket().display().to_string();
        Conn::new(root.socket(Some(socket)).prefer_socket(false)).await
    }

    /// Does these statements as root.
    pub async fn sql(&self, statements: &[&str]) {
        self.session("mysql").await.sql(statements).await;
    }

    /// Opens a session of root's on this database, which lasts as long as this lives.
    pub async fn session(&self, database: &str) -> Session {
        let mut session = Session(self.connect().await.expect("root comes in"));
        session.sql(&[&format!("USE {database}")]).await;
        session
    }

    /// Returns what a statement of root's answers.
    pub async fn ask<T: FromRow + Send + 'static>(&self, sql: &str) -> Vec<T> {
        let mut root = self.connect().await.expect("root comes in");
        let answered = root.query(sql).await;
        let answered = answered.unwrap_or_else(|error| panic!("{sql}: {error}"));
        root.disconnect().await.expect("it is up");
        answered
    }

    /// Makes a database that no other test has, and returns its name.
    pub async fn database(&self) -> String {
        let name = format!("test_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        self.sql(&[&format!("CREATE DATABASE {name}")]).await;
        name
    }

    /// The URL of leases that no other test has, with their table.
    pub async fn url(&self) -> String {
        let url = self.url_as("root", &self.database().await);
        set_up(&url).await;
        url
    }

    /// The URL of this database for this user, with a password or without.
    pub fn url_as(&self, login: &str, database: &str) -> String {
        url_by(self.port, login, database)
    }
}

impl Session {
    pub async fn sql(&mut self, statements: &[&str]) {
        for sql in statements {
            let done = self.0.query_drop(*sql).await;
            done.unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
    }
}

/// The URL of this database by way of this port.
pub fn url_by(port: u16, login: &str, database: &str) -> String {
    format!("mysql://{login}@127.0.0.1:{port}/{database}")
}

/// Makes the table of the leases at this URL.
pub async fn set_up(url: &str) {
    let made = init(url, TableSettings::default(), PATIENCE).await;
    made.expect("the table is made");
}

fn data(folder: &TempDir) -> PathBuf {
    folder.path().join("data")
}

fn root() -> PathBuf {
    target().join("mariadb/root")
}

fn program() -> Command {
    let root = root();
    let mut libraries: Vec<_> = ["usr/lib", "lib"].map(|folder| root.join(folder)).into();
    for folder in libraries.clone() {
        let within = fs::read_dir(folder).into_iter().flatten().flatten();
        libraries.extend(
            within
                .map(|entry| entry.path())
                .filter(|path| path.is_dir()),
        );
    }
    let messages = root.join("usr/share/mysql");
    let mut command = Command::new(root.join("usr/sbin/mariadbd"));
    command
        .env(
            "LD_LIBRARY_PATH",
            std::env::join_paths(libraries).expect("no colon"),
        )
        .arg("--no-defaults")
        .arg(format!("--basedir={}", root.join("usr").display()))
        .arg(format!("--lc-messages-dir={}", messages.display()))
        .args(SETTINGS);
    command
}

/// Returns the folder of a server's data as a new one has it, which is made once a machine.
fn prepared() -> &'static Path {
    static PREPARED: OnceLock<PathBuf> = OnceLock::new();
    PREPARED.get_or_init(|| {
        let prepared = target().join("mariadb/data");
        if !prepared.exists() {
            let folder = TempDir::new_in(target()).expect("the target folder can be written");
            bootstrap(folder.path());
            // Another run may have been first.
            let _ = fs::rename(folder.path(), &prepared);
        }
        prepared
    })
}

fn bootstrap(folder: &Path) {
    let mut command = program();
    command
        .arg("--bootstrap")
        .arg(format!("--datadir={}", folder.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let started = command.spawn();
    let mut server = started.unwrap_or_else(|error| panic!("no MariaDB: {error}; {INSTALL}"));
    let mut statements = BEGIN.as_bytes().to_vec();
    for file in ["mysql_system_tables.sql", "mysql_system_tables_data.sql"] {
        let path = root().join("usr/share/mysql").join(file);
        statements.extend(fs::read(path).expect("the package has it"));
    }
    let mut input = server.stdin.take().expect("piped");
    input.write_all(&statements).expect("it reads");
    drop(input);
    assert!(server.wait().expect("our child").success(), "bootstrap");
}
