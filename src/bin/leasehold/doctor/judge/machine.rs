//! Judges the machine that the doctor runs on.

use std::time::Duration;

use super::quantile;
use crate::doctor::facts::{Machine, Throttling};
use crate::doctor::finding::{Finding, Verdict};

/// Timers that end later than this are late: the watchdog arms its own 5 ms early, and the rest of the least margin, 20
/// ms, is for the way to the holder.
const LATE: Duration = Duration::from_millis(20);

/// Clock sources that are read from a slow chip.
const SLOW_SOURCES: [&str; 3] = ["hpet", "acpi_pm", "jiffies"];

/// Judges the machine on which the doctor runs.
pub fn machine(machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![throttling(machine.throttling), lateness(&machine.lateness)];
    findings.extend(machine.clock_source.as_deref().map(clock_source));
    findings
}

fn throttling(found: Option<Throttling>) -> Finding {
    let Some(Throttling {
        periods,
        throttled,
        throttled_for,
    }) = found
    else {
        return Finding::ok("cpu", "no limit on the CPU time of this control group");
    };
    let good = periods.div_ceil(20);
    let what = format!(
        "this control group used up its CPU time in {throttled} of {periods} periods, was throttled for \
         {throttled_for:.1?} in all, and below {good} periods is good"
    );
    // A few are normal for a job that starts up.
    if throttled < good {
        return Finding::ok("cpu", what);
    }
    Finding::bad(
        "cpu",
        Verdict::Warning,
        what,
        "a throttled holder renews late, and is told late that its lease is over",
        "Raise the CPU limit of the container, or the ttl",
    )
}

fn lateness(found: &[Duration]) -> Finding {
    let mut sorted = found.to_vec();
    sorted.sort_unstable();
    let (p50, worst) = (quantile(&sorted, 50), quantile(&sorted, 100));
    let what = format!(
        "timers end {p50:.1?} late at p50 and {worst:.1?} at worst, and below {LATE:?} is good"
    );
    if worst < LATE {
        return Finding::ok("timers", what);
    }
    Finding::bad(
        "timers",
        Verdict::Warning,
        what,
        "a holder is told late that its lease is over",
        "Reduce the load of the machine, or raise the priority of the processes that hold leases",
    )
}

fn clock_source(source: &str) -> Finding {
    let what = format!("the kernel's clock source is {source}");
    if !SLOW_SOURCES.contains(&source) {
        return Finding::ok("clock-source", what);
    }
    Finding::bad(
        "clock-source",
        Verdict::Warning,
        what,
        "each check of a lease takes a microsecond or more",
        "See the kernel's log for why tsc or the hypervisor's clock is not used",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_group_that_stands_still_often_is_a_warning() {
        let found = |throttled| {
            throttling(Some(Throttling {
                periods: 1_000,
                throttled,
                throttled_for: ms(1),
            }))
        };
        assert_eq!(found(10).verdict, Verdict::Ok);
        assert_eq!(found(50).verdict, Verdict::Warning);
        assert_eq!(throttling(None).verdict, Verdict::Ok);
    }

    #[test]
    fn late_timers_and_slow_sources_of_time_are_warnings() {
        assert_eq!(lateness(&[ms(0), ms(19)]).verdict, Verdict::Ok);
        assert_eq!(lateness(&[ms(0), ms(20)]).verdict, Verdict::Warning);
        assert_eq!(clock_source("tsc").verdict, Verdict::Ok);
        assert_eq!(clock_source("hpet").verdict, Verdict::Warning);
    }
}
