//! Derives from the requests of a history who could believe in which lease, and until when.
//!
//! The deadline is computed here from the requests alone, as DESIGN and README promise it: `sent + ttl - margin` of the last
//! request that was confirmed before the deadline then in force. What the leases themselves said is held against it.

use std::collections::BTreeMap;

use super::{Broken, Rule};
use crate::history::{Event, Operation, Phase};
use crate::idle::is_idle;

/// The grant of a name to one holder.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    pub(crate) process: String,
    pub(crate) name: String,
    pub(crate) holder: String,
    pub(crate) token: u64,
    /// When the first request of this holder was sent.
    pub(crate) claimed_us: u64,
    /// When the request was sent that was answered with the grant: the store may have granted it from then on.
    pub(crate) asked_us: u64,
    /// When the grant was answered.
    pub(crate) answered_us: u64,
    /// When its caller had the lease, if it ever did.
    pub(crate) believed_us: Option<u64>,
    /// The deadline by its last confirmed request.
    pub(crate) deadline_us: u64,
    /// When its holder was told of the loss.
    pub(crate) told_us: Option<u64>,
    /// When its holder began to release it, or was killed.
    pub(crate) given_up_us: Option<u64>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    pub(crate) all: Vec<Hold>,
    /// What a lease said past its deadline.
    pub(crate) late_yes: Vec<Broken>,
    by_holder: BTreeMap<(String, u64), usize>,
    first_claims: BTreeMap<String, u64>,
}

/// The margin that a lease of this length has by default.
const fn margin_us(ttl_us: u64) -> u64 {
    ttl_us / 50 + 20_000
}

impl Hold {
    /// Until when its holder can have believed in it.
    pub(crate) fn end_us(&self) -> u64 {
        let ends = [self.told_us, self.given_up_us].into_iter().flatten();
        ends.fold(self.deadline_us, u64::min)
    }
}

impl Holds {
    /// Reads them from a history.
    pub(crate) fn of(events: &[Event]) -> Self {
        let mut holds = Self::default();
        let mut sent: BTreeMap<(&str, Operation, u64), &Event> = BTreeMap::new();
        for event in events {
            let key = (event.process.as_str(), event.operation, event.call);
            match (event.operation, event.phase) {
                (Operation::Claim | Operation::Renew, Phase::Invoke) => {
                    holds.note_sent(event);
                    sent.insert(key, event);
                }
                (Operation::Claim | Operation::Renew, Phase::Answer) => {
                    if let Some(request) = sent.remove(&key) {
                        holds.note_confirmed(request, event);
                    }
                }
                _ => holds.note(event),
            }
        }
        holds
    }

    /// Those whose caller had the lease.
    pub(crate) fn believed(&self) -> impl Iterator<Item = &Hold> {
        self.all.iter().filter(|hold| hold.believed_us.is_some())
    }

    /// Those of names that several want.
    pub(crate) fn contended(&self) -> impl Iterator<Item = &Hold> {
        self.believed().filter(|hold| !is_idle(&hold.name))
    }

    fn note_sent(&mut self, request: &Event) {
        if let (Operation::Claim, Some(holder)) = (request.operation, &request.facts.holder) {
            self.first_claims
                .entry(holder.clone())
                .or_insert(request.at_us);
        }
    }

    fn note_confirmed(&mut self, request: &Event, answer: &Event) {
        let ttl_us = request.facts.ttl_us.expect("a request has a ttl");
        let deadline_us = request.at_us + ttl_us - margin_us(ttl_us);
        let holder = request.facts.holder.clone().expect("a request has one");
        let token = answer.facts.token.expect("a grant has a token");
        let key = (holder.clone(), token);
        if let Some(index) = self.by_holder.get(&key) {
            let hold = &mut self.all[*index];
            // A late reply revives nothing. A claim that was answered too late to be of use is asked again before its caller has
            // the lease, and counts from its own moment.
            let is_asked_again =
                request.operation == Operation::Claim && hold.believed_us.is_none();
            if is_asked_again || answer.at_us <= hold.deadline_us {
                hold.deadline_us = hold.deadline_us.max(deadline_us);
            }
            return;
        }
        if request.operation == Operation::Renew {
            return;
        }
        self.by_holder.insert(key, self.all.len());
        self.all.push(Hold {
            process: answer.process.clone(),
            name: request.facts.name.clone(),
            claimed_us: self.first_claims[&holder],
            holder,
            token,
            asked_us: request.at_us,
            answered_us: answer.at_us,
            believed_us: None,
            deadline_us,
            told_us: None,
            given_up_us: None,
        });
    }

    fn note(&mut self, event: &Event) {
        if event.operation == Operation::Death {
            let dead = self.all.iter_mut();
            for hold in dead.filter(|hold| hold.process == event.process) {
                hold.given_up_us.get_or_insert(event.at_us);
            }
            return;
        }
        let facts = &event.facts;
        let (Some(holder), Some(token)) = (&facts.holder, facts.token) else {
            return;
        };
        let Some(index) = self.by_holder.get(&(holder.clone(), token)) else {
            return;
        };
        let hold = &mut self.all[*index];
        match (event.operation, event.phase) {
            (Operation::Acquire, Phase::Answer) => hold.believed_us = Some(event.at_us),
            (Operation::Told, _) => {
                hold.told_us.get_or_insert(event.at_us);
            }
            (Operation::Release, Phase::Invoke) => {
                hold.given_up_us.get_or_insert(event.at_us);
            }
            (Operation::Check, Phase::Answer) if event.at_us > hold.deadline_us => {
                let late = event.at_us - hold.deadline_us;
                let what = format!(
                    "{} said yes for {} with token {token} at {}, {late} us past its deadline",
                    event.process, hold.name, event.at_us
                );
                let rule = Rule::NoLateYes;
                self.late_yes.push(Broken { rule, what });
            }
            _ => {}
        }
    }
}
