//! Nothing was given: nothing is wrong.

use super::QuorumBug;

/// What is wrong in a quorum: nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Planted(());

impl Planted {
    /// Whether this is wrong: no.
    pub const fn has(self, _: QuorumBug) -> bool {
        false
    }
}
