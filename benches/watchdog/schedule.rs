//! A turn of the schedule with a thousand renewals due, among more and more leases.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::ClientId;
use leasehold::clock::{self, Timing};
use leasehold::internals::schedule::Schedule;
use leasehold::internals::signal::Signal;
use leasehold::store::{Outcome, Renewed};
use leasehold::{Holder, Name, Token};

use super::RUNS;
use super::yardstick::{case, figure, median, seconds};

const DUE: u64 = 1_000;
const TURNS: usize = 100;

pub(crate) fn measure() {
    let sizes = [1_000, 10_000, 100_000, 1_000_000];
    let mut benches: Vec<Bench> = sizes.into_iter().map(Bench::new).collect();
    let mut turns = vec![Vec::new(); sizes.len()];
    let mut settles = vec![Vec::new(); sizes.len()];
    for _ in 0..RUNS {
        for (index, bench) in benches.iter_mut().enumerate() {
            let (turn, settle) = bench.run();
            turns[index].push(turn);
            settles[index].push(settle);
        }
    }
    for (size, runs) in sizes.iter().zip(&turns) {
        let pairs: Vec<_> = runs.iter().copied().zip(turns[0].iter().copied()).collect();
        case(&format!("schedule_turn_1000_due_{size}_us"), "us", &pairs);
    }
    for (size, runs) in sizes.iter().zip(&settles) {
        figure(&format!("schedule_settle_1000_{size}_us"), "us", runs);
    }
}

/// A schedule in which a thousand leases, spread among the others, are due again and again, and the others not for
/// hours.
pub(crate) struct Bench {
    pub(crate) schedule: Schedule,
    pub(crate) now: clock::Instant,
}

impl Bench {
    pub(crate) fn new(held: u64) -> Self {
        let now = clock::Instant::from_nanos(3_600_000_000_000);
        let mut bench = Self {
            schedule: Schedule::new(7),
            now,
        };
        for index in 0..held {
            let ttl = if index.is_multiple_of(held / DUE) {
                30
            } else {
                86_400
            };
            bench.hold(
                index,
                Timing::new(Duration::from_secs(ttl), None).expect("valid"),
            );
        }
        bench
    }

    fn hold(&mut self, index: u64, timing: Timing) {
        let name = Name::new(format!("name-of-lease-{index:06}")).expect("valid");
        let holder = Holder::new(ClientId::from_u128(7), index);
        let signal = Arc::new(Signal::new(self.now));
        let id = (self.schedule).enroll(name, holder, 0, timing, signal);
        let id = id.expect("it is open");
        let held = (self.schedule).hold(id, Token::MAX, self.now, timing.ttl(), self.now);
        held.expect("held");
    }

    /// Returns the microseconds of a turn and of settling its renewals.
    fn run(&mut self) -> (f64, f64) {
        let (mut turns, mut settles) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            self.now = self.now.after(Duration::from_secs(10));
            let started = Instant::now();
            let turn = self.schedule.turn(self.now, |_| 0);
            turns.push(seconds(started) * 1e6);
            let due: usize = turn.batches.iter().map(|batch| batch.renewals.len()).sum();
            assert_eq!(due as u64, DUE);
            let started = Instant::now();
            for batch in &turn.batches {
                let outcomes = batch.tickets.iter().map(|_| Outcome::Renewed).collect();
                black_box(
                    self.schedule
                        .settle(batch, Renewed::new(outcomes), self.now),
                );
            }
            settles.push(seconds(started) * 1e6);
        }
        (median(turns), median(settles))
    }
}
