//! Judges the server's clock compared with ours.

use std::time::Duration;

use leasehold::clock::Timing;
use leasehold::store::Hazard;

use crate::doctor::facts::ServerClock;
use crate::doctor::finding::{Finding, Verdict};

/// Hazards that one of the doctor's own probes measures more exactly.
const CLOCK_HAZARDS: [&str; 3] = ["redis-clock-apart", "postgres-clock", "zookeeper-clock"];

/// What the stores themselves warn of beyond.
const GOOD_OFFSET: Duration = Duration::from_secs(1);

/// Judges how far the server's clock is from ours, and how fast it runs.
pub fn clock(found: &ServerClock, timing: &Timing, hazards: &[Hazard]) -> Vec<Finding> {
    let offset = signed(found.second.server) - signed(found.second.ours);
    let is_told = hazards
        .iter()
        .any(|hazard| CLOCK_HAZARDS.contains(&hazard.id));
    let mut findings = Vec::new();
    if !is_told {
        let (apart, side) = (milliseconds(offset), side(offset));
        let what = format!(
            "the server's clock is {apart:.1} ms {side} this machine's, and below {GOOD_OFFSET:?} is good"
        );
        findings.push(Finding::ok("clock-offset", what));
    }
    findings.push(rate(found, timing));
    findings
}

/// A server whose clock gains more than the margin within one ttl frees a name that its holder still counts as held.
fn rate(found: &ServerClock, timing: &Timing) -> Finding {
    let server = signed(found.second.server) - signed(found.first.server);
    let ours = signed(found.second.steady) - signed(found.first.steady);
    let doubt = f64_of(signed(found.first.round_trip) + signed(found.second.round_trip)) / 2.0;
    let drift = (f64_of(server - ours).abs() - doubt).max(0.0) / f64_of(ours).max(1.0);
    let per_ttl = drift * timing.ttl().as_secs_f64();
    let margin = timing.margin().as_secs_f64();
    let what = format!(
        "the server's clock drifts by {:.0} us a second, {:.1} ms within a ttl, and below {:.0} ms is good",
        drift * 1e6,
        per_ttl * 1e3,
        margin * 1e3 / 4.0
    );
    let verdict = match per_ttl {
        gain if gain >= margin => Verdict::Failure,
        gain if gain >= margin / 4.0 => Verdict::Warning,
        _ => return Finding::ok("clock-rate", what),
    };
    Finding::bad(
        "clock-rate",
        verdict,
        what,
        format!(
            "a holder's margin is {:?}: beyond it a name is granted while its holder still works",
            timing.margin()
        ),
        "Run a time daemon on both, which slews and does not step",
    )
}

fn signed(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "nanoseconds of a few seconds, or of an offset that is shown rounded"
)]
const fn f64_of(nanos: i128) -> f64 {
    nanos as f64
}

fn milliseconds(nanos: i128) -> f64 {
    f64_of(nanos.abs()) / 1e6
}

const fn side(offset: i128) -> &'static str {
    if offset > 0 { "ahead of" } else { "behind" }
}

#[cfg(test)]
mod tests {
    use leasehold::store::Severity;

    use super::*;
    use crate::doctor::facts::ClockReading;

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
            let found = rate(&clock_of(0, gain_ms), &timing());
            assert_eq!(found.verdict, verdict, "{gain_ms} {found}");
        }
    }

    #[test]
    fn a_constant_offset_is_told_once_and_is_no_rate() {
        let found = clock(&clock_of(300, 0), &timing(), &[]);
        assert_eq!(found.len(), 2);
        assert!(found[0].what.contains("300.0 ms ahead of"), "{}", found[0]);
        assert_eq!(found[1].verdict, Verdict::Ok);
        let told = Severity::Warning;
        let hazard = Hazard::new("redis-clock-apart", told, "a", "b", "C");
        assert_eq!(clock(&clock_of(2_000, 0), &timing(), &[hazard]).len(), 1);
    }
}
