//! A way to a server on which a test holds back one request, to have something happen while it is under way.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::ZookeeperServer;
use crate::wait::soon;

/// How the protocol numbers a transaction.
const TRANSACTION: i32 = 14;
/// Part of the paths of tokens.
const TOKEN: &[u8] = b"/t-";

/// What becomes of the next transaction on this way that writes a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Passes,
    IsToBeHeld,
    IsHeld,
}

/// The way. Ends on drop.
#[derive(Debug)]
pub struct HeldWay {
    port: u16,
    next: watch::Sender<Next>,
    accepting: JoinHandle<()>,
}

impl HeldWay {
    pub async fn to(server: &ZookeeperServer) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.expect("loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let next = watch::Sender::new(Next::Passes);
        let accepting = tokio::spawn(hold_each(listener, server.port(), next.clone()));
        Self {
            port,
            next,
            accepting,
        }
    }

    /// The URL that leads along this way to the same chroot.
    pub fn url(&self, direct: &str) -> String {
        let rest = direct.trim_start_matches("zookeeper://");
        let chroot = rest.find('/').map_or("", |at| &rest[at..]);
        format!("zookeeper://127.0.0.1:{}{chroot}", self.port)
    }

    /// Holds back the next transaction that writes a token. One that asks the leader for its time passes.
    pub fn hold(&self) {
        self.next.send_replace(Next::IsToBeHeld);
    }

    /// Waits until it is held back.
    pub async fn held(&self) {
        let mut next = self.next.subscribe();
        let held = soon(next.wait_for(|next| *next == Next::IsHeld)).await;
        held.expect("the way is there");
    }

    /// Lets it pass.
    pub fn let_go(&self) {
        self.next.send_replace(Next::Passes);
    }
}

impl Drop for HeldWay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn hold_each(listener: TcpListener, port: u16, next: watch::Sender<Next>) {
    while let Ok((client, _)) = listener.accept().await {
        let next = next.clone();
        tokio::spawn(async move {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else {
                return;
            };
            let (from_client, mut to_client) = client.into_split();
            let (mut from_server, to_server) = server.into_split();
            tokio::select! {
                _ = requests(from_client, to_server, next) => {}
                _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
            }
        });
    }
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    next: watch::Sender<Next>,
) -> std::io::Result<()> {
    loop {
        let length = from.read_u32().await?;
        let mut frame = vec![0; length as usize];
        from.read_exact(&mut frame).await?;
        let writes_token = frame.get(4..8) == Some(&TRANSACTION.to_be_bytes())
            && frame.windows(TOKEN.len()).any(|part| part == TOKEN);
        let is_held = |next: &mut Next| {
            let is_held = writes_token && *next == Next::IsToBeHeld;
            if is_held {
                *next = Next::IsHeld;
            }
            is_held
        };
        if next.send_if_modified(is_held) {
            let mut next = next.subscribe();
            let _ = next.wait_for(|next| *next == Next::Passes).await;
        }
        to.write_u32(length).await?;
        to.write_all(&frame).await?;
    }
}
