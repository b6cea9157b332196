//! A Postgres server of the tests' own, on a unix socket in a temporary folder.
//!
//! It takes seconds to set one up, so the tests of one run share it and have a database each.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;
use tokio::sync::OnceCell;
use tokio_postgres::{Client, Config, NoTls};

use super::wait::until;

/// What to type where the server is missing.
const INSTALL: &str = "apt-get install -y postgresql-15";

/// Where Debian keeps the programs, which are not on the path.
const PROGRAMS: &str = "/usr/lib/postgresql";

/// Runs the server and ends it at the end of this pipe, however the test process ends. `QUIT` and not `KILL`: the server
/// then gives back its shared memory.
const GUARD: &str = r#"
    folder=$1; shift
    "$@" >"$folder/log" 2>&1 &
    server=$!
    read _
    kill -QUIT $server
    wait $server
    rm -rf "$folder"
"#;

static SHARED: OnceCell<PostgresServer> = OnceCell::const_new();
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A running server.
#[derive(Debug)]
pub(crate) struct PostgresServer {
    folder: PathBuf,
    // Its stdin is the pipe: the server ends with this process, when the system closes it.
    _guard: Child,
}

impl PostgresServer {
    /// A fresh database on the server of this run.
    pub(crate) async fn database() -> Database {
        let server = SHARED.get_or_init(Self::start).await;
        let name = format!("test_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        let administrator = server.connect("postgres").await.expect("it answers");
        administrator
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .await
            .expect("a database is made");
        Database { server, name }
    }

    async fn start() -> Self {
        let programs = programs();
        let folder = TempDir::new().expect("a temporary folder").keep();
        let data = folder.join("data");
        let user = unprivileged_user();
        if let Some((uid, gid)) = user {
            chown(&folder, Some(uid), Some(gid)).expect("root gives the folder away");
        }
        let made = as_user(user, &programs.join("initdb"))
            .args(["--auth=trust", "--username=postgres", "--encoding=UTF8"])
            .args(["--no-locale", "--no-sync", "--pgdata"])
            .arg(&data)
            .output()
            .expect("initdb starts");
        assert!(made.status.success(), "initdb failed: {made:?}");
        let server = as_user(user, &programs.join("postgres"));
        let guard = Command::new("sh")
            .args(["-c", GUARD, "guard"])
            .arg(&folder)
            .arg(server.get_program())
            .args(server.get_args())
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(&folder)
            .args(["-c", "listen_addresses=", "-c", "fsync=off"])
            .args(["-c", "max_connections=60"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh starts");
        let server = Self {
            folder,
            _guard: guard,
        };
        until("the first answer of Postgres", async || {
            server.connect("postgres").await.ok()
        })
        .await;
        server
    }

    async fn connect(&self, database: &str) -> Result<Client, tokio_postgres::Error> {
        let (client, connection) = Config::new()
            .host_path(&self.folder)
            .user("postgres")
            .dbname(database)
            .connect(NoTls)
            .await?;
        // Ends with the client.
        tokio::spawn(connection);
        Ok(client)
    }
}

/// A database of one test.
#[derive(Debug, Clone)]
pub(crate) struct Database {
    server: &'static PostgresServer,
    name: String,
}

impl Database {
    /// A fresh connection.
    pub(crate) async fn connect(&self) -> Client {
        self.server.connect(&self.name).await.expect("it answers")
    }

    /// Where it is, for processes that connect by themselves.
    pub(crate) fn url(&self) -> String {
        let folder = self.server.folder.display();
        format!("postgresql:///{}?user=postgres&host={folder}", self.name)
    }
}

/// The newest programs that are installed.
fn programs() -> PathBuf {
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

/// Postgres refuses to run as root: then its own user runs it, as numbers.
fn unprivileged_user() -> Option<(u32, u32)> {
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

fn as_user(user: Option<(u32, u32)>, program: &Path) -> Command {
    let Some((uid, gid)) = user else {
        return Command::new(program);
    };
    let mut command = Command::new("setpriv");
    command
        .args([&format!("--reuid={uid}"), &format!("--regid={gid}")])
        .args(["--clear-groups", "--"])
        .arg(program);
    command
}
