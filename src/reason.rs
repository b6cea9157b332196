//! The reasons why a lease ends.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The reason for which a lease ended before it was released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LossReason {
    /// The store answered that this holder does not have the name.
    Refused,
    /// An operator evicted the holder.
    Evicted,
    /// No renewal was confirmed in time.
    Deadline,
    /// The lease was held for its [`max_hold`](crate::LeaseRequest::max_hold).
    MaxHold,
    /// The holder reported no [progress](crate::Lease::progress) within its limit.
    NoProgress,
    /// The client was shut down.
    Shutdown,
    /// The watchdog's thread ended, so the lease would not be renewed.
    WatchdogDied,
    /// The guard was released or dropped. Only a [`LeaseHandle`](crate::LeaseHandle) of the lease learns of it.
    Released,
}

impl LossReason {
    /// All reasons, in the order of their codes.
    const ALL: [Self; 8] = {
        let [a, b, c, d, e, f, g] = Self::COUNTED;
        [a, b, c, d, e, f, g, Self::Released]
    };

    /// The reasons for which a lease counts as lost. The end of its guard is none of them.
    pub(crate) const COUNTED: [Self; 7] = [
        Self::Refused,
        Self::Evicted,
        Self::Deadline,
        Self::MaxHold,
        Self::NoProgress,
        Self::Shutdown,
        Self::WatchdogDied,
    ];

    /// The greatest code. Deadlines are later than a few nanoseconds after boot, so small numbers are free for other
    /// meanings.
    pub(crate) const LAST_CODE: u64 = 255;

    /// Returns the word for logs, metrics and files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Evicted => "evicted",
            Self::Deadline => "deadline",
            Self::MaxHold => "max_hold",
            Self::NoProgress => "no_progress",
            Self::Shutdown => "shutdown",
            Self::WatchdogDied => "watchdog_died",
            Self::Released => "released",
        }
    }

    /// Returns a number from one to [`LAST_CODE`](Self::LAST_CODE).
    pub(crate) fn code(self) -> u64 {
        let index = Self::ALL.iter().position(|reason| *reason == self);
        u64::try_from(index.expect("every reason is in the list")).expect("a short list") + 1
    }

    /// Returns the reason with this number.
    pub(crate) fn from_code(code: u64) -> Option<Self> {
        let index = usize::try_from(code.checked_sub(1)?).ok()?;
        Self::ALL.get(index).copied()
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
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
        assert_eq!(LossReason::from_code(0), None);
        assert_eq!(LossReason::from_code(LossReason::LAST_CODE + 1), None);
    }
}
