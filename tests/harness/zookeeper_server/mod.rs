//! ZooKeeper servers of the tests' own, on ports of this machine or on hosts of a network of the test's own.
//!
//! One serves after a second or two, so most tests of one run share one and have a chroot each. Those that stop a server
//! have their own.

pub mod held_way;
pub mod peers;
mod snapshot;
mod wire;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::OnceCell;

pub use self::wire::Wire;
use super::child::GuardedChild;
use super::full_disk::{Full, FullDisk};
use super::network::{Host, Network};
use super::ports::free_port;
use super::server_clock::ServerClock;
use super::wait::{at, now, until_so};

/// The command that installs a missing server.
const INSTALL: &str = "apt-get install -y default-jre-headless libzookeeper-java";
/// Where Debian keeps the server.
const JARS: &[&str] = &[
    "/usr/share/java/zookeeper.jar",
    "/usr/share/java/slf4j-log4j12.jar",
    "/usr/share/java/log4j-1.2.jar",
];
/// How long servers may take to serve: an election on a busy machine.
const START: Duration = Duration::from_secs(60);
/// How often a server is started on other ports, if another program took its port in the meantime.
const STARTS: usize = 3;
/// The nodes of two leases, which no client makes below one name.
pub const TWO_HOLDERS: [&str; 2] = [
    "h-00000000000000000000000000000001-0000000000000001",
    "h-00000000000000000000000000000002-0000000000000002",
];

static SHARED: OnceCell<ZookeeperServer> = OnceCell::const_new();
static CHROOTS: AtomicU32 = AtomicU32::new(0);

/// A running server.
#[derive(Debug)]
pub struct ZookeeperServer {
    folder: TempDir,
    at: ServerAddress,
    /// Its wall clock, if it has one of its own.
    clock: Option<ServerClock>,
    /// What fills its disk, if the test can.
    disk: Option<FullDisk>,
    /// Options of its virtual machine.
    options: &'static str,
    child: Mutex<Option<GuardedChild>>,
}

/// Where a server runs.
#[derive(Debug)]
struct ServerAddress {
    address: SocketAddr,
    /// A host of a network of the test's own. `None` stands for this machine.
    host: Option<Host>,
}

/// Three servers that elect a leader.
#[derive(Debug)]
pub struct ZookeeperEnsemble {
    pub servers: Vec<ZookeeperServer>,
}

impl ZookeeperServer {
    /// The server of this run.
    pub async fn shared() -> &'static Self {
        // Guarded by the pipe of this process, which is never dropped.
        let start = || Self::start(Duration::from_secs(2));
        SHARED.get_or_init(start).await
    }

    /// The URL of an empty chroot on the server of this run.
    pub async fn chroot() -> String {
        let server = Self::shared().await;
        let chroot = format!("/test{}", CHROOTS.fetch_add(1, Ordering::Relaxed));
        server.make(&chroot);
        server.url(&chroot)
    }

    /// A server of the test's own, with this `tickTime`.
    pub async fn start(tick: Duration) -> Self {
        Self::start_on(tick, "", |server| server).await
    }

    /// The same, with these settings and options of its virtual machine besides.
    pub async fn start_with(settings: &str, options: &'static str) -> Self {
        let with_options = |mut server: Self| {
            server.options = options;
            server
        };
        Self::start_on(Duration::from_secs(2), settings, with_options).await
    }

    /// The same, with a wall clock that the test moves and a disk that it fills.
    pub async fn start_on_own_machine(tick: Duration) -> Self {
        Self::start_on(tick, "", |server| server.with_clock().with_disk()).await
    }

    async fn start_on(tick: Duration, more: &str, machine: impl Fn(Self) -> Self) -> Self {
        let mut why = String::new();
        for _ in 0..STARTS {
            let server = Self::configured(ServerAddress::here(free_port()), tick, more);
            let server = machine(server);
            server.run();
            match server.try_serving().await {
                Ok(()) => return server,
                Err(failure) => why = failure,
            }
        }
        panic!("{why}");
    }

    /// Gives it a wall clock that the test can move; it must not run.
    fn with_clock(mut self) -> Self {
        self.clock = Some(ServerClock::in_folder(self.folder.path()));
        self
    }

    /// Gives it a disk that the test can fill; it must not run.
    fn with_disk(mut self) -> Self {
        let disk = FullDisk::in_folder(self.folder.path(), &["/version-2/"]);
        self.disk = Some(disk);
        self
    }

    /// Moves its wall clock.
    pub fn step_clock(&self, by_ms: i64) {
        self.clock.as_ref().expect("it has one").step(by_ms);
    }

    /// Says which of its files cannot grow: its log and its snapshots are its data.
    pub fn fill_disk(&self, full: Full) {
        self.disk.as_ref().expect("it has one").set(full);
    }

    fn configured(at: ServerAddress, tick: Duration, more: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        fs::create_dir(&data).expect("a folder");
        let settings = format!(
            "tickTime={}\ndataDir={}\nclientPortAddress={}\nclientPort={}\nadmin.enableServer=false\n\
             4lw.commands.whitelist=srvr,ruok,conf,mntr\nmaxClientCnxns=0\nforceSync=no\nfsync.warningthresholdms=60000\n\
             znode.container.checkIntervalMs=60000\nskipACL=no\n{more}",
            tick.as_millis(),
            data.display(),
            at.address.ip(),
            at.address.port()
        );
        fs::write(folder.path().join("zoo.cfg"), settings).expect("a file");
        let log = "log4j.rootLogger=WARN, console\nlog4j.appender.console=org.apache.log4j.ConsoleAppender\n\
                   log4j.appender.console.layout=org.apache.log4j.SimpleLayout\n";
        fs::write(folder.path().join("log4j.properties"), log).expect("a file");
        Self {
            folder,
            at,
            clock: None,
            disk: None,
            options: "",
            child: Mutex::new(None),
        }
    }

    /// Begins to run it, on the data that it has.
    pub fn run(&self) {
        for jar in JARS {
            assert!(
                Path::new(jar).exists(),
                "{jar} is missing; to install it: {INSTALL}"
            );
        }
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.path("log"))
            .expect("a file");
        let mut command = match &self.at.host {
            Some(host) => host.program("java"),
            None => Command::new("java"),
        };
        if let Some(clock) = &self.clock {
            clock.rule(&mut command);
        }
        if let Some(disk) = &self.disk {
            disk.rule(&mut command);
        }
        command
            .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .args(self.options.split_whitespace())
            .arg("-cp")
            .arg(format!(
                "{}:{}",
                self.folder.path().display(),
                JARS.join(":")
            ))
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(self.path("zoo.cfg"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor"))
            .stderr(log);
        *self.child() = Some(GuardedChild::spawn(command, INSTALL));
    }

    /// Waits until it answers that it serves.
    pub async fn serving(&self) {
        self.try_serving()
            .await
            .unwrap_or_else(|why| panic!("{why}"));
    }

    /// The same, or why it does not serve.
    async fn try_serving(&self) -> Result<(), String> {
        let end = now().after(START);
        let failure = |what: &str| {
            let log = fs::read_to_string(self.path("log")).unwrap_or_default();
            format!("{what}: {log}")
        };
        loop {
            let ended = self.child().as_mut().map(GuardedChild::ended);
            if let Some(Some(status)) = ended {
                return Err(failure(&format!("the server ended with {status}")));
            }
            if self.mode().is_some() && self.is_itself() {
                return Ok(());
            }
            if now() >= end {
                return Err(failure(&format!("no server after {START:?}")));
            }
            at(now().after(Duration::from_millis(50))).await;
        }
    }

    /// Whether the server that answers on its port is this one, and not another one that took the port before it.
    fn is_itself(&self) -> bool {
        let answer = self.ask(b"conf").unwrap_or_default();
        let folder = self.path("data").display().to_string();
        String::from_utf8_lossy(&answer).contains(&format!("dataDir={folder}"))
    }

    /// `standalone`, `leader` or `follower`; `None` while it does not serve.
    pub fn mode(&self) -> Option<String> {
        let answer = self.ask(b"srvr")?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "));
        mode.map(ToOwned::to_owned)
    }

    /// How many followers a leader has that are up to date.
    fn followers(&self) -> Option<usize> {
        let answer = self.ask(b"mntr")?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let mut lines = answer.lines();
        let count = lines.find_map(|line| line.strip_prefix("zk_synced_followers\t"))?;
        count.parse().ok()
    }

    /// How many writes it has done since this leader began; neither reads nor signs of life are among them.
    pub fn written(&self) -> u64 {
        let answer = self.ask(b"srvr").expect("it serves");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let zxid = answer
            .lines()
            .find_map(|line| line.strip_prefix("Zxid: 0x"));
        let zxid = zxid.and_then(|zxid| u64::from_str_radix(zxid, 16).ok());
        zxid.expect("a number") & u64::from(u32::MAX)
    }

    /// How many connections it has, that of this question among them.
    pub fn connections(&self) -> usize {
        let answer = self.ask(b"srvr").expect("it serves");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let count = answer
            .lines()
            .find_map(|it| it.strip_prefix("Connections: "));
        count.and_then(|it| it.parse().ok()).expect("a number")
    }

    /// How many requests it has read, this question and signs of life among them.
    pub fn requests(&self) -> u64 {
        let answer = self.ask(b"srvr").expect("it serves");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let count = answer.lines().find_map(|it| it.strip_prefix("Received: "));
        count.and_then(|it| it.parse().ok()).expect("a number")
    }

    fn ask(&self, question: &[u8]) -> Option<Vec<u8>> {
        let mut connection = self.connect()?;
        connection.write_all(question).ok()?;
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).ok()?;
        Some(answer)
    }

    fn connect(&self) -> Option<TcpStream> {
        let limit = Duration::from_secs(2);
        let connection = TcpStream::connect_timeout(&self.at.address, limit).ok()?;
        connection.set_read_timeout(Some(limit)).ok()?;
        Some(connection)
    }

    /// Makes an empty node below the root.
    pub fn make(&self, path: &str) {
        let mut wire = Wire::connect(self);
        wire.create(path, b"");
    }

    /// Makes these nodes below another one, as an operator.
    pub fn plant(&self, node: &str, children: &[&str], data: &[u8]) {
        let mut wire = Wire::connect(self);
        for child in children {
            assert_eq!(wire.create(&format!("{node}/{child}"), data), 0, "{child}");
        }
    }

    /// Kills it.
    pub fn kill(&self) {
        self.child().take();
    }

    /// Whether it has ended, by itself or because it was killed.
    pub fn has_ended(&self) -> bool {
        let ended = self.child().as_mut().map(GuardedChild::ended);
        ended.is_none_or(|how| how.is_some())
    }

    /// Stops it where it stands; its sockets stay open.
    pub fn pause(&self) {
        self.child().as_ref().expect("it runs").pause();
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.child().as_ref().expect("it runs").resume();
    }

    pub fn port(&self) -> u16 {
        self.at.address.port()
    }

    /// The host on which it runs, in a network of the test's own.
    pub fn host(&self) -> &Host {
        self.at.host.as_ref().expect("it has a host of its own")
    }

    /// The URL of a chroot, or with `""` of the whole.
    pub fn url(&self, chroot: &str) -> String {
        format!("zookeeper://{}{chroot}", self.at.address)
    }

    /// Forgets everything; it must not run.
    pub fn empty(&self) {
        fs::remove_dir_all(self.data()).expect("it had data");
    }

    /// Removes a log that ended before its first bytes, because the disk was full; it must not run. The server does not start
    /// with one (ZOOKEEPER-1621).
    pub fn remove_empty_log(&self) {
        for file in fs::read_dir(self.data()).expect("it had data") {
            let file = file.expect("readable");
            let is_log = file.file_name().to_string_lossy().starts_with("log.");
            if is_log && file.metadata().expect("readable").len() == 0 {
                fs::remove_file(file.path()).expect("it is ours");
            }
        }
    }

    /// Copies what it remembers; it must not run.
    pub fn snapshot(&self) -> TempDir {
        let copy = tempfile::tempdir().expect("a folder");
        copy_files(&self.data(), copy.path());
        copy
    }

    /// Forgets everything but this; it must not run.
    pub fn restore(&self, snapshot: &TempDir) {
        self.empty();
        fs::create_dir(self.data()).expect("a folder");
        copy_files(snapshot.path(), &self.data());
    }

    fn data(&self) -> PathBuf {
        self.path("data").join("version-2")
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Option<GuardedChild>> {
        self.child.lock().unwrap()
    }
}

impl ServerAddress {
    fn here(port: u16) -> Self {
        let address = (Ipv4Addr::LOCALHOST, port).into();
        Self {
            address,
            host: None,
        }
    }

    fn on(host: Host) -> Self {
        let address = (host.address(), 2181).into();
        let host = Some(host);
        Self { address, host }
    }
}

impl ZookeeperEnsemble {
    /// Three servers of the test's own, with this `tickTime`.
    pub async fn start(tick: Duration) -> Self {
        Self::with_clocks(tick, [None; 3]).await
    }

    /// The same, each with its wall clock ahead by so many milliseconds.
    pub async fn with_clocks(tick: Duration, ahead_ms: [Option<i64>; 3]) -> Self {
        let ports = [(); 9].map(|()| free_port());
        let (client, peer) = ports.split_at(3);
        let peers: Vec<String> = peer
            .chunks(2)
            .map(|ports| format!("127.0.0.1:{}:{}", ports[0], ports[1]))
            .collect();
        let addresses = client.iter().map(|port| ServerAddress::here(*port));
        let servers = configured(addresses, tick, |_| peers.clone()).zip(ahead_ms);
        let servers = servers.map(|(server, ahead_ms)| match ahead_ms {
            Some(ahead_ms) => {
                let server = server.with_clock();
                server.step_clock(ahead_ms);
                server
            }
            None => server,
        });
        Self::run(servers.collect()).await
    }

    /// The same, with these settings besides.
    pub async fn start_with(tick: Duration, settings: &str) -> Self {
        let ensemble = Self::with_clocks(tick, [None; 3]).await;
        for server in &ensemble.servers {
            server.kill();
            let path = server.path("zoo.cfg");
            let known = fs::read_to_string(&path).expect("ours");
            fs::write(&path, format!("{known}{settings}\n")).expect("ours");
        }
        Self::run(ensemble.servers).await
    }

    /// The same, each on a host of this network.
    pub async fn on_hosts(tick: Duration, network: &Network) -> Self {
        let hosts = [1, 2, 3].map(|number| network.host(number));
        let peers = hosts
            .each_ref()
            .map(|host| format!("{}:2888:3888", host.address()))
            .to_vec();
        let addresses = hosts.into_iter().map(ServerAddress::on);
        Self::run(configured(addresses, tick, |_| peers.clone()).collect()).await
    }

    async fn run(servers: Vec<ZookeeperServer>) -> Self {
        servers.iter().for_each(ZookeeperServer::run);
        let ensemble = Self { servers };
        ensemble.serving().await;
        ensemble
    }

    /// Waits until all three serve, and the leader says so too: one that hung answers as a follower for a moment, though
    /// the leader has given it up.
    pub async fn serving(&self) {
        for server in &self.servers {
            server.serving().await;
        }
        let followers = self.servers.len() - 1;
        until_so("the leader's followers", async || {
            self.elected().and_then(ZookeeperServer::followers) == Some(followers)
        })
        .await;
    }

    pub fn leader(&self) -> &ZookeeperServer {
        self.elected().expect("there is a leader")
    }

    /// The leader, or none during an election.
    pub fn elected(&self) -> Option<&ZookeeperServer> {
        let is_leader = |server: &&ZookeeperServer| server.mode().as_deref() == Some("leader");
        self.servers.iter().find(is_leader)
    }

    pub fn url(&self, chroot: &str) -> String {
        let servers = self.servers.iter();
        let servers: Vec<_> = servers.map(|it| it.at.address.to_string()).collect();
        format!("zookeeper://{}{chroot}", servers.join(","))
    }
}

/// The servers of an ensemble, in the order of their numbers, each with the peers that it knows.
fn configured(
    addresses: impl Iterator<Item = ServerAddress>,
    tick: Duration,
    peers_of: impl Fn(usize) -> Vec<String>,
) -> impl Iterator<Item = ZookeeperServer> {
    addresses.enumerate().map(move |(index, at)| {
        let mut members = String::from("initLimit=20\nsyncLimit=5\n");
        for (index, peer) in peers_of(index).iter().enumerate() {
            members += &format!("server.{}={peer}\n", index + 1);
        }
        let server = ZookeeperServer::configured(at, tick, &members);
        let id = server.path("data").join("myid");
        fs::write(id, (index + 1).to_string()).expect("a file");
        server
    })
}

fn copy_files(from: &Path, to: &Path) {
    for file in fs::read_dir(from).expect("a folder") {
        let file = file.expect("readable").path();
        let name = file.file_name().expect("it has a name");
        fs::copy(&file, to.join(name)).expect("copied");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_is_not_taken_for_another_one_that_has_its_port() {
        let tick = Duration::from_secs(2);
        let first = ZookeeperServer::start(tick).await;
        let at = ServerAddress::here(first.port());
        let second = ZookeeperServer::configured(at, tick, "");
        second.run();
        let why = second.try_serving().await.expect_err("the port is taken");
        assert!(why.contains("Address already in use"), "{why}");
    }
}
