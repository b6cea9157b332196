//! Compares the server's clock with ours: the time in the replies to two renewals, some seconds apart.
//!
//! A server whose clock gains more than the margin within one ttl frees a name that its holder still counts as held.

use std::time::Duration;

use leasehold::Token;
use leasehold::clock::{Clock, Monotonic, Timing};
use leasehold::store::Hazard;
use leasehold::store::spi::{Claim, Renewal};

use super::finding::{Finding, Verdict};
use super::trial::Trial;
use crate::exit::Failure;
use crate::server_clock::{self, ClockReading};

/// The time between the two readings: enough to detect a clock that drifts by a thousandth.
const APART: Duration = Duration::from_secs(2);

/// The best of this many round trips is used, because each reading is wrong by half a round trip at most.
const TRIES: usize = 8;

/// Hazards that one of the doctor's own probes measures more exactly.
const CLOCK_HAZARDS: [&str; 3] = ["redis-clock-apart", "postgres-clock", "zookeeper-clock"];

/// The limit above which the stores themselves warn.
const GOOD_OFFSET: Duration = Duration::from_secs(1);

/// The server's clock compared with ours, as read twice.
#[derive(Debug, Clone, Copy)]
pub struct ServerClock {
    first: ClockReading,
    second: ClockReading,
}

impl ServerClock {
    /// Judges how far the server's clock is from ours, and how fast it runs.
    pub fn judge(&self, timing: &Timing, hazards: &[Hazard]) -> Vec<Finding> {
        let ClockReading { server, ours, .. } = self.second;
        let side = if server > ours { "ahead of" } else { "behind" };
        let apart = server.abs_diff(ours).as_secs_f64() * 1e3;
        let what = format!(
            "the server's clock is {apart:.1} ms {side} this machine's, and below {GOOD_OFFSET:?} is good"
        );
        let mut hazards = hazards.iter();
        let is_told = hazards.any(|hazard| CLOCK_HAZARDS.contains(&hazard.id));
        let offset = (!is_told).then(|| Finding::ok("clock-offset", what));
        offset.into_iter().chain([self.rate(timing)]).collect()
    }

    fn rate(&self, timing: &Timing) -> Finding {
        let (first, second) = (self.first, self.second);
        let steady = second.steady.abs_diff(first.steady);
        // Both are far from zero, and a clock that is stepped back is as bad as one that is stepped ahead.
        let gained = (first.server + steady).abs_diff(second.server);
        let doubt = (first.round_trip + second.round_trip) / 2;
        let drift = gained.saturating_sub(doubt).as_secs_f64() / steady.as_secs_f64().max(1e-9);
        let per_ttl = drift * timing.ttl().as_secs_f64();
        let margin = timing.margin().as_secs_f64();
        Finding::new(
            "clock-rate",
            Verdict::of(per_ttl, margin / 4.0, margin),
            format!(
                "the server's clock drifts by {:.0} us a second, {:.1} ms within a ttl, and below {:.0} ms is good",
                drift * 1e6,
                per_ttl * 1e3,
                margin * 1e3 / 4.0
            ),
            format!(
                "a holder's margin is {:?}: beyond it a name is granted while its holder still works",
                timing.margin()
            ),
            "Run a time daemon on both, which slews and does not step",
        )
    }
}

/// Reads the clock, and runs `meanwhile` between the two readings. `None` for a store without a clock of its own.
pub async fn read<T>(
    trial: &Trial<'_>,
    meanwhile: impl Future<Output = T>,
) -> (Result<Option<ServerClock>, Failure>, T) {
    let (claim, token) = match taken(trial).await {
        Ok(taken) => taken,
        Err(failure) => return (Err(failure), meanwhile.await),
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

async fn taken(trial: &Trial<'_>) -> Result<(Claim, Token), Failure> {
    let claim = trial.claim()?;
    let token = trial.acquire(&claim).await?;
    Ok((claim, token))
}

async fn best(trial: &Trial<'_>, claim: &Claim, token: Token) -> Option<ClockReading> {
    let mut best: Option<ClockReading> = None;
    for _ in 0..TRIES {
        let renewal = Renewal::new(claim.name.clone(), claim.holder, token, claim.ttl);
        let reading = server_clock::read(trial.store, renewal, trial.limit).await?;
        if best.is_none_or(|best| reading.round_trip < best.round_trip) {
            best = Some(reading);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use leasehold::store::Severity;

    use super::*;

    fn timing() -> Timing {
        Timing::new(Duration::from_secs(30), None).expect("within the limits")
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Makes a server clock that is this far ahead, and gains this much within two seconds.
    fn clock_of(ahead_ms: u64, gain_ms: u64) -> ServerClock {
        let reading = |at: u64, server: u64| ClockReading {
            server: ms(server),
            ours: ms(1_000_000 + at),
            steady: ms(at),
            round_trip: ms(1),
        };
        ServerClock {
            first: reading(5_000, 1_005_000 + ahead_ms),
            second: reading(7_000, 1_007_000 + ahead_ms + gain_ms),
        }
    }

    #[test]
    fn a_clock_that_gains_the_margin_within_a_ttl_is_a_failure() {
        // A margin of 620 ms in 30 s is a fiftieth.
        for (gain_ms, verdict) in [
            (0, Verdict::Ok),
            (5, Verdict::Ok),
            (20, Verdict::Warning),
            (50, Verdict::Failure),
        ] {
            let found = clock_of(0, gain_ms).rate(&timing());
            assert_eq!(found.verdict, verdict, "{gain_ms} {found}");
        }
    }

    #[test]
    fn a_constant_offset_is_told_once_and_is_no_rate() {
        let found = clock_of(300, 0).judge(&timing(), &[]);
        assert_eq!(found.len(), 2);
        assert!(found[0].what.contains("300.0 ms ahead of"), "{}", found[0]);
        assert_eq!(found[1].verdict, Verdict::Ok);
        for figure in &found {
            assert!(figure.what.contains(" is good"), "{figure}");
        }
        let told = Severity::Warning;
        let hazard = Hazard::new("redis-clock-apart", told, "a", "b", "C");
        assert_eq!(clock_of(2_000, 0).judge(&timing(), &[hazard]).len(), 1);
    }
}
