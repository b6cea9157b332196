//! Reads the clock of a store's server: the reply to a renewal brings its time.

use std::time::{Duration, SystemTime};

use leasehold::clock::{Clock, Instant, Monotonic, wall_clock};
use leasehold::store::Store;
use leasehold::store::spi::Renewal;
use leasehold::{ClientId, Error, Holder, Name, Token};

/// One reading of the server's clock.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// The time of the server's clock, since 1970.
    pub server: Duration,
    /// The time of our wall clock in the middle of the round trip, since 1970.
    pub ours: Duration,
    /// The same moment on a clock that is never stepped.
    pub steady: Instant,
    /// The duration of the round trip: the reading is wrong by half of it at most.
    pub round_trip: Duration,
}

impl Reading {
    /// Returns how far the server's clock is ahead, in seconds.
    pub fn offset(&self) -> f64 {
        self.server.as_secs_f64() - self.ours.as_secs_f64()
    }
}

/// Requests a renewal of a lease that no client has: the store refuses it and changes nothing. It has the least token,
/// because a member of a quorum takes a renewal above all tokens of a free name for a late claim. `None` for a store
/// without a clock of its own.
pub async fn read(store: &dyn Store, limit: Duration) -> Result<Option<Reading>, Error> {
    let name = Name::new("leasehold-clock")?;
    let holder = Holder::draw(ClientId::draw())?;
    let renewal = Renewal::new(name, holder, Token::new(1)?, Duration::from_secs(1));
    let began = Monotonic.now();
    let renewed = store.renew(&[renewal], limit).await;
    let round_trip = Monotonic.now().since(began);
    let middle = wall_clock() - round_trip / 2;
    let ours = middle.duration_since(SystemTime::UNIX_EPOCH);
    Ok(renewed.server_time.map(|server| Reading {
        server: server.time,
        ours: ours.unwrap_or_default(),
        steady: began.after(round_trip / 2),
        round_trip,
    }))
}
