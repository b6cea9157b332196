//! ZooKeeper servers of the tests' own, on random ports of this machine.
//!
//! One serves after a second or two, so most tests of one run share one and have a chroot each. Those that stop a server
//! have their own.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::child::GuardedChild;
use super::wait::{at, now};

/// What to type where the server is missing.
const INSTALL: &str = "apt-get install -y default-jre-headless libzookeeper-java";
/// Where Debian keeps the server.
const JARS: &[&str] = &[
    "/usr/share/java/zookeeper.jar",
    "/usr/share/java/slf4j-log4j12.jar",
    "/usr/share/java/log4j-1.2.jar",
];
/// How long servers may take to serve: an election on a busy machine.
const START: Duration = Duration::from_secs(60);

static SHARED: OnceCell<ZookeeperServer> = OnceCell::const_new();
static CHROOTS: AtomicU32 = AtomicU32::new(0);

/// A running server.
#[derive(Debug)]
pub(crate) struct ZookeeperServer {
    folder: TempDir,
    port: u16,
    child: Mutex<Option<GuardedChild>>,
}

/// Three servers that elect a leader.
#[derive(Debug)]
pub(crate) struct ZookeeperEnsemble {
    pub(crate) servers: Vec<ZookeeperServer>,
}

impl ZookeeperServer {
    /// The URL of an empty chroot on the server of this run.
    pub(crate) async fn chroot() -> String {
        let server = SHARED
            .get_or_init(|| async {
                // Guarded by the pipe of this process, which is never dropped.
                Self::start(Duration::from_secs(2)).await
            })
            .await;
        let chroot = format!("/test{}", CHROOTS.fetch_add(1, Ordering::Relaxed));
        server.make(&chroot);
        server.url(&chroot)
    }

    /// A server of the test's own, with this `tickTime`.
    pub(crate) async fn start(tick: Duration) -> Self {
        let server = Self::configured(free_ports::<1>()[0], tick, "");
        server.run();
        server.serving().await;
        server
    }

    fn configured(port: u16, tick: Duration, more: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        fs::create_dir(&data).expect("a folder");
        let settings = format!(
            "tickTime={}\ndataDir={}\nclientPortAddress=127.0.0.1\nclientPort={port}\nadmin.enableServer=false\n\
             4lw.commands.whitelist=srvr,ruok\nmaxClientCnxns=0\nforceSync=no\nfsync.warningthresholdms=60000\n\
             znode.container.checkIntervalMs=60000\nskipACL=no\n{more}",
            tick.as_millis(),
            data.display()
        );
        fs::write(folder.path().join("zoo.cfg"), settings).expect("a file");
        let log = "log4j.rootLogger=WARN, console\nlog4j.appender.console=org.apache.log4j.ConsoleAppender\n\
                   log4j.appender.console.layout=org.apache.log4j.SimpleLayout\n";
        fs::write(folder.path().join("log4j.properties"), log).expect("a file");
        Self {
            folder,
            port,
            child: Mutex::new(None),
        }
    }

    /// Begins to run it, on the data that it has.
    pub(crate) fn run(&self) {
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
        let mut command = Command::new("java");
        command
            .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
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
    pub(crate) async fn serving(&self) {
        let end = now().after(START);
        while self.mode().is_none() {
            let log = || fs::read_to_string(self.path("log")).unwrap_or_default();
            assert!(now() < end, "no server after {START:?}: {}", log());
            at(now().after(Duration::from_millis(50))).await;
        }
    }

    /// `standalone`, `leader` or `follower`; `None` while it does not serve.
    pub(crate) fn mode(&self) -> Option<String> {
        let answer = self.ask(b"srvr")?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "));
        mode.map(ToOwned::to_owned)
    }

    /// How many writes it has done since this leader began; neither reads nor signs of life are among them.
    pub(crate) fn written(&self) -> u64 {
        let answer = self.ask(b"srvr").expect("it serves");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let zxid = answer
            .lines()
            .find_map(|line| line.strip_prefix("Zxid: 0x"));
        let zxid = zxid.and_then(|zxid| u64::from_str_radix(zxid, 16).ok());
        zxid.expect("a number") & u64::from(u32::MAX)
    }

    fn ask(&self, question: &[u8]) -> Option<Vec<u8>> {
        let mut connection = self.connect()?;
        connection.write_all(question).ok()?;
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).ok()?;
        Some(answer)
    }

    fn connect(&self) -> Option<TcpStream> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let limit = Duration::from_secs(2);
        let connection = TcpStream::connect_timeout(&address, limit).ok()?;
        connection.set_read_timeout(Some(limit)).ok()?;
        Some(connection)
    }

    /// Makes an empty node below the root.
    pub(crate) fn make(&self, path: &str) {
        let mut wire = Wire::connect(self);
        wire.create(path, b"");
    }

    /// Kills it.
    pub(crate) fn kill(&self) {
        self.child().take();
    }

    /// Stops it where it stands; its sockets stay open.
    pub(crate) fn pause(&self) {
        self.child().as_ref().expect("it runs").pause();
    }

    /// Lets it go on.
    pub(crate) fn resume(&self) {
        self.child().as_ref().expect("it runs").resume();
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a chroot, or with `""` of the whole.
    pub(crate) fn url(&self, chroot: &str) -> String {
        format!("zookeeper://127.0.0.1:{}{chroot}", self.port)
    }

    /// Forgets everything; it must not run.
    pub(crate) fn empty(&self) {
        let data = self.path("data").join("version-2");
        fs::remove_dir_all(data).expect("it had data");
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Option<GuardedChild>> {
        self.child.lock().unwrap()
    }
}

impl ZookeeperEnsemble {
    /// Three servers of the test's own, with this `tickTime`.
    pub(crate) async fn start(tick: Duration) -> Self {
        let ports = free_ports::<9>();
        let mut members = String::from("initLimit=20\nsyncLimit=5\n");
        for (index, ports) in ports.chunks(3).enumerate() {
            let (peer, election) = (ports[1], ports[2]);
            members += &format!("server.{}=127.0.0.1:{peer}:{election}\n", index + 1);
        }
        let servers: Vec<_> = ports
            .chunks(3)
            .enumerate()
            .map(|(index, ports)| {
                let server = ZookeeperServer::configured(ports[0], tick, &members);
                let id = server.path("data").join("myid");
                fs::write(id, (index + 1).to_string()).expect("a file");
                server.run();
                server
            })
            .collect();
        let ensemble = Self { servers };
        ensemble.serving().await;
        ensemble
    }

    /// Waits until all three serve.
    pub(crate) async fn serving(&self) {
        for server in &self.servers {
            server.serving().await;
        }
    }

    pub(crate) fn leader(&self) -> &ZookeeperServer {
        let is_leader = |server: &&ZookeeperServer| server.mode().as_deref() == Some("leader");
        self.servers
            .iter()
            .find(is_leader)
            .expect("there is a leader")
    }

    pub(crate) fn url(&self, chroot: &str) -> String {
        let servers = self.servers.iter();
        let servers: Vec<_> = servers.map(|it| format!("127.0.0.1:{}", it.port)).collect();
        format!("zookeeper://{}{chroot}", servers.join(","))
    }
}

/// The little of the protocol that a test needs to make or remove a node by hand.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    count: i32,
}

impl Wire {
    pub(crate) fn connect(server: &ZookeeperServer) -> Self {
        let mut stream = server.connect().expect("it listens");
        let mut hello = Vec::new();
        hello.extend(0_i32.to_be_bytes());
        hello.extend(0_i64.to_be_bytes());
        hello.extend(10_000_i32.to_be_bytes());
        hello.extend(0_i64.to_be_bytes());
        hello.extend(16_i32.to_be_bytes());
        hello.extend([0; 16]);
        hello.push(0);
        send(&mut stream, &hello);
        receive(&mut stream);
        Self { stream, count: 0 }
    }

    pub(crate) fn create(&mut self, path: &str, data: &[u8]) -> i32 {
        let mut body = text(path);
        body.extend(i32::try_from(data.len()).unwrap().to_be_bytes());
        body.extend(data);
        body.extend(1_i32.to_be_bytes());
        body.extend(31_i32.to_be_bytes());
        body.extend(text("world"));
        body.extend(text("anyone"));
        body.extend(0_i32.to_be_bytes());
        self.request(1, &body)
    }

    pub(crate) fn delete(&mut self, path: &str) -> i32 {
        let mut body = text(path);
        body.extend((-1_i32).to_be_bytes());
        self.request(2, &body)
    }

    pub(crate) fn children(&mut self, path: &str) -> Vec<String> {
        let mut body = text(path);
        body.push(0);
        let answer = self.answer(8, &body);
        let mut rest = &answer[16..];
        let mut number = || {
            let (head, tail) = rest.split_first_chunk::<4>()?;
            rest = tail;
            let length = usize::try_from(i32::from_be_bytes(*head)).ok()?;
            Some(length)
        };
        let Some(count) = number() else {
            return Vec::new();
        };
        let mut children = Vec::new();
        for _ in 0..count {
            let (head, tail) = rest.split_first_chunk::<4>().unwrap();
            let length = usize::try_from(i32::from_be_bytes(*head)).unwrap();
            children.push(String::from_utf8(tail[..length].to_vec()).unwrap());
            rest = &tail[length..];
        }
        children
    }

    /// Removes a node and all below it, as an operator's `deleteall`.
    pub(crate) fn delete_all(&mut self, path: &str) {
        for child in self.children(path) {
            self.delete_all(&format!("{path}/{child}"));
        }
        self.delete(path);
    }

    fn request(&mut self, code: i32, body: &[u8]) -> i32 {
        let answer = self.answer(code, body);
        i32::from_be_bytes(answer[12..16].try_into().unwrap())
    }

    fn answer(&mut self, code: i32, body: &[u8]) -> Vec<u8> {
        self.count += 1;
        let mut request = self.count.to_be_bytes().to_vec();
        request.extend(code.to_be_bytes());
        request.extend(body);
        send(&mut self.stream, &request);
        receive(&mut self.stream)
    }
}

fn send(stream: &mut TcpStream, frame: &[u8]) {
    let length = i32::try_from(frame.len()).unwrap().to_be_bytes();
    stream.write_all(&length).expect("it listens");
    stream.write_all(frame).expect("it listens");
}

fn receive(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("an answer");
    let mut frame = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
    stream.read_exact(&mut frame).expect("an answer");
    frame
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = i32::try_from(text.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

/// Ports that nothing listened on a moment ago; never the one that a server of this machine would use.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
    listeners.map(|listener| listener.local_addr().expect("it is bound").port())
}
