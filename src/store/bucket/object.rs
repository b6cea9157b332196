//! The object of a name: its key, its content, and what the crate's answers mean.

use std::time::Duration;

use ::object_store::{ObjectMeta, UpdateVersion};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use uuid::Uuid;

use crate::conditional_puts::{is_refusal, kind_of};
use crate::error::ErrorKind;
use crate::percent;
use crate::store::Sent;
use crate::store::record::{Failure, MARK, Record, Version};

/// The beginning of the keys of leases, below the prefix.
pub(super) const FOLDER: &str = "leases";
/// The longest name of an object that is not a hash: a key has at most 1,024 bytes, and the prefix is before it.
const LONGEST: usize = 700;
/// First letter of names that are a hash; no other name begins with it.
const HASHED: char = '=';
/// The bytes of a name that are written as `%XX`: all that could be read as a part of a path.
const CODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');
/// Separates the parts of a version; neither has a control character.
const SEPARATOR: char = '\n';

/// Returns the name of the object of this key, below the prefix. The mark is not among the leases: a rule of the bucket
/// that clears old ones must leave it.
pub(super) fn object_name(key: &str) -> String {
    if key == MARK {
        return "mark".into();
    }
    let encoded = utf8_percent_encode(key, CODED).to_string();
    match encoded.len() <= LONGEST {
        true => format!("{FOLDER}/{encoded}"),
        false => {
            let hash = Uuid::new_v5(&Uuid::NAMESPACE_OID, key.as_bytes());
            format!("{FOLDER}/{HASHED}{}", hash.simple())
        }
    }
}

/// Returns the key that is written in the name of an object; `None` if that is a hash.
pub(super) fn key_of(file: &str) -> Option<String> {
    match file.starts_with(HASHED) {
        true => None,
        false => percent::decode(file),
    }
}

/// Returns the content of an object: the record, with the name, which a hash hides. A record without a token is emptied
/// and shorter than any other, so that a rule of the bucket can delete these.
pub(super) fn content(key: &str, record: &Record) -> Vec<u8> {
    let text = record.to_text();
    if record.token.is_none() || key == MARK {
        return text.into_bytes();
    }
    let mut content: Value = serde_json::from_str(&text).expect("it was made of one");
    content["name"] = key.into();
    content.to_string().into_bytes()
}

/// Returns the name in a content.
pub(super) fn name_in(content: &[u8]) -> Option<String> {
    let content: Value = serde_json::from_slice(content).ok()?;
    Some(content["name"].as_str()?.to_owned())
}

/// Makes the version of an object from the crate's answer.
pub(super) fn version(tag: Option<String>, version: Option<String>) -> Result<Version, Failure> {
    if tag.is_none() && version.is_none() {
        let what = "the answers have no version";
        return Err(Failure::new(ErrorKind::Misconfigured, Sent::Perhaps, what));
    }
    let [tag, version] = [tag, version].map(Option::unwrap_or_default);
    Ok(format!("{tag}{SEPARATOR}{version}"))
}

/// Makes the crate's condition of a version.
pub(super) fn update(on: &Version) -> UpdateVersion {
    let (tag, version) = on.split_once(SEPARATOR).unwrap_or_default();
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    UpdateVersion {
        e_tag: some(tag),
        version: some(version),
    }
}

/// Returns when an object was written, in whole seconds of the server's clock.
pub(super) fn written_at(meta: &ObjectMeta) -> Duration {
    Duration::from_secs(u64::try_from(meta.last_modified.timestamp()).unwrap_or_default())
}

/// Returns whether a put failed because of its condition; `on` says whether it was one on a version.
pub(super) const fn is_conflict(error: &::object_store::Error, on: Option<&Version>) -> bool {
    // An object that is gone has no version. If none was given, the bucket is missing.
    let is_gone = matches!(error, ::object_store::Error::NotFound { .. }) && on.is_some();
    is_refusal(error) || is_gone
}

/// Makes the failure of a request.
pub(super) fn failed(error: ::object_store::Error) -> Failure {
    let (kind, why) = kind_of(&error);
    let sent = match kind {
        ErrorKind::Unavailable => Sent::Perhaps,
        _ => Sent::Answered,
    };
    let what = format!("the bucket's server did not do it{why}");
    Failure::new(kind, sent, what).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Token;

    #[test]
    fn no_two_keys_have_one_object_and_each_short_one_is_read_from_it() {
        let long = "\u{e9}".repeat(256);
        let keys = [
            "a", "A", "a/b", "a//b", "..", ".", "x y", "=", "mark", "\u{e9}", &long, MARK,
        ];
        let mut names: Vec<_> = keys.iter().map(|key| object_name(key)).collect();
        for (key, name) in keys.iter().zip(&names).take(10) {
            let file = name.strip_prefix("leases/").expect("among the leases");
            assert!(!file.contains(['/', '.']), "{file}");
            assert_eq!(key_of(file).as_deref(), Some(*key));
        }
        assert_eq!(
            key_of(names[10].strip_prefix("leases/").expect("a lease")),
            None
        );
        names.sort();
        names.dedup();
        assert_eq!(names.len(), keys.len());
    }

    #[test]
    fn an_emptied_record_is_shorter_than_any_other() {
        let mut emptied = Record::foreign(Duration::ZERO, String::new());
        emptied.state = None;
        emptied.beat = u64::MAX;
        let shortest = content("a", &emptied).len();
        assert!(shortest < 64, "{shortest}");
        let mut freed = emptied.clone();
        freed.beat = 1;
        freed.token = Some(Token::new(1).expect("a token"));
        freed.by = Some(crate::Holder::new(crate::ClientId::from_u128(0), 0));
        let content = content("a", &freed);
        assert!(content.len() > 64, "{}", content.len());
        assert_eq!(name_in(&content).as_deref(), Some("a"));
        assert_eq!(Record::from_text(&content).expect("a record"), freed);
    }

    #[test]
    fn a_version_is_the_condition_that_it_was_made_of() {
        let parts = |tag: &str, number: &str| {
            let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            let made = version(some(tag), some(number)).expect("a version");
            let made = update(&made);
            [made.e_tag, made.version].map(Option::unwrap_or_default)
        };
        assert_eq!(parts("\"a\"", "7"), ["\"a\"", "7"]);
        assert_eq!(parts("", "7"), ["", "7"]);
        version(None, None).expect_err("there is nothing to compare");
    }
}
