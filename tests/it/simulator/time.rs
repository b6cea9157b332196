//! Virtual time: what really passes, the clocks that show it at rates of their own, and the agenda of what comes next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use leasehold::clock::Instant;

/// What really passed since the world began, in nanoseconds. No process can read it.
pub(super) type Real = u64;

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("the simulated times are short")
}

/// A clock with a rate of its own, which can be stepped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drifting {
    since: Real,
    showed: u64,
    rate: f64,
}

impl Drifting {
    pub(super) fn new(shows: u64, rate: f64) -> Self {
        Self {
            since: 0,
            showed: shows,
            rate,
        }
    }

    pub(super) fn at(&self, real: Real) -> Instant {
        let passed = (real - self.since) as f64 * self.rate;
        Instant::from_nanos(self.showed + passed as u64)
    }

    /// The first real moment from which it shows this.
    pub(super) fn real_at(&self, shown: Instant) -> Real {
        let to_pass = shown.as_nanos().saturating_sub(self.showed);
        let mut real = self.since + (to_pass as f64 / self.rate) as u64;
        while self.at(real) < shown {
            real += 1;
        }
        real
    }

    pub(super) fn step(&mut self, now: Real, forward: bool, by: Duration) {
        let shown = self.at(now);
        let shown = if forward {
            shown.after(by)
        } else {
            shown.before(by)
        };
        (self.since, self.showed) = (now, shown.as_nanos());
    }
}

/// The events to come, in the order of time; those due at the same moment, in the order of their insertion.
#[derive(Debug)]
pub(super) struct Agenda<E> {
    events: Vec<Option<E>>,
    free: Vec<usize>,
    order: BinaryHeap<Reverse<(Real, u64, usize)>>,
    added: u64,
}

impl<E> Agenda<E> {
    pub(super) fn new() -> Self {
        Self {
            events: Vec::new(),
            free: Vec::new(),
            order: BinaryHeap::new(),
            added: 0,
        }
    }

    pub(super) fn add(&mut self, at: Real, event: E) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[index] = Some(event);
        self.added += 1;
        self.order.push(Reverse((at, self.added, index)));
    }

    pub(super) fn next(&mut self) -> Option<(Real, E)> {
        let Reverse((at, _, index)) = self.order.pop()?;
        self.free.push(index);
        let event = self.events[index].take();
        Some((at, event.expect("each index is in the order once")))
    }
}
