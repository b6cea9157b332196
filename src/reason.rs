//! The reasons why a lease ends.

use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// Why a lease ended before its release.
    #[derive(Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum LossReason {
        /// The store answered that this holder does not have the name.
        Refused = "refused",
        /// An operator evicted the holder.
        Evicted = "evicted",
        /// No renewal was confirmed in time.
        Deadline = "deadline",
        /// The lease was held for its [`max_hold`](crate::LeaseRequest::max_hold).
        MaxHold = "max_hold",
        /// The holder reported no [progress](crate::Lease::progress) within its limit.
        NoProgress = "no_progress",
        /// The client was shut down.
        Shutdown = "shutdown",
        /// The watchdog's thread ended, so the lease would not be renewed.
        WatchdogDied = "watchdog_died",
        /// The guard was released or dropped. Only a [`LeaseHandle`](crate::LeaseHandle) of the lease learns of it.
        Released = "released",
    }
}

impl LossReason {
    /// The words of the reasons that count as a loss: all but the last, which is the end of the guard.
    pub(crate) const COUNTED: &'static [&'static str] = Self::WORDS.split_at(7).0;

    /// The greatest code. Deadlines are later than a few nanoseconds after boot, so small numbers are free for other
    /// meanings.
    pub(crate) const LAST_CODE: u64 = 255;

    /// Returns whether the client ended the lease by a limit or a decision of its own. Until it is released, the store
    /// has it as the holder's.
    pub(crate) const fn is_of_the_client(self) -> bool {
        matches!(self, Self::MaxHold | Self::NoProgress | Self::Shutdown)
    }

    /// Returns a number from one to [`LAST_CODE`](Self::LAST_CODE).
    pub(crate) const fn code(self) -> u64 {
        self as u64 + 1
    }

    /// Returns the reason with this number.
    pub(crate) fn from_code(code: u64) -> Option<Self> {
        let index = usize::try_from(code.checked_sub(1)?).ok()?;
        Self::ALL.get(index).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_code_of_its_own() {
        for reason in LossReason::ALL {
            assert_eq!(LossReason::from_code(reason.code()), Some(reason));
        }
        assert_eq!(LossReason::COUNTED.last(), Some(&"watchdog_died"));
        assert_eq!(LossReason::Released.as_str(), "released");
        assert_eq!(LossReason::from_code(0), None);
        assert_eq!(LossReason::from_code(LossReason::LAST_CODE + 1), None);
    }
}
