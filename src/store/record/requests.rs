//! What asks the storage, and notes what each answer showed.

use std::time::Duration;

use super::register::{Expiry, Failure, Put, Register, Version};
use super::rules::InHand;
use super::sweep::RETENTION;
use super::value::Record;
use super::{MARK, Records};
use crate::clock;
use crate::store::kit::budget::Budget;
use crate::token::Token;

/// Gives a request what is left of the caller's limit.
pub(super) async fn within<T>(
    budget: Budget,
    request: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let left = budget.left();
    if left.is_zero() {
        // What was decided before a suspend must not be sent after it.
        return Err(Failure::silent().before_it_was_sent());
    }
    let answer = tokio::time::timeout(left, request).await;
    answer.unwrap_or_else(|_| Err(Failure::silent()))
}

impl<R: Register> Records<R> {
    /// Returns what this client has seen of a record, if it has.
    pub(super) fn in_hand(&self, key: &str) -> Option<InHand> {
        let now = self.clock.now();
        let observed = self.observed.lock();
        let sighting = observed.sighting(key)?;
        let left = sighting.left(self.expiry(), now, observed.time(now));
        Some(InHand { sighting, left })
    }

    /// Returns the record in hand if it is over: a put on its version needs no look. Where the storage ends records, only
    /// one that was freed.
    pub(super) fn free_in_hand(&self, key: &str) -> Option<InHand> {
        self.in_hand(key).filter(|hand| hand.left.is_none())
    }

    /// Reads the record of this key.
    pub(super) async fn read(&self, key: &str, budget: Budget) -> Result<Option<InHand>, Failure> {
        self.open()?;
        let seen = within(budget, self.register.read(key)).await;
        let seen = seen.map_err(Failure::before_it_was_sent)?;
        self.observed.lock().saw(key, &seen, self.clock.now());
        let hand = self.in_hand(key);
        if hand.as_ref().is_none_or(|hand| hand.left.is_none()) {
            return Ok(hand);
        }
        self.ask_time(budget).await?;
        Ok(self.in_hand(key))
    }

    /// Asks for the storage's time, unless an answer has told it a short time ago: this client's own clock carries it on
    /// that far.
    async fn ask_time(&self, budget: Budget) -> Result<(), Failure> {
        if !self.observed.lock().has_time(self.clock.now()) {
            let time = within(budget, self.register.time()).await;
            if let Some(time) = time.map_err(Failure::before_it_was_sent)? {
                self.observed.lock().told_time(time, self.clock.now());
            }
        }
        Ok(())
    }

    /// Reads all records with this prefix, or those that were written no later than `before`.
    pub(super) async fn list(
        &self,
        prefix: &str,
        before: Option<Duration>,
        budget: Budget,
    ) -> Result<Vec<(String, InHand)>, Failure> {
        self.open()?;
        let listed = within(budget, self.register.list(prefix, before)).await;
        let listed = listed.map_err(Failure::before_it_was_sent)?;
        let now = self.clock.now();
        for (key, record) in &listed {
            self.observed.lock().has(key, record.clone(), now);
        }
        if !listed.is_empty() {
            self.ask_time(budget).await?;
        }
        let in_hand = |(key, _): (String, _)| Some((key.clone(), self.in_hand(&key)?));
        Ok(listed.into_iter().filter_map(in_hand).collect())
    }

    /// Puts a record. Returns it if that was carried out, and `None` after a conflict.
    pub(super) async fn put(
        &self,
        key: &str,
        on: Option<Version>,
        record: Record,
        budget: Budget,
    ) -> Result<Option<Record>, Failure> {
        self.open()?;
        let lasts = (key != MARK).then(|| record.ttl() + RETENTION);
        let put = self.register.put(key, on.as_ref(), &record, lasts);
        let put = within(budget, put).await;
        self.note(key, record, put)
    }

    /// Begins the ttl of a record anew. Returns it if that was carried out, and `None` after a conflict.
    pub(super) async fn extend(
        &self,
        key: &str,
        on: Version,
        record: Record,
        budget: Budget,
    ) -> Result<Option<Record>, Failure> {
        self.open()?;
        let lasts = record.ttl() + RETENTION;
        let extended = self.register.extend(key, &on, &record, lasts);
        let extended = within(budget, extended).await;
        self.note(key, record, extended)
    }

    fn note(
        &self,
        key: &str,
        record: Record,
        put: Result<Put, Failure>,
    ) -> Result<Option<Record>, Failure> {
        // After a failure what was seen stays: if the put was carried out, the next one on that version meets a conflict.
        let put = put?;
        let mut observed = self.observed.lock();
        Ok(match put {
            Put::Done(version) => {
                observed.wrote(key, version, record.clone(), self.clock.now());
                Some(record)
            }
            Put::Conflict => {
                observed.forget(key);
                None
            }
        })
    }

    /// Returns the highest token of the records that were removed.
    pub(super) async fn mark(&self, budget: Budget) -> Result<Option<Token>, Failure> {
        let mark = self.read(MARK, budget).await?;
        Ok(mark.and_then(|mark| mark.record().token))
    }

    pub(super) fn expiry(&self) -> Expiry {
        self.register.traits().expiry
    }

    /// Returns the time that lifts a token: the storage's, or this machine's where the storage has told none.
    pub(super) fn token_time_us(&self) -> u64 {
        let time = self.observed.lock().time(self.clock.now());
        time.map_or_else(clock::wall_clock_us, |time| {
            u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
        })
    }
}
