//! What the gauges cost: the reporter reads all leases once a second, in parts, each under the lock of the schedule.

use std::hint::black_box;
use std::time::{Duration, Instant};

use leasehold::internals::Survey;
use leasehold::internals::schedule::LeaseId;

use super::RUNS;
use super::schedule::Bench;
use super::yardstick::{figure, seconds};

pub(crate) fn measure() {
    for held in [10_000, 100_000, 1_000_000] {
        let mut bench = Bench::new(held);
        // The first reads memory that was just written.
        let _ = read(&bench);
        let runs: Vec<_> = (0..RUNS).map(|_| read(&bench)).collect();
        let longest: Vec<_> = runs.iter().map(|(longest, _)| longest * 1e6).collect();
        figure(&format!("survey_{held}_longest_stretch_us"), "us", &longest);
        let whole: Vec<_> = runs.iter().map(|(_, whole)| whole * 1e3).collect();
        figure(&format!("survey_{held}_ms"), "ms", &whole);
        bench.now = bench.now.after(Duration::from_secs(100_000));
        let runs = (0..RUNS).map(|_| read(&bench));
        let longest: Vec<_> = runs.map(|(longest, _)| longest * 1e6).collect();
        let name = format!("survey_{held}_all_due_longest_stretch_us");
        figure(&name, "us", &longest);
    }
}

/// Returns the seconds of the longest part, and of all of them.
fn read(bench: &Bench) -> (f64, f64) {
    let mut survey = Survey::default();
    let (mut longest, mut whole) = (0.0_f64, 0.0);
    let mut from = Some(LeaseId::FIRST);
    while let Some(first) = from {
        let started = Instant::now();
        from = bench.schedule.survey(first, bench.now, &mut survey);
        let took = seconds(started);
        longest = longest.max(took);
        whole += took;
    }
    black_box(survey);
    (longest, whole)
}
