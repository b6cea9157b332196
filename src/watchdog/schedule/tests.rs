//! The schedule to its edges, in no time at all.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::error::{Error, ErrorKind};
use crate::store::{Outcome, Renewed};
use crate::term::Term;

const TTL: Duration = Duration::from_secs(30);
const START: Instant = Instant::from_nanos(1_000_000_000_000);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(ms_later: u64) -> Instant {
    START.after(ms(ms_later))
}

/// A schedule, and the leases that were put in.
struct Bench {
    schedule: Schedule,
    timing: Timing,
    claims: u64,
}

impl Bench {
    fn new() -> Self {
        Self::with_ttl(TTL)
    }

    fn with_ttl(ttl: Duration) -> Self {
        Self {
            schedule: Schedule::new(7),
            timing: Timing::new(ttl, None).expect("valid"),
            claims: 0,
        }
    }

    fn enroll(&mut self, now: Instant, limits: Limits) -> (Key, Arc<Signal>) {
        self.claims += 1;
        let name = Name::new(format!("n{}", self.claims)).expect("valid");
        let holder = Holder::new(Uuid::from_u128(1), self.claims);
        let signal = Arc::new(Signal::new(now));
        let key = self
            .schedule
            .enroll(name, holder, self.timing, limits, signal.clone())
            .expect("not closing");
        (key, signal)
    }

    /// A lease whose claim left at `sent_at` and was granted.
    fn hold(&mut self, sent_at: Instant, limits: Limits) -> (Key, Arc<Signal>) {
        let (key, signal) = self.enroll(sent_at, limits);
        let before = self.schedule.claim_sent(key, sent_at);
        self.schedule.claim_answered(key, before);
        self.schedule.hold(key, self.term(sent_at)).expect("held");
        (key, signal)
    }

    fn held(&mut self, sent_at: Instant) -> (Key, Arc<Signal>) {
        self.hold(sent_at, Limits::default())
    }

    fn term(&self, sent_at: Instant) -> Term {
        self.timing.term(sent_at)
    }

    /// A turn with all the room that the loop ever gives.
    fn turn(&mut self, now: Instant) -> Turn {
        self.schedule
            .turn(now, BATCHES_IN_FLIGHT, RELEASES_IN_FLIGHT)
    }

    /// The one batch that is due.
    fn batch(&mut self, now: Instant) -> Batch {
        let mut turn = self.turn(now);
        assert_eq!(turn.batches.len(), 1, "{turn:?}");
        turn.batches.remove(0)
    }

    fn settle(&mut self, batch: &Batch, outcome: fn() -> Outcome, now: Instant) -> Settled {
        let outcomes = batch.tickets.iter().map(|_| outcome()).collect();
        self.schedule.settle(batch, Renewed::new(outcomes), now)
    }

    fn next(&mut self) -> Instant {
        self.schedule.sleep(BATCHES_IN_FLIGHT, RELEASES_IN_FLIGHT)
    }
}

fn renewed() -> Outcome {
    Outcome::Renewed
}

fn unknown() -> Outcome {
    Outcome::Unknown(Error::new(ErrorKind::TimedOut, "renew failed: no answer"))
}

fn reasons(losses: &[Loss]) -> Vec<Reason> {
    losses.iter().map(|loss| loss.reason).collect()
}

fn progress_within(within: Duration) -> Limits {
    Limits {
        progress_within: Some(within),
        ..Limits::default()
    }
}

#[test]
fn the_time_without_progress_begins_with_the_hold_and_not_with_the_wait_for_it() {
    let mut bench = Bench::new();
    let (key, _signal) = bench.enroll(START, progress_within(ms(5_000)));
    let before = bench.schedule.claim_sent(key, at(60_000));
    bench.schedule.claim_answered(key, before);
    let term = bench.term(at(60_000));
    bench.schedule.hold(key, term).expect("held");
    assert!(bench.turn(at(60_010)).losses.is_empty());
    assert_eq!(
        reasons(&bench.turn(at(65_000)).losses),
        [Reason::NoProgress]
    );
}

#[test]
fn a_renewal_that_comes_between_progress_and_the_next_turn_ends_nothing() {
    let mut bench = Bench::new();
    let (_key, signal) = bench.hold(START, progress_within(ms(10_000)));
    let batch = bench.batch(at(9_990));
    signal.note_progress(at(9_995));
    let settled = bench.settle(&batch, renewed, at(10_001));
    assert_eq!(reasons(&settled.losses), []);
    assert_eq!(settled.renewed, 1);
}

#[test]
fn nothing_past_its_deadline_is_renewed_however_many_are_lost_at_once() {
    let mut bench = Bench::new();
    for _ in 0..STEPS_PER_TURN + 10 {
        bench.held(START);
    }
    let late = START.after(TTL);
    let first = bench.turn(late);
    assert_eq!(first.losses.len(), STEPS_PER_TURN);
    assert!(first.batches.is_empty());
    assert!(bench.next() <= late);
    let second = bench.turn(late);
    assert_eq!(second.losses.len(), 10);
    assert!(second.batches.is_empty());
}

#[test]
fn a_turn_looks_at_a_bounded_number_of_leases_that_made_progress() {
    let mut bench = Bench::new();
    let signals: Vec<_> = (0..STEPS_PER_TURN * 3)
        .map(|_| bench.hold(START, progress_within(ms(1_000))).1)
        .collect();
    for signal in &signals {
        signal.note_progress(at(500));
    }
    let mut turns = 0;
    while bench.next() <= at(1_000) {
        assert!(bench.turn(at(1_000)).losses.is_empty());
        turns += 1;
    }
    assert_eq!(turns, 3);
}

#[test]
fn a_turn_fills_no_more_batches_than_there_is_room_for() {
    let mut bench = Bench::new();
    let seconds = [1, 2, 4, 8, 16, 32, 64, 128];
    for ttl in seconds.map(Duration::from_secs) {
        bench.timing = Timing::new(ttl, None).expect("valid");
        for _ in 0..300 {
            bench.held(START.before(ttl * 2 / 3));
        }
    }
    let mut seen = HashSet::new();
    let mut turns = 0;
    while bench.next() <= START {
        let turn = bench.turn(START);
        assert!(turn.batches.len() <= BATCHES_IN_FLIGHT);
        for batch in turn.batches {
            assert!((1..=BATCH).contains(&batch.renewals.len()));
            seen.extend(batch.tickets.iter().map(|(key, _)| *key));
        }
        turns += 1;
        assert!(turns <= 20);
    }
    assert_eq!(seen.len(), 300 * seconds.len());
}
