//! A network between client and server that knows nothing of what they say: it passes bytes on, or does not.

use std::path::{Path, PathBuf};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passing {
    /// Everything.
    All,
    /// What the client says; it hears nothing any more.
    Requests,
    /// Nothing, and nobody is told.
    Nothing,
}

/// The network. Ends with all its connections on drop.
#[derive(Debug)]
pub(crate) struct Relay {
    port: u16,
    passing: watch::Sender<Passing>,
    cuts: watch::Sender<usize>,
    accepting: JoinHandle<()>,
}

impl Relay {
    /// A network in order, before the server on this socket.
    pub(crate) async fn before(server: &Path) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.expect("loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let (passing, cuts) = (watch::Sender::new(Passing::All), watch::Sender::new(0));
        let accepting = tokio::spawn(accept(
            listener,
            server.to_owned(),
            passing.clone(),
            cuts.clone(),
        ));
        Self {
            port,
            passing,
            cuts,
            accepting,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// From now on only this passes, on connections to come as well.
    pub(crate) fn pass(&self, passing: Passing) {
        self.passing.send_replace(passing);
    }

    /// Ends the connections that there are.
    pub(crate) fn cut(&self) {
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
    server: PathBuf,
    passing: watch::Sender<Passing>,
    cuts: watch::Sender<usize>,
) {
    while let Ok((client, _)) = listener.accept().await {
        let server = server.clone();
        let (passing, mut cut) = (passing.clone(), cuts.subscribe());
        tokio::spawn(async move {
            tokio::select! {
                () = relay(client, &server, passing) => {}
                _ = cut.changed() => {}
            }
        });
    }
}

async fn relay(client: TcpStream, server: &Path, passing: watch::Sender<Passing>) {
    let Ok(server) = UnixStream::connect(server).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
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
