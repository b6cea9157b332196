//! A lease as the last look found it, and whether it is late in its renewal. Pure: `now` is an argument.

use std::time::{Duration, SystemTime};

use leasehold::clock::Instant;
use leasehold::store::Held;
use leasehold::{Name, Token};

use crate::row::{Row, Tone};

/// One lease of a store that is looked at again and again.
#[derive(Debug, Clone)]
pub struct Seen {
    pub held: Held,
    seen_at: Instant,
    /// The most time that was left of this grant, which is about its ttl.
    most: Duration,
    /// The token in the last list, for the rate of grants: a look in between may show a later one.
    pub listed_token: Option<Token>,
    /// It was free when it was last looked at; the next list leaves it out.
    pub is_free: bool,
}

impl Seen {
    pub fn new(held: Held, seen_at: Instant) -> Self {
        Self {
            most: held.remaining.unwrap_or_default(),
            listed_token: held.token,
            held,
            seen_at,
            is_free: false,
        }
    }

    /// Takes a look at this lease alone.
    pub fn look(&mut self, held: Option<Held>, now: Instant) {
        self.is_free = held.is_none();
        if let Some(held) = held {
            let listed_token = self.listed_token;
            *self = Self::new(held, now).after(self);
            self.listed_token = listed_token;
        }
    }

    /// The same look, which knows the ttl of an earlier look at the same grant.
    pub fn after(mut self, earlier: &Self) -> Self {
        if self.held.token == earlier.held.token {
            self.most = self.most.max(earlier.most);
        }
        self
    }

    /// The time left unless it is renewed. `None` if the store knows no end.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        let left = self.held.remaining?;
        Some(left.saturating_sub(now.since(self.seen_at)))
    }

    /// True if it was not renewed for half of its ttl: renewals come after a third.
    pub fn is_late(&self, now: Instant) -> bool {
        let left = self.left(now);
        left.is_some_and(|left| left < self.most / 2)
    }

    /// The instant at which it ends, for the order of leases that were seen at different times.
    pub fn ends_at(&self) -> Option<Instant> {
        self.held.remaining.map(|left| self.seen_at.after(left))
    }

    /// The lease as it is now.
    pub fn row(&self, now: Instant, wall_clock: SystemTime) -> Row {
        let mut row = Row::new(&self.held, wall_clock);
        row.left = self.left(now);
        match row.tone {
            _ if self.is_free => row.with_state("free", Tone::Faint),
            Tone::Plain if self.is_late(now) => row.with_state("late", Tone::Late),
            _ => row,
        }
    }
}

/// Takes a list in name order, with what an earlier one knows of the same leases.
pub fn listed(leases: Vec<Held>, earlier: &[Seen], now: Instant) -> Vec<Seen> {
    let seen = leases.into_iter().map(|held| {
        let seen = Seen::new(held, now);
        match find(earlier, &seen.held.name) {
            Some(place) => seen.after(&earlier[place]),
            None => seen,
        }
    });
    seen.collect()
}

/// Finds a name in a list in name order.
pub fn find(seen: &[Seen], name: &Name) -> Option<usize> {
    seen.binary_search_by(|seen| seen.held.name.cmp(name)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later(seconds: u64) -> Instant {
        Instant::from_nanos((3_600 + seconds) * 1_000_000_000)
    }

    fn held(token: u64, left: u64) -> Held {
        let mut held = Held::new(Name::new("a").expect("valid"));
        held.token = Token::new(token).ok();
        held.remaining = Some(Duration::from_secs(left));
        held
    }

    #[test]
    fn a_lease_that_was_not_renewed_for_half_of_its_ttl_is_late() {
        let first = listed(vec![held(1, 30)], &[], later(0));
        assert!(!first[0].is_late(later(15)) && first[0].is_late(later(16)));
        let row = first[0].row(later(16), SystemTime::UNIX_EPOCH);
        assert_eq!((&*row.state, row.tone.sign()), ("late", "!"));
        // The next list knows what the looks before have seen, but only of the same grant.
        let second = listed(vec![held(1, 12)], &first, later(18));
        assert!(second[0].is_late(later(18)));
        let third = listed(vec![held(2, 12)], &second, later(19));
        assert!(!third[0].is_late(later(19)));
    }

    #[test]
    fn a_short_lease_that_is_renewed_in_time_is_not_late() {
        let seen = Seen::new(held(1, 2), later(0));
        let row = seen.row(later(0), SystemTime::UNIX_EPOCH);
        assert_eq!(row.state, "held");
    }
}
