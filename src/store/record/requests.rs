//! The requests to the storage. They record what each answer showed.

use std::time::Duration;

use super::register::{Expiry, Failure, Put, Register};
use super::rules::{InHand, Next, Revision};
use super::sweep::RETENTION;
use super::{MARK, Records};
use crate::clock;
use crate::store::kit::budget::Budget;
use crate::token::Token;

impl<R: Register> Records<R> {
    /// Runs a request within the rest of the caller's limit.
    pub(super) async fn ask<T>(
        &self,
        budget: Budget,
        request: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        self.open()?;
        let left = budget.left();
        if left.is_zero() {
            // A decision from before a suspend must not be sent after it.
            return Err(Failure::silent().before_it_was_sent());
        }
        let answer = tokio::time::timeout(left, request).await;
        answer.unwrap_or_else(|_| Err(Failure::silent()))
    }

    /// Returns what this client has seen of a record, if it has.
    pub(super) fn in_hand(&self, key: &str) -> Option<InHand> {
        let now = self.clock.now();
        let observed = self.observed.lock();
        let sighting = observed.sighting(key)?;
        let left = sighting.left(self.expiry(), now, observed.time(now));
        Some(InHand { sighting, left })
    }

    /// Returns the record in hand if it is over: a put on its version needs no read. Where the storage ends records,
    /// only one that was freed.
    pub(super) fn free_in_hand(&self, key: &str) -> Option<InHand> {
        self.in_hand(key).filter(|hand| hand.left.is_none())
    }

    /// Reads the record of this key.
    pub(super) async fn read(&self, key: &str, budget: Budget) -> Result<Option<InHand>, Failure> {
        let seen = self.ask(budget, self.register.read(key)).await;
        let seen = seen.map_err(Failure::before_it_was_sent)?;
        self.observed.lock().saw(key, &seen, self.clock.now());
        let hand = self.in_hand(key);
        if hand.as_ref().is_none_or(|hand| hand.left.is_none()) {
            return Ok(hand);
        }
        self.ask_time(budget).await?;
        Ok(self.in_hand(key))
    }

    /// Asks for the storage's time, unless an answer had it a short time ago: this client's own clock bridges that.
    async fn ask_time(&self, budget: Budget) -> Result<(), Failure> {
        if !self.observed.lock().has_time(self.clock.now()) {
            let time = self.ask(budget, self.register.time()).await;
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
        let listed = self.ask(budget, self.register.list(prefix, before)).await;
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

    /// Writes a record. Returns whether that was carried out; otherwise the record had changed.
    pub(super) async fn write(
        &self,
        key: &str,
        revision: Revision,
        budget: Budget,
    ) -> Result<bool, Failure> {
        let Revision {
            on,
            record,
            extends,
        } = revision;
        let lasts = record.ttl() + RETENTION;
        let written = match &on {
            Some(on) if extends => {
                let extended = self.register.extend(key, on, &record, lasts);
                self.ask(budget, extended).await
            }
            on => {
                let lasts = (key != MARK).then_some(lasts);
                let put = self.register.put(key, on.as_ref(), &record, lasts);
                self.ask(budget, put).await
            }
        };
        // After a failure the observation stays: if the put was carried out, the next one on that version meets a
        // conflict.
        let mut observed = self.observed.lock();
        Ok(match written? {
            Put::Done(version) => {
                observed.wrote(key, version, record, self.clock.now());
                true
            }
            Put::Conflict => {
                observed.forget(key);
                false
            }
        })
    }

    /// Decides and writes until a write was carried out or the answer is known. Earlier observations may be outdated,
    /// so only a new read gives the answer.
    pub(super) async fn settle<T>(
        &self,
        key: &str,
        budget: Budget,
        decide: impl Fn(Option<&InHand>) -> Next<T>,
    ) -> Result<Option<T>, Failure> {
        let mut hand = self.in_hand(key);
        let mut is_read = hand.is_none();
        if is_read {
            hand = self.read(key, budget).await?;
        }
        loop {
            match decide(hand.as_ref()) {
                Next::Write(revision) => {
                    if self.write(key, *revision, budget).await? {
                        return Ok(None);
                    }
                }
                Next::Answer(answer) if is_read => return Ok(Some(answer)),
                Next::Answer(_) | Next::ReadMark => {}
            }
            (hand, is_read) = (self.read(key, budget).await?, true);
        }
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
