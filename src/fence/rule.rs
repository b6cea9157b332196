//! The rule of the fence, as one plain function.
//!
//! Storage has one [`Pass`] for each resource, its *row*. A pass is admitted if its name is the row's, and its token is
//! greater than the row's, or equal with the same holder. Guards that decide elsewhere (in a script, in SQL) follow the
//! same rule in their own language, and `conformance` tests them against this function.

use super::{Pass, Refusal};

/// The change that storage must make for a pass that it admits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The pass is new to this resource: store it durably before anything is read or written under it.
    Raise,
    /// The pass equals the row: its holder writes again.
    Again,
}

/// Decides whether the bearer of `shown` may write when `stored` is the row; `None` if there is no row.
///
/// ```
/// use leasehold::fence::{Admission, Pass, Refusal, judge};
/// # use leasehold::{Holder, Name, Token};
/// # let client = leasehold::ClientId::from_u128(1);
/// # let pass = |claim, token| {
/// #     let name = Name::new("nightly").expect("valid");
/// #     Pass::new(name, Holder::new(client, claim), Token::new(token).expect("valid"))
/// # };
/// let (paused, successor) = (pass(1, 41), pass(2, 42));
/// assert_eq!(judge(None, &paused), Ok(Admission::Raise));
/// assert_eq!(judge(Some(&paused), &paused), Ok(Admission::Again));
/// assert_eq!(judge(Some(&paused), &successor), Ok(Admission::Raise));
/// assert_eq!(judge(Some(&successor), &paused), Err(Refusal::Stale { stored: successor.token }));
/// ```
///
/// # Errors
/// `Conflict` if the row has another lease name, whatever the tokens, or an equal token with another holder; `Stale` if
/// its token is greater.
pub fn judge(stored: Option<&Pass>, shown: &Pass) -> Result<Admission, Refusal> {
    let Some(stored) = stored else {
        return Ok(Admission::Raise);
    };
    if stored.name != shown.name {
        return Err(Refusal::conflict(stored));
    }
    match shown.token.cmp(&stored.token) {
        std::cmp::Ordering::Greater => Ok(Admission::Raise),
        std::cmp::Ordering::Equal if stored.holder == shown.holder => Ok(Admission::Again),
        std::cmp::Ordering::Equal => Err(Refusal::conflict(stored)),
        std::cmp::Ordering::Less => Err(Refusal::Stale {
            stored: stored.token,
        }),
    }
}

#[cfg(test)]
mod tests {
    use crate::holder::ClientId;

    use super::*;
    use crate::{Holder, Name, Token};

    fn pass(name: &str, claim: u64, token: u64) -> Pass {
        Pass::new(
            Name::new(name).expect("valid"),
            Holder::new(ClientId::from_u128(7), claim),
            Token::new(token).expect("valid"),
        )
    }

    #[test]
    fn the_first_pass_is_admitted_whatever_its_token() {
        assert_eq!(judge(None, &pass("a", 1, 1)), Ok(Admission::Raise));
    }

    #[test]
    fn a_holder_writes_many_times() {
        let row = pass("a", 1, 5);
        assert_eq!(judge(Some(&row), &row), Ok(Admission::Again));
    }

    #[test]
    fn a_greater_token_is_admitted_of_any_holder() {
        let row = pass("a", 1, 5);
        for claim in [1, 2] {
            assert_eq!(
                judge(Some(&row), &pass("a", claim, 6)),
                Ok(Admission::Raise)
            );
        }
    }

    #[test]
    fn a_lower_token_is_stale_even_of_the_same_holder() {
        let row = pass("a", 1, 5);
        let stale = Refusal::Stale { stored: row.token };
        for claim in [1, 2] {
            assert_eq!(judge(Some(&row), &pass("a", claim, 4)), Err(stale.clone()));
        }
    }

    #[test]
    fn an_equal_token_of_another_holder_is_a_conflict() {
        let row = pass("a", 1, 5);
        let refusal = judge(Some(&row), &pass("a", 2, 5));
        assert_eq!(refusal, Err(Refusal::conflict(&row)));
    }

    #[test]
    fn another_lease_name_is_a_conflict_whatever_its_token() {
        let row = pass("a", 1, 5);
        for token in [4, 5, 6] {
            let refusal = judge(Some(&row), &pass("b", 1, token));
            assert_eq!(refusal, Err(Refusal::conflict(&row)));
        }
    }
}
