//! The names that are leased: short texts with rules of their own, checked once and then passed around freely.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// A name that can be leased: UTF-8, 1 to 512 bytes, no control characters, no white space at an end, no `{` or `}`.
///
/// Braces are refused because Redis Cluster reads them as the part of a key that picks its slot. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Arc<str>);

impl Name {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 512;

    /// Checks a text and makes a name of it.
    ///
    /// # Errors
    /// `Invalid`, with the value and the rule that it breaks.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Error> {
        let name = name.as_ref();
        check("name", name)?;
        Ok(Self(name.into()))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Checks the rule shared by names and key prefixes; `what` is the noun for the message.
pub(crate) fn check(what: &str, text: &str) -> Result<(), Error> {
    let broken = if text.is_empty() {
        "it is empty"
    } else if text.len() > Name::MAX_BYTES {
        "it is too long"
    } else if text.chars().any(char::is_control) {
        "it has a control character"
    } else if text.trim() != text {
        "it has white space at an end"
    } else if text.contains(['{', '}']) {
        "it has a brace"
    } else {
        return Ok(());
    };
    let shown: String = text.chars().take(64).collect();
    let dots = if shown.len() < text.len() { "..." } else { "" };
    Err(Error::invalid(format!(
        "{what} {shown:?}{dots} refused: {broken}; expected 1 to {max} bytes of UTF-8 without control characters, white space at an end, '{{' or '}}'",
        max = Name::MAX_BYTES
    )))
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::new(text)
    }
}

impl TryFrom<&str> for Name {
    type Error = Error;

    fn try_from(text: &str) -> Result<Self, Error> {
        Self::new(text)
    }
}

impl TryFrom<String> for Name {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        Self::new(text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.as_str().into()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_counted_in_bytes() {
        assert!(Name::new("a".repeat(512)).is_ok());
        assert!(Name::new("a".repeat(513)).is_err());
        assert!(Name::new("é".repeat(256)).is_ok());
        assert!(Name::new("é".repeat(257)).is_err());
    }

    #[test]
    fn each_broken_rule_is_named_with_the_value() {
        for (text, rule) in [
            ("", "empty"),
            ("a\nb", "control"),
            ("a{b", "brace"),
            ("}", "brace"),
        ] {
            let message = Name::new(text).expect_err("refused").to_string();
            assert!(message.contains(rule), "{message}");
            assert!(message.contains(&format!("{text:?}")), "{message}");
        }
    }

    #[test]
    fn a_long_name_is_cut_in_the_message() {
        let message = Name::new("x".repeat(4_000))
            .expect_err("refused")
            .to_string();
        assert!(message.len() < 400, "{message}");
    }
}
