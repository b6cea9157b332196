//! Decides what to remember of a grant, and how long a claim pauses after a conflict of claims.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::holder::Holder;
use crate::term::Instant;
use crate::token::Token;

/// The next sweep runs after this many new holders, so that a sweep costs little for each claim.
const SWEEP_AT_LEAST: usize = 64;

/// Remembers each holder's grant. When the holder asks again, its lease is renewed, and a higher token is proposed only
/// if that is refused.
#[derive(Debug, Default)]
pub struct GrantMemory {
    of: HashMap<Holder, NotedGrant>,
    sweep_at: usize,
}

/// The last grant of a holder.
#[derive(Debug, Clone)]
pub struct NotedGrant {
    /// The token.
    pub token: Token,
    /// The facts about the holder as JSON, for a member that takes the lease late.
    pub info: Option<Arc<str>>,
    /// When the lease has ended unless it is renewed.
    pub forget_at: Instant,
}

impl GrantMemory {
    /// Returns the last grant of this holder.
    pub fn of(&self, holder: Holder) -> Option<&NotedGrant> {
        self.of.get(&holder)
    }

    /// Records a grant.
    pub fn note(&mut self, holder: Holder, granted: NotedGrant, now: Instant) {
        if self.of.len() >= self.sweep_at {
            self.of.retain(|_, granted| now < granted.forget_at);
            self.sweep_at = 2 * self.of.len() + SWEEP_AT_LEAST;
        }
        self.of.insert(holder, granted);
    }

    /// Records that the holder still has its lease.
    pub fn extend(&mut self, holder: Holder, forget_at: Instant) {
        if let Some(granted) = self.of.get_mut(&holder) {
            granted.forget_at = granted.forget_at.max(forget_at);
        }
    }

    /// Forgets a holder that has lost its lease.
    pub fn forget(&mut self, holder: Holder) {
        self.of.remove(&holder);
    }
}

/// The clock of the members as one client saw it.
#[derive(Debug, Clone, Copy)]
pub struct MembersClock {
    us: u64,
    read_at: Instant,
}

impl MembersClock {
    /// Takes the middle one of these clocks, so that it takes a majority of wrong ones to move it.
    pub fn read(mut clocks: Vec<u64>, read_at: Instant) -> Option<Self> {
        clocks.sort_unstable();
        let us = *clocks.get(clocks.len() / 2)?;
        Some(Self { us, read_at })
    }

    /// Returns the client's own clock, but no more than a day past that of the members: a client whose clock is years
    /// ahead would lift the tokens of all names for good.
    pub fn bound(self, clock_us: u64, now: Instant) -> u64 {
        let since = now.since(self.read_at) + Token::FLOOR_AHEAD;
        let since = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        clock_us.min(self.us.saturating_add(since))
    }
}

/// The pauses of a claim that meets competing claims.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rivalry {
    splits: u32,
}

impl Rivalry {
    /// The longest pause.
    const LONGEST: Duration = Duration::from_millis(100);

    /// Returns the pause after one more split vote: a random part (`random` is from 0 to 1) of one round trip for each
    /// rival, doubled with each split in a row.
    pub fn pause(&mut self, rivals: usize, round_trip: Duration, random: f64) -> Duration {
        let rivals = u32::try_from(rivals).unwrap_or(u32::MAX).saturating_add(1);
        let window = round_trip
            .saturating_mul(rivals)
            .saturating_mul(1 << self.splits.min(6));
        self.splits += 1;
        window.min(Self::LONGEST).mul_f64(random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_years_ahead_counts_for_a_day_past_most_members() {
        let (day, year) = (86_400_000_000, 365 * 86_400_000_000);
        let read_at = Instant::from_nanos(5);
        let clock = MembersClock::read(vec![year, 20, 10], read_at).expect("three clocks");
        let later = read_at.after(Duration::from_micros(7));
        assert_eq!(clock.bound(year, later), 20 + 7 + day);
        assert_eq!(clock.bound(day, later), day);
        assert_eq!(clock.bound(3, later), 3);
        assert!(MembersClock::read(Vec::new(), read_at).is_none());
    }

    #[test]
    fn pauses_grow_with_the_rivals_and_the_splits_up_to_a_limit() {
        let round_trip = Duration::from_millis(1);
        let mut rivalry = Rivalry::default();
        assert_eq!(rivalry.pause(1, round_trip, 1.0), Duration::from_millis(2));
        assert_eq!(rivalry.pause(2, round_trip, 1.0), Duration::from_millis(6));
        let pauses = (0..40).map(|_| rivalry.pause(2, round_trip, 0.5));
        assert_eq!(pauses.max(), Some(Rivalry::LONGEST / 2));
    }
}
