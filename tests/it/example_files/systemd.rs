//! The units.

use super::{Machine, example, option, seconds, setting};

const NIGHTLY: &str = "systemd/leasehold-nightly.service";
const WORKER: &str = "systemd/leasehold-worker.service";

fn exec_start(unit: &str) -> Vec<&str> {
    setting(unit, "ExecStart=").split_whitespace().collect()
}

#[test]
fn the_unit_of_the_second_machine_skips_the_night_without_a_failure() {
    let unit = example(NIGHTLY);
    let machine = Machine::new();
    let first = machine.run(&exec_start(&unit), &["true"]);
    assert_eq!(first.status.code(), Some(0), "{first:?}");

    // The least hold of the first outlasts its job.
    let second = machine.run(&exec_start(&unit), &["true"]);
    let fine = setting(&unit, "SuccessExitStatus=").parse();
    assert_eq!(second.status.code(), Some(fine.unwrap()), "{second:?}");
}

#[test]
fn a_standing_service_passes_its_workers_code_on_and_outlives_its_lease() {
    let unit = example(WORKER);
    let ended = Machine::new().run(&exec_start(&unit), &["sh", "-c", "exit 4"]);
    assert_eq!(ended.status.code(), Some(4), "{ended:?}");
    let command = exec_start(&unit);
    let ttl = option(&command, "--ttl").expect("said");
    assert!(seconds(setting(&unit, "WatchdogSec=")) > seconds(ttl));
}

#[test]
fn the_units_give_the_job_its_time_to_end() {
    for file in [NIGHTLY, WORKER] {
        let unit = example(file);
        let stop = seconds(setting(&unit, "TimeoutStopSec="));
        let command = exec_start(&unit);
        let kill_after = option(&command, "--kill-after").expect("said");
        assert!(stop > seconds(kill_after), "{file}");
    }
}
