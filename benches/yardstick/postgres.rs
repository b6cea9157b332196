//! A Postgres server for the bench alone, which flushes as a real one does.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio_postgres::NoTls;

const MISSING: &str = "Postgres is missing: apt-get install -y postgresql";

/// A server on a unix socket, ended on drop.
pub struct Server {
    process: Child,
    folder: TempDir,
}

impl Server {
    /// Makes the server and waits until it answers.
    pub async fn start() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let data = folder.path().join("data");
        let made = as_owner_of(folder.path(), &programs().join("initdb"))
            .args([
                "--auth=trust",
                "--username=postgres",
                "--no-locale",
                "--encoding=UTF8",
            ])
            .arg("--pgdata")
            .arg(&data)
            .stdout(Stdio::null())
            .status();
        assert!(made.is_ok_and(|status| status.success()), "initdb failed");
        let process = as_owner_of(folder.path(), &programs().join("postgres"))
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(folder.path())
            .args(["-c", "listen_addresses="])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect(MISSING);
        let server = Self { process, folder };
        for _ in 0..500 {
            if tokio_postgres::connect(&server.url(), NoTls).await.is_ok() {
                return server;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("Postgres did not answer within five seconds");
    }

    /// Returns its process, whose children serve the connections.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the URL of its database.
    pub fn url(&self) -> String {
        let folder = self.folder.path().display();
        format!("postgresql:///postgres?user=postgres&host={folder}")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ends its sessions at once, and frees its shared memory, which a kill would not.
        let server = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(server, rustix::process::Signal::QUIT);
        let _ = self.process.wait();
    }
}

fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .expect(MISSING)
        .flatten();
    let programs = versions.map(|version| version.path().join("bin"));
    programs.max().expect(MISSING)
}

/// Returns the command for this program. Postgres refuses to run as root: then the user `postgres` runs it, by number.
fn as_owner_of(folder: &Path, program: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let users = fs::read_to_string("/etc/passwd").expect("there are users");
    let user = users
        .lines()
        .find(|line| line.starts_with("postgres:"))
        .expect(MISSING);
    let number = |index| {
        user.split(':')
            .nth(index)
            .and_then(|field| field.parse().ok())
    };
    let (uid, gid): (u32, u32) = (number(2).expect("a uid"), number(3).expect("a gid"));
    chown(folder, Some(uid), Some(gid)).expect("root gives the folder away");
    let mut command = Command::new("setpriv");
    command
        .args([format!("--reuid={uid}"), format!("--regid={gid}")])
        .args(["--clear-groups", "--"])
        .arg(program);
    command
}
