//! The pauses between attempts to connect.

use std::time::Duration;

use tokio::time::sleep;

use crate::clock::half_random;

/// The first pause before a new connection; each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause before a new connection. Meanwhile waiting clients check again after some time.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The pauses between attempts to connect.
#[derive(Debug)]
pub(crate) struct Pauses(Duration);

impl Pauses {
    pub(crate) const fn new() -> Self {
        Self(FIRST_PAUSE)
    }

    /// Passes the next one.
    pub(crate) async fn pass(&mut self) {
        sleep(half_random(self.0)).await;
        self.0 = (self.0 * 2).min(LONGEST_PAUSE);
    }
}
