//! The store as its contract has it: rows with holders, tokens and ends on a clock of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold::clock::Instant;
use leasehold::store::{HeldState, Renewal};
use leasehold::{Error, Holder, Name, Token};

use super::planted::Bug;
use super::time::{Drifting, Real};

/// What the store says of one renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Verdict {
    Renewed,
    Refused,
    Evicted,
    Unknown,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) holder: Holder,
    pub(super) token: Token,
    pub(super) ends_at: Instant,
    /// When it was granted.
    pub(super) since: Real,
    pub(super) state: HeldState,
}

/// What an acquire brought.
#[derive(Debug, Clone, Copy)]
pub(super) enum Taken {
    /// A new grant.
    Fresh(Token),
    /// The holder's own, again.
    Again(Token),
    Held(Duration),
}

#[derive(Debug)]
pub(super) struct ModelStore {
    pub(super) clock: Drifting,
    pub(super) rows: BTreeMap<Name, Row>,
    counters: BTreeMap<Name, Token>,
    /// Names whose ids make every script fail.
    pub(super) poisoned: BTreeSet<Name>,
    /// It mints by its own counters and clock alone: where it forgot both, tokens fall.
    pub(super) ignores_floors: bool,
    bug: Option<Bug>,
}

impl ModelStore {
    pub(super) fn new(clock: Drifting, bug: Option<Bug>) -> Self {
        Self {
            clock,
            rows: BTreeMap::new(),
            counters: BTreeMap::new(),
            poisoned: BTreeSet::new(),
            ignores_floors: false,
            bug,
        }
    }

    /// The row that holds the name now, if it has not run out.
    pub(super) fn row(&self, name: &Name, now: Real) -> Option<&Row> {
        let shown = self.clock.at(now);
        self.rows.get(name).filter(|row| row.ends_at > shown)
    }

    /// Whether only this holder can have the name now.
    pub(super) fn is_kept_for(&self, name: &Name, holder: Holder, now: Real) -> bool {
        self.row(name, now).is_some_and(|row| row.holder == holder)
    }

    pub(super) fn acquire(
        &mut self,
        name: &Name,
        holder: Holder,
        ttl: Duration,
        floor: Option<Token>,
        now: Real,
    ) -> Taken {
        let shown = self.clock.at(now);
        if let Some(row) = self.rows.get_mut(name).filter(|row| row.ends_at > shown) {
            if row.holder != holder || row.state != HeldState::Leased {
                return Taken::Held(row.ends_at.since(shown));
            }
            if self.bug != Some(Bug::ReanswerKeepsTheOldEnd) {
                row.ends_at = shown.after(ttl);
            }
            return Taken::Again(row.token);
        }
        let token = self.mint(name, floor, now).expect("tokens are left");
        self.counters.insert(name.clone(), token);
        let row = Row {
            holder,
            token,
            ends_at: shown.after(ttl),
            since: now,
            state: HeldState::Leased,
        };
        self.rows.insert(name.clone(), row);
        Taken::Fresh(token)
    }

    /// The token of a grant that is made now.
    pub(super) fn mint(
        &self,
        name: &Name,
        floor: Option<Token>,
        now: Real,
    ) -> Result<Token, Error> {
        let floor = floor.filter(|_| !self.ignores_floors);
        let last = self.counters.get(name).copied();
        Token::mint(last, floor, self.clock.at(now).as_nanos() / 1_000)
    }

    pub(super) fn renew(&mut self, renewal: &Renewal, now: Real) -> Verdict {
        let shown = self.clock.at(now);
        if self.poisoned.contains(&renewal.name) {
            return Verdict::Unknown;
        }
        let ends_at = shown.after(renewal.ttl);
        let is_blind = self.bug == Some(Bug::RenewalIgnoresTheToken);
        let is_ours =
            |row: &Row| row.holder == renewal.holder && (row.token == renewal.token || is_blind);
        let row = self.rows.get_mut(&renewal.name);
        match row.filter(|row| row.ends_at > shown) {
            None if self.bug == Some(Bug::RenewalCreates) => {
                let row = Row {
                    holder: renewal.holder,
                    token: renewal.token,
                    ends_at,
                    since: now,
                    state: HeldState::Leased,
                };
                self.rows.insert(renewal.name.clone(), row);
                Verdict::Renewed
            }
            Some(row) if is_ours(row) => match row.state {
                HeldState::Leased => {
                    row.ends_at = ends_at;
                    Verdict::Renewed
                }
                HeldState::Evicted => Verdict::Evicted,
                _ => Verdict::Refused,
            },
            _ => Verdict::Refused,
        }
    }

    /// Frees the name, or keeps it taken for that long. Returns whether this holder had it.
    pub(super) fn release(
        &mut self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
        now: Real,
    ) -> bool {
        let shown = self.clock.at(now);
        let row = self.rows.get_mut(name).filter(|row| row.ends_at > shown);
        let row = row.filter(|row| row.holder == holder && row.state != HeldState::Kept);
        match (row, keep_for) {
            (None, _) => false,
            // An evicted holder keeps nothing.
            (Some(row), Some(rest)) if row.state == HeldState::Leased => {
                (row.state, row.ends_at) = (HeldState::Kept, shown.after(rest));
                true
            }
            (Some(_), _) => {
                self.rows.remove(name);
                true
            }
        }
    }

    pub(super) fn mark_evicted(&mut self, name: &Name) {
        if let Some(row) = self.rows.get_mut(name)
            && row.state == HeldState::Leased
        {
            row.state = HeldState::Evicted;
        }
    }

    /// Whether this holder has it, and not only the rest of a hold that it gave up.
    pub(super) fn is_live(&self, name: &Name, holder: Holder, now: Real) -> bool {
        let row = self.row(name, now);
        row.is_some_and(|row| row.holder == holder && row.state != HeldState::Kept)
    }

    /// Everything is gone, the counters too.
    pub(super) fn restart_empty(&mut self) {
        self.rows.clear();
        self.counters.clear();
    }
}
