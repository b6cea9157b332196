//! A network between client and server that does not parse what they send: it passes bytes on, or holds them back.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The bytes that the network passes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passing {
    /// Everything.
    All,
    /// The client's bytes; the client receives nothing any more.
    Requests,
    /// None, without notice to either side.
    Nothing,
}

/// Where a server listens.
#[derive(Debug, Clone)]
enum Server {
    Socket(PathBuf),
    Port(u16),
}

/// What the connections that came since the last one was forgotten share.
type Shared = Arc<Mutex<watch::Sender<Passing>>>;

/// The network. Ends with all its connections on drop.
#[derive(Debug)]
pub struct Relay {
    port: u16,
    passing: Shared,
    cuts: watch::Sender<usize>,
    accepting: JoinHandle<()>,
}

impl Relay {
    /// Makes a network without faults in front of the server on this socket.
    pub async fn before(server: &Path) -> Self {
        Self::to(Server::Socket(server.to_owned())).await
    }

    /// A network in order, before the server on this port of this machine.
    pub async fn before_port(port: u16) -> Self {
        Self::to(Server::Port(port)).await
    }

    async fn to(server: Server) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.expect("loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let passing = Arc::new(Mutex::new(watch::Sender::new(Passing::All)));
        let cuts = watch::Sender::new(0);
        let accepting = tokio::spawn(accept(listener, server, passing.clone(), cuts.clone()));
        Self {
            port,
            passing,
            cuts,
            accepting,
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many connections lead through it.
    pub fn connections(&self) -> usize {
        self.cuts.receiver_count()
    }

    /// From now on passes on only this, also on later connections.
    pub fn pass(&self, passing: Passing) {
        let current = self.passing.lock().expect("no panic");
        current.send_replace(passing);
    }

    /// Forgets the existing connections: without notice to either side, no byte passes on them any more. Later ones do.
    pub fn forget(&self) {
        let mut current = self.passing.lock().expect("no panic");
        current.send_replace(Passing::Nothing);
        *current = watch::Sender::new(Passing::All);
    }

    /// Ends the existing connections.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn accept(
    listener: TcpListener,
    server: Server,
    passing: Shared,
    cuts: watch::Sender<usize>,
) {
    while let Ok((client, _)) = listener.accept().await {
        let server = server.clone();
        let passing = passing.lock().expect("no panic").clone();
        let mut cut = cuts.subscribe();
        tokio::spawn(async move {
            tokio::select! {
                () = relay(client, &server, passing) => {}
                _ = cut.changed() => {}
            }
        });
    }
}

async fn relay(client: TcpStream, server: &Server, passing: watch::Sender<Passing>) {
    match server {
        Server::Socket(path) => {
            if let Ok(server) = UnixStream::connect(path).await {
                copy_both(client, server.into_split(), passing).await;
            }
        }
        Server::Port(port) => {
            if let Ok(server) = TcpStream::connect(("127.0.0.1", *port)).await {
                copy_both(client, server.into_split(), passing).await;
            }
        }
    }
}

async fn copy_both(
    client: TcpStream,
    (from_server, to_server): (impl AsyncReadExt + Unpin, impl AsyncWriteExt + Unpin),
    passing: watch::Sender<Passing>,
) {
    let (from_client, to_client) = client.into_split();
    let requests = passing.subscribe();
    let replies = passing.subscribe();
    tokio::select! {
        () = copy(from_client, to_server, requests, |passing| passing != Passing::Nothing) => {}
        () = copy(from_server, to_client, replies, |passing| passing == Passing::All) => {}
    }
}

async fn copy(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut passing: watch::Receiver<Passing>,
    may_pass: impl Fn(Passing) -> bool,
) {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let Ok(count @ 1..) = from.read(&mut bytes).await else {
            return;
        };
        if passing
            .wait_for(|passing| may_pass(*passing))
            .await
            .is_err()
            || to.write_all(&bytes[..count]).await.is_err()
        {
            return;
        }
    }
}
