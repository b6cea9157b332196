//! The pass that a holder shows to storage with each write.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::holder::Holder;
use crate::name::Name;
use crate::token::Token;

/// A pass: the token of one grant, with the name that it was granted for and the holder that it was granted to.
///
/// The token alone is not enough. Tokens of two names are unrelated, and after a flush, or with two masters, two
/// holders can have been granted the same number; the name and the holder distinguish these. A pass can be sent to
/// another process as JSON, to a service in a header, or to a job in its environment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Pass {
    /// The name that was granted.
    pub name: Name,
    /// The holder that it was granted to.
    pub holder: Holder,
    /// The token of the grant.
    pub token: Token,
}

impl Pass {
    /// Makes the pass of a grant.
    pub const fn new(name: Name, holder: Holder, token: Token) -> Self {
        Self {
            name,
            holder,
            token,
        }
    }

    /// Returns the pass of the job that this process runs in, if it was started by `leasehold run`. It is read from
    /// `LEASEHOLD_NAME`, `LEASEHOLD_HOLDER` and `LEASEHOLD_TOKEN`; `None` if none of them is set.
    ///
    /// # Errors
    /// `Invalid` if some of them are missing or malformed.
    pub fn from_environment() -> Result<Option<Self>, Error> {
        Self::from_variables(|variable| std::env::var(variable).ok())
    }

    fn from_variables(value: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, Error> {
        let variables = ["LEASEHOLD_NAME", "LEASEHOLD_HOLDER", "LEASEHOLD_TOKEN"];
        let [name, holder, token] = variables.map(value);
        match (name, holder, token) {
            (None, None, None) => Ok(None),
            (Some(name), Some(holder), Some(token)) => Self::parse(&token, &holder, name).map(Some),
            _ => Err(Error::invalid(
                "pass refused: some of LEASEHOLD_NAME, LEASEHOLD_HOLDER and LEASEHOLD_TOKEN are missing",
            )),
        }
    }

    /// Reads a pass from its three parts as text.
    pub(super) fn parse(token: &str, holder: &str, name: String) -> Result<Self, Error> {
        let (token, holder) = (token.parse()?, holder.parse()?);
        Ok(Self::new(Name::new(name)?, holder, token))
    }
}

#[cfg(test)]
mod tests {
    use crate::holder::ClientId;

    use super::*;

    #[test]
    fn a_pass_survives_json() {
        let name = Name::new("é \"orders\"").expect("valid");
        let holder = Holder::new(ClientId::from_u128(7), 9);
        let pass = Pass::new(name, holder, Token::MAX);
        let text = serde_json::to_string(&pass).expect("plain fields");
        assert_eq!(
            serde_json::from_str::<Pass>(&text).expect("its own text"),
            pass
        );
    }

    #[test]
    fn a_pass_with_a_broken_field_is_refused() {
        let whole = r#"{"name":"a","holder":"00000000000000000000000000000007-0000000000000009","token":1}"#;
        assert!(serde_json::from_str::<Pass>(whole).is_ok());
        for (good, bad) in [
            ("\"a\"", "\"{\""),
            (":1}", ":0}"),
            (":1}", ":9007199254740992}"),
            ("07-", "7-"),
        ] {
            let broken = whole.replace(good, bad);
            assert!(serde_json::from_str::<Pass>(&broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn a_job_finds_its_pass_in_its_environment() {
        let holder = Holder::new(ClientId::from_u128(7), 9);
        let value = |variable: &str| {
            Some(match variable {
                "LEASEHOLD_NAME" => "nightly".into(),
                "LEASEHOLD_HOLDER" => holder.to_string(),
                "LEASEHOLD_TOKEN" => "41".into(),
                other => panic!("{other}"),
            })
        };
        let pass = Pass::from_variables(value).expect("well").expect("a job");
        assert_eq!(
            (pass.name.as_str(), pass.holder, pass.token.get()),
            ("nightly", holder, 41)
        );
        assert_eq!(Pass::from_variables(|_| None).expect("well"), None);
        let half = |variable: &str| (variable == "LEASEHOLD_NAME").then(|| "nightly".into());
        assert!(Pass::from_variables(half).is_err());
    }
}
