//! What a client has seen of the records, and since when: the only memory by which a record is taken as run out. Pure:
//! `now` is an argument.

use std::collections::HashMap;
use std::time::Duration;

use super::register::{Expiry, Seen, Version, Versioned};
use super::value::Record;
use crate::term::Instant;

/// Number of names above which names that were not read for an hour are forgotten; a forgotten name that is read again
/// only counts from the start.
const MANY: usize = 1_024;
/// How long this machine's clock may stand in for the storage's when a name is taken: in a day it could gain a good
/// part of the skew.
const TIME_HOLDS: Duration = Duration::from_secs(60);
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60 * 60);

/// The records that a client has seen, and the storage's clock.
#[derive(Debug, Default)]
pub(super) struct Observed {
    records: HashMap<String, Sighting>,
    /// Number of names that starts the next clean-up, if that is more than [`MANY`].
    many: usize,
    /// The time that the storage last reported, and when the answer arrived. The storage's clock has gone on since, so
    /// this is never ahead of it.
    clock: Option<(Instant, Duration)>,
}

/// A record as this client has it in hand.
#[derive(Debug, Clone)]
pub(super) struct Sighting {
    pub(super) record: Versioned,
    /// The arrival of the first answer that showed this version. Its write was carried out before the answer left, and
    /// the holder counts from before that write was sent: so the holder's time is over first.
    since: Instant,
    last: Instant,
}

impl Observed {
    /// Records what a read saw, in an answer that arrived now.
    pub(super) fn saw(&mut self, key: &str, seen: &Seen, now: Instant) {
        if let Some(time) = seen.time {
            self.told_time(time, now);
        }
        match &seen.record {
            Some(record) => self.has(key, record.clone(), now),
            None => self.forget(key),
        }
    }

    /// Records a record that this client wrote, in an answer that arrived now.
    pub(super) fn wrote(&mut self, key: &str, version: Version, record: Record, now: Instant) {
        self.has(key, Versioned::new(version, record, None), now);
    }

    /// Records a record that was in an answer that arrived now.
    pub(super) fn has(&mut self, key: &str, record: Versioned, now: Instant) {
        if let Some(known) = self.records.get_mut(key)
            && known.record.version == record.version
        {
            known.last = now;
            known.record.written_at = record.written_at.or(known.record.written_at);
            return;
        }
        if self.records.len() >= self.many.max(MANY) {
            self.records
                .retain(|_, known| now.since(known.last) < FORGOTTEN_AFTER);
            // A list of many names would search all of them for each.
            self.many = 2 * self.records.len();
        }
        let (since, last) = (now, now);
        let sighting = Sighting {
            record,
            since,
            last,
        };
        self.records.insert(key.to_owned(), sighting);
    }

    /// Forgets a record that may have changed: the next request reads it.
    pub(super) fn forget(&mut self, key: &str) {
        self.records.remove(key);
    }

    pub(super) fn sighting(&self, key: &str) -> Option<Sighting> {
        self.records.get(key).cloned()
    }

    /// Records the storage's time in an answer that arrived now.
    pub(super) fn told_time(&mut self, time: Duration, now: Instant) {
        self.clock = Some((now, time));
    }

    /// Returns whether the storage reported its time a short while ago.
    pub(super) fn has_time(&self, now: Instant) -> bool {
        self.clock
            .is_some_and(|(arrived_at, _)| now.since(arrived_at) < TIME_HOLDS)
    }

    /// Returns the storage's time, which its clock has passed already.
    pub(super) fn time(&self, now: Instant) -> Option<Duration> {
        let (arrived_at, time) = self.clock?;
        Some(time + now.since(arrived_at))
    }
}

impl Sighting {
    /// Returns how long the name is still taken, as far as this client knows; `None` if it is free or has run out.
    /// `time` is the storage's.
    pub(super) fn left(
        &self,
        expiry: Expiry,
        now: Instant,
        time: Option<Duration>,
    ) -> Option<Duration> {
        let Versioned {
            record, written_at, ..
        } = &self.record;
        record.state?;
        let ttl = record.ttl();
        let Expiry::Counted { skew, grain } = expiry else {
            // The storage shows when it is over, and a renewal may have left the version as it was.
            return Some(ttl);
        };
        let left = ttl.saturating_sub(now.since(self.since));
        let by_clock = written_at.zip(time).map(|(written_at, time)| {
            let ends_at = written_at + grain + ttl + skew;
            ends_at.saturating_sub(time)
        });
        let left = by_clock.map_or(left, |by_clock| by_clock.min(left));
        (!left.is_zero()).then_some(left)
    }

    /// Returns whether the record is over, and has been for this long by the storage's clock or, where it shows none,
    /// in this client's sight.
    pub(super) fn is_over_for(
        &self,
        rest: Duration,
        expiry: Expiry,
        now: Instant,
        time: Option<Duration>,
    ) -> bool {
        let Versioned {
            record, written_at, ..
        } = &self.record;
        let taken = record.state.map_or(Duration::ZERO, |_| record.ttl());
        let since_write = written_at
            .zip(time)
            .map(|(at, time)| time.saturating_sub(at));
        let unchanged = since_write.unwrap_or_else(|| now.since(self.since));
        unchanged >= taken + expiry.grace() + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::HeldState;

    const TTL: Duration = Duration::from_secs(30);
    const SKEW: Duration = Duration::from_secs(10);
    const SECOND: Duration = Duration::from_secs(1);
    const COUNTED: Expiry = Expiry::Counted {
        skew: SKEW,
        grain: SECOND,
    };

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn leased(version: &str, written_at: Option<u64>) -> Versioned {
        let mut record = Record::free(None);
        record.state = Some(HeldState::Leased);
        record.ttl_ms = 30_000;
        Versioned::new(version.into(), record, written_at.map(Duration::from_secs))
    }

    fn left(observed: &Observed, now: u64) -> Option<Duration> {
        let now = at(now);
        let sighting = observed.sighting("a").expect("it was seen");
        sighting.left(COUNTED, now, observed.time(now))
    }

    #[test]
    fn a_record_is_over_once_its_version_was_in_hand_for_its_ttl() {
        let mut observed = Observed::default();
        observed.has("a", leased("1", None), at(100));
        observed.has("a", leased("1", None), at(110));
        assert_eq!(left(&observed, 129), Some(SECOND));
        assert_eq!(left(&observed, 130), None);
        observed.has("a", leased("2", None), at(129));
        assert_eq!(left(&observed, 130), Some(TTL - SECOND));
    }

    #[test]
    fn a_record_that_was_never_seen_is_over_by_the_storages_clock_and_its_skew() {
        let mut observed = Observed::default();
        let seen = |time| {
            Seen::new(
                Some(leased("1", Some(1_000))),
                Some(Duration::from_secs(time)),
            )
        };
        observed.saw("a", &seen(1_040), at(5));
        assert_eq!(left(&observed, 5), Some(SECOND), "a grain more");
        assert_eq!(left(&observed, 6), None, "the clock has gone on");
        observed.saw("a", &seen(1_000), at(6));
        assert_eq!(left(&observed, 6), Some(TTL - SECOND), "by the count since");
    }

    #[test]
    fn a_record_that_the_storage_ends_counts_for_its_ttl_until_it_is_shown_as_over() {
        let by_storage = Expiry::ByStorage { late_by: SECOND };
        let mut observed = Observed::default();
        observed.has("a", leased("1", None), at(0));
        let sighting = observed.sighting("a").expect("it was seen");
        // An operator who evicts it leaves at least what the holder has.
        assert_eq!(sighting.left(by_storage, at(40), None), Some(TTL));
    }

    #[test]
    fn what_was_not_read_for_an_hour_is_forgotten_in_a_crowd() {
        let mut observed = Observed::default();
        for index in 0..MANY {
            observed.has(&index.to_string(), leased("1", None), at(0));
        }
        observed.has("kept", leased("1", None), at(3_600));
        assert_eq!(observed.records.len(), 1);
    }
}
