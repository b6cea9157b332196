//! A Sentinel that gives the answer of the test: one server is the master, for ever.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::fake_server::FakeServer;

/// The Sentinel. It ends on drop.
#[derive(Debug)]
pub struct FakeSentinel {
    server: FakeServer,
    opinion: Arc<Mutex<(u16, u64)>>,
    denies_its_id: Arc<AtomicBool>,
    delay_ms: Arc<AtomicU64>,
}

impl FakeSentinel {
    /// Starts a Sentinel that names the server on this port of this machine, with this epoch.
    pub async fn naming(master: u16, epoch: u64) -> Self {
        let opinion = Arc::new(Mutex::new((master, epoch)));
        let said = opinion.clone();
        let denies_its_id = Arc::new(AtomicBool::new(false));
        let denies = denies_its_id.clone();
        let delay_ms = Arc::new(AtomicU64::new(0));
        let delay = delay_ms.clone();
        static STARTED: AtomicU64 = AtomicU64::new(0);
        let id = format!("{:040x}", STARTED.fetch_add(1, Ordering::Relaxed));
        let server = FakeServer::answering(move |words| {
            let (port, epoch) = *said.lock().expect("no panic");
            let word = words.get(1).map(|word| word.to_uppercase());
            // The last of three that are asked together: the others say what it knew when they came.
            let after_ms = match word.as_deref() {
                Some("MYID") => delay.load(Ordering::Relaxed),
                _ => 0,
            };
            let reply = match word.as_deref() {
                Some("GET-MASTER-ADDR-BY-NAME") => array(&["127.0.0.1", &port.to_string()]),
                Some("MASTER") => array(&["config-epoch", &epoch.to_string()]),
                Some("MYID") if denies.load(Ordering::Relaxed) => {
                    "-NOPERM no permissions to run the 'sentinel|myid' command\r\n".into()
                }
                Some("MYID") => format!("$40\r\n{id}\r\n"),
                _ if words[0].eq_ignore_ascii_case("EXISTS") => ":0\r\n".into(),
                _ => "+OK\r\n".into(),
            };
            (after_ms, reply)
        });
        Self {
            server: server.await,
            opinion,
            denies_its_id,
            delay_ms,
        }
    }

    /// From now on this user may not ask for its id.
    pub fn deny_its_id(&self) {
        self.denies_its_id.store(true, Ordering::Relaxed);
    }

    /// From now on it names another master.
    pub fn name(&self, master: u16, epoch: u64) {
        *self.opinion.lock().expect("no panic") = (master, epoch);
    }

    /// From now on its answers arrive so much later than they were given.
    pub fn delay(&self, by: Duration) {
        let by_ms = u64::try_from(by.as_millis()).expect("short");
        self.delay_ms.store(by_ms, Ordering::Relaxed);
    }

    /// Returns how often it was asked for the master: its id is the last that a look asks for.
    pub fn asked(&self) -> usize {
        self.server.count("MYID")
    }

    /// Returns its address.
    pub fn host(&self) -> String {
        self.server.host()
    }
}

fn array(words: &[&str]) -> String {
    let mut reply = format!("*{}\r\n", words.len());
    for word in words {
        reply.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    reply
}
