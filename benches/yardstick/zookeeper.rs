//! A ZooKeeper server for the bench alone, and a network before it that counts requests.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const MISSING: &str =
    "ZooKeeper is missing: apt-get install -y default-jre-headless libzookeeper-java";
const JARS: &str =
    "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-log4j12.jar:/usr/share/java/log4j-1.2.jar";
/// The kernel gives none of these ports to a program that asks for any port.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// A server that does not wait for its disk, so that a figure is not that of the disk. Ended on drop.
pub struct Server {
    process: Child,
    _folder: TempDir,
    port: u16,
}

impl Server {
    /// Starts the server and waits until it serves.
    pub async fn start() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let port = (0..100)
            .map(|_| fastrand::u16(PORTS))
            .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
        let port = port.expect("a free port");
        let settings = format!(
            "tickTime=2000\ndataDir={}\nclientPortAddress=127.0.0.1\nclientPort={port}\nadmin.enableServer=false\n\
             4lw.commands.whitelist=srvr\nmaxClientCnxns=0\nforceSync=no\n",
            folder.path().display()
        );
        std::fs::write(folder.path().join("zoo.cfg"), settings).expect("written");
        let log = "log4j.rootLogger=OFF\n";
        std::fs::write(folder.path().join("log4j.properties"), log).expect("written");
        let process = Command::new("java")
            .args(["-Xmx512m", "-cp"])
            .arg(format!("{}:{JARS}", folder.path().display()))
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(folder.path().join("zoo.cfg"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect(MISSING);
        let server = Self {
            process,
            _folder: folder,
            port,
        };
        for _ in 0..1_000 {
            if server.is_serving() {
                return server;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no server within ten seconds; {MISSING}");
    }

    fn is_serving(&self) -> bool {
        let asked = || {
            let mut connection = TcpStream::connect(self.address())?;
            // What connects before the server is ready may never be answered.
            connection.set_read_timeout(Some(Duration::from_millis(500)))?;
            connection.write_all(b"srvr")?;
            let mut answer = String::new();
            connection.read_to_string(&mut answer)?;
            Ok::<_, std::io::Error>(answer)
        };
        asked().is_ok_and(|answer| answer.contains("Mode: "))
    }

    fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Returns its URL.
    pub fn url(&self) -> String {
        format!("zookeeper://{}", self.address())
    }

    /// Returns its address as the client crate takes it.
    pub fn cluster(&self) -> String {
        self.address().to_string()
    }

    /// Makes a network before it.
    pub async fn counter(&self) -> Counter {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let counts = Arc::new(Mutex::new(BTreeMap::new()));
        tokio::spawn(accept(listener, self.address(), counts.clone()));
        Counter { port, counts }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

type Counts = Arc<Mutex<BTreeMap<i32, u64>>>;

/// A network that counts the requests of clients by their kind.
pub struct Counter {
    port: u16,
    counts: Counts,
}

impl Counter {
    /// Returns the URL of the server behind it.
    pub fn url(&self) -> String {
        format!("zookeeper://127.0.0.1:{}", self.port)
    }

    /// Returns how many requests of each kind have passed, without signs of life and connects, and begins anew.
    pub fn take(&self) -> BTreeMap<&'static str, u64> {
        let counts = std::mem::take(&mut *self.counts.lock().expect("no panic"));
        let mut named = BTreeMap::new();
        for (kind, count) in counts {
            *named.entry(name(kind)).or_default() += count;
        }
        named
    }
}

/// Returns what the protocol calls a request of this kind.
fn name(kind: i32) -> &'static str {
    match kind {
        3 => "exists",
        4 => "getData",
        5 => "setData",
        9 => "sync",
        8 | 12 => "getChildren",
        14 => "multi",
        18 | 103 => "removeWatches",
        _ => "other",
    }
}

async fn accept(listener: tokio::net::TcpListener, server: SocketAddr, counts: Counts) {
    while let Ok((client, _)) = listener.accept().await {
        let counts = counts.clone();
        tokio::spawn(async move {
            let _ = client.set_nodelay(true);
            let Ok(server) = tokio::net::TcpStream::connect(server).await else {
                return;
            };
            let _ = server.set_nodelay(true);
            let (from_client, mut to_client) = client.into_split();
            let (mut from_server, to_server) = server.into_split();
            tokio::select! {
                _ = pass_requests(from_client, to_server, counts) => {}
                _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
            }
        });
    }
}

/// Passes frames: a length, and what is so long. The first one is the connect.
async fn pass_requests(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    counts: Counts,
) -> std::io::Result<()> {
    let mut is_connected = false;
    loop {
        let length = from.read_i32().await?;
        let mut frame = vec![0; usize::try_from(length).unwrap_or_default()];
        from.read_exact(&mut frame).await?;
        let number = |at: usize| frame.get(at..at + 4).and_then(|it| it.try_into().ok());
        let kind = number(4).map_or(0, i32::from_be_bytes);
        // A sign of life.
        if is_connected && kind != 11 {
            *counts.lock().expect("no panic").entry(kind).or_default() += 1;
        }
        is_connected = true;
        let mut whole = length.to_be_bytes().to_vec();
        whole.extend(frame);
        to.write_all(&whole).await?;
    }
}
