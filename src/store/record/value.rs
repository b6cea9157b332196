//! The record of a name, as every client reads and writes it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::register::Failure;
use crate::error::ErrorKind;
use crate::holder::Holder;
use crate::store::{HeldState, Info};
use crate::token::Token;

/// The version of the form in which records are written. A record of a later one is refused.
const FORM: u32 = 1;

/// The record of a name. It stays when the name is freed, because it has the token that the next one must exceed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// The version of this form.
    #[serde(rename = "v")]
    form: u32,
    /// The token of the last grant. `None` where it is in the mark, or was never written: an emptied record, or one of
    /// another program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// The holder of the last grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Holder>,
    /// How the name is taken; `None` if it is free.
    #[serde(default, with = "state")]
    pub state: Option<HeldState>,
    /// How long from its last write the name is taken, in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ttl_ms: u64,
    /// The time of the grant, in microseconds since 1970.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub since_us: u64,
    /// Rises with each write, so that no two writes of a record are alike: storages that compare content see each.
    #[serde(default)]
    pub beat: u64,
    /// The facts about the holder.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub info: Info,
}

impl Record {
    /// Makes the record of a free name, whose next token must exceed this one.
    pub fn free(token: Option<Token>) -> Self {
        Self {
            form: FORM,
            token,
            by: None,
            state: None,
            ttl_ms: 0,
            since_us: 0,
            beat: 0,
            info: Info::default(),
        }
    }

    /// Describes a lease that another program wrote: it is respected for this time without a change, and then taken.
    pub fn foreign(ttl: Duration, host: String) -> Self {
        let mut record = Self::free(None);
        record.state = Some(HeldState::Leased);
        record.ttl_ms = millis(ttl);
        record.info.host = host;
        record
    }

    /// Returns how long from its last write the name is taken.
    pub const fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    /// Returns the record as text.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a record has no part that JSON lacks")
    }

    /// Reads a record that was written as text.
    ///
    /// # Errors
    /// `Misconfigured` for a text that is no record, or one of a later version.
    pub fn from_text(text: &[u8]) -> Result<Self, Failure> {
        let refused = |why: String| Failure::answered(ErrorKind::Misconfigured, why);
        let record: Self = serde_json::from_slice(text).map_err(|error| {
            refused(format!(
                "what is stored for this name is no record: {error}"
            ))
        })?;
        if record.form > FORM {
            return Err(refused(format!(
                "the record has the form {}, and this program knows none above {FORM}: it is older than the one that \
                 wrote it",
                record.form
            )));
        }
        Ok(record)
    }
}

pub(super) fn millis(time: Duration) -> u64 {
    crate::store::kit::budget::millis(time)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde passes a field")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_empty(info: &Info) -> bool {
    *info == Info::default()
}

/// The words for how a name is taken.
mod state {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::store::HeldState;

    const WORDS: [(Option<HeldState>, &str); 4] = [
        (None, "free"),
        (Some(HeldState::Leased), "leased"),
        (Some(HeldState::Evicted), "evicted"),
        (Some(HeldState::Kept), "kept"),
    ];

    pub(super) fn serialize<S: Serializer>(
        state: &Option<HeldState>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let known = WORDS.iter().find(|(known, _)| known == state);
        let (_, word) = known.expect("no record is written while a store keeps out");
        to.serialize_str(word)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<HeldState>, D::Error> {
        let word = String::deserialize(from)?;
        let known = WORDS.iter().find(|(_, known)| *known == word);
        let (state, _) = known.ok_or_else(|| D::Error::custom(format!("state {word:?}")))?;
        Ok(*state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let token = Token::new(7).expect("a token");
        let mut record = Record::free(Some(token));
        assert_eq!(
            Record::from_text(record.to_text().as_bytes()).expect("a record"),
            record
        );
        for state in [HeldState::Leased, HeldState::Evicted, HeldState::Kept] {
            record.state = Some(state);
            record.by = Some(Holder::new(crate::ClientId::from_u128(1), 2));
            let read = Record::from_text(record.to_text().as_bytes()).expect("a record");
            assert_eq!(read, record);
        }
    }

    #[test]
    fn what_is_no_record_or_a_later_one_is_refused() {
        for (text, said) in [
            ("", "is no record"),
            ("{}", "is no record"),
            (r#"{"v":1,"state":"asleep"}"#, "asleep"),
            (r#"{"v":1,"state":"free","token":0}"#, "token 0"),
            (
                r#"{"v":2,"state":"free"}"#,
                "older than the one that wrote it",
            ),
        ] {
            let failure = Record::from_text(text.as_bytes()).expect_err(text);
            assert!(failure.to_string().contains(said), "{failure}");
        }
    }
}
