//! What becomes of a record: the decisions, without any I/O. Each is a put on the version that was read, or an answer
//! without one.

use std::time::Duration;

use super::observed::Sighting;
use super::register::Version;
use super::value::{Record, millis};
use crate::error::Error;
use crate::holder::Holder;
use crate::name::Name;
use crate::store::{Ask, Claim, Eviction, Held, HeldState, Info, Outcome, Release, Renewal};
use crate::token::Token;

/// A record in hand: what was seen, and for how long the name is still taken. `None`: there is no record.
#[derive(Debug)]
pub(super) struct InHand {
    pub(super) sighting: Sighting,
    pub(super) left: Option<Duration>,
}

/// The record to write, on the version that was seen, or where there was none.
#[derive(Debug)]
pub(super) struct Revision {
    pub(super) on: Option<Version>,
    pub(super) record: Record,
    /// Whether its ttl begins anew, and all else of it stays as it is.
    pub(super) extends: bool,
}

/// The next step of a client.
#[derive(Debug)]
pub(super) enum Next<T> {
    Write(Box<Revision>),
    /// No change is needed.
    Answer(T),
    /// Read the mark first: the next token must exceed it.
    ReadMark,
}

impl Revision {
    pub(super) const fn on(on: Option<Version>, record: Record) -> Self {
        Self {
            on,
            record,
            extends: false,
        }
    }

    fn next<T>(self) -> Next<T> {
        Next::Write(Box::new(self))
    }
}

impl InHand {
    pub(super) fn record(&self) -> &Record {
        &self.sighting.record.record
    }

    /// Returns a revision on the version in hand.
    fn to(&self, record: Record) -> Revision {
        Revision::on(Some(self.sighting.record.version.clone()), record)
    }

    /// Returns the record as the next put writes it.
    fn next(&self) -> Record {
        let mut record = self.record().clone();
        record.beat += 1;
        record
    }

    /// Begins the ttl of the record anew. It is never made shorter: with a lost reply the holder would count on the
    /// longer one.
    fn extended<T>(&self, ttl: Duration) -> Next<T> {
        let mut record = self.next();
        record.ttl_ms = record.ttl_ms.max(millis(ttl));
        let extends = true;
        Next::Write(Box::new(Revision {
            extends,
            ..self.to(record)
        }))
    }

    fn is_taken_by(&self, holder: Holder) -> bool {
        self.left.is_some() && self.record().by == Some(holder)
    }

    /// Returns what other clients see of the name, if it is taken.
    pub(super) fn held(&self, name: &Name) -> Option<Held> {
        let left = self.left?;
        let record = self.record();
        Some(Held {
            by: record.by,
            token: record.token,
            info: record.info.clone(),
            since: (record.since_us > 0)
                .then(|| std::time::UNIX_EPOCH + Duration::from_micros(record.since_us)),
            // A storage that ends records itself may be late.
            remaining: (!left.is_zero()).then_some(left),
            state: record.state.unwrap_or_default(),
            ..Held::new(name.clone())
        })
    }
}

/// Decides about a claim. `now_us` is the time that lifts the token.
pub(super) fn claim(
    hand: Option<&InHand>,
    claim: &Claim,
    ask: Ask,
    mark: Option<Option<Token>>,
    now_us: u64,
) -> Result<Next<Box<Held>>, Error> {
    if let Some(hand) = hand
        && let Some(held) = hand.held(&claim.name)
    {
        if hand.is_taken_by(claim.holder) && held.state == HeldState::Leased {
            return Ok(hand.extended(claim.ttl));
        }
        return Ok(Next::Answer(Box::new(held)));
    }
    let last = hand.and_then(|hand| hand.record().token);
    let last = match (last, mark) {
        (Some(last), _) => Some(last),
        (None, Some(mark)) => mark,
        (None, None) => return Ok(Next::ReadMark),
    };
    let token = Token::mint(last, ask.floor, now_us)?;
    let mut record = hand.map_or_else(|| Record::free(None), InHand::next);
    // So that a record which is made anew is never like an earlier one of its name.
    record.beat = record.beat.max(token.get());
    record.token = Some(token);
    record.by = Some(claim.holder);
    record.state = Some(HeldState::Leased);
    record.ttl_ms = millis(claim.ttl);
    record.since_us = now_us;
    record.info = Info::clone(&claim.info);
    let revision = match hand {
        Some(hand) => hand.to(record),
        None => Revision::on(None, record),
    };
    Ok(revision.next())
}

/// Decides about a renewal. The answer is that it is denied.
pub(super) fn renewal(hand: Option<&InHand>, renewal: &Renewal) -> Next<Outcome> {
    let its = hand.filter(|hand| {
        hand.is_taken_by(renewal.holder) && hand.record().token == Some(renewal.token)
    });
    match its.map(|hand| (hand, hand.record().state)) {
        Some((hand, Some(HeldState::Leased))) => hand.extended(renewal.ttl),
        Some((_, Some(HeldState::Evicted))) => Next::Answer(Outcome::Evicted),
        _ => Next::Answer(Outcome::Refused),
    }
}

/// Decides about a release. The answer is that the holder does not have the name.
pub(super) fn release(
    hand: Option<&InHand>,
    holder: Holder,
    keep_for: Option<Duration>,
) -> Next<Release> {
    // Also if it has run out: its version shows that no client had it since, and a renewal still on its way would begin
    // its ttl anew after the release was answered.
    let its = hand.filter(|hand| hand.record().by == Some(holder));
    let is_held = |hand: &&InHand| {
        let state = hand.record().state;
        matches!(state, Some(HeldState::Leased | HeldState::Evicted))
    };
    let Some(hand) = its.filter(is_held) else {
        return Next::Answer(Release::NotHeld);
    };
    // An evicted holder keeps nothing.
    let keep_for = keep_for.filter(|_| hand.record().state == Some(HeldState::Leased));
    let mut record = hand.next();
    record.state = keep_for.map(|_| HeldState::Kept);
    record.ttl_ms = keep_for.map_or(0, millis);
    hand.to(record).next()
}

/// Decides about an eviction. The answer is whether there was a holder to evict.
pub(super) fn eviction(hand: Option<&InHand>, how: Eviction) -> Next<bool> {
    let Some((hand, left)) = hand.and_then(|hand| Some((hand, hand.left?))) else {
        return Next::Answer(false);
    };
    let mut record = hand.next();
    match (how, record.state) {
        (Eviction::Now, _) => {
            record.state = None;
            record.ttl_ms = 0;
        }
        (Eviction::Marked, Some(HeldState::Leased)) => {
            // The rest as this client knows it, so never less than the holder's own.
            record.state = Some(HeldState::Evicted);
            record.ttl_ms = millis(left);
        }
        (Eviction::Marked, state) => return Next::Answer(state == Some(HeldState::Evicted)),
    }
    hand.to(record).next()
}

/// Decides about the mark, which is to have this token at least. The answer is that it has.
pub(super) fn raised_mark(mark: Option<&InHand>, token: Token) -> Next<()> {
    let Some(mark) = mark else {
        return Revision::on(None, Record::free(Some(token))).next();
    };
    if mark.record().token >= Some(token) {
        return Next::Answer(());
    }
    let mut record = mark.next();
    record.token = Some(token);
    mark.to(record).next()
}

/// Empties an old record of what the mark has, where the storage cannot remove it.
pub(super) fn emptied(old: &InHand) -> Revision {
    let mut record = Record::free(None);
    record.beat = old.next().beat;
    old.to(record)
}
