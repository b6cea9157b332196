//! Permits and a shared name, which each worker takes again and again in the background of its registers.

use std::time::Duration;

use fastrand::Rng;
use leasehold::{Attempt, Client, Lease, LeaseRequest, OutagePolicy};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::ear::Ear;
use crate::harness::wait::pause;
use crate::history::{Facts, Operation, Phase, Scribe};
use crate::worker::{STEP, facts_of, is_held, release_noted};

/// The pool. Fewer permits than workers.
pub(crate) const POOL: &str = "pool";
pub(crate) const PERMITS: u16 = 2;
/// The name that is shared.
pub(crate) const SHARED: &str = "shared";
/// How long a wait takes at most while faults strike.
const WAIT: Duration = Duration::from_secs(5);

/// Returns whether a name is one of the permits of this pool.
pub(crate) fn is_permit_of(pool: &str, name: &str) -> bool {
    let number = name
        .strip_prefix(pool)
        .and_then(|rest| rest.strip_prefix('#'));
    number.is_some_and(|number| number.parse::<u16>().is_ok())
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
enum Want {
    Permit,
    Share,
    FencedShare,
    Alone,
}

impl Want {
    const ALL: [Self; 4] = [Self::Permit, Self::Share, Self::FencedShare, Self::Alone];

    const fn name(self) -> &'static str {
        match self {
            Self::Permit => POOL,
            _ => SHARED,
        }
    }

    fn request(self, client: &Client) -> LeaseRequest {
        let request = client.request(self.name()).on_outage(OutagePolicy::WaitOut);
        match self {
            Self::Permit => request.permits(PERMITS),
            Self::Share => request.shared(),
            Self::FencedShare => request.shared_fenced(),
            Self::Alone => request.exclusive(),
        }
    }
}

/// The tasks of one worker. Two of them, so that its client queues for both at once.
#[derive(Debug)]
pub(crate) struct PoolTasks {
    ends: CancellationToken,
    tasks: JoinSet<()>,
}

impl PoolTasks {
    pub(crate) fn start(client: &Client, scribe: &Scribe, ear: &Ear, random: &mut Rng) -> Self {
        let (ends, mut tasks) = (CancellationToken::new(), JoinSet::new());
        for _ in 0..2 {
            let taker = Taker {
                client: client.clone(),
                scribe: scribe.clone(),
                ear: ear.clone(),
                random: random.fork(),
            };
            tasks.spawn(taker.take_until(ends.clone()));
        }
        Self { ends, tasks }
    }

    /// Lets each task take everything once more, now that all faults are healed, and end.
    pub(crate) async fn finish(self) {
        self.ends.cancel();
        self.tasks.join_all().await;
    }
}

struct Taker {
    client: Client,
    scribe: Scribe,
    ear: Ear,
    random: Rng,
}

impl Taker {
    async fn take_until(mut self, ends: CancellationToken) {
        while !ends.is_cancelled() {
            let want = *self
                .random
                .choice(Want::ALL.iter())
                .expect("there are some");
            if let Some(lease) = self.acquired(want, false).await {
                self.hold(lease).await;
            }
            pause(Duration::from_millis(self.random.u64(50..400))).await;
        }
        for want in Want::ALL {
            if let Some(lease) = self.acquired(want, true).await {
                release_noted(&self.scribe, lease).await;
            }
        }
    }

    async fn acquired(&mut self, want: Want, is_last: bool) -> Option<Lease> {
        let named = Facts::named(want.name());
        let call = self.scribe.invoke(Operation::Acquire, named.clone());
        let request = want.request(&self.client);
        let outcome = match (is_last, self.random.bool()) {
            (true, _) => request.acquire().await.map(Some),
            (false, true) => request.acquire_within(WAIT).await.map(Some),
            (false, false) => request.try_acquire().await.map(|attempt| match attempt {
                Attempt::Acquired(lease) => Some(lease),
                Attempt::Held(_) => None,
            }),
        };
        let (phase, facts) = match &outcome {
            Ok(Some(lease)) => (Phase::Answer, facts_of(lease)),
            Ok(None) => (Phase::Refused, named),
            Err(error) => (Phase::Unknown, named.with_detail(error.to_string())),
        };
        self.scribe.end(Operation::Acquire, phase, call, facts);
        let lease = outcome.ok().flatten()?;
        self.ear.await_loss(&lease, facts_of(&lease));
        Some(lease)
    }

    /// Holds it for a while, at times through several renewals.
    async fn hold(&mut self, lease: Lease) {
        let longest = if self.random.u8(..8) == 0 { 100 } else { 10 };
        let facts = facts_of(&lease);
        for _ in 0..self.random.u32(1..longest) {
            if !is_held(&self.scribe, &lease, &facts) {
                break;
            }
            pause(STEP).await;
        }
        release_noted(&self.scribe, lease).await;
    }
}
