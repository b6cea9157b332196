//! The state that the watchdog and a lease share: one number that says until when the lease counts, or why it ended;
//! when the work last showed progress; the token that cancels the holder, and what wakes those who wait for a renewal.
//!
//! # Invariants
//! 1. A loss is final: once the number names a reason, no renewal changes it.
//! 2. The first to see the deadline pass writes the loss, the watchdog or a `check()`. So a renewal that is
//!    confirmed after a `check()` said no cannot make the next one say yes.
//! 3. Waking a task runs code of the user. So [`Signal::cancel`] and [`Signal::wake`] are called without any lock, and
//!    their caller catches the panics.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::reason::LossReason;
use crate::term::Instant;
use crate::token::Token;

/// The shared number and token of one lease.
#[derive(Debug)]
pub struct Signal {
    /// 0: not granted yet; up to [`LossReason::LAST_CODE`]: the code of a reason; above: the deadline in nanoseconds.
    state: AtomicU64,
    /// When the work last reported progress.
    progress: AtomicU64,
    /// The first token that the holder asked for. Most leases have no other: a token of our own, with a child for the
    /// holder, would take two thirds of a lease's memory.
    given: OnceLock<CancellationToken>,
    /// Allocated on demand, because most leases need none of it.
    own: OnceLock<Box<Own>>,
    /// The token of the grant, 0 before it; with [`TOLD`] once the holder was cancelled.
    grant: AtomicU64,
}

/// A bit that no token has.
const TOLD: u64 = 1 << 63;

/// The parts of a signal that few leases need.
#[derive(Debug, Default)]
struct Own {
    /// Only the watchdog cancels it. Tokens asked for later are its children.
    token: CancellationToken,
    /// Wakes the tasks that wait for a later deadline. Separate from the token, so that a panic of one of their wakers
    /// hides no loss.
    moved: Notify,
}

impl Signal {
    /// The signal of a lease that is not granted yet.
    pub fn new(now: Instant) -> Self {
        Self {
            state: AtomicU64::new(0),
            progress: AtomicU64::new(now.as_nanos()),
            given: OnceLock::new(),
            own: OnceLock::new(),
            grant: AtomicU64::new(0),
        }
    }

    /// Returns the deadline that was confirmed last, even if it has passed and no check has noticed.
    pub fn deadline(&self) -> Result<Instant, LossReason> {
        decode(self.state.load(Ordering::Acquire))
    }

    /// Checks that the lease is held now. Writes the loss if the deadline has passed, so that no later check succeeds.
    pub fn check(&self, now: Instant) -> Result<Instant, LossReason> {
        let loss = LossReason::Deadline;
        let deadline = self.update(|deadline| (now >= deadline).then_some(loss.code()))?;
        match now < deadline {
            true => Ok(deadline),
            false => Err(loss),
        }
    }

    /// Moves the deadline, unless the lease was lost meanwhile.
    pub fn extend(&self, deadline: Instant) -> Result<(), LossReason> {
        let state = deadline.as_nanos().max(LossReason::LAST_CODE + 1);
        self.update(|_| Some(state)).map(drop)
    }

    /// Writes the loss. Returns the reason that counts, which is the first one.
    pub fn lose(&self, reason: LossReason) -> LossReason {
        self.update(|_| Some(reason.code())).err().unwrap_or(reason)
    }

    /// Ends a lease whose guard goes: as released, unless the deadline has passed or the lease was lost before. Returns
    /// the reason that counts.
    pub fn end(&self, now: Instant) -> LossReason {
        let reason = |deadline| match now < deadline {
            true => LossReason::Released,
            false => LossReason::Deadline,
        };
        let before = self.update(|deadline| Some(reason(deadline).code()));
        before.map_or_else(|lost| lost, reason)
    }

    /// Writes the state that follows from the deadline, if one does, unless the lease was lost before. Returns what was
    /// written before.
    fn update(&self, next: impl Fn(Instant) -> Option<u64>) -> Result<Instant, LossReason> {
        let (set, get) = (Ordering::AcqRel, Ordering::Acquire);
        let next = |state| decode(state).ok().and_then(&next);
        let (Ok(before) | Err(before)) = self.state.fetch_update(set, get, next);
        decode(before)
    }

    /// Records progress.
    pub fn note_progress(&self, now: Instant) {
        self.progress.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }

    /// When the work last reported progress.
    pub fn progress(&self) -> Instant {
        Instant::from_nanos(self.progress.load(Ordering::Relaxed))
    }

    /// Cancels the holder. A loss must have been written before.
    ///
    /// # Panics
    /// If a waker of the user panics. All tokens are cancelled before.
    pub fn cancel(&self) {
        self.grant.fetch_or(TOLD, Ordering::Relaxed);
        // A caller that makes a token now either sees this bit or has its token cancelled below.
        fence(Ordering::SeqCst);
        let given = || self.given.get().map(CancellationToken::cancel);
        let own = || self.own.get().map(|own| own.token.cancel());
        let moved = || self.own.get().map(|own| own.moved.notify_waiters());
        // Our own token last: a task that waits for the loss through it then finds the holder's token cancelled.
        let woken = [
            catch_unwind(AssertUnwindSafe(given)),
            catch_unwind(AssertUnwindSafe(own)),
            catch_unwind(AssertUnwindSafe(moved)),
        ];
        if let Some(panic) = woken.into_iter().find_map(Result::err) {
            resume_unwind(panic);
        }
    }

    /// Returns whether a task may wait for a renewal or an end. Call it after the number was changed.
    pub fn has_waiters(&self) -> bool {
        // A task that begins to wait now and is not seen here sees the new number.
        fence(Ordering::SeqCst);
        self.own.get().is_some()
    }

    /// Wakes the tasks that wait for a renewal or an end.
    ///
    /// # Panics
    /// If a waker of the user panics.
    pub fn wake(&self) {
        if let Some(own) = self.own.get() {
            own.moved.notify_waiters();
        }
    }

    /// Waits until a renewal has moved the deadline past `deadline`, or the holder was cancelled.
    ///
    /// # Errors
    /// The reason of the loss.
    pub async fn moved_past(&self, deadline: Instant) -> Result<Instant, LossReason> {
        let own = self.own();
        loop {
            let moved = own.moved.notified();
            fence(Ordering::SeqCst);
            let current = self.deadline()?;
            if current > deadline {
                return Ok(current);
            }
            moved.await;
        }
    }

    /// Returns whether the holder was cancelled.
    pub fn is_told(&self) -> bool {
        self.grant.load(Ordering::Relaxed) & TOLD != 0
    }

    /// Records the token of the grant, for renewals and logs.
    pub fn note_grant(&self, token: Token) {
        self.grant.fetch_or(token.get(), Ordering::Relaxed);
    }

    /// The token of the grant, which there must have been.
    pub fn token_of_grant(&self) -> Token {
        let token = Token::new(self.grant.load(Ordering::Relaxed) & !TOLD);
        token.expect("it was granted before its token is asked for")
    }

    /// Returns a token that is cancelled on loss. Cancelling it cancels no other token.
    pub fn new_token(&self) -> CancellationToken {
        let mut is_first = false;
        let first = self.given.get_or_init(|| {
            is_first = true;
            CancellationToken::new()
        });
        if is_first {
            self.cancel_if_told(first);
            first.clone()
        } else {
            self.token().child_token()
        }
    }

    /// A token that only a loss cancels.
    pub fn token(&self) -> &CancellationToken {
        let own = self.own();
        self.cancel_if_told(&own.token);
        &own.token
    }

    fn own(&self) -> &Own {
        self.own.get_or_init(Box::default)
    }

    fn cancel_if_told(&self, token: &CancellationToken) {
        fence(Ordering::SeqCst);
        if self.is_told() {
            token.cancel();
        }
    }
}

fn decode(state: u64) -> Result<Instant, LossReason> {
    match LossReason::from_code(state) {
        Some(reason) => Err(reason),
        None => Ok(Instant::from_nanos(state)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(1_000 + nanos)
    }

    #[test]
    fn a_check_at_the_deadline_says_no() {
        let signal = Signal::new(Instant::ZERO);
        signal.extend(at(10)).expect("not lost");
        assert_eq!(signal.check(at(9)), Ok(at(10)));
        assert_eq!(signal.check(at(10)), Err(LossReason::Deadline));
    }

    #[test]
    fn a_late_reply_does_not_revive_what_a_check_found_lost() {
        let signal = Signal::new(Instant::ZERO);
        signal.extend(at(10)).expect("not lost");
        signal.check(at(11)).expect_err("past the deadline");
        assert_eq!(signal.extend(at(99)), Err(LossReason::Deadline));
        assert_eq!(signal.check(at(12)), Err(LossReason::Deadline));
    }

    #[test]
    fn the_first_reason_stands() {
        let signal = Signal::new(Instant::ZERO);
        assert_eq!(signal.lose(LossReason::Evicted), LossReason::Evicted);
        assert_eq!(signal.lose(LossReason::Shutdown), LossReason::Evicted);
    }

    #[test]
    fn a_guard_that_goes_ends_a_lease_as_released_before_its_deadline_only() {
        let ends = [
            (at(9), LossReason::Released),
            (at(10), LossReason::Deadline),
        ];
        for (now, reason) in ends {
            let signal = Signal::new(Instant::ZERO);
            signal.extend(at(10)).expect("not lost");
            assert_eq!(signal.end(now), reason);
            assert_eq!(signal.check(at(0)), Err(reason));
        }
    }

    #[test]
    fn a_loss_and_the_end_of_the_guard_at_once_agree_on_one_reason() {
        for _ in 0..500 {
            let signal = Signal::new(Instant::ZERO);
            signal.extend(at(10)).expect("not lost");
            let (lost, ended) = std::thread::scope(|scope| {
                let losing = scope.spawn(|| signal.lose(LossReason::Evicted));
                let ended = signal.end(at(9));
                (losing.join().expect("it was written"), ended)
            });
            assert_eq!(lost, ended);
            assert_eq!(signal.deadline(), Err(ended));
        }
    }

    #[test]
    fn before_the_grant_it_is_not_held() {
        assert_eq!(
            Signal::new(Instant::ZERO).check(at(0)),
            Err(LossReason::Deadline)
        );
    }

    #[test]
    fn cancelling_one_token_cancels_no_other() {
        let signal = Signal::new(Instant::ZERO);
        let tokens: Vec<_> = (0..3).map(|_| signal.new_token()).collect();
        for cancelled in 0..3 {
            tokens[cancelled].cancel();
            assert!(!signal.token().is_cancelled());
            let others = tokens[cancelled + 1..].iter();
            assert!(others.into_iter().all(|token| !token.is_cancelled()));
        }
    }

    #[test]
    fn a_loss_cancels_the_tokens_asked_for_before_and_after() {
        let signal = Signal::new(Instant::ZERO);
        let before = [signal.new_token(), signal.new_token()];
        signal.lose(LossReason::Refused);
        signal.cancel();
        assert!(before.iter().all(CancellationToken::is_cancelled));
        assert!(signal.new_token().is_cancelled());
        let late = Signal::new(Instant::ZERO);
        late.cancel();
        assert!(late.new_token().is_cancelled() && late.token().is_cancelled());
    }

    #[test]
    fn a_token_made_while_the_holder_is_told_is_cancelled() {
        for _ in 0..500 {
            let signal = Signal::new(Instant::ZERO);
            let (first, second) = std::thread::scope(|scope| {
                let telling = scope.spawn(|| signal.cancel());
                let tokens = (signal.new_token(), signal.new_token());
                telling.join().expect("it was told");
                tokens
            });
            assert!(first.is_cancelled() && second.is_cancelled());
        }
    }
}
