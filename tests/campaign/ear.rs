//! A thread of a process that does nothing but note: when leases are cancelled, and when it stood still itself. What it
//! notes does not wait for a runtime that is busy or blocked with something else.

use std::time::Duration;

use leasehold::Lease;
use tokio::runtime::{Builder, Handle};

use crate::harness::wait::{at, now};
use crate::history::{Facts, Operation, Phase, Scribe, micros};

/// How often it looks whether time has passed as it should.
const STEP: Duration = Duration::from_millis(5);

/// The thread. It ends with its process.
#[derive(Debug, Clone)]
pub(crate) struct Ear {
    thread: Handle,
    scribe: Scribe,
}

impl Ear {
    pub(crate) fn of(scribe: Scribe) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a thread");
        let (thread, stalls) = (runtime.handle().clone(), note_stalls(scribe.clone()));
        std::thread::spawn(move || runtime.block_on(stalls));
        Self { thread, scribe }
    }

    /// Records when the lease is cancelled.
    pub(crate) fn await_loss(&self, lease: &Lease, facts: Facts) {
        let (told, scribe) = (lease.cancellation_token(), self.scribe.clone());
        self.thread.spawn(async move {
            told.cancelled().await;
            scribe.note(Operation::Told, Phase::Answer, facts);
        });
    }
}

/// Records when this thread stands still, because its process is stopped or the machine is busy.
pub(crate) async fn note_stalls(scribe: Scribe) {
    loop {
        let slept_at = now();
        at(now().after(STEP)).await;
        let took = now().since(slept_at);
        if took > 4 * STEP {
            let facts = Facts {
                ttl_us: Some(micros(took)),
                ..Facts::default()
            };
            scribe.note(Operation::Stall, Phase::Answer, facts);
        }
    }
}
