//! The fenced object: a line that carries the pass, and the user's content after it.

use std::error::Error as StdError;

use ::object_store::{PutPayload, UpdateVersion};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::fence::Pass;

/// The format of the first line.
const FORMAT: u32 = 1;
/// Number of the latest commits that the first line names: a commit whose answer was lost can be found until this many
/// later ones.
const KEPT_WRITES: usize = 8;
/// A line that is longer is not ours. The longest has a name of 512 bytes, each escaped.
const MAX_LINE: usize = 8 * 1024;

/// The fenced object as it was read or written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Object {
    /// The pass under which it was written last.
    pub pass: Pass,
    /// Number of writes, raises included.
    pub number: u64,
    /// The user's bytes: what the last commit wrote.
    pub content: Bytes,
    /// The store's version of these bytes.
    pub version: UpdateVersion,
    pub(super) writes: Vec<String>,
}

/// The first line, without its end.
#[derive(Debug, Serialize, Deserialize)]
struct FirstLine {
    leasehold: u32,
    #[serde(flatten)]
    pass: Pass,
    number: u64,
    writes: Vec<String>,
}

impl Object {
    /// Reads the object from its bytes.
    pub(super) fn parse(
        bytes: Bytes,
        version: UpdateVersion,
    ) -> Result<Self, Box<dyn StdError + Send + Sync>> {
        let mut start = bytes.iter().take(MAX_LINE);
        let end = start.position(|byte| *byte == b'\n');
        let end = end.ok_or("it has no first line with a pass")?;
        let line: FirstLine = serde_json::from_slice(&bytes[..end])?;
        if line.leasehold != FORMAT {
            let text = format!("format {}, expected {FORMAT}", line.leasehold);
            return Err(text.into());
        }
        Ok(Self {
            pass: line.pass,
            number: line.number,
            content: bytes.slice(end + 1..),
            version,
            writes: line.writes,
        })
    }

    /// Returns the bytes that are stored.
    pub(super) fn payload(&self) -> PutPayload {
        let line = FirstLine {
            leasehold: FORMAT,
            pass: self.pass.clone(),
            number: self.number,
            writes: self.writes.clone(),
        };
        let mut line = serde_json::to_vec(&line).expect("plain fields");
        line.push(b'\n');
        [line.into(), self.content.clone()].into_iter().collect()
    }

    /// Returns the object after a raise to this pass. Its version is not known before it is written.
    pub(super) fn raised(seen: Option<&Self>, pass: &Pass) -> Self {
        Self {
            pass: pass.clone(),
            number: seen.map_or(1, |seen| seen.number + 1),
            content: seen.map_or_else(Bytes::new, |seen| seen.content.clone()),
            version: UpdateVersion {
                e_tag: None,
                version: None,
            },
            writes: seen.map_or_else(Vec::new, |seen| seen.writes.clone()),
        }
    }

    /// Returns the object after a commit of this content.
    pub(super) fn followed(&self, pass: &Pass, write: &str, content: Bytes) -> Self {
        let earlier = self.writes.iter().take(KEPT_WRITES - 1).cloned();
        Self {
            writes: std::iter::once(write.to_owned()).chain(earlier).collect(),
            content,
            ..Self::raised(Some(self), pass)
        }
    }

    /// Returns whether the commit with this id, which replaced the object of that number, was carried out; `None` if
    /// too many other writes followed to know.
    pub(super) fn has(&self, write: &str, replaced: u64) -> Option<bool> {
        let followed = self.number.saturating_sub(replaced);
        match self.writes.iter().any(|one| one == write) {
            true => Some(true),
            false if followed <= KEPT_WRITES as u64 => Some(false),
            false => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientId, Holder, Name, Token};

    fn version() -> UpdateVersion {
        UpdateVersion {
            e_tag: Some("\"1\"".into()),
            version: None,
        }
    }

    fn pass(claim: u64, token: u64) -> Pass {
        Pass::new(
            Name::new("é \"orders\"").expect("valid"),
            Holder::new(ClientId::from_u128(7), claim),
            Token::new(token).expect("valid"),
        )
    }

    fn stored(object: &Object) -> Bytes {
        object.payload().into()
    }

    #[test]
    fn an_object_is_read_as_it_was_written() {
        let raised = Object::raised(None, &pass(1, Token::MAX.get()));
        let written = raised.followed(&raised.pass, "a", Bytes::from_static(b"\n\0{}\n"));
        for object in [raised, written] {
            let read = Object::parse(stored(&object), version()).expect("its own bytes");
            assert_eq!(
                Object {
                    version: object.version.clone(),
                    ..read
                },
                object
            );
        }
    }

    #[test]
    fn the_first_line_is_as_the_page_gives_it() {
        let page = include_str!("README.md");
        let (_, rest) = page.split_once("```json\n").expect("the page has a line");
        let (line, _) = rest.split_once("```").expect("it ends");
        let read = Object::parse(Bytes::from(line.to_owned() + "total=7"), version());
        let read = read.expect("it is valid");
        assert_eq!(&read.content[..], b"total=7");
        assert!(stored(&read).starts_with(line.as_bytes()), "{read:?}");
    }

    #[test]
    fn no_bytes_recur_though_pass_and_content_do() {
        let mut seen = std::collections::HashSet::new();
        let mut object = Object::raised(None, &pass(1, 1));
        for turn in 0..20 {
            assert!(seen.insert(stored(&object)));
            object = match turn % 3 {
                0 => Object::raised(Some(&object), &object.pass),
                _ => object.followed(&pass(1, 1), "same", Bytes::from_static(b"same")),
            };
        }
    }

    #[test]
    fn a_commit_is_found_until_many_others_followed() {
        let first = Object::raised(None, &pass(1, 1));
        let mut object = first.followed(&first.pass, "mine", Bytes::new());
        for later in 0..20 {
            let expected = (later < KEPT_WRITES).then_some(true);
            assert_eq!(object.has("mine", first.number), expected, "{later}");
            object = object.followed(&first.pass, &later.to_string(), Bytes::new());
        }
        assert_eq!(first.has("mine", first.number), Some(false));
    }

    #[test]
    fn bytes_of_another_kind_are_refused() {
        let fenced = stored(&Object::raised(None, &pass(1, 1)));
        let text = String::from_utf8(fenced.to_vec()).expect("text");
        for bad in [
            "",
            "total=7",
            "total=7\n",
            "{}\n",
            text.trim_end(),
            &text.replace("\"leasehold\":1", "\"leasehold\":2"),
            &text.replace("\"token\":1", "\"token\":0"),
            &text.replace("\"number\":1", "\"number\":-1"),
        ] {
            let read = Object::parse(Bytes::from(bad.to_owned()), version());
            assert!(read.is_err(), "{bad}");
        }
    }
}
