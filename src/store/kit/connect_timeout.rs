//! The limits of connect time-outs.

use std::time::Duration;

use crate::error::Error;
use crate::store::contract::bounded::LIMIT;

/// Checks how long a store may take to connect. More than this would be cut short: connecting is given up as every
/// call.
///
/// # Errors
/// `Invalid` if that is under a millisecond or over the limit of such a call.
pub(crate) fn check(connect_timeout: Duration) -> Result<(), Error> {
    let least = Duration::from_millis(1);
    if (least..=LIMIT).contains(&connect_timeout) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "connect_timeout refused: expected {least:?} to {LIMIT:?} connect_timeout={connect_timeout:?}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_connect_timeout_that_would_be_cut_short_is_refused() {
        for fitting in [Duration::from_millis(1), LIMIT] {
            assert!(check(fitting).is_ok(), "{fitting:?}");
        }
        for refused in [Duration::ZERO, LIMIT + Duration::from_millis(1)] {
            let error = check(refused).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains("1ms to 20s"), "{error}");
        }
    }
}
