//! Anything in any order.

use proptest::prelude::*;

use super::*;

/// One call of the schedule.
#[derive(Debug, Clone)]
enum Step {
    Claim { is_answered: bool },
    Hold,
    Turn { after_ms: u64 },
    Settle { outcome: u8 },
    Leave { pick: usize },
    Withdraw { pick: usize },
    Report { is_clear: bool },
    Progress { pick: usize },
    Move { name: u64, to: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<bool>().prop_map(|is_answered| Step::Claim { is_answered }),
        Just(Step::Hold),
        (0_u64..8_000).prop_map(|after_ms| Step::Turn { after_ms }),
        (0_u64..8_000).prop_map(|after_ms| Step::Turn { after_ms }),
        any::<u8>().prop_map(|outcome| Step::Settle { outcome }),
        any::<usize>().prop_map(|pick| Step::Leave { pick }),
        any::<usize>().prop_map(|pick| Step::Withdraw { pick }),
        any::<bool>().prop_map(|is_clear| Step::Report { is_clear }),
        any::<usize>().prop_map(|pick| Step::Progress { pick }),
        (0_u64..20, 0_u32..3).prop_map(|(name, to)| Step::Move { name, to }),
    ]
}

/// A schedule, and everything that is under way.
struct Play {
    bench: Bench,
    now: Instant,
    claims: Vec<(LeaseId, Arc<Signal>)>,
    guards: Vec<(LeaseId, Arc<Signal>)>,
    batches: Vec<Batch>,
    /// Those whose replies come late.
    overdue: Vec<Batch>,
    reports: Vec<Ticket>,
}

impl Play {
    fn new() -> Self {
        Self {
            bench: Bench::with_ttl(Duration::from_secs(10)),
            now: START,
            claims: Vec::new(),
            guards: Vec::new(),
            batches: Vec::new(),
            overdue: Vec::new(),
            reports: Vec::new(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Claim { is_answered } => self.claim(is_answered),
            Step::Hold => self.hold(),
            Step::Turn { after_ms } => self.turn(after_ms),
            Step::Settle { outcome } => self.settle(outcome),
            Step::Leave { pick } => {
                if let Some((id, _)) = self.guard(pick) {
                    self.bench.schedule.give_up(id, self.now);
                }
            }
            Step::Withdraw { pick } => {
                if let Some((id, _)) = self.guard(pick) {
                    let (leaving, _) = self.bench.schedule.withdraw(id, None, self.now);
                    self.reports.extend(leaving.map(|leaving| leaving.ticket));
                }
            }
            Step::Report { is_clear } => {
                if let Some(ticket) = self.reports.pop() {
                    self.bench
                        .schedule
                        .settle_release(ticket, is_clear, self.now);
                }
            }
            Step::Move { name, to } => {
                self.bench.move_to(name, to);
            }
            Step::Progress { pick } => {
                if !self.guards.is_empty() {
                    self.guards[pick % self.guards.len()]
                        .1
                        .note_progress(self.now);
                }
            }
        }
    }

    fn claim(&mut self, is_answered: bool) {
        let (id, signal) = self.bench.enroll(self.now);
        let before = self.bench.schedule.claim_sent(id, self.now);
        if is_answered {
            self.bench.schedule.claim_answered(id, before);
        }
        self.claims.push((id, signal));
    }

    fn hold(&mut self) {
        let limits = Limits {
            max_hold: Some(ms(60_000)),
            progress_within: self.guards.len().is_multiple_of(2).then_some(ms(9_000)),
        };
        if let Some((id, signal)) = self.claims.pop() {
            self.bench
                .grant(id, self.now, self.now)
                .expect("it is not closing");
            self.bench.schedule.limit(id, limits, self.now);
            self.guards.push((id, signal));
        }
    }

    fn turn(&mut self, after_ms: u64) {
        self.now = self.now.after(ms(after_ms));
        let known = self.bench.schedule.shards.len();
        let turn = self.bench.turn_with(self.now, 2, 2);
        // A shard that a name has moved to since is made in the turn, with nothing in flight yet.
        let made = self.bench.schedule.shards.len() - known;
        assert!(turn.batches.len() <= 2 * known + made * BATCHES_IN_FLIGHT);
        assert!(turn.releases.len() <= 2 * known + made * RELEASES_IN_FLIGHT);
        for batch in &turn.batches {
            for ticket in &batch.tickets {
                let guard = self.guards.iter().find(|(id, _)| *id == ticket.id);
                let (_, signal) = guard.expect("only what is held is renewed");
                assert!(signal.deadline().is_ok(), "and only what is not lost");
            }
        }
        self.batches.extend(turn.batches);
        self.reports
            .extend(turn.releases.iter().map(|leaving| leaving.ticket));
    }

    fn settle(&mut self, outcome: u8) {
        if outcome >= 192 {
            if let Some(batch) = self.batches.pop() {
                let _ = self.bench.schedule.overdue(&batch, self.now);
                self.overdue.push(batch);
            }
            return;
        }
        let late = if outcome >= 128 {
            self.overdue.pop()
        } else {
            None
        };
        let is_late = late.is_some();
        if let Some(batch) = late.or_else(|| self.batches.pop()) {
            let outcome = match outcome % 8 {
                0 => || Outcome::Refused,
                1 => || Outcome::Evicted,
                2..=4 => unknown,
                _ => renewed,
            };
            match is_late {
                true => self.bench.late(&batch, outcome, self.now),
                false => self.bench.settle(&batch, outcome, self.now),
            };
        }
    }

    fn guard(&mut self, pick: usize) -> Option<(LeaseId, Arc<Signal>)> {
        let count = self.claims.len() + self.guards.len();
        let pick = pick.checked_rem(count)?;
        Some(match pick.checked_sub(self.claims.len()) {
            None => self.claims.swap_remove(pick),
            Some(pick) => self.guards.swap_remove(pick),
        })
    }

    /// All leases are left, and every release is answered.
    fn end(&mut self) {
        while let Some((id, _)) = self.guard(0) {
            self.bench.schedule.give_up(id, self.now);
        }
        let mut turns = 0;
        while !self.bench.schedule.is_empty() {
            for ticket in std::mem::take(&mut self.reports) {
                self.bench.schedule.settle_release(ticket, true, self.now);
            }
            if self.bench.schedule.is_empty() {
                return;
            }
            self.bench.make_room(2, 2);
            self.now = self.bench.schedule.next_wake().max(self.now);
            assert!(
                self.now < Instant::FAR_FUTURE,
                "something waits for nothing"
            );
            self.turn(0);
            turns += 1;
            assert!(turns < 10_000, "the releases come to an end");
        }
    }

    /// The invariant of the queues.
    fn check(&self) {
        let schedule = &self.bench.schedule;
        for (index, shard) in schedule.shards.iter().enumerate() {
            let (mut held, mut waiting, mut leaving) = (0, 0, 0);
            for id in schedule.ids() {
                let slot = schedule.slot(id);
                if slot.shard != index {
                    continue;
                }
                match &slot.phase {
                    Phase::Held(holding) => {
                        let in_flight = usize::from(holding.attempt.is_some());
                        held += 1;
                        waiting += 1 - in_flight;
                        let counts = shard.queues.counts(id, holding);
                        assert_eq!(counts, (1, 1 - in_flight), "{holding:?}");
                    }
                    Phase::Leaving(leave) => {
                        let is_planned = shard.queues.has_release(id, leave.release_at);
                        assert!(is_planned || leave.attempt.is_some());
                        leaving += usize::from(is_planned);
                    }
                    Phase::Claiming { .. } | Phase::Lost(_) => {}
                }
            }
            assert_eq!(shard.queues.lengths(), (held, waiting, leaving));
            assert_eq!(shard.timings.longest_ttl().is_zero(), held == 0);
        }
    }
}

proptest! {
    #[test]
    fn after_any_steps_leases_are_in_the_queues_of_their_phases_and_all_released(
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut play = Play::new();
        for step in steps {
            play.take(step);
            play.check();
        }
        play.end();
    }
}
