//! PgBouncer in transaction mode in front of a server for the tests alone.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::ports::free_port;
use super::postgres_server::{Database, as_user, unprivileged_user};
use super::wait::until;

/// The command that installs it.
const INSTALL: &str = "apt-get install -y pgbouncer";

/// Its path on Debian.
const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// Runs it and ends it at the end of this pipe, however the test process ends.
const GUARD: &str = r#"
    "$@" >/dev/null 2>&1 &
    server=$!
    read _
    kill -KILL $server
"#;

/// A running pooler. Ends on drop.
#[derive(Debug)]
pub struct PgBouncer {
    port: u16,
    connections: usize,
    database: String,
    _guard: Child,
    _folder: TempDir,
}

impl PgBouncer {
    /// Starts a pooler whose transactions share this many server connections.
    pub async fn before(database: &Database, connections: usize) -> Self {
        assert!(
            Path::new(PROGRAM).exists(),
            "no {PROGRAM}; to install it: {INSTALL}"
        );
        let port = free_port();
        Self::start(database, connections, port).await
    }

    async fn start(database: &Database, connections: usize, port: u16) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let config = folder.path().join("pgbouncer.ini");
        // With `any` every client becomes the user in the database's line.
        let settings = format!(
            "[databases]
            * = user=postgres host={folder}
            [pgbouncer]
            listen_addr = 127.0.0.1
            listen_port = {port}
            unix_socket_dir =
            auth_type = any
            pool_mode = transaction
            default_pool_size = {connections}
            server_login_retry = 1
            ",
            folder = database.folder().display()
        );
        fs::write(&config, settings).expect("the folder is ours");
        if let Some((uid, gid)) = unprivileged_user() {
            chown(folder.path(), Some(uid), Some(gid)).expect("root gives the folder away");
        }
        let program = as_user(Path::new(PROGRAM));
        let guard = Command::new("sh")
            .args(["-c", GUARD, "guard"])
            .arg(program.get_program())
            .args(program.get_args())
            .arg(&config)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh starts");
        until("the first answer of PgBouncer", async || {
            tokio::net::TcpStream::connect(("127.0.0.1", port))
                .await
                .ok()
        })
        .await;
        Self {
            port,
            connections,
            database: database.name().into(),
            _guard: guard,
            _folder: folder,
        }
    }

    /// Ends it and starts another.
    pub async fn again(self, database: &Database) -> Self {
        let (port, connections) = (self.port, self.connections);
        drop(self);
        until("the port to be free", async || {
            TcpListener::bind(("127.0.0.1", port)).ok().map(drop)
        })
        .await;
        Self::start(database, connections, port).await
    }

    pub fn url(&self) -> String {
        format!(
            "postgres://postgres@127.0.0.1:{}/{}",
            self.port, self.database
        )
    }
}
