//! A Redis or Valkey server for one test, on a unix socket in a temporary folder.
//!
//! It runs the machine's `redis-server`, or the program that `LEASEHOLD_TEST_REDIS_SERVER` names.

use std::cell::Cell;
use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{self, AsyncConnectionConfig, FromRedisValue, RedisError};
use tempfile::TempDir;

use super::child::GuardedChild;
use super::network::{Host, Network};
use super::ports::free_port;
use super::proxy::Proxy;
use super::server_clock::ServerClock;
use super::times::PATIENCE;
use super::tls::Certificate;
use super::wait::until;

/// The command that installs the server.
pub const INSTALL: &str = "apt-get install -y redis-server";

/// The settings with which a server is started.
#[derive(Debug, Default)]
pub struct Setup {
    arguments: Vec<String>,
    has_port: bool,
    is_tls: bool,
    has_clock: bool,
    password: Option<String>,
    host: Option<Host>,
}

impl Setup {
    /// Adds this line of configuration, as it is written on the command line: `["--maxmemory", "2mb"]`.
    pub fn with<const N: usize>(mut self, arguments: [&str; N]) -> Self {
        self.arguments.extend(arguments.map(Into::into));
        self
    }

    /// Lets it listen on a free loopback port, too.
    pub fn with_port(mut self) -> Self {
        self.has_port = true;
        self
    }

    /// Makes it a member of a cluster, on a free loopback port, with the port 10,000 above it for the other members.
    pub fn with_cluster_bus(self) -> Self {
        self.with_port()
            .with(["--cluster-enabled", "yes"])
            .with(["--cluster-require-full-coverage", "no"])
    }

    /// Makes its port one for TLS, with this certificate. Its replicas, Sentinels and the other nodes of its cluster show
    /// the same one. If it is asking, clients must show a certificate of the same authority.
    pub fn with_tls(mut self, certificate: &Certificate, is_asking: bool) -> Self {
        self.arguments.extend(certificate.settings(is_asking));
        self.is_tls = true;
        self.with_port()
    }

    /// Starts it under a wall clock that the test can move.
    pub fn with_clock(mut self) -> Self {
        self.has_clock = true;
        self
    }

    /// Starts it on this host of the test's own network, where its port can be reached from all hosts.
    pub fn on(mut self, host: Host) -> Self {
        self.host = Some(host);
        self.with_port().with(["--protected-mode", "no"])
    }

    /// Returns the default settings, each time on a new host of this network.
    pub fn on_hosts(network: &Network) -> impl Fn() -> Self {
        let last = Cell::new(0);
        move || {
            last.set(last.get() + 1);
            Self::default().on(network.host(last.get()))
        }
    }

    /// Makes it require this password.
    pub fn with_password(mut self, password: &str) -> Self {
        self.password = Some(password.into());
        self.with(["--requirepass", password])
    }

    /// Starts it, and returns once it answers.
    pub async fn start(self) -> RedisServer {
        let folder = TempDir::new().expect("a temporary folder");
        let clock = self
            .has_clock
            .then(|| ServerClock::in_folder(folder.path()));
        let port = self.has_port.then(free_port);
        let mut server = RedisServer {
            process: None,
            port,
            clock,
            setup: self,
            folder,
        };
        server.start_again().await;
        server
    }
}

/// A running server. It ends on drop.
#[derive(Debug)]
pub struct RedisServer {
    // Before the folder, so that the server ends before its folder is removed.
    process: Option<GuardedChild>,
    port: Option<u16>,
    clock: Option<ServerClock>,
    setup: Setup,
    folder: TempDir,
}

impl RedisServer {
    /// Starts a server with the default settings.
    pub async fn start() -> Self {
        Setup::default().start().await
    }

    /// Returns the URL for the store, without the password, which the test adds.
    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// Returns the path of its socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Returns its folder, with its snapshot in `dump.rdb`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the host that it was set up on.
    pub fn host(&self) -> &Host {
        self.setup.host.as_ref().expect("it was set up on a host")
    }

    /// Returns the address of its port.
    pub fn address(&self) -> Ipv4Addr {
        let host = self.setup.host.as_ref();
        host.map_or(Ipv4Addr::LOCALHOST, Host::address)
    }

    /// Returns the scheme of a URL with its port, and of its group or cluster: `redis`, or `rediss` with TLS.
    pub fn scheme(&self) -> &'static str {
        match self.setup.is_tls {
            true => "rediss",
            false => "redis",
        }
    }

    /// Returns whether it listens on a port, too.
    pub fn has_port(&self) -> bool {
        self.port.is_some()
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.port.expect("it was set up with a port")
    }

    /// Moves its wall clock, by a second or more, and returns once the server uses the new time.
    pub async fn step_clock(&self, by_ms: i64) {
        let goal = self.time_ms().await + by_ms;
        let clock = self.clock.as_ref().expect("it was set up with a clock");
        clock.step(by_ms);
        // Valkey 9 reads its clock only every 100 ms.
        until("the stepped clock", async || {
            let off = self.time_ms().await - goal;
            (off.abs() < by_ms.abs() / 2).then_some(())
        })
        .await;
    }

    /// Lets its wall clock stand still at this moment, in microseconds since 1970, and returns once the server uses it.
    pub async fn stop_clock_at(&self, us: u64) {
        let clock = self.clock.as_ref().expect("it was set up with a clock");
        clock.stand_still_at(us);
        until("the stopped clock", async || {
            let (seconds, micros): (u64, u64) = self.told("TIME").await;
            (seconds * 1_000_000 + micros == us).then_some(())
        })
        .await;
    }

    /// Returns the time of its wall clock.
    pub async fn time_ms(&self) -> i64 {
        let (seconds, micros): (i64, i64) = self.told("TIME").await;
        seconds * 1_000 + micros / 1_000
    }

    /// Returns a network for one test in front of this server.
    pub async fn proxy(&self) -> Proxy {
        Proxy::before(&self.socket()).await
    }

    /// Opens a new connection of the administrator.
    pub async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut url = self.url();
        if let Some(password) = &self.setup.password {
            url = format!("{url}?pass={password}");
        }
        // The crate's default of half a second is too short on a busy machine.
        let patient = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        redis::Client::open(url)?
            .get_multiplexed_async_connection_with_config(&patient)
            .await
    }

    /// Runs a command, given as one line, as the administrator.
    pub async fn ask<T: FromRedisValue>(&self, line: &str) -> Result<T, RedisError> {
        let mut words = line.split_ascii_whitespace();
        let mut command = redis::cmd(words.next().expect("a command"));
        command.arg(words.collect::<Vec<_>>());
        command.query_async(&mut self.connect().await?).await
    }

    /// Runs a command, given as one line, that must succeed.
    pub async fn told<T: FromRedisValue>(&self, line: &str) -> T {
        let answer = self.ask(line).await;
        answer.unwrap_or_else(|error| panic!("{line:?} failed: {error}"))
    }

    /// Returns how often a script was loaded, since the statistics were reset.
    pub async fn scripts_loaded(&self) -> u64 {
        let stats: String = self.told("INFO commandstats").await;
        // Servers before 7.0 do not tell the subcommands of SCRIPT apart.
        let of_loads = |line: &&str| line.starts_with("cmdstat_script");
        let line = stats.lines().find(of_loads).expect("scripts were loaded");
        let (_, calls) = line.split_once("calls=").expect("a statistic");
        let (calls, _) = calls.split_once(',').expect("a statistic");
        calls.parse().expect("a number")
    }

    /// Asserts that all keys have an expiry, except the marks of the highest tokens, and what a server keeps of itself.
    pub async fn assert_all_keys_run_out(&self) {
        let keys = self.keys().await.into_iter();
        for key in keys.filter(|key| !key.ends_with("}:mark") && !key.ends_with(":node")) {
            let mut connection = self.connect().await.expect("it is up");
            let left: i64 = redis::cmd("PTTL")
                .arg(&key)
                .query_async(&mut connection)
                .await
                .expect("PTTL is answered");
            // -2: it expired since the scan.
            assert!(left >= 0 || left == -2, "{key} never runs out: PTTL {left}");
        }
    }

    /// Returns all its keys, in order.
    pub async fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        let mut cursor = 0_u64;
        loop {
            let (next, some): (u64, Vec<String>) =
                self.told(&format!("SCAN {cursor} COUNT 1000")).await;
            keys.extend(some);
            cursor = next;
            if cursor == 0 {
                keys.sort();
                keys.dedup();
                return keys;
            }
        }
    }

    /// Returns all its data, without the expiries.
    pub async fn contents(&self) -> Vec<(String, Vec<u8>)> {
        let mut connection = self.connect().await.expect("it is up");
        let mut contents = Vec::new();
        for key in self.keys().await {
            let dump: Option<Vec<u8>> = redis::cmd("DUMP")
                .arg(&key)
                .query_async(&mut connection)
                .await
                .expect("DUMP is answered");
            contents.extend(dump.map(|dump| (key, dump)));
        }
        contents
    }

    /// Stops it at once.
    pub fn pause(&self) {
        self.process.as_ref().expect("it runs").pause();
    }

    /// Resumes it.
    pub fn resume(&self) {
        self.process.as_ref().expect("it runs").resume();
    }

    /// Sends `kill -9`.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it again in its folder, from the snapshot that is there, and returns once it answers.
    pub async fn start_again(&mut self) {
        self.launch();
        self.answering().await;
    }

    /// Sends `kill -9`, and starts it again without data.
    pub async fn restart_empty(&mut self) {
        self.kill();
        let _ = fs::remove_file(self.folder.path().join("dump.rdb"));
        self.start_again().await;
    }

    /// Returns a snapshot of all its data.
    pub async fn snapshot(&self) -> Vec<u8> {
        until("no other snapshot is being made", async || {
            self.ask::<()>("SAVE").await.ok()
        })
        .await;
        fs::read(self.folder.path().join("dump.rdb")).expect("SAVE wrote it")
    }

    /// Sends `kill -9`, and starts it again from this snapshot.
    pub async fn restart_from(&mut self, snapshot: &[u8]) {
        self.kill();
        let file = self.folder.path().join("dump.rdb");
        fs::write(file, snapshot).expect("the folder can be written");
        self.start_again().await;
    }

    /// Makes it a replica, and returns once it has all data.
    pub async fn follow(&self, master: &Self) {
        let () = self
            .told(&format!("REPLICAOF {} {}", master.address(), master.port()))
            .await;
        until("the replica's link", async || {
            let info: String = self.told("INFO replication").await;
            info.contains("master_link_status:up").then_some(())
        })
        .await;
    }

    /// Makes a replica a master.
    pub async fn promote(&self) {
        let () = self.told("REPLICAOF NO ONE").await;
    }

    /// Starts the process, without waiting for its answer.
    pub fn launch(&mut self) {
        let program = env::var_os("LEASEHOLD_TEST_REDIS_SERVER");
        let program = program.unwrap_or_else(|| OsString::from("redis-server"));
        let mut command = match &self.setup.host {
            None => Command::new(program),
            Some(host) => host.program(program),
        };
        let _ = fs::remove_file(self.socket());
        let log = fs::File::create(self.folder.path().join("log")).expect("the folder is ours");
        if self.setup.is_tls {
            command.args(["--port", "0", "--tls-port"]);
        } else {
            command.arg("--port");
        }
        command
            .arg(self.port.unwrap_or(0).to_string())
            .args(["--bind", &self.address().to_string(), "--unixsocket"])
            .arg(self.socket())
            .arg("--dir")
            .arg(self.folder.path())
            .args(["--save", "", "--appendonly", "no"])
            // A replica should have its data at once, not after the usual five seconds.
            .args(["--repl-diskless-sync-delay", "0"])
            .args(&self.setup.arguments)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(Stdio::null());
        if let Some(clock) = &self.clock {
            clock.rule(&mut command);
        }
        self.process = Some(GuardedChild::spawn(command, INSTALL));
    }

    async fn answering(&mut self) {
        until("the server's first answer", async || {
            let ended = self.process.as_mut().and_then(GuardedChild::ended);
            assert!(ended.is_none(), "the server ended: {}", self.log());
            self.ask::<String>("PING").await.ok()
        })
        .await;
    }

    /// Returns its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

#[tokio::test]
async fn a_server_forgets_or_remembers_as_told() {
    let mut server = RedisServer::start().await;
    let () = server.told("SET a 1").await;
    let snapshot = server.snapshot().await;
    let () = server.told("SET a 2").await;
    server.restart_from(&snapshot).await;
    assert_eq!(server.told::<u8>("GET a").await, 1);
    server.restart_empty().await;
    assert_eq!(server.keys().await, [""; 0]);
}

#[tokio::test]
#[should_panic(expected = "a never runs out")]
async fn a_key_without_an_end_is_found() {
    let server = RedisServer::start().await;
    let () = server.told("SET b 1 PX 60000").await;
    server.assert_all_keys_run_out().await;
    let () = server.told("SET a 1").await;
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_servers_clock_is_moved_while_it_runs() {
    let server = Setup::default().with_clock().start().await;
    let () = server.told("SET short 1 PX 60000").await;
    let () = server.told("SET long 1 PX 600000").await;
    server.step_clock(120_000).await;
    assert_eq!(server.keys().await, ["long"]);
    server.step_clock(-240_000).await;
    assert!(server.told::<i64>("PTTL long").await > 700_000);
}
