//! The schedule to its edges, in no time at all.

mod batches;
mod exits;
mod limits;
mod random;
mod shards;
mod steps;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::work::Work;
use super::*;
use crate::error::{Error, ErrorKind};
use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::store::{Outcome, Renewed};
use crate::telemetry::RenewalStats;
use crate::term::{Term, Timing};
use crate::token::Token;
use crate::watchdog::signal::Signal;

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
    /// The shards of names that are in another one than the first.
    moved: HashMap<Name, u32>,
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
            moved: HashMap::new(),
        }
    }

    fn held_count(&self) -> usize {
        let shards = self.schedule.shards.iter();
        shards.map(|shard| shard.queues.ends.iter().count()).sum()
    }

    fn enroll(&mut self, now: Instant) -> (LeaseId, Arc<Signal>) {
        self.claims += 1;
        let name = Name::new(format!("n{}", self.claims)).expect("valid");
        let holder = Holder::new(ClientId::from_u128(1), self.claims);
        let signal = Arc::new(Signal::new(now));
        let id = self
            .schedule
            .enroll(name, holder, 0, self.timing, signal.clone())
            .expect("not closing");
        (id, signal)
    }

    /// A lease whose claim left at `sent_at` and was granted.
    fn hold(&mut self, sent_at: Instant, limits: Limits) -> (LeaseId, Arc<Signal>) {
        let (id, signal) = self.enroll(sent_at);
        let before = self.schedule.claim_sent(id, sent_at);
        self.schedule.claim_answered(id, before);
        self.grant(id, sent_at, sent_at).expect("held");
        self.schedule.limit(id, limits, sent_at);
        (id, signal)
    }

    /// The grant of a claim whose attempt left at `sent_at`.
    fn grant(&mut self, id: LeaseId, sent_at: Instant, now: Instant) -> Result<(), Useless> {
        let ttl = self.schedule.slot(id).lease.timing.ttl();
        self.schedule.hold(id, Token::MAX, sent_at, ttl, now)
    }

    /// Returns whether the loop has to be woken after the changes until now.
    fn must_wake(&mut self) -> bool {
        self.schedule.take_effects().must_wake
    }

    /// Returns why leases were lost by the changes until now.
    fn losses(&mut self) -> Vec<LossReason> {
        let losses = self.schedule.take_effects().losses;
        losses.iter().map(|loss| loss.reason).collect()
    }

    fn held(&mut self, sent_at: Instant) -> (LeaseId, Arc<Signal>) {
        self.hold(sent_at, Limits::default())
    }

    fn term(&self, sent_at: Instant) -> Term {
        self.timing.term(sent_at)
    }

    /// A turn with all the room that the loop ever gives.
    fn turn(&mut self, now: Instant) -> Work {
        self.turn_with(now, BATCHES_IN_FLIGHT, RELEASES_IN_FLIGHT)
    }

    /// A turn with so much room, whatever is in flight.
    fn turn_with(&mut self, now: Instant, batches: usize, releases: usize) -> Work {
        self.make_room(batches, releases);
        self.schedule_turn(now)
    }

    /// A turn with the room that is left.
    fn schedule_turn(&mut self, now: Instant) -> Work {
        let shard_of = |name: &Name| self.moved.get(name).copied().unwrap_or(0);
        self.schedule.turn(now, shard_of)
    }

    fn make_room(&mut self, batches: usize, releases: usize) {
        for shard in &mut self.schedule.shards {
            shard.batches_in_flight = BATCHES_IN_FLIGHT - batches;
            shard.releases_in_flight = RELEASES_IN_FLIGHT - releases;
        }
    }

    /// The one batch that is due.
    fn batch(&mut self, now: Instant) -> Batch {
        let mut turn = self.turn(now);
        assert_eq!(turn.batches.len(), 1, "{turn:?}");
        turn.batches.remove(0)
    }

    /// The reply to a batch that was overdue.
    fn late(&mut self, batch: &Batch, outcome: fn() -> Outcome, now: Instant) -> RenewalStats {
        let outcomes = batch.tickets.iter().map(|_| outcome()).collect();
        (self.schedule).settle_late(batch, Renewed::new(outcomes), now)
    }

    /// Answers each batch that is sent in this time at once. Returns how many there were.
    fn answered_until(&mut self, mut now: Instant, end: Instant) -> usize {
        let mut sent = 0;
        while now < end {
            for batch in self.turn(now).batches {
                sent += 1;
                self.settle(&batch, renewed, now);
            }
            now = self.next().max(now.after(ms(1)));
        }
        sent
    }

    fn settle(&mut self, batch: &Batch, outcome: fn() -> Outcome, now: Instant) -> RenewalStats {
        let outcomes = batch.tickets.iter().map(|_| outcome()).collect();
        self.schedule.settle(batch, Renewed::new(outcomes), now)
    }

    /// Returns when the renewals are planned, in order.
    fn planned(&self) -> Vec<Instant> {
        let renewals = self.schedule.shards[0].queues.renewals.iter();
        renewals.map(|(at, _)| at).collect()
    }

    fn next(&mut self) -> Instant {
        self.make_room(BATCHES_IN_FLIGHT, RELEASES_IN_FLIGHT);
        self.schedule.next_wake()
    }
}

fn renewed() -> Outcome {
    Outcome::Renewed
}

fn unknown() -> Outcome {
    Outcome::Unknown(Error::new(ErrorKind::TimedOut, "renew failed: no answer"))
}

fn progress_within(within: Duration) -> Limits {
    Limits {
        progress_within: Some(within),
        ..Limits::default()
    }
}

#[test]
fn nothing_past_its_deadline_is_renewed_however_many_are_lost_at_once() {
    let mut bench = Bench::new();
    for _ in 0..STEPS_PER_TURN + 10 {
        bench.held(START);
    }
    let late = START.after(TTL);
    let first = bench.turn(late);
    assert_eq!(bench.losses().len(), STEPS_PER_TURN);
    assert!(first.batches.is_empty());
    assert!(bench.next() <= late);
    let second = bench.turn(late);
    assert_eq!(bench.losses().len(), 10);
    assert!(second.batches.is_empty());
}

#[test]
fn a_turn_checks_a_bounded_number_of_leases_that_made_progress() {
    let mut bench = Bench::new();
    let signals: Vec<_> = (0..STEPS_PER_TURN * 3)
        .map(|_| bench.hold(START, progress_within(ms(1_000))).1)
        .collect();
    for signal in &signals {
        signal.note_progress(at(500));
    }
    let mut turns = 0;
    while bench.next() <= at(1_000) {
        bench.turn(at(1_000));
        assert_eq!(bench.losses(), []);
        turns += 1;
    }
    assert_eq!(turns, 3);
}

#[test]
fn renewals_are_planned_within_their_windows() {
    let mut bench = Bench::new();
    for _ in 0..500 {
        bench.held(START);
    }
    let term = bench.term(START);
    let (first, later) = (term.renewal_window(true), term.renewal_window(false));
    let planned = bench.planned();
    assert!(planned.iter().all(|at| first.contains(at)));
    let spread = planned[499].since(planned[0]);
    assert!(
        spread > TTL / 7,
        "leases taken together do not stay together: {spread:?}"
    );
    for batch in bench.turn(*first.end()).batches {
        let outcomes = batch.tickets.iter().map(|_| renewed()).collect();
        let batch = Batch {
            sent_at: START,
            ..batch
        };
        bench
            .schedule
            .settle(&batch, Renewed::new(outcomes), at(10));
    }
    let planned = bench.planned();
    assert_eq!(planned.len(), 500);
    assert!(planned.iter().all(|at| later.contains(at)));
}

#[test]
fn a_late_reply_counts_for_the_moment_at_which_its_attempt_was_sent() {
    for is_sent_again in [true, false] {
        let mut bench = Bench::new();
        let (_key, signal) = bench.held(START);
        let first = bench.batch(at(10_000));
        assert_eq!(bench.schedule.overdue(&first, at(12_000)).unknown, 1);
        let second = is_sent_again.then(|| bench.batch(at(12_000)));
        assert_eq!(bench.late(&first, renewed, at(12_500)).renewed, 1);
        assert_eq!(signal.deadline(), Ok(bench.term(at(10_000)).deadline()));
        let sent_again = bench.answered_until(at(12_500), at(18_990));
        assert_eq!(
            sent_again, 0,
            "the next renewal is due after a third of the ttl"
        );
        if let Some(second) = second {
            assert_eq!(bench.settle(&second, renewed, at(14_500)).renewed, 1);
            assert_eq!(signal.deadline(), Ok(bench.term(at(12_000)).deadline()));
        }
        assert!(bench.answered_until(at(18_990), at(60_000)) > 2);
        assert_eq!(bench.losses(), []);
    }
}

#[test]
fn a_line_on_which_each_reply_comes_after_its_attempts_limit_loses_no_lease() {
    let mut bench = Bench::new();
    let (_key, signal) = bench.held(START);
    let (mut in_time, mut overdue) = (Vec::<Batch>::new(), Vec::<Batch>::new());
    let mut now = START;
    while now < at(300_000) {
        now = now.after(ms(10));
        in_time.extend(bench.turn(now).batches);
        let is_over = |batch: &mut Batch| now >= batch.sent_at.after(batch.limit);
        for batch in in_time.extract_if(.., is_over) {
            let _ = bench.schedule.overdue(&batch, now);
            overdue.push(batch);
        }
        let has_come = |batch: &mut Batch| now >= batch.sent_at.after(batch.limit * 5 / 4);
        for batch in overdue.extract_if(.., has_come) {
            bench.late(&batch, renewed, now);
        }
        assert_eq!(bench.losses(), [], "{now:?}");
    }
    assert!(signal.deadline().is_ok());
}

#[test]
fn a_reply_to_an_attempt_before_the_last_confirmed_one_changes_nothing() {
    let mut bench = Bench::new();
    let (_key, signal) = bench.held(START);
    let first = bench.batch(at(10_000));
    let _ = bench.schedule.overdue(&first, at(12_000));
    let second = bench.batch(at(12_000));
    assert_eq!(bench.settle(&second, renewed, at(12_002)).renewed, 1);
    let before = signal.deadline();
    assert_eq!(bench.late(&first, renewed, at(12_003)).renewed, 0);
    bench.late(&first, || Outcome::Refused, at(12_003));
    assert_eq!(bench.losses(), []);
    assert_eq!(signal.deadline(), before);
}

#[test]
fn a_late_refusal_ends_the_lease_and_a_late_failure_changes_nothing() {
    let mut bench = Bench::new();
    bench.held(START);
    let first = bench.batch(at(10_000));
    let _ = bench.schedule.overdue(&first, at(12_000));
    let second = bench.batch(at(12_000));
    assert_eq!(bench.late(&first, unknown, at(12_001)).unknown, 0);
    assert_eq!(bench.losses(), []);
    bench.late(&first, || Outcome::Refused, at(12_001));
    assert_eq!(bench.losses(), [LossReason::Refused]);
    assert_eq!(bench.settle(&second, renewed, at(12_002)).renewed, 0);
}

#[test]
fn a_late_reply_after_the_deadline_revives_nothing() {
    let mut bench = Bench::new();
    let (_key, signal) = bench.held(START);
    let first = bench.batch(at(10_000));
    let _ = bench.schedule.overdue(&first, at(12_000));
    let end = bench.term(START).deadline();
    assert_eq!(bench.late(&first, renewed, end).renewed, 0);
    assert!(signal.deadline().is_err());
}

#[test]
fn a_reply_to_a_former_lease_does_not_touch_the_one_in_its_place() {
    let mut bench = Bench::new();
    let (id, _signal) = bench.held(START);
    let old = bench.batch(at(10_000));
    let (leaving, _) = bench.schedule.withdraw(id, None, at(10_001));
    let ticket = leaving.expect("something to release").ticket;
    bench.schedule.settle_release(ticket, true, at(10_002));
    let (reused, signal) = bench.held(at(10_003));
    assert_eq!(reused, id, "the slot is used again");
    let before = signal.deadline();
    bench.settle(&old, || Outcome::Refused, at(10_004));
    assert_eq!(signal.deadline(), before);
}

#[test]
fn an_unknown_renewal_is_tried_again_until_the_deadline_and_not_in_a_storm() {
    let mut bench = Bench::new();
    bench.held(START);
    let (mut now, mut attempts) = (bench.next(), 0);
    loop {
        let turn = bench.turn(now);
        let losses = bench.losses();
        if !losses.is_empty() {
            assert_eq!(losses, [LossReason::Deadline]);
            break;
        }
        for batch in &turn.batches {
            attempts += 1;
            bench.settle(batch, unknown, now.after(ms(1)));
        }
        now = bench.next().max(now);
    }
    assert_eq!(now, bench.term(START).deadline().before(EARLY));
    assert!((30..60).contains(&attempts), "{attempts}");
}

#[test]
fn a_reply_in_the_last_milliseconds_is_late() {
    let mut bench = Bench::new();
    bench.held(START);
    let batch = bench.batch(at(10_000));
    let end = bench.term(START).deadline().before(EARLY);
    bench.settle(&batch, renewed, end);
    assert_eq!(bench.losses(), [LossReason::Deadline]);
}

#[test]
fn a_reply_after_a_check_said_no_revives_nothing() {
    let mut bench = Bench::new();
    let (_key, signal) = bench.held(START);
    let batch = bench.batch(at(10_000));
    let deadline = bench.term(START).deadline();
    signal.check(deadline).expect_err("it has passed");
    // The reply was read before the check, and comes to be taken in after it.
    bench.settle(&batch, renewed, deadline.before(ms(6)));
    assert_eq!(bench.losses(), [LossReason::Deadline]);
    assert_eq!(signal.deadline(), Err(LossReason::Deadline));
}

#[test]
fn the_loop_is_woken_only_for_what_is_earlier_than_its_sleep() {
    let mut bench = Bench::new();
    let (first, _) = bench.enroll(START);
    bench.grant(first, START, START).expect("held");
    assert!(bench.must_wake());
    let next = bench.next();
    let (second, _) = bench.enroll(START);
    bench.grant(second, at(20_000), START).expect("held");
    assert!(!bench.must_wake());
    assert_eq!(bench.next(), next);
    bench.schedule.leave(second, None, at(1));
    assert!(bench.must_wake(), "its release is due at once");
}
