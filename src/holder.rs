//! The identity of a claim, drawn anew for each, so that a repeated release or a late renewal of an earlier claim can
//! never affect a later one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, ErrorKind};

/// The identity of one client: 122 random bits, written as a UUID without hyphens (32 hex digits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(Uuid);

impl ClientId {
    /// Returns the identity with these bits.
    pub const fn from_u128(bits: u128) -> Self {
        Self(Uuid::from_u128(bits))
    }

    /// Returns the bits of this identity.
    pub const fn as_u128(self) -> u128 {
        self.0.as_u128()
    }

    /// Draws a new identity.
    ///
    /// # Panics
    /// If the operating system gives no random bits.
    pub fn draw() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

/// The identity of one claim: the client's identity and 63 random bits from the operating system.
///
/// It is never derived from a counter, a thread or a process: a forked child, or a machine resumed twice from one
/// snapshot, would continue the same count, and a store would take the two for one holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Holder {
    client: ClientId,
    claim: u64,
}

impl Holder {
    /// Joins the two halves; the highest bit of `claim` is ignored.
    pub const fn new(client: ClientId, claim: u64) -> Self {
        Self {
            client,
            claim: claim & (u64::MAX >> 1),
        }
    }

    /// Draws a new identity for a claim of this client.
    ///
    /// # Errors
    /// `Unavailable` if the operating system gives no random bits.
    pub fn draw(client: ClientId) -> Result<Self, Error> {
        let claim = getrandom::u64().map_err(|source| {
            let what = "acquire failed: the operating system gave no random bits";
            Error::new(ErrorKind::Unavailable, what).with_source(source.to_string())
        })?;
        Ok(Self::new(client, claim))
    }

    /// Returns the random bits of the claim.
    pub(crate) const fn bits(&self) -> u64 {
        self.claim
    }

    /// Returns the client that made the claim.
    pub const fn client(&self) -> ClientId {
        self.client
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.client, self.claim)
    }
}

impl FromStr for Holder {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts = text.split_once('-').and_then(|(client, claim)| {
            let client = (client.len() == 32).then(|| Uuid::try_parse(client).ok())??;
            let claim = (claim.len() == 16).then(|| u64::from_str_radix(claim, 16).ok())??;
            let client = ClientId(client);
            (claim <= u64::MAX >> 1).then_some(Self { client, claim })
        });
        parts.ok_or_else(|| {
            Error::invalid(format!(
                "holder {text:?} refused: expected 32 hex digits, '-', 16 hex digits"
            ))
        })
    }
}

impl TryFrom<String> for Holder {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Holder> for String {
    fn from(holder: Holder) -> Self {
        holder.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn two_claims_of_one_client_differ() {
        let client = ClientId::from_u128(7);
        let draw = || Holder::draw(client).expect("random bits");
        assert_ne!(draw(), draw());
        assert_eq!(draw().client(), client);
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            "",
            "-",
            "7-7",
            "00000000000000000000000000000007",
            "00000000000000000000000000000007-8000000000000000",
        ] {
            assert!(bad.parse::<Holder>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn text_is_read_back(client: u128, claim: u64) {
            let holder = Holder::new(ClientId::from_u128(client), claim);
            prop_assert_eq!(holder.to_string().parse::<Holder>().expect("its own text"), holder);
        }
    }
}
