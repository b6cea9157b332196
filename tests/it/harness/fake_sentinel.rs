//! A Sentinel that says what the test wants: that one server is the master, for ever.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::resp;

/// The Sentinel. It ends on drop.
#[derive(Debug)]
pub(crate) struct FakeSentinel {
    port: u16,
    opinion: Arc<Mutex<(u16, u64)>>,
    accepting: JoinHandle<()>,
}

impl FakeSentinel {
    /// Starts a Sentinel that names the server on this port of this machine, with this epoch.
    pub(crate) async fn naming(master: u16, epoch: u64) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.expect("loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let opinion = Arc::new(Mutex::new((master, epoch)));
        let said = opinion.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(answer(client, said.clone()));
            }
        });
        Self {
            port,
            opinion,
            accepting,
        }
    }

    /// From now on it names another master.
    pub(crate) fn name(&self, master: u16, epoch: u64) {
        *self.opinion.lock().expect("no panic") = (master, epoch);
    }

    /// Returns its address.
    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for FakeSentinel {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn answer(mut client: TcpStream, opinion: Arc<Mutex<(u16, u64)>>) {
    let mut unread = Vec::new();
    while client
        .read_buf(&mut unread)
        .await
        .is_ok_and(|count| count > 0)
    {
        while let Some(length) = resp::whole(&unread) {
            let words = resp::words(&unread[..length]);
            unread.drain(..length);
            let (port, epoch) = *opinion.lock().expect("no panic");
            let reply = match words.get(1).map(|word| word.to_uppercase()).as_deref() {
                Some("GET-MASTER-ADDR-BY-NAME") => array(&["127.0.0.1", &port.to_string()]),
                Some("MASTER") => array(&["config-epoch", &epoch.to_string()]),
                _ if words[0].eq_ignore_ascii_case("EXISTS") => ":0\r\n".into(),
                _ => "+OK\r\n".into(),
            };
            if client.write_all(reply.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

fn array(words: &[&str]) -> String {
    let mut reply = format!("*{}\r\n", words.len());
    for word in words {
        reply.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    reply
}
