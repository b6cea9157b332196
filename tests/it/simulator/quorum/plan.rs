//! What one run of the quorum will be like, drawn from its seed.

use std::time::Duration;

use fastrand::Rng;
use leasehold::clock::Timing;
use leasehold::store::quorum::planted::{Planted, QuorumBug};
use leasehold::store::quorum::{AHEAD, Rules};

use crate::simulator::time::{Real, nanos};

/// The bounds and the odds of one run.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) bug: Option<QuorumBug>,
    pub(super) members: usize,
    pub(super) users: usize,
    pub(super) timing: Timing,
    /// How long a member keeps a counter after its clock has passed it.
    memory: Duration,
    /// Of a thousand messages.
    pub(super) lost: u32,
    pub(super) late: u32,
    pub(super) doubled: u32,
    /// When the faults end and no claim begins any more.
    pub(super) horizon: Real,
    /// Whether members' clocks step by more than the margin. Then only what rests on no clock is promised.
    pub(super) is_wild: bool,
    pub(super) disturbances: usize,
}

impl Plan {
    pub(super) fn draw(bug: Option<QuorumBug>, rng: &mut Rng) -> Self {
        let ttl = Duration::from_secs(3);
        let timing = Timing::new(ttl, None).expect("within the limits");
        let members = match bug {
            Some(QuorumBug::HalfIsAMajority) => 4,
            _ if rng.u8(..5) == 0 => 5,
            _ => 3,
        };
        let users = rng.usize(2..=4);
        let memory = if rng.bool() { ttl / 2 } else { ttl * 100 };
        let mut odds = |most| if rng.bool() { rng.u32(..most) } else { 0 };
        let (lost, late, doubled) = (odds(300), odds(300), odds(300));
        Self {
            bug,
            members,
            users,
            timing,
            memory,
            lost,
            late,
            doubled,
            horizon: nanos(ttl) * rng.u64(3..10),
            is_wild: rng.u8(..5) == 0,
            disturbances: rng.usize(..6),
        }
    }

    pub(super) fn planted(&self) -> Planted {
        Planted::new(self.bug)
    }

    pub(super) fn has(&self, bug: QuorumBug) -> bool {
        self.bug == Some(bug)
    }

    pub(super) fn rules(&self) -> Rules {
        Rules {
            max_ttl: self.timing.ttl(),
            ahead: AHEAD,
            memory: self.memory,
            is_trusted: false,
            planted: self.planted(),
        }
    }

    /// How much earlier than the members a holder counts its lease as over.
    pub(super) fn margin(&self) -> Duration {
        match self.has(QuorumBug::NoMargin) {
            true => Duration::ZERO,
            false => self.timing.margin(),
        }
    }

    /// The rate of a clock: two of them differ by less than the margin within one ttl.
    pub(super) fn draw_rate(&self, rng: &mut Rng) -> f64 {
        let margin = self.timing.margin().as_secs_f64() / self.timing.ttl().as_secs_f64();
        1.0 + (rng.f64() - 0.5) * margin * 0.8
    }
}
