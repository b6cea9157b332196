//! A master with two replicas, and three Sentinels that watch them.

use std::fs;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::{env, ffi::OsString};

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{self, AsyncConnectionConfig, FromRedisValue, RedisError};
use leasehold::clock::Instant;
use tempfile::TempDir;

use super::child::GuardedChild;
use super::network::{Network, OF_TEST};
use super::ports::free_port;
use super::redis_server::{INSTALL, RedisServer, Setup};
use super::times::PATIENCE;
use super::tls::Certificate;
use super::wait::{now, until, until_so};

/// The Sentinels' name of the group.
pub const GROUP: &str = "main";

/// The servers and their Sentinels. They end on drop.
#[derive(Debug)]
pub struct RedisGroup {
    /// The master to begin with, and its replicas.
    pub servers: Vec<RedisServer>,
    pub sentinels: Vec<SentinelServer>,
}

/// A running Sentinel.
#[derive(Debug)]
pub struct SentinelServer {
    process: GuardedChild,
    address: Ipv4Addr,
    port: u16,
    folder: TempDir,
}

impl RedisGroup {
    /// Starts all of them, and returns once a failover would succeed. A silent master counts as down after 500 ms.
    pub async fn start() -> Self {
        Self::with(Setup::default).await
    }

    /// The same, with servers that are set up so.
    pub async fn with(setup: impl Fn() -> Setup) -> Self {
        Self::with_sentinels(setup, Vec::new()).await
    }

    /// The same with each server on a host of its own. The Sentinels are on that of the test.
    pub async fn on_hosts(network: &Network) -> Self {
        Self::with(Setup::on_hosts(network)).await
    }

    /// The same behind TLS, where servers and Sentinels show this certificate, and ask clients for one of the same
    /// authority.
    pub async fn behind_tls(certificate: &Certificate) -> Self {
        let setup = || Setup::default().with_tls(certificate, true);
        Self::with_sentinels(setup, certificate.settings(true)).await
    }

    /// Starts servers that are set up so, and Sentinels with these settings, behind TLS if there are any.
    async fn with_sentinels(setup: impl Fn() -> Setup, settings: Vec<String>) -> Self {
        let mut servers = Vec::new();
        for _ in 0..3 {
            servers.push(setup().with_port().start().await);
        }
        for replica in &servers[1..] {
            replica.follow(&servers[0]).await;
        }
        // Only the first stands for election. Otherwise two of them can split the votes, and the next election comes
        // after twice the failover-timeout, later than a short lease can wait.
        let master = &servers[0];
        let sentinels = [(1, 500), (3, 60_000), (3, 60_000)].into_iter();
        let sentinels = sentinels
            .map(|(quorum, after_ms)| SentinelServer::watch(master, quorum, after_ms, &settings));
        let group = Self {
            sentinels: sentinels.collect(),
            servers,
        };
        for sentinel in &group.sentinels {
            until("the Sentinel knows the others", async || {
                let known: Vec<String> = sentinel.ask(&["MASTER", GROUP]).await.ok()?;
                let number = |key| value(&known, key);
                let is_ready =
                    number("num-slaves")? == "2" && number("num-other-sentinels")? == "2";
                is_ready.then_some(())
            })
            .await;
        }
        group
    }

    /// Returns the URL for the store.
    pub fn url(&self) -> String {
        let hosts = self.sentinels.iter();
        let hosts: Vec<_> = hosts.map(SentinelServer::host).collect();
        let scheme = self.servers[0].scheme();
        format!("{scheme}+sentinel://{}/{GROUP}", hosts.join(","))
    }

    /// Returns the index of the server that most Sentinels take for the master.
    pub async fn master(&self) -> usize {
        let mut named = Vec::new();
        for sentinel in &self.sentinels {
            let address = sentinel.ask::<(String, u16)>(&["GET-MASTER-ADDR-BY-NAME", GROUP]);
            if let Ok((_, port)) = address.await {
                named.push(port);
            }
        }
        let votes = |port| named.iter().filter(|other| **other == port).count();
        let most = named.iter().copied().max_by_key(|port| votes(*port));
        let most = most.expect("a Sentinel answers");
        let index = self.servers.iter().position(|server| server.port() == most);
        index.expect("it is one of ours")
    }

    /// Returns the index of the new master, once all Sentinels name one other than this.
    pub async fn master_after(&self, old: usize) -> usize {
        until("a new master", async || {
            let master = self.master().await;
            if master == old {
                return None;
            }
            let info = self.servers[master].ask::<String>("INFO replication").await;
            info.is_ok_and(|info| info.contains("role:master"))
                .then_some(master)
        })
        .await
    }

    /// Whether every Sentinel has heard since this moment that every server is what the Sentinel takes it for. It asks once in
    /// ten seconds. One that heard last, from an old master, that it is a master makes it a replica again as soon as it is
    /// promoted.
    pub async fn roles_are_known_since(&self, moment: Instant) -> bool {
        for sentinel in &self.sentinels {
            if !sentinel.knows_roles_since(moment).await.unwrap_or(false) {
                return false;
            }
        }
        true
    }

    /// Makes the Sentinels replace the master, as an operator does.
    pub async fn fail_over(&self) {
        until_so("each Sentinel knows the roles", async || {
            self.roles_are_known_since(Instant::ZERO).await
        })
        .await;
        // It is refused while a Sentinel has no replica that it takes for well.
        until_so("the failover begins", async || {
            let begun = self.sentinels[0].ask::<String>(&["FAILOVER", GROUP]).await;
            begun.is_ok()
        })
        .await;
    }
}

impl SentinelServer {
    /// Starts a Sentinel for this master, which begins a failover once this many take it for down. With these settings,
    /// which are those of TLS.
    fn watch(master: &RedisServer, quorum: u8, down_after_ms: u32, settings: &[String]) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let file = folder.path().join("sentinel.conf");
        let port = free_port();
        let address = match master.address().is_loopback() {
            true => master.address(),
            false => OF_TEST,
        };
        let ports = match settings.is_empty() {
            true => format!("port {port}"),
            false => format!("port 0\ntls-port {port}"),
        };
        let pairs = settings.chunks_exact(2);
        let settings: Vec<_> = pairs
            .map(|pair| pair.join(" ").replacen("--", "", 1))
            .collect();
        let lines = format!(
            "{ports}\n{}\nbind {address}\nprotected-mode no\ndir {}\nunixsocket {}\n\
             sentinel monitor {GROUP} {} {} {quorum}\n\
             sentinel down-after-milliseconds {GROUP} {down_after_ms}\n\
             sentinel failover-timeout {GROUP} 3000\n\
             sentinel parallel-syncs {GROUP} 2\n",
            settings.join("\n"),
            folder.path().display(),
            folder.path().join("socket").display(),
            master.address(),
            master.port(),
        );
        fs::write(&file, lines).expect("the folder is ours");
        let program = env::var_os("LEASEHOLD_TEST_REDIS_SERVER");
        let mut command = Command::new(program.unwrap_or_else(|| OsString::from("redis-server")));
        command
            .arg(&file)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self {
            process: GuardedChild::spawn(command, INSTALL),
            address,
            port,
            folder,
        }
    }

    /// Returns its address.
    pub fn host(&self) -> String {
        format!("{}:{}", self.address, self.port)
    }

    /// Runs a command of the Sentinel.
    pub async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> Result<T, RedisError> {
        let mut command = redis::cmd("SENTINEL");
        command
            .arg(words)
            .query_async(&mut self.connect().await?)
            .await
    }

    /// Whether each server that it watches has said since this moment to be what the Sentinel takes it for.
    async fn knows_roles_since(&self, moment: Instant) -> Result<bool, RedisError> {
        let master: Vec<String> = self.ask(&["MASTER", GROUP]).await?;
        let replicas: Vec<Vec<String>> = self.ask(&["REPLICAS", GROUP]).await?;
        let has_said = |server: &[String], role| {
            let asked_ms = value(server, "info-refresh").and_then(|ms| ms.parse().ok());
            let since_ms = now().since(moment).as_millis();
            value(server, "role-reported") == Some(role)
                && asked_ms.is_some_and(|ms: u128| ms < since_ms)
        };
        let is_known = replicas.iter().all(|replica| has_said(replica, "slave"));
        Ok(is_known && has_said(&master, "master"))
    }

    /// Changes after how long without an answer it takes the master for down.
    pub async fn take_for_down_after(&self, ms: u32) {
        let ms = ms.to_string();
        let setting = ["SET", GROUP, "down-after-milliseconds", &ms];
        let () = self.ask(&setting).await.expect("set");
    }

    /// Runs any command, given as one line, that must succeed.
    pub async fn told<T: FromRedisValue>(&self, line: &str) -> T {
        let mut words = line.split_ascii_whitespace();
        let mut command = redis::cmd(words.next().expect("a command"));
        command.arg(words.collect::<Vec<_>>());
        let mut connection = self.connect().await.expect("it is up");
        let answer = command.query_async(&mut connection).await;
        answer.unwrap_or_else(|error| panic!("{line:?} failed: {error}"))
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let socket = self.folder.path().join("socket");
        let client = redis::Client::open(format!("redis+unix://{}", socket.display()))?;
        // The crate's default of half a second is too short on a busy machine.
        let patient = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        client
            .get_multiplexed_async_connection_with_config(&patient)
            .await
    }

    /// Stops it at once.
    pub fn pause(&self) {
        self.process.pause();
    }
}

/// Returns the value after this key.
fn value<'a>(pairs: &'a [String], key: &str) -> Option<&'a str> {
    let at = pairs.iter().position(|word| word == key)?;
    pairs.get(at + 1).map(String::as_str)
}

#[tokio::test]
async fn sentinels_replace_a_master_that_is_gone() {
    let mut group = RedisGroup::start().await;
    assert_eq!(group.master().await, 0);
    group.servers[0].kill();
    assert_ne!(group.master_after(0).await, 0);
}
