//! What is decided: plain functions of a record and of what the one who asks knows of it.

use super::setup::{Kind, Setup, Wrong};
use super::world::{Holder, NOBODY, Read, Record, State};

/// What a claim does about a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claiming {
    /// Writes this.
    Put(Record),
    /// Somebody else has it.
    Wait,
}

/// What a release does about a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Releasing {
    /// Writes this: that it is free or kept, or what makes a doubtful put fail for good.
    Put(Record),
    /// It is not its own, and cannot become its own.
    NotHeld,
}

impl Setup {
    /// What a claim of this holder does, who has had this version in hand for that long.
    pub(super) fn claim(
        &self,
        holder: Holder,
        ttl: u8,
        floor: u8,
        read: &Read,
        observed: u8,
    ) -> Claiming {
        let record = read.record;
        let is_own = record.holder == holder;
        let leased = |token| Record {
            state: State::Leased,
            holder,
            token,
            ttl,
        };
        let is_evicted = record.state == State::Evicted && !self.has(Wrong::ReclaimsEvicted);
        let is_over = self.is_over(read, observed);
        let mints = match self.wrong {
            Some(Wrong::AgainMints) => true,
            Some(Wrong::AgainMintsOver) => is_over,
            _ => false,
        };
        if is_own && !is_evicted && !mints {
            return Claiming::Put(leased(record.token));
        }
        if !is_over && (!is_own || is_evicted) {
            return Claiming::Wait;
        }
        let last = match self.has(Wrong::SameToken) {
            true => record.token.saturating_sub(1),
            false => record.token,
        };
        Claiming::Put(leased(last.max(floor) + 1))
    }

    /// Whether this record has no holder any more.
    pub(super) fn is_over(&self, read: &Read, observed: u8) -> bool {
        let record = read.record;
        let kind = self.kind;
        let observes = kind != Kind::Ending || self.has(Wrong::ObservesEnding);
        let skew = self.skew() as i8;
        let dates = matches!(kind, Kind::Dated { .. }) && !self.has(Wrong::FirstRuleOnly);
        match record.state {
            State::Free => true,
            State::Kept if !self.keeps_by_stamp => {
                let knows_end = dates && !self.has(Wrong::KeepIsLength);
                let allowed = if self.has(Wrong::KeepUnskewed) {
                    0
                } else {
                    skew
                };
                let has_ended = knows_end && read.ends_in + allowed <= 0;
                has_ended || observes && observed >= record.ttl
            }
            State::Leased | State::Evicted | State::Kept => {
                let is_old = dates && read.age >= record.ttl as i8 + skew;
                is_old || observes && observed >= record.ttl
            }
        }
    }

    /// What the renewal of this lease writes, unless it is lost.
    pub(super) fn renewal(&self, holder: Holder, token: u8, record: Record) -> Option<Record> {
        let is_own = (record.holder, record.token) == (holder, token);
        let ttl = match self.has(Wrong::RenewsShorter) {
            true => 1,
            false => record.ttl,
        };
        let is_leased = record.state == State::Leased || self.has(Wrong::RenewsEvicted);
        (is_own && is_leased).then_some(Record {
            state: State::Leased,
            ttl,
            ..record
        })
    }

    /// What the release of this holder does, with a doubtful put or without.
    pub(super) fn release(
        &self,
        holder: Holder,
        keeps: bool,
        read: &Read,
        has_doubt: bool,
    ) -> Releasing {
        let record = read.record;
        let free = Record {
            state: State::Free,
            holder: NOBODY,
            ttl: 0,
            ..record
        };
        if record.holder == holder {
            if self.has(Wrong::ReleaseLeavesOver) && self.is_over(read, 0) {
                return Releasing::NotHeld;
            }
            let is_kept = keeps && record.state == State::Leased;
            return Releasing::Put(match is_kept {
                true => Record {
                    state: State::Kept,
                    ttl: self.keep,
                    ..free
                },
                false => free,
            });
        }
        let may_come = match self.wrong {
            Some(Wrong::ReleaseUnpoisoned | Wrong::ReleaseInDoubt) => false,
            Some(Wrong::PoisonsAnyVersion) => has_doubt,
            _ => read.is_doubts,
        };
        match may_come {
            true => Releasing::Put(free),
            false => Releasing::NotHeld,
        }
    }

    /// What is left of the deadline of a lease, this long after the put was sent.
    pub(super) fn deadline(&self, ttl: u8, age: u8) -> u8 {
        let margin = if self.has(Wrong::WithoutMargin) { 0 } else { 1 };
        let age = match self.has(Wrong::DeadlineFromReply) {
            true => 0,
            false => age,
        };
        ttl.saturating_sub(margin + age)
    }
}
