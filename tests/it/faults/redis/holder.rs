//! A client with many leases, in a process of its own on the host of a server, so that both can be cut off together.

use std::collections::HashMap;
use std::time::Duration;

use leasehold::clock::Instant;
use leasehold::{Attempt, Client, Lease};

use crate::harness::leases::client_at;
use crate::harness::network::Host;
use crate::harness::subprocess::{self, Subprocess};
use crate::harness::wait::{now, until};

const TEST: &str = "faults::redis::holder::a_holder_reports_its_leases";

/// The holder, as its parent sees it. Ends on drop.
#[derive(Debug)]
pub(super) struct Holder {
    process: Subprocess,
    /// Its leases, by their names, as far as the parent has read.
    pub(super) leases: HashMap<String, Reported>,
}

/// What the holder has reported of one lease. All processes of a machine have the same clock.
#[derive(Debug, Clone)]
pub(super) struct Reported {
    pub(super) token: u64,
    /// When the lease ends unless it is renewed again.
    deadline: Instant,
    /// Why it was lost, and when the holder was told.
    pub(super) lost: Option<(String, Instant)>,
}

impl Holder {
    /// Starts one that takes these names on this host, and returns once it has them.
    pub(super) fn start_on(host: &Host, url: &str, ttl: Duration, names: &[String]) -> Self {
        let command = host.program(subprocess::own());
        let task = format!("{} {url} {}", ttl.as_millis(), names.join(" "));
        let mut holder = Self {
            process: Subprocess::start_by(command, TEST, &task),
            leases: HashMap::new(),
        };
        while holder.leases.len() < names.len() {
            holder.read();
        }
        holder
    }

    /// Waits for the next renewal of this lease.
    pub(super) fn renews(&mut self, name: &str) {
        let before = self.leases[name].deadline;
        while self.leases[name].deadline == before {
            self.read();
        }
    }

    /// Waits until all leases are lost.
    pub(super) fn loses_all(&mut self) {
        while self.leases.values().any(|lease| lease.lost.is_none()) {
            self.read();
        }
    }

    /// Reads what is there already.
    pub(super) fn catch_up(&mut self) {
        while let Some(report) = self.process.answered() {
            self.note(&report);
        }
    }

    fn read(&mut self) {
        let report = self.process.answer();
        self.note(&report);
    }

    fn note(&mut self, report: &str) {
        let words: Vec<_> = report.split(' ').collect();
        let [kind, name, what, at] = words[..] else {
            panic!("{report}");
        };
        let at = Instant::from_nanos(at.parse().expect("a number"));
        match kind {
            "held" => {
                let lease = Reported {
                    token: what.parse().expect("a token"),
                    deadline: at,
                    lost: None,
                };
                self.leases.insert(name.to_owned(), lease);
            }
            _ => {
                let lease = self.leases.get_mut(name).expect("it was held");
                lease.lost = Some((what.to_owned(), at));
            }
        }
    }
}

impl Reported {
    /// Until when its holder believed in it. A check fails at the deadline, however late a busy machine lets the holder be
    /// told.
    pub(super) fn believed_until(&self) -> Instant {
        let told = self.lost.as_ref().map_or_else(now, |(_, at)| *at);
        told.min(self.deadline)
    }
}

#[test]
fn a_holder_reports_its_leases() {
    // In the suite itself there is no task.
    let Some(task) = subprocess::task() else {
        return;
    };
    let words: Vec<_> = task.split(' ').collect();
    let [ttl_ms, url, names @ ..] = &words[..] else {
        panic!("{task}");
    };
    let ttl = Duration::from_millis(ttl_ms.parse().expect("a number"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = client_at(url, ttl).await;
        for name in names {
            let lease = take_at_last(&client, name).await;
            tokio::spawn(report(lease));
        }
        // Until its parent ends.
        subprocess::orders().recv().await
    });
    std::process::exit(0);
}

/// Takes a name, as soon as replicas can acknowledge it.
async fn take_at_last(client: &Client, name: &str) -> Lease {
    until("the lease", async || match client.try_acquire(name).await {
        Ok(Attempt::Acquired(lease)) => Some(lease),
        _ => None,
    })
    .await
}

async fn report(lease: Lease) {
    let say = |kind: &str, what: &str, at: Instant| {
        subprocess::say(format_args!(
            "{kind} {} {what} {}",
            lease.name(),
            at.as_nanos()
        ));
    };
    let mut term = lease.term();
    while let Some(held) = term {
        say("held", &lease.token().to_string(), held.deadline());
        term = lease.renewed_past(held.deadline()).await;
    }
    say("lost", &format!("{:?}", lease.lost().await), now());
    // Held on to, as by a holder that is slow to end.
    std::future::pending::<()>().await;
}
