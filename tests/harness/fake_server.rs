//! A server that speaks the servers' protocol and gives the answers of the test.

use std::ops::Deref;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::resp;
use super::wait::{at, now};

/// The server. It ends on drop.
#[derive(Debug)]
pub struct FakeServer {
    port: u16,
    seen: Arc<Mutex<Vec<Vec<String>>>>,
    accepting: JoinHandle<()>,
}

impl FakeServer {
    /// Starts a server that answers each request by this function, after so many milliseconds. A connection's requests
    /// are answered one after the other.
    pub async fn answering(
        answer: impl Fn(&[String]) -> (u64, String) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.expect("loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let (answer, seen) = (Arc::new(answer), Arc::<Mutex<Vec<_>>>::default());
        let all_seen = seen.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, answer.clone(), all_seen.clone()));
            }
        });
        Self {
            port,
            seen,
            accepting,
        }
    }

    /// Returns its address.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the URL for the store.
    pub fn url(&self) -> String {
        format!("redis://{}", self.host())
    }

    /// Returns the requests that have come.
    pub fn seen(&self) -> Vec<Vec<String>> {
        self.seen.lock().expect("no panic").clone()
    }

    /// Returns how many requests with this word have come.
    pub fn count(&self, word: &str) -> usize {
        let seen = self.seen();
        let with = seen
            .iter()
            .filter(|words| words.iter().any(|one| one.eq_ignore_ascii_case(word)));
        with.count()
    }
}

/// A node of a cluster that says that it serves all slots.
#[derive(Debug)]
pub struct FakeNode {
    server: FakeServer,
}

impl FakeNode {
    /// Starts a node that answers by this function, and else as one that has nothing.
    pub async fn start(
        answer: impl Fn(&[String]) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let port = Arc::<AtomicU16>::default();
        let own = port.clone();
        let server = FakeServer::answering(move |words| {
            let reply = answer(words).unwrap_or_else(|| match &*words[0].to_uppercase() {
                "CLUSTER" => {
                    let port = own.load(Ordering::Relaxed);
                    format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:{port}\r\n")
                }
                "TIME" => "*2\r\n:7\r\n:0\r\n".into(),
                _ => ":0\r\n".into(),
            });
            (0, reply)
        });
        let server = server.await;
        port.store(server.port, Ordering::Relaxed);
        Self { server }
    }

    /// Returns the URL of the cluster for the store.
    pub fn url(&self) -> String {
        format!("redis+cluster://{}", self.host())
    }
}

impl Deref for FakeNode {
    type Target = FakeServer;

    fn deref(&self) -> &FakeServer {
        &self.server
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(
    mut client: TcpStream,
    answer: Arc<impl Fn(&[String]) -> (u64, String)>,
    seen: Arc<Mutex<Vec<Vec<String>>>>,
) {
    let mut unread = Vec::new();
    while client
        .read_buf(&mut unread)
        .await
        .is_ok_and(|count| count > 0)
    {
        while let Some(length) = resp::whole(&unread) {
            let words = resp::words(&unread[..length]);
            unread.drain(..length);
            let (after_ms, reply) = answer(&words);
            seen.lock().expect("no panic").push(words);
            if after_ms > 0 {
                at(now().after(Duration::from_millis(after_ms))).await;
            }
            if client.write_all(reply.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}
