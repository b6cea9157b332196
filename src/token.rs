//! The fencing token: a number that only rises, and the one rule by which every store mints the next one.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};

/// A fencing token: each grant of a name carries a token greater than that of every earlier grant of the name.
///
/// Storage that has seen a greater token refuses the write. Storage compares the whole [`Pass`](crate::fence::Pass):
/// the token, the holder and the name. The token alone is for logs and display.
///
/// Tokens rise but are not dense: they follow the store's clock in microseconds where that is ahead of the counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Token(NonZeroU64);

impl Token {
    /// The greatest token, 2^53-1: the greatest number up to which Lua, JavaScript and JSON count exactly.
    pub const MAX: Self = Self(NonZeroU64::new((1 << 53) - 1).expect("not zero"));

    /// How far a floor may lift a token ahead of the store's clock. A floor further ahead counts as a mistake, because
    /// its effect would be permanent; a floor that the last token has reached has no effect, however far ahead it is.
    pub const FLOOR_AHEAD: Duration = Duration::from_secs(24 * 60 * 60);

    /// Checks a token.
    ///
    /// # Errors
    /// `Invalid` for 0 and for more than [`Token::MAX`].
    pub fn new(value: u64) -> Result<Self, Error> {
        let token = NonZeroU64::new(value).map(Self);
        let token = token.filter(|token| *token <= Self::MAX);
        token.ok_or_else(|| refused(value))
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// Mints the next token: above the last one and above the floor, and not behind the store's clock.
    ///
    /// The clock keeps tokens rising when a store restarts empty; the counter keeps them rising when the clock goes
    /// back.
    ///
    /// # Errors
    /// `Invalid` for a floor above the last token and more than [`Token::FLOOR_AHEAD`] past the clock; `Misconfigured`
    /// when the numbers run out.
    pub fn mint(last: Option<Self>, floor: Option<Self>, now_us: u64) -> Result<Self, Error> {
        let last = last.map_or(0, Self::get);
        let floor = floor.map_or(0, Self::get);
        let ahead = u64::try_from(Self::FLOOR_AHEAD.as_micros()).expect("a day fits");
        if floor > last.max(now_us.saturating_add(ahead)) {
            return Err(Error::invalid(format!(
                "acquire refused: the floor is more than a day ahead of the store's clock floor={floor} clock_us={now_us}"
            )));
        }
        // Two short of the top, as in the scripts: there a number may be incremented once before it is checked.
        let top = Self::MAX.get() - 2;
        if last >= top || now_us >= top {
            return Err(Error::new(
                ErrorKind::Misconfigured,
                format!(
                    "acquire refused: no tokens are left below 2^53 counter={last} clock_us={now_us}"
                ),
            ));
        }
        Self::new((last + 1).max(now_us).max(floor + 1))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for Token {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let value = text.parse::<u64>();
        Self::new(value.map_err(|source| refused(format_args!("{text:?}")).with_source(source))?)
    }
}

impl TryFrom<u64> for Token {
    type Error = Error;

    fn try_from(value: u64) -> Result<Self, Error> {
        Self::new(value)
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        token.get()
    }
}

fn refused(shown: impl fmt::Display) -> Error {
    let max = Token::MAX;
    Error::invalid(format!(
        "token {shown} refused: expected a whole number from 1 to {max}"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token(value: u64) -> Token {
        Token::new(value).expect("within the limits")
    }

    #[test]
    fn zero_and_past_the_top_are_refused() {
        assert!(Token::new(0).is_err());
        assert_eq!(token(1 << 52).get(), 1 << 52);
        assert_eq!(Token::new((1 << 53) - 1).expect("the top"), Token::MAX);
        assert!(Token::new(1 << 53).is_err());
    }

    #[test]
    fn a_counter_at_the_top_is_refused_rather_than_repeated() {
        let error = Token::mint(Some(Token::MAX), None, 1).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
    }

    #[test]
    fn a_floor_a_day_ahead_is_taken_and_one_beyond_is_refused() {
        let day = 86_400_000_000;
        assert_eq!(
            Token::mint(None, Some(token(day + 7)), 7)
                .expect("taken")
                .get(),
            day + 8
        );
        let error = Token::mint(None, Some(token(day + 8)), 7).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }

    #[test]
    fn a_floor_that_the_counter_has_passed_has_no_effect_however_far_ahead_it_is() {
        let last = Some(token(1 << 51));
        for floor in [1 << 51, (1 << 51) - 1] {
            let next = Token::mint(last, Some(token(floor)), 7).expect("taken");
            assert_eq!(next.get(), (1 << 51) + 1, "{floor}");
        }
        let above = Token::mint(last, Some(token((1 << 51) + 1)), 7).expect_err("refused");
        assert_eq!(above.kind(), ErrorKind::Invalid);
    }

    #[test]
    fn text_is_read_back_and_nonsense_refused() {
        assert_eq!("42".parse::<Token>().expect("a token"), token(42));
        for bad in ["", "-1", "0", "4.2", "9007199254740992", "1e3"] {
            assert!(bad.parse::<Token>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_minted_token_is_above_the_last_and_the_floor(
            last in 0_u64..(1 << 53) - 3,
            floor in 0_u64..(1 << 52),
            now in 0_u64..(1 << 52),
        ) {
            let last = Token::new(last).ok();
            let floor = Token::new(floor).ok();
            if let Ok(next) = Token::mint(last, floor, now) {
                prop_assert!(Some(next) > last);
                prop_assert!(Some(next) > floor);
                prop_assert!(next.get() >= now);
            }
        }
    }
}
