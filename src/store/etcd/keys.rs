//! The keys of a name and the version of its record. Pure.

use std::fmt;
use std::time::Duration;

use super::messages::{Compare, KeyValue};
use crate::error::ErrorKind;
use crate::store::record::{Failure, Record, Version};

/// Number of marks. A name shares its mark with about one in so many others.
const MARKS: u32 = 16_384;
/// In a comparison: the revision of the last change.
const LAST_CHANGE: i32 = 2;

/// The keys of all names below a prefix. No name and no prefix has braces, so no two are alike.
#[derive(Debug, Clone)]
pub(super) struct Keyspace {
    held: String,
    mark: String,
}

/// The version of a name: what a put compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    /// The record; `None` if the name is free.
    pub(super) held: Option<HeldRecord>,
    /// The revision of the last change of the mark. Each grant of the name changes it, so the version of a free name
    /// never comes again.
    pub(super) mark: i64,
}

/// The record of a name that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeldRecord {
    pub(super) revision: i64,
    /// The lease of etcd that ends it.
    pub(super) lease: i64,
    pub(super) seconds: i64,
    /// The leader's number when the lease was made; 0 where that is not known.
    pub(super) term: i64,
}

impl Keyspace {
    pub(super) fn new(prefix: &str) -> Self {
        Self {
            held: format!("{prefix}/{{held}}/"),
            mark: format!("{prefix}/{{mark}}/"),
        }
    }

    /// Returns the key of the record of a name.
    pub(super) fn held(&self, name: &str) -> Vec<u8> {
        format!("{}{name}", self.held).into()
    }

    /// Returns the name of the record at this key.
    pub(super) fn name<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        std::str::from_utf8(key).ok()?.strip_prefix(&self.held)
    }

    /// Returns the key of the mark of a name: that of the last token of all names with the same hash.
    pub(super) fn mark(&self, name: &str) -> Vec<u8> {
        format!("{}{:04x}", self.mark, hash(name) % MARKS).into()
    }

    /// Returns what holds exactly if the name has this version.
    pub(super) fn is_at(&self, name: &str, at: At) -> Vec<Compare> {
        let held = is_at(self.held(name), at.held.map_or(0, |held| held.revision));
        match at.held {
            Some(_) => vec![held],
            None => vec![held, is_at(self.mark(name), at.mark)],
        }
    }
}

/// Returns the end of the range of all keys that begin with this one. No key here ends with a byte of 255.
pub(super) fn end_of(mut key: Vec<u8>) -> Vec<u8> {
    if let Some(last) = key.last_mut() {
        *last += 1;
    }
    key
}

fn is_at(key: Vec<u8>, revision: i64) -> Compare {
    Compare {
        target: LAST_CHANGE,
        key,
        mod_revision: Some(revision),
    }
}

/// FNV-1a with 32 bits.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

impl HeldRecord {
    /// Reads the record at a key.
    ///
    /// # Errors
    /// `Misconfigured` for a value that is no record, and for a record that nothing ends.
    pub(super) fn read(kv: &KeyValue) -> Result<(Self, Record), Failure> {
        let record = record(kv)?;
        if kv.lease == 0 {
            let why =
                "has no lease of etcd, so it would never end: it is a copy, perhaps of a mirror";
            return Err(refused(kv, why));
        }
        let held = Self {
            revision: kv.mod_revision,
            lease: kv.lease,
            seconds: seconds(record.ttl()),
            term: 0,
        };
        Ok((held, record))
    }
}

/// Reads the record at a key, or a mark, which is the record of a free name.
pub(super) fn record(kv: &KeyValue) -> Result<Record, Failure> {
    Record::from_text(&kv.value).map_err(|why| refused(kv, &format!("is refused: {why}")))
}

fn refused(kv: &KeyValue, why: &str) -> Failure {
    let key = String::from_utf8_lossy(&kv.key);
    Failure::answered(ErrorKind::Misconfigured, format!("the key {key:?} {why}"))
}

/// Returns the ttl of the lease that ends a record, which is in whole seconds.
pub(super) fn seconds(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis().div_ceil(1_000)).map_or(i64::MAX, |seconds| seconds.max(1))
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.mark)?;
        match self.held {
            Some(HeldRecord {
                revision,
                lease,
                seconds,
                term,
            }) => write!(f, ".{revision}.{lease}.{seconds}.{term}"),
            None => Ok(()),
        }
    }
}

impl At {
    /// The version of a name that no client ever had.
    pub(super) const NEVER: Self = Self {
        held: None,
        mark: 0,
    };

    /// Reads a version that was made here.
    pub(super) fn of(version: Option<&Version>) -> Self {
        let Some(version) = version else {
            return Self::NEVER;
        };
        let numbers = version.split('.').map(str::parse);
        let numbers: Result<Vec<i64>, _> = numbers.collect();
        match numbers.expect("each version is made here")[..] {
            [mark, revision, lease, seconds, term] => Self {
                mark,
                held: Some(HeldRecord {
                    revision,
                    lease,
                    seconds,
                    term,
                }),
            },
            [mark] => Self { mark, held: None },
            _ => unreachable!("each version is made here"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(revision: i64) -> At {
        let held = Some(HeldRecord {
            revision,
            lease: i64::MAX,
            seconds: 30,
            term: 3,
        });
        At { held, mark: 7 }
    }

    #[test]
    fn a_version_is_read_as_it_was_written() {
        for at in [
            At::NEVER,
            held(9),
            At {
                held: None,
                mark: 7,
            },
        ] {
            assert_eq!(At::of(Some(&at.to_string())), at);
        }
        assert_eq!(At::of(None), At::NEVER);
    }

    #[test]
    fn a_put_compares_the_record_or_its_absence_with_the_mark() {
        let keys = Keyspace::new("p");
        let compared = |at| {
            let compared = keys.is_at("a", at).into_iter();
            let compared = compared.map(|compare| (compare.key, compare.mod_revision));
            compared.collect::<Vec<_>>()
        };
        let (record, mark) = (b"p/{held}/a".to_vec(), b"p/{mark}/292c".to_vec());
        assert_eq!(compared(held(9)), [(record.clone(), Some(9))]);
        let free = At {
            held: None,
            mark: 7,
        };
        assert_eq!(compared(free), [(record, Some(0)), (mark, Some(7))]);
    }

    #[test]
    fn a_key_is_that_of_one_name_and_names_share_marks_by_their_hash() {
        let keys = Keyspace::new("leasehold");
        for name in ["a", "a/b", "\u{e9}", "held/b"] {
            assert_eq!(keys.name(&keys.held(name)), Some(name));
        }
        assert_eq!(keys.name(b"leasehold/{mark}/0000"), None);
        assert_eq!(end_of(keys.held("a")), b"leasehold/{held}/b");
        // As in the published tables of this hash.
        assert_eq!((hash(""), hash("foobar")), (0x811c_9dc5, 0xbf9c_f968));
    }

    #[test]
    fn a_ttl_is_rounded_up_to_whole_seconds() {
        for (ms, expected) in [(0, 1), (1, 1), (2_000, 2), (2_001, 3)] {
            assert_eq!(seconds(Duration::from_millis(ms)), expected, "{ms}");
        }
    }

    #[test]
    fn what_is_no_record_or_would_never_end_is_refused_by_its_key() {
        let text = r#"{"v":1,"state":"leased","ttl_ms":2000}"#;
        let newer = r#"{"v":2,"state":"leased"}"#;
        for (value, lease, said) in [
            ("hello", 1, "\"p/{held}/a\" is refused"),
            (newer, 1, "older than the one that wrote it"),
            (text, 0, "would never end"),
        ] {
            let kv = KeyValue {
                key: b"p/{held}/a".into(),
                value: value.into(),
                lease,
                mod_revision: 1,
            };
            let failure = HeldRecord::read(&kv).expect_err(said);
            assert!(failure.to_string().contains(said), "{failure}");
        }
    }
}
