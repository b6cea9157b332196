//! Examines this machine: the CPU limit of this control group, the lateness of timers, and the kernel's clock source.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::clock::{Boottime, Clock};

use super::facts::{Machine, Throttling};

/// Sleeps that are measured, and how long each is.
const SLEEPS: usize = 100;
const SLEEP: Duration = Duration::from_millis(5);

const CGROUPS: &str = "/sys/fs/cgroup";
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Examines the machine. It takes as long as the sleeps.
pub async fn look() -> Machine {
    let mut lateness = Vec::with_capacity(SLEEPS);
    for _ in 0..SLEEPS {
        // The clock and the timer that the watchdog uses.
        let due = Boottime.now().after(SLEEP);
        Boottime.sleep_until(due).await;
        lateness.push(Boottime.now().since(due));
    }
    let source = fs::read_to_string(CLOCK_SOURCE).ok();
    Machine {
        throttling: throttling(),
        lateness,
        clock_source: source.map(|source| source.trim().into()),
    }
}

/// Returns the throttling of the nearest control group with a limit. In a container the own group is the visible root.
fn throttling() -> Option<Throttling> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let (root, path) = own_group(&own)?;
    let inside = Path::new(CGROUPS).join(root);
    let group = inside.join(path.trim_start_matches('/'));
    let groups = group.ancestors().take_while(|at| at.starts_with(&inside));
    groups
        .filter_map(|group| fs::read_to_string(group.join("cpu.stat")).ok())
        .filter_map(|text| read_stat(&text))
        .max_by_key(|found| found.throttled)
}

/// Returns where the hierarchy with the CPU limits is mounted, and this process' group in it.
fn own_group(own: &str) -> Option<(PathBuf, &str)> {
    let mut lines = own.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        rest.split_once(':')
    });
    let (controllers, path) = lines
        .clone()
        .find(|(controllers, _)| controllers.split(',').any(|one| one == "cpu"))
        .or_else(|| lines.find(|(controllers, _)| controllers.is_empty()))?;
    Some((controllers.into(), path))
}

/// Returns `None` for a group without a limit: it has no periods.
fn read_stat(text: &str) -> Option<Throttling> {
    let number = |key: &str| {
        let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs.find(|(name, _)| *name == key)?.1.trim().parse().ok()
    };
    let periods = number("nr_periods").filter(|periods| *periods > 0)?;
    let for_us = number("throttled_usec");
    let for_us = for_us.or_else(|| number("throttled_time").map(|nanos: u64| nanos / 1_000));
    Some(Throttling {
        periods,
        throttled: number("nr_throttled")?,
        throttled_for: Duration::from_micros(for_us?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_control_groups_are_read() {
        let found = Some(Throttling {
            periods: 200,
            throttled: 50,
            throttled_for: Duration::from_secs(2),
        });
        let second = "usage_usec 1\nnr_periods 200\nnr_throttled 50\nthrottled_usec 2000000\n";
        assert_eq!(read_stat(second), found);
        let first = "nr_periods 200\nnr_throttled 50\nthrottled_time 2000000000\n";
        assert_eq!(read_stat(first), found);
        assert_eq!(read_stat("usage_usec 1\nuser_usec 1\n"), None);
        let zero = "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n";
        assert_eq!(read_stat(zero), None);
    }

    #[test]
    fn the_own_group_is_found_in_both_kinds() {
        let own = own_group("0::/user.slice/a\n").expect("found");
        assert_eq!(own, (PathBuf::new(), "/user.slice/a"));
        let first = "5:memory:/b\n4:cpu,cpuacct:/a\n0::/c\n";
        let own = own_group(first).expect("found");
        assert_eq!(own, (PathBuf::from("cpu,cpuacct"), "/a"));
        assert_eq!(own_group(""), None);
    }
}
