//! Examines this machine: the CPU limit of this control group, and the lateness of timers.

use std::fs;
use std::path::Path;
use std::time::Duration;

use leasehold::clock::{Boottime, Clock};

use super::finding::{Finding, Verdict};

/// Sleeps that are measured, and how long each is.
const SLEEPS: usize = 100;
const SLEEP: Duration = Duration::from_millis(5);

const CGROUPS: &str = "/sys/fs/cgroup";

/// Timers that end later than this are late: the watchdog arms its own 5 ms early, and the rest of the least margin, 20
/// ms, is for the way to the holder.
const LATE: Duration = Duration::from_millis(20);

/// How often this control group used up its CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Throttling {
    periods: u64,
    throttled: u64,
    throttled_for: Duration,
}

/// Examines the machine. It takes as long as the sleeps.
pub async fn examine() -> [Finding; 2] {
    let mut late = Vec::with_capacity(SLEEPS);
    for _ in 0..SLEEPS {
        // The clock and the timer that the watchdog uses.
        let due = Boottime.now().after(SLEEP);
        Boottime.sleep_until(due).await;
        late.push(Boottime.now().since(due));
    }
    [cpu(throttling()), timers(&late)]
}

fn cpu(found: Option<Throttling>) -> Finding {
    let Some(found) = found else {
        return Finding::ok("cpu", "no limit on the CPU time of this control group");
    };
    // A few are normal for a job that starts up.
    let good = found.periods.div_ceil(20);
    let what = format!(
        "this control group used up its CPU time in {} of {} periods, was throttled for {:.1?} in all, and below \
         {good} periods is good",
        found.throttled, found.periods, found.throttled_for
    );
    Finding::new("cpu", Verdict::warn_unless(found.throttled < good), what)
        .endangers("a throttled holder renews late, and is told late that its lease is over")
        .fix("Raise the CPU limit of the container, or the ttl")
}

fn timers(late: &[Duration]) -> Finding {
    let (p50, worst) = (quantile(late, 50), quantile(late, 100));
    let what = format!(
        "timers end {p50:.1?} late at p50 and {worst:.1?} at worst, and below {LATE:?} is good"
    );
    Finding::new("timers", Verdict::warn_unless(worst < LATE), what)
        .endangers("a holder is told late that its lease is over")
        .fix("Reduce the load of the machine, or raise the priority of the processes that hold leases")
}

/// Returns the value that this share of the values does not exceed.
pub fn quantile(values: &[Duration], percent: usize) -> Duration {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let index = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(index).copied().unwrap_or_default()
}

/// Returns the throttling of the most throttled control group with a limit, from our own group upwards. In a container
/// the own group is the visible root.
fn throttling() -> Option<Throttling> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let group = Path::new(CGROUPS).join(path);
    let groups = group.ancestors().take_while(|at| at.starts_with(CGROUPS));
    groups
        .filter_map(|group| fs::read_to_string(group.join("cpu.stat")).ok())
        .filter_map(|text| read_stat(&text))
        .max_by_key(|found| found.throttled)
}

/// Returns `None` for a group without a limit: it has no periods.
fn read_stat(text: &str) -> Option<Throttling> {
    let number = |key: &str| {
        let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs.find(|(name, _)| *name == key)?.1.trim().parse().ok()
    };
    Some(Throttling {
        periods: number("nr_periods").filter(|periods| *periods > 0)?,
        throttled: number("nr_throttled")?,
        throttled_for: Duration::from_micros(number("throttled_usec")?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_group_with_a_limit_is_read() {
        let text = "usage_usec 1\nnr_periods 200\nnr_throttled 50\nthrottled_usec 2000000\n";
        let found = Throttling {
            periods: 200,
            throttled: 50,
            throttled_for: Duration::from_secs(2),
        };
        assert_eq!(read_stat(text), Some(found));
        assert_eq!(read_stat("usage_usec 1\nuser_usec 1\n"), None);
        let zero = "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n";
        assert_eq!(read_stat(zero), None);
    }

    #[test]
    fn a_group_that_stands_still_often_is_a_warning() {
        let found = |throttled| {
            cpu(Some(Throttling {
                periods: 1_000,
                throttled,
                throttled_for: ms(1),
            }))
        };
        assert_eq!(found(10).verdict, Verdict::Ok);
        assert!(found(10).what.contains(" is good"));
        assert_eq!(found(50).verdict, Verdict::Warning);
        assert_eq!(cpu(None).verdict, Verdict::Ok);
    }

    #[test]
    fn late_timers_are_a_warning() {
        let good = timers(&[ms(0), ms(19)]);
        assert_eq!(good.verdict, Verdict::Ok);
        assert!(good.what.contains(" is good"), "{good}");
        assert_eq!(timers(&[ms(0), ms(20)]).verdict, Verdict::Warning);
    }

    #[test]
    fn quantiles_are_taken_of_few_values_and_of_none() {
        let values: Vec<_> = (1..=100).map(ms).collect();
        assert_eq!(quantile(&values, 50), ms(50));
        assert_eq!(quantile(&values, 99), ms(99));
        assert_eq!(quantile(&values[..1], 50), ms(1));
        assert_eq!(quantile(&[], 99), Duration::ZERO);
    }
}
