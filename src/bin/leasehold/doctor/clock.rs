//! Compares the server's clock with ours, by two readings some seconds apart.
//!
//! A server whose clock gains more than the margin within one ttl frees a name that its holder still counts as held.

use std::time::Duration;

use leasehold::Error;
use leasehold::clock::{Clock, Monotonic, Timing};
use leasehold::store::Store;

use super::finding::{Finding, Verdict};
use crate::server_clock::{self, Reading};

/// Time between the two readings: enough to detect a drift of one thousandth.
const APART: Duration = Duration::from_secs(2);

/// Number of round trips per reading. The fastest counts, because a reading is wrong by at most half a round trip.
const TRIES: usize = 8;

/// Offset in seconds above which the stores themselves warn.
const GOOD_OFFSET: f64 = 1.0;

/// Reads the clock twice, and judges it. A store without its own clock gives no finding.
pub async fn examine(
    store: &dyn Store,
    limit: Duration,
    timing: &Timing,
) -> Result<Vec<Finding>, Error> {
    let Some(first) = best(store, limit).await? else {
        return Ok(Vec::new());
    };
    Monotonic.sleep_until(first.steady.after(APART)).await;
    let second = best(store, limit).await?.unwrap_or(first);
    let offset = offset(second.offset()).into_iter();
    Ok(offset.chain([rate(&first, &second, timing)]).collect())
}

async fn best(store: &dyn Store, limit: Duration) -> Result<Option<Reading>, Error> {
    let mut readings = Vec::with_capacity(TRIES);
    for _ in 0..TRIES {
        readings.extend(server_clock::read(store, limit).await?);
    }
    Ok(readings
        .into_iter()
        .min_by_key(|reading| reading.round_trip))
}

/// `None` for an offset that the store reports as a hazard itself.
fn offset(ahead: f64) -> Option<Finding> {
    let side = if ahead > 0.0 { "ahead of" } else { "behind" };
    let apart = ahead.abs();
    let what = format!(
        "the server's clock is {:.1} ms {side} this machine's, and below {GOOD_OFFSET} s is good",
        apart * 1e3
    );
    (apart < GOOD_OFFSET).then(|| Finding::ok("clock-offset", what))
}

fn rate(first: &Reading, second: &Reading, timing: &Timing) -> Finding {
    let steady = second.steady.since(first.steady);
    // A clock that is stepped back is as bad as one that is stepped ahead.
    let gained = (first.server + steady).abs_diff(second.server);
    let doubt = (first.round_trip + second.round_trip) / 2;
    let drift = gained.saturating_sub(doubt).as_secs_f64() / steady.as_secs_f64().max(1e-9);
    let per_ttl = drift * timing.ttl().as_secs_f64();
    let margin = timing.margin().as_secs_f64();
    let what = format!(
        "the server's clock drifts by {:.0} us a second, {:.1} ms within a ttl, and below {:.0} ms is good",
        drift * 1e6,
        per_ttl * 1e3,
        margin * 1e3 / 4.0
    );
    let endangers = format!(
        "a holder's margin is {:?}: beyond it a name is granted while its holder still works",
        timing.margin()
    );
    Finding::new(
        "clock-rate",
        Verdict::of(per_ttl, margin / 4.0, margin),
        what,
    )
    .endangers(endangers)
    .fix("Run a time daemon on both, which slews and does not step")
}

#[cfg(test)]
mod tests {
    use leasehold::clock::Instant;

    use super::*;

    /// A reading at this time since the start, by a clock that has gained this much by then.
    fn reading(at_ms: u64, gained_ms: u64) -> Reading {
        let started = Duration::from_secs(1_000);
        Reading {
            server: started + Duration::from_millis(at_ms + gained_ms),
            ours: started + Duration::from_millis(at_ms),
            steady: Instant::from_nanos(at_ms * 1_000_000),
            round_trip: Duration::from_millis(1),
        }
    }

    #[test]
    fn a_clock_that_gains_the_margin_within_a_ttl_is_a_failure() {
        // A margin of 620 ms in 30 s is a fiftieth.
        let timing = Timing::new(Duration::from_secs(30), None).expect("within the limits");
        for (gain_ms, verdict) in [
            (0, Verdict::Ok),
            (5, Verdict::Ok),
            (20, Verdict::Warning),
            (50, Verdict::Failure),
        ] {
            let found = rate(&reading(5_000, 0), &reading(7_000, gain_ms), &timing);
            assert_eq!(found.verdict, verdict, "{gain_ms} {found}");
            assert!(found.what.contains(" is good"), "{found}");
        }
    }

    #[test]
    fn a_small_offset_is_well_and_a_large_one_is_left_to_the_store() {
        let found = offset(reading(0, 300).offset()).expect("small");
        assert!(found.what.contains("300.0 ms ahead of"), "{found}");
        assert_eq!(offset(-2.0).map(|found| found.what), None);
    }
}
