//! A storage with a compare-and-set in the memory of this process, whose clock and faults a test sets.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, UNIX_EPOCH};

use leasehold::ErrorKind;
use leasehold::clock::{Instant, wall_clock};
use leasehold::store::record::{
    Expiry, Failure, Put, Record, Register, Seen, Traits, Version, Versioned,
};
use leasehold::store::spi::{Notices, Purpose, Sent};
use leasehold::store::{Hazard, Member, MemberState};

use super::wait::now;

/// How late a lease can end for a client that did not see it.
pub const SKEW: Duration = Duration::from_millis(300);

/// The records, shared by all that were cloned from one.
#[derive(Debug, Clone)]
pub struct MemoryRegister {
    records: Arc<Mutex<BTreeMap<String, Versioned>>>,
    traits: Traits,
    /// When the machine's clock was at its origin: the storage's clock is behind that of the wall by some seconds.
    began_at: Duration,
    /// The time by which the storage's clock is ahead of the machine's.
    ahead_ms: Arc<AtomicU64>,
    last_version: Arc<AtomicU64>,
    /// Number of the next puts that are carried out and whose answers are lost.
    pub lost_answers: Arc<AtomicUsize>,
    /// Number of the next puts that are lost before they arrive.
    pub lost_requests: Arc<AtomicUsize>,
    /// Whether each answer has the storage's time, or only the answer to a request for it.
    pub tells_time: bool,
    /// Number of requests, by kind.
    pub reads: Arc<AtomicUsize>,
    pub puts: Arc<AtomicUsize>,
    pub times: Arc<AtomicUsize>,
}

impl MemoryRegister {
    pub fn new() -> Self {
        let wall = wall_clock().duration_since(UNIX_EPOCH).unwrap();
        let grain = Duration::from_millis(1);
        Self {
            records: Arc::default(),
            traits: Traits::new("memory", Expiry::Counted { skew: SKEW, grain }),
            began_at: wall - now().since(Instant::from_nanos(0)) - Duration::from_secs(5),
            ahead_ms: Arc::default(),
            last_version: Arc::default(),
            lost_answers: Arc::default(),
            lost_requests: Arc::default(),
            tells_time: true,
            reads: Arc::default(),
            puts: Arc::default(),
            times: Arc::default(),
        }
    }

    /// Returns the same records in a storage that cannot remove any.
    pub fn without_removal(mut self) -> Self {
        self.traits.removes = false;
        self
    }

    /// Lets this time pass in the storage, and nowhere else.
    pub fn pass(&self, time: Duration) {
        let ms = u64::try_from(time.as_millis()).expect("a short time");
        self.ahead_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// Returns the records by their keys.
    pub fn records(&self) -> BTreeMap<String, Record> {
        let records = self.rows();
        let pairs = records.iter();
        pairs
            .map(|(key, versioned)| (key.clone(), versioned.record.clone()))
            .collect()
    }

    /// Writes a record as another program would.
    pub fn write(&self, key: &str, record: Record) {
        let versioned = Versioned::new(self.next_version(), record, Some(self.now()));
        self.rows().insert(key.to_owned(), versioned);
    }

    fn rows(&self) -> MutexGuard<'_, BTreeMap<String, Versioned>> {
        self.records.lock().unwrap()
    }

    fn next_version(&self) -> Version {
        (self.last_version.fetch_add(1, Ordering::Relaxed) + 1).to_string()
    }

    fn now(&self) -> Duration {
        let ahead = Duration::from_millis(self.ahead_ms.load(Ordering::Relaxed));
        self.began_at + now().since(Instant::from_nanos(0)) + ahead
    }

    fn change(
        &self,
        key: &str,
        on: Option<&Version>,
        record: Option<&Record>,
    ) -> Result<Put, Failure> {
        self.puts.fetch_add(1, Ordering::Relaxed);
        if take_one(&self.lost_requests) {
            return Err(lost("the request"));
        }
        let mut records = self.rows();
        if records.get(key).map(|known| &known.version) != on {
            return Ok(Put::Conflict);
        }
        let version = self.next_version();
        match record {
            Some(record) => {
                let written_at = Some(self.now());
                let versioned = Versioned::new(version.clone(), record.clone(), written_at);
                records.insert(key.to_owned(), versioned);
            }
            None => drop(records.remove(key)),
        }
        match take_one(&self.lost_answers) {
            true => Err(lost("the answer")),
            false => Ok(Put::Done(version)),
        }
    }
}

/// Takes one of these, if there is one.
fn take_one(count: &AtomicUsize) -> bool {
    let taken = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
        left.checked_sub(1)
    });
    taken.is_ok()
}

fn lost(what: &str) -> Failure {
    let what = format!("{what} was lost");
    Failure::new(ErrorKind::Unavailable, Sent::Perhaps, what)
}

impl Register for MemoryRegister {
    fn traits(&self) -> Traits {
        self.traits
    }

    fn location(&self) -> &dyn fmt::Display {
        &"memory of this process"
    }

    async fn read(&self, key: &str) -> Result<Seen, Failure> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let time = self.tells_time.then(|| self.now());
        Ok(Seen::new(self.rows().get(key).cloned(), time))
    }

    async fn put(
        &self,
        key: &str,
        on: Option<&Version>,
        record: &Record,
        _: Option<Duration>,
    ) -> Result<Put, Failure> {
        self.change(key, on, Some(record))
    }

    async fn extend(
        &self,
        key: &str,
        on: &Version,
        record: &Record,
        _: Duration,
    ) -> Result<Put, Failure> {
        self.change(key, Some(on), Some(record))
    }

    async fn remove(&self, key: &str, on: &Version) -> Result<Put, Failure> {
        assert!(
            self.traits.removes,
            "the traits say that it removes nothing"
        );
        self.change(key, Some(on), None)
    }

    async fn list(
        &self,
        prefix: &str,
        before: Option<Duration>,
    ) -> Result<Vec<(String, Versioned)>, Failure> {
        let records = self.rows();
        let listed = records.iter().filter(|(key, record)| {
            key.starts_with(prefix) && before.is_none_or(|before| record.written_at <= Some(before))
        });
        Ok(listed
            .map(|(key, record)| (key.clone(), record.clone()))
            .collect())
    }

    async fn time(&self) -> Result<Option<Duration>, Failure> {
        self.times.fetch_add(1, Ordering::Relaxed);
        Ok(Some(self.now()))
    }

    async fn notices(&self) -> Result<Option<Box<dyn Notices>>, Failure> {
        Ok(None)
    }

    async fn hazards(&self) -> Result<Vec<Hazard>, Failure> {
        Ok(Vec::new())
    }

    async fn members(&self) -> Result<Vec<Member>, Failure> {
        Ok(vec![Member::new("memory", MemberState::Up)])
    }

    async fn on_own_connection(&self, _: Purpose) -> Result<Self, Failure> {
        Ok(self.clone())
    }

    async fn close(&self) {}
}
