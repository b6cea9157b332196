//! The group of a client: the label under which its leases are counted in metrics.
//!
//! Lease names are not labels: thousands of names would be tens of thousands of series. A group is one word for many
//! leases, chosen by the user, and there are never more than a few of them in one process.

use parking_lot::Mutex;

use crate::error::Error;

/// The greatest number of groups in one process. Dashboards stay readable, and what is kept for each group stays small.
const MOST: usize = 50;

/// The longest group, in bytes.
const MAX_BYTES: usize = 64;

/// A group. Its word is kept for as long as the process lives, at most [`MOST`] of them, so that a group is one
/// pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group(&'static str);

static KNOWN: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

impl Group {
    /// The group of a client that sets none.
    pub(crate) const DEFAULT: Self = Self("default");
    /// The group of all clients that chose a word after the limit was reached.
    pub(crate) const OTHER: Self = Self("other");

    /// Returns the group with this word, or [`OTHER`](Self::OTHER) if there are too many already.
    ///
    /// # Errors
    /// `Invalid` for a word that is empty, too long, or has control characters.
    pub(crate) fn named(word: &str) -> Result<Self, Error> {
        if word.is_empty() || word.len() > MAX_BYTES || word.chars().any(char::is_control) {
            let shown: String = word.chars().take(MAX_BYTES).collect();
            return Err(Error::invalid(format!(
                "group {shown:?} refused: expected 1 to {MAX_BYTES} bytes without control characters"
            )));
        }
        let mut known = KNOWN.lock();
        Ok(admit(&mut known, word))
    }

    /// Returns the word of this group: the value of the label.
    pub(crate) const fn as_str(self) -> &'static str {
        self.0
    }
}

fn admit(known: &mut Vec<&'static str>, word: &str) -> Group {
    if let Some(found) = known.iter().find(|found| **found == word) {
        return Group(found);
    }
    if known.len() >= MOST {
        return Group::OTHER;
    }
    let kept: &'static str = Box::leak(word.into());
    known.push(kept);
    Group(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_kept_once_and_too_many_become_other() {
        let mut known = Vec::new();
        let first = admit(&mut known, "nightly");
        assert_eq!(admit(&mut known, "nightly"), first);
        assert_eq!(known.len(), 1);
        for index in 1..MOST {
            assert_ne!(admit(&mut known, &index.to_string()), Group::OTHER);
        }
        assert_eq!(admit(&mut known, "one too many"), Group::OTHER);
        assert_eq!(admit(&mut known, "nightly"), first);
    }

    #[test]
    fn bad_words_are_refused_with_the_word() {
        for word in ["", "a\nb", &"x".repeat(65)] {
            let error = Group::named(word).expect_err("refused").to_string();
            assert!(error.contains("refused: expected 1 to 64 bytes"), "{error}");
        }
    }
}
