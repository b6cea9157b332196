//! What must hold, whatever happens; and what was seen of it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold::ClientId;
use leasehold::clock::{Instant, Timing};
use leasehold::internals::schedule::{EARLY, Limits, Loss, Work};
use leasehold::internals::signal::Signal;
use leasehold::{Holder, LossReason, Name, Token};

use super::store::Verdict;
use super::time::Real;

/// The promises, each checked many times in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Promise {
    NoYesWhileTheStoreCouldGrantToAnother,
    NoTwoHolders,
    KeepOutEndsNoLease,
    NoDeadlinePastItsArithmetic,
    EveryLossToldInTime,
    ALossIsFinal,
    ALossHasItsReason,
    LimitsOfTheHolderAreKept,
    NoRenewalAfterAnExit,
    NoStormOfRenewals,
    NoReleaseWhileTheGuardIsThere,
    NoLeaseForgotten,
    TransientFaultsLoseNothing,
    AHungServerDelaysNoOther,
    NoStepOfAClockThatDidNotStep,
    ADoubtfulClaimIsCleaned,
    NothingIsCreatedByARenewal,
    NoRenewalOfALaterGrant,
    EveryEnrollmentEndsOnce,
    WorkPerTurnIsBounded,
    TokensRise,
    NoGrantBelowWhatWasSeen,
    NoGrantWithLittleLeft,
    EachAttemptCarriesTheFloor,
    ANameIsHandedToALivePlace,
    NoWaiterIsPassedOver,
    EachWaiterIsServed,
}

impl Promise {
    pub(super) const ALL: [Self; 27] = [
        Self::NoYesWhileTheStoreCouldGrantToAnother,
        Self::NoTwoHolders,
        Self::KeepOutEndsNoLease,
        Self::NoDeadlinePastItsArithmetic,
        Self::EveryLossToldInTime,
        Self::ALossIsFinal,
        Self::ALossHasItsReason,
        Self::LimitsOfTheHolderAreKept,
        Self::NoRenewalAfterAnExit,
        Self::NoStormOfRenewals,
        Self::NoReleaseWhileTheGuardIsThere,
        Self::NoLeaseForgotten,
        Self::TransientFaultsLoseNothing,
        Self::AHungServerDelaysNoOther,
        Self::NoStepOfAClockThatDidNotStep,
        Self::ADoubtfulClaimIsCleaned,
        Self::NothingIsCreatedByARenewal,
        Self::NoRenewalOfALaterGrant,
        Self::EveryEnrollmentEndsOnce,
        Self::WorkPerTurnIsBounded,
        Self::TokensRise,
        Self::NoGrantBelowWhatWasSeen,
        Self::NoGrantWithLittleLeft,
        Self::EachAttemptCarriesTheFloor,
        Self::ANameIsHandedToALivePlace,
        Self::NoWaiterIsPassedOver,
        Self::EachWaiterIsServed,
    ];
}

/// What was broken, and when.
#[derive(Debug, Clone)]
pub(super) struct Violation {
    pub(super) promise: Promise,
    at: Real,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = Duration::from_nanos(self.at).as_secs_f64();
        write!(f, "{:?} at {seconds:.6} s: {}", self.promise, self.what)
    }
}

/// A fault: a replica that missed writes replaces its server.
pub(super) const FAILOVER: &str = "failover that missed writes";

/// Counts by the name of what was counted.
pub(super) type Counts = BTreeMap<&'static str, u64>;

/// A guard of a holder.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    pub(super) process: usize,
    pub(super) name: Name,
    pub(super) timing: Timing,
    pub(super) limits: Limits,
    pub(super) signal: Arc<Signal>,
    pub(super) token: Token,
    pub(super) handed_at: Instant,
    /// When its holder last showed progress.
    pub(super) progressed_at: Instant,
    /// The deadline by plain arithmetic over every reply that came.
    pub(super) until: Instant,
    pub(super) is_lost: bool,
    /// The term of a place is all that it has: it was not renewed yet.
    pub(super) is_handed: bool,
    /// Whether a renewal was sent since the last one that was confirmed, or its process was paused.
    pub(super) is_tried: bool,
    /// When the last renewal was sent.
    pub(super) tried_at: Instant,
}

/// A claim without a guard.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gone {
    /// What had landed by then is to be released; nothing if no release is owed.
    pub(super) since: Real,
    /// What lands until then is to be released as well.
    pub(super) until: Real,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) violation: Option<Violation>,
    /// The only promise that is looked at; all of them, unless a bug is planted.
    only: Option<Promise>,
    pub(super) checks: BTreeMap<Promise, u64>,
    pub(super) faults: Counts,
    pub(super) events: u64,
    pub(super) losses: Counts,
    pub(super) guards: HashMap<Holder, Guard>,
    /// Whose guard is gone.
    pub(super) gone: HashMap<Holder, Gone>,
    /// Whom the store told that it is not theirs, and how.
    pub(super) refused: HashSet<(Holder, Verdict)>,
    /// Whose row went by an operator, or by a restart or a failover without keep-out: beyond what is promised.
    pub(super) excused: BTreeSet<Holder>,
    /// Whose row ends earlier since a step of the server's clock, and since when: beyond what is promised, until the
    /// client has found the step.
    pub(super) stepped: BTreeMap<Holder, Real>,
    /// Whose row a server that keeps out has forgotten.
    pub(super) forgotten: BTreeMap<Holder, usize>,
    /// Clients whose own clock stepped, and what it showed then: until they have read the server's by a request sent
    /// after that, it hides as much of a step of that.
    pub(super) hiding: BTreeMap<(ClientId, usize), Instant>,
    /// Whether a client found a step forward.
    pub(super) has_taken_off: bool,
    last_tokens: BTreeMap<Name, Token>,
}

impl Ledger {
    pub(super) fn checking(only: Option<Promise>) -> Self {
        Self {
            only,
            ..Self::default()
        }
    }

    pub(super) fn fault(&mut self, kind: &'static str) {
        *self.faults.entry(kind).or_default() += 1;
    }

    /// Checks one promise once.
    pub(super) fn check(
        &mut self,
        promise: Promise,
        at: Real,
        is_kept: bool,
        what: impl FnOnce() -> String,
    ) {
        *self.checks.entry(promise).or_default() += 1;
        let is_read = self.only.is_none_or(|only| only == promise);
        if !is_kept && is_read && self.violation.is_none() {
            let what = what();
            self.violation = Some(Violation { promise, at, what });
        }
    }

    /// Whether deadlines may have been moved forward: after a step of the server's clock, or after one back, when a late
    /// reply from before it looks like one.
    fn is_hurried(&self) -> bool {
        self.faults.contains_key("wild clock") || self.has_taken_off
    }

    /// Whether a server has forgotten tokens that it granted.
    fn has_lost_counters(&self) -> bool {
        let lost = ["restart empty", FAILOVER];
        lost.iter().any(|fault| self.faults.contains_key(fault))
    }

    /// What its holder was told when it asked.
    pub(super) fn check_answer(&mut self, at: Real, holder: Holder, is_held: bool, shown: Instant) {
        let Some(until) = self.guards.get(&holder).map(|guard| guard.until) else {
            return;
        };
        let is_right = !is_held || shown < until;
        self.check(Promise::NoDeadlinePastItsArithmetic, at, is_right, || {
            format!("{holder} asked at {shown:?} and was told yes, but {until:?} was bought")
        });
    }

    /// Whether its holder, asking at this moment of its own clock, is told yes.
    pub(super) fn says_yes(&self, holder: Holder, shown: Instant) -> bool {
        let guard = self.guards.get(&holder);
        guard.is_some_and(|guard| guard.signal.deadline().is_ok_and(|until| shown < until))
    }

    /// A renewal is confirmed. What comes past the deadline does not count.
    pub(super) fn confirmed(&mut self, holder: Holder, sent_at: Instant, shown: Instant) {
        let guard = self.guards.get_mut(&holder);
        if let Some(guard) = guard.filter(|guard| shown.after(EARLY) < guard.until) {
            let deadline = sent_at.after(guard.timing.ttl() - guard.timing.margin());
            guard.until = guard.until.max(deadline);
            (guard.is_tried, guard.is_handed) = (false, false);
        }
    }

    /// The work of this holder goes on.
    pub(super) fn progressed(&mut self, holder: Holder, shown: Instant) {
        if let Some(guard) = self.guards.get_mut(&holder) {
            guard.progressed_at = shown;
        }
    }

    /// A renewal is sent: by a process that holds this lease, and not right after the last one.
    pub(super) fn tried(&mut self, at: Real, name: &Name, holder: Holder, shown: Instant) {
        let guard = self.guards.get_mut(&holder);
        let (is_held, waited) = match guard {
            None => (false, None),
            Some(guard) => {
                let before = std::mem::replace(&mut guard.tried_at, shown);
                // What is left of a place's term may be a small part of the ttl.
                let least = (guard.timing.ttl() / 50) * u32::from(!guard.is_handed);
                let pause = least.max(Duration::from_millis(10));
                guard.is_tried = true;
                (!guard.is_lost, Some((shown.since(before), pause)))
            }
        };
        self.check(Promise::NoRenewalAfterAnExit, at, is_held, || {
            format!("{name} of {holder} is renewed")
        });
        // A step of the server's clock moves what is planned.
        let is_calm = self.is_hurried() || waited.is_none_or(|(waited, pause)| waited >= pause);
        self.check(Promise::NoStormOfRenewals, at, is_calm, || {
            format!("{name} of {holder} is renewed again after {waited:?}")
        });
    }

    /// A process stands still, so it cannot be blamed for what it does not send.
    pub(super) fn paused(&mut self, process: usize) {
        let guards = self.guards.values_mut();
        for guard in guards.filter(|guard| guard.process == process) {
            guard.is_tried = true;
        }
    }

    /// This process is gone: it holds nothing, and cleans nothing up.
    pub(super) fn crashed(&mut self, process: usize, client: ClientId) {
        self.guards.retain(|_, guard| guard.process != process);
        self.gone.retain(|holder, _| holder.client() != client);
    }

    /// The clock of this client has moved forward, so it may give up cleaning earlier.
    pub(super) fn hurried(&mut self, client: ClientId, now: Real) {
        for (holder, gone) in &mut self.gone {
            if holder.client() == client {
                *gone = Gone {
                    since: 0,
                    until: now.min(gone.until),
                };
            }
        }
    }

    /// After a reply was taken in: the deadline is not later than what the replies bought, and a loss has stayed one.
    pub(super) fn check_deadline(&mut self, at: Real, holder: Holder) {
        let Some(guard) = self.guards.get(&holder) else {
            return;
        };
        let (until, is_lost) = (guard.until, guard.is_lost);
        let deadline = guard.signal.deadline();
        let is_early = deadline.is_err() || deadline.is_ok_and(|deadline| deadline <= until);
        self.check(Promise::NoDeadlinePastItsArithmetic, at, is_early, || {
            format!("the deadline of {holder} is {deadline:?}, but {until:?} was bought")
        });
        if is_lost {
            self.check(Promise::ALossIsFinal, at, deadline.is_err(), || {
                format!("{holder} was lost and counts as held until {deadline:?}")
            });
        }
    }

    /// A step of a server's clock is only found where some clock stepped.
    pub(super) fn check_step(&mut self, at: Real, step: Option<(&str, Duration)>) {
        let has_stepped = self.faults.keys().any(|fault| fault.contains("clock"));
        let promise = Promise::NoStepOfAClockThatDidNotStep;
        self.check(promise, at, step.is_none() || has_stepped, || {
            format!("found {step:?}")
        });
    }

    pub(super) fn check_turn(
        &mut self,
        at: Real,
        turn: &Work,
        losses: usize,
        is_within_room: bool,
    ) {
        let is_bounded = losses <= 4_096
            && is_within_room
            && turn
                .batches
                .iter()
                .all(|batch| (1..=leasehold::store::MAX_BATCH).contains(&batch.renewals.len()));
        self.check(Promise::WorkPerTurnIsBounded, at, is_bounded, || {
            format!(
                "batches={} releases={}",
                turn.batches.len(),
                turn.releases.len()
            )
        });
    }

    /// A loss as it is told: there must be a reason for it that the holder, or the store, gave.
    pub(super) fn check_loss(&mut self, at: Real, holder: Holder, loss: &Loss, shown: Instant) {
        *self.losses.entry(loss.reason.as_str()).or_default() += 1;
        let Some(guard) = self.guards.get_mut(&holder) else {
            return;
        };
        guard.is_lost = true;
        let (limits, until, is_tried) = (guard.limits, guard.until, guard.is_tried);
        let idle = shown.since(guard.progressed_at);
        let held_for = shown.since(guard.handed_at);
        let is_right = match loss.reason {
            // A clock that jumped may have taken something off.
            LossReason::Deadline => shown.after(EARLY) >= until || self.is_hurried(),
            LossReason::Refused => self.refused.contains(&(holder, Verdict::Refused)),
            LossReason::Evicted => self.refused.contains(&(holder, Verdict::Evicted)),
            LossReason::MaxHold => limits.max_hold.is_some_and(|most| held_for >= most),
            LossReason::NoProgress => limits.progress_within.is_some_and(|most| idle >= most),
            LossReason::Shutdown => true,
            _ => false,
        };
        self.check(Promise::ALossHasItsReason, at, is_right, || {
            format!(
                "{holder} lost: {} at {shown:?}, bought until {until:?}",
                loss.reason
            )
        });
        if loss.reason == LossReason::Deadline {
            // A step of the server's clock may leave no time to try.
            let is_tried = is_tried || self.is_hurried();
            self.check(Promise::NoLeaseForgotten, at, is_tried, || {
                format!("{holder} was lost without one attempt to renew it")
            });
        }
    }

    /// A new grant. Where the counter was lost, the clock must not be behind the last token: that is the assumption.
    pub(super) fn check_token(
        &mut self,
        at: Real,
        name: &Name,
        holder: Holder,
        token: Token,
        clock_us: u64,
    ) {
        let last = self.last_tokens.insert(name.clone(), token);
        let was_lost = self.has_lost_counters();
        let is_behind = was_lost && last.is_some_and(|last| clock_us <= last.get());
        self.check(
            Promise::TokensRise,
            at,
            Some(token) > last || is_behind,
            || format!("{name} was granted to {holder} under {token} after {last:?}"),
        );
    }

    /// A grant as its guard is handed out: its token is above all that the client saw, and there is time to work.
    pub(super) fn check_grant(
        &mut self,
        at: Real,
        holder: Holder,
        guard: &Guard,
        seen: Option<Token>,
        (span, shown): (Duration, Instant),
    ) {
        let token = guard.token;
        self.check(
            Promise::NoGrantBelowWhatWasSeen,
            at,
            Some(token) > seen,
            || format!("{holder} holds under {token} although {seen:?} was seen"),
        );
        let left = guard.until.since(shown);
        let is_enough = left >= span / 4;
        self.check(Promise::NoGrantWithLittleLeft, at, is_enough, || {
            format!("{holder} was handed a lease that has {left:?} left")
        });
    }

    /// A grant as its guard is handed out: no other guard has this token of this name, unless the counter was lost and the
    /// clock went back.
    pub(super) fn check_guard(&mut self, at: Real, holder: Holder, guard: &Guard) {
        let others = self
            .guards
            .values()
            .filter(|other| other.name == guard.name);
        let is_double = others.into_iter().any(|other| other.token == guard.token);
        let is_excused = self.has_lost_counters() && self.faults.contains_key("server clock back");
        self.check(Promise::TokensRise, at, !is_double || is_excused, || {
            let Guard { name, token, .. } = guard;
            format!("{name} was handed out twice under {token}, now to {holder}")
        });
    }
}
