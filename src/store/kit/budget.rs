//! The rest of a caller's limit, and times on the wire.

use std::time::Duration;

use crate::clock::{Boottime, Clock, Instant};

/// Interval at which a silent connection is replaced, for requests without a ttl.
const REPLACE_EVERY: Duration = Duration::from_millis(500);

/// The rest of a caller's limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    ends_at: Instant,
    /// Interval between replacements of a connection to a silent or wrong server.
    replace_every: Duration,
    /// Time without an answer after which another connection is made, while the request still waits for its answer.
    /// `None`: not before the end.
    silence: Option<Duration>,
}

impl Budget {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            ends_at: Boottime.now().after(limit),
            replace_every: REPLACE_EVERY,
            silence: None,
        }
    }

    /// Returns a budget whose server may be silent for at most half of it, and this long, before another connection is
    /// made: a little less, so that it is there when the caller tries again.
    pub(crate) fn with_silence(limit: Duration, silence: Duration) -> Self {
        Self {
            silence: Some(silence.min(limit / 2) * 7 / 8),
            ..Self::new(limit)
        }
    }

    /// Returns the same budget, with connections replaced this often.
    pub(crate) const fn replacing_every(self, replace_every: Duration) -> Self {
        Self {
            replace_every,
            ..self
        }
    }

    pub(crate) const fn replace_every(self) -> Duration {
        self.replace_every
    }

    /// Returns how long to wait for an answer before another connection is made, or what is left.
    pub(crate) fn until_silence(self) -> Duration {
        let left = self.left();
        self.silence.map_or(left, |silence| silence.min(left))
    }

    /// Returns the same budget, or this limit if that is shorter.
    pub(crate) fn at_most(mut self, limit: Duration) -> Self {
        self.ends_at = self.ends_at.min(Self::new(limit).ends_at);
        self
    }

    pub(crate) fn left(self) -> Duration {
        self.ends_at.since(Boottime.now())
    }
}

/// Converts to whole milliseconds, rounded up: the server must keep a lease for at least as long as its holder expects.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
