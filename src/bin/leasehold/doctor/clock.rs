//! Compares the server's clock with ours: the time in the replies to two renewals, some seconds apart.

use std::time::{Duration, SystemTime};

use leasehold::Token;
use leasehold::clock::{Clock, Monotonic, wall_clock};
use leasehold::store::spi::{Claim, Renewal};

use super::facts::{ClockReading, ServerClock, Trouble};
use super::trial::Trial;

/// The time between the two readings: enough to detect a clock that drifts by a thousandth.
const APART: Duration = Duration::from_secs(2);

/// The best of this many round trips is used, because each reading is wrong by half a round trip at most.
const TRIES: usize = 8;

/// Reads the clock, and runs `meanwhile` between the two readings. `None` for a store without a clock of its own.
pub async fn read<T>(
    trial: &Trial<'_>,
    meanwhile: impl Future<Output = T>,
) -> (Result<Option<ServerClock>, Trouble>, T) {
    let (claim, token) = match taken(trial).await {
        Ok(taken) => taken,
        Err(trouble) => return (Err(trouble), meanwhile.await),
    };
    let began = Monotonic.now();
    let first = best(trial, &claim, token).await;
    let done = meanwhile.await;
    if first.is_some() {
        Monotonic.sleep_until(began.after(APART)).await;
    }
    let second = best(trial, &claim, token).await;
    let released = trial.release(&claim).await;
    let both = first.zip(second);
    let clock = both.map(|(first, second)| ServerClock { first, second });
    (released.map(|()| clock), done)
}

async fn taken(trial: &Trial<'_>) -> Result<(Claim, Token), Trouble> {
    let claim = trial.claim()?;
    let token = trial.acquire(&claim).await?;
    Ok((claim, token))
}

async fn best(trial: &Trial<'_>, claim: &Claim, token: Token) -> Option<ClockReading> {
    let mut best: Option<ClockReading> = None;
    for _ in 0..TRIES {
        let reading = one(trial, claim, token).await?;
        if best.is_none_or(|best| reading.round_trip < best.round_trip) {
            best = Some(reading);
        }
    }
    best
}

async fn one(trial: &Trial<'_>, claim: &Claim, token: Token) -> Option<ClockReading> {
    let renewal = Renewal::new(claim.name.clone(), claim.holder, token, claim.ttl);
    let ours = wall_clock().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let began = Monotonic.now();
    let renewed = trial.store.renew(&[renewal], trial.limit).await;
    let round_trip = Monotonic.now().since(began);
    Some(ClockReading {
        server: renewed.server_time?.time,
        ours: ours + round_trip / 2,
        steady: Duration::from_nanos(began.as_nanos()) + round_trip / 2,
        round_trip,
    })
}
