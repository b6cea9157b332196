//! Leases that a worker only keeps. No other process wants their names, so each of them is lost by its deadline whenever the
//! store is away for long enough, and a run measures many cancellations.

use leasehold::{Client, Lease, OutagePolicy};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::ear::Ear;
use crate::history::{Facts, Operation, Phase, Scribe};
use crate::worker::{facts_of, release_noted};

/// How many leases a worker keeps.
const COUNT: usize = 4;
/// What their names begin with.
const PREFIX: &str = "idle-";

/// Whether a name is that of such a lease.
pub(crate) fn is_idle(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// The leases of one worker, each taken again when it is lost.
#[derive(Debug)]
pub(crate) struct IdleLeases {
    ends: CancellationToken,
    tasks: JoinSet<()>,
}

impl IdleLeases {
    pub(crate) fn keep(client: &Client, scribe: &Scribe, ear: &Ear) -> Self {
        let (ends, mut tasks) = (CancellationToken::new(), JoinSet::new());
        for number in 1..=COUNT {
            let one = IdleLease {
                name: format!("{PREFIX}{}-{number}", scribe.process()),
                client: client.clone(),
                scribe: scribe.clone(),
                ear: ear.clone(),
            };
            let ends = ends.clone();
            tasks.spawn(async move { one.keep_until(&ends).await });
        }
        Self { ends, tasks }
    }

    /// Gives them back.
    pub(crate) async fn release(self) {
        self.ends.cancel();
        self.tasks.join_all().await;
    }
}

struct IdleLease {
    name: String,
    client: Client,
    scribe: Scribe,
    ear: Ear,
}

impl IdleLease {
    async fn keep_until(&self, ends: &CancellationToken) {
        while !ends.is_cancelled() {
            let Some(lease) = self.acquired(ends).await else {
                continue;
            };
            tokio::select! {
                _ = lease.lost() => {}
                () = ends.cancelled() => release_noted(&self.scribe, lease).await,
            }
        }
    }

    async fn acquired(&self, ends: &CancellationToken) -> Option<Lease> {
        let call = self.scribe.invoke(Operation::Acquire, self.facts());
        let request = self.client.request(&self.name);
        let outcome = tokio::select! {
            outcome = request.on_outage(OutagePolicy::WaitOut).acquire() => outcome.ok(),
            () = ends.cancelled() => None,
        };
        let end = |phase, facts| self.scribe.end(Operation::Acquire, phase, call, facts);
        let Some(lease) = outcome else {
            end(Phase::Unknown, self.facts());
            return None;
        };
        end(Phase::Answer, facts_of(&lease));
        self.ear.await_loss(&lease, facts_of(&lease));
        Some(lease)
    }

    fn facts(&self) -> Facts {
        Facts::named(&self.name)
    }
}
