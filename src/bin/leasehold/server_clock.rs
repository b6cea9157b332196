//! Reads the clock of a store's server: replies to renewals bring its time.

use std::time::{Duration, SystemTime};

use leasehold::clock::{Clock, Monotonic, wall_clock};
use leasehold::store::Store;
use leasehold::store::spi::Renewal;

/// One reading of the server's clock.
#[derive(Debug, Clone, Copy)]
pub struct ClockReading {
    /// The time of the server's clock, since 1970.
    pub server: Duration,
    /// The time of our wall clock in the middle of the round trip, since 1970.
    pub ours: Duration,
    /// The same moment on a clock that is never stepped, from some start.
    pub steady: Duration,
    /// The duration of the round trip: the reading is wrong by half of it at most.
    pub round_trip: Duration,
}

/// Sends this renewal, whose outcome does not matter. `None` for a store without a clock of its own.
pub async fn read(store: &dyn Store, renewal: Renewal, limit: Duration) -> Option<ClockReading> {
    let ours = wall_clock().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let began = Monotonic.now();
    let renewed = store.renew(&[renewal], limit).await;
    let round_trip = Monotonic.now().since(began);
    Some(ClockReading {
        server: renewed.server_time?.time,
        ours: ours + round_trip / 2,
        steady: Duration::from_nanos(began.as_nanos()) + round_trip / 2,
        round_trip,
    })
}
