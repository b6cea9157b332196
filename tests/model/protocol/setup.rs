//! The bounds of a search.

use super::rules::{Rules, Wrong};
use super::world::{Loss, Promise};

/// What a search tries.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The server of each member: two names of one server are one.
    pub servers: Vec<u8>,
    /// The name of each holder; all names are of one slot.
    pub names: Vec<u8>,
    /// How many rounds each holder sends, and how many of them may be claims.
    pub rounds: Vec<u8>,
    /// How many of the rounds may be claims.
    pub claims: Vec<u8>,
    /// The tokens that each holder may propose, in order. A token of the second holder that is equal to one of the
    /// first is the hardest that is too low; one above the floors, which are one above what they cover, has to be there
    /// too.
    pub tokens: Vec<Vec<u8>>,
    /// How many times a further name of the slot moves the mark of a member.
    pub others: u8,
    /// Whether claims are taken back and leases released.
    pub releases: bool,
    /// Whether a released name is kept taken, for longer than the search lasts.
    pub keeps_names: bool,
    /// Whether renewals are sent after the deadline too.
    pub renews_late: bool,
    /// Whether holders are evicted.
    pub evictions: bool,
    /// Whether an eviction counts at a member that was lost or adopted since.
    pub evictions_last: bool,
    /// How many members are lost.
    pub losses: u8,
    /// How they come back.
    pub kinds: Vec<Loss>,
    /// How many clients adopt.
    pub adoptions: u8,
    /// Whether the adopters' clock is ahead of each token that was proposed.
    pub has_a_clock: bool,
    /// Whether leases end by the clock; else at any moment.
    pub keeps_time: bool,
    /// Whether keep-outs end by the clock; else at any moment.
    pub keeps_out: bool,
    /// The promises that are checked.
    pub asked: Vec<Promise>,
    /// The rules.
    pub rules: Rules,
}

/// All promises.
pub const ALL: [Promise; 8] = [
    Promise::OneHolder,
    Promise::TokensRise,
    Promise::GivenUpStaysGivenUp,
    Promise::OvertakenIsNotRenewed,
    Promise::EvictedIsNotRenewed,
    Promise::KeptIsNotGranted,
    Promise::GrantedInTheEnd,
    Promise::Repaired,
];

impl Setup {
    /// Returns three members and two holders of one name, of two rounds and of one.
    pub fn least() -> Self {
        Self {
            servers: vec![0, 1, 2],
            names: vec![0, 0],
            rounds: vec![2, 1],
            claims: vec![1, 1],
            tokens: vec![vec![1, 2], vec![1, 2, 3]],
            others: 1,
            releases: false,
            keeps_names: false,
            renews_late: false,
            evictions: false,
            evictions_last: false,
            losses: 0,
            kinds: vec![Loss::Empty],
            adoptions: 0,
            has_a_clock: false,
            keeps_time: true,
            keeps_out: true,
            asked: ALL.to_vec(),
            rules: Rules(None),
        }
    }

    /// Returns the same with one loss and one adoption. The least floor that an adoption writes is 1.
    pub fn losing(self) -> Self {
        Self {
            losses: 1,
            adoptions: 1,
            tokens: vec![vec![2], vec![2, 5]],
            ..self
        }
    }

    /// Returns the same where only these promises are checked.
    pub fn asking(self, asked: &[Promise]) -> Self {
        let asked = asked.to_vec();
        Self { asked, ..self }
    }

    /// Returns the same with a wrong rule.
    pub fn with(self, wrong: Wrong) -> Self {
        let rules = Rules(Some(wrong));
        Self { rules, ..self }
    }
}
