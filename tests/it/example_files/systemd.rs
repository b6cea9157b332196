//! The units and the timer.

use super::{Machine, option, read, seconds};

const UNITS: [&str; 2] = [
    "systemd/leasehold-nightly.service",
    "systemd/leasehold-worker.service",
];

/// What may stand in the files; a key that is mistyped is one that systemd ignores.
const KNOWN: &[(&str, &[&str])] = &[
    (
        "Unit",
        &[
            "Description",
            "Documentation",
            "Wants",
            "After",
            "StartLimitIntervalSec",
        ],
    ),
    (
        "Service",
        &[
            "Type",
            "TimeoutStartSec",
            "WatchdogSec",
            "Restart",
            "RestartSec",
            "LoadCredential",
            "Environment",
            "ExecStart",
            "SuccessExitStatus",
            "KillMode",
            "TimeoutStopSec",
        ],
    ),
    ("Timer", &["OnCalendar", "AccuracySec", "Persistent"]),
    ("Install", &["WantedBy"]),
];

/// Section, key and value of each line.
struct Unit(Vec<(String, String, String)>);

impl Unit {
    fn read(file: &str) -> Self {
        let mut section = String::new();
        let mut lines = Vec::new();
        for line in read(file).lines() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(name) = line
                .strip_prefix('[')
                .and_then(|line| line.strip_suffix(']'))
            {
                section = name.into();
                continue;
            }
            let (key, value) = line
                .split_once('=')
                .unwrap_or_else(|| panic!("{file}: {line}"));
            let keys = KNOWN.iter().find(|(name, _)| *name == section);
            let keys = keys
                .unwrap_or_else(|| panic!("{file}: section {section}"))
                .1;
            assert!(keys.contains(&key), "{file}: {key} in {section}");
            assert!(!value.is_empty(), "{file}: {key}");
            lines.push((section.clone(), key.into(), value.into()));
        }
        Self(lines)
    }

    fn all(&self, section: &str, key: &str) -> Vec<&str> {
        let lines = self.0.iter();
        let lines = lines.filter(|line| line.0 == section && line.1 == key);
        lines.map(|line| line.2.as_str()).collect()
    }

    fn one(&self, section: &str, key: &str) -> &str {
        let all = self.all(section, key);
        assert_eq!(all.len(), 1, "{key}: {all:?}");
        all[0]
    }

    fn command(&self) -> Vec<&str> {
        self.one("Service", "ExecStart")
            .split_whitespace()
            .collect()
    }
}

#[test]
fn the_unit_of_the_second_machine_skips_the_night_without_a_failure() {
    let unit = Unit::read("systemd/leasehold-nightly.service");
    let machine = Machine::new();
    let first = machine.run(&unit.command(), &["true"]);
    assert_eq!(first.status.code(), Some(0), "{first:?}");

    // The least hold of the first outlasts its job.
    let second = machine.run(&unit.command(), &["true"]);
    let fine = unit.one("Service", "SuccessExitStatus").parse();
    assert_eq!(second.status.code(), Some(fine.unwrap()), "{second:?}");
}

#[test]
fn a_standing_service_waits_for_the_lease_and_is_not_killed_before_the_lease_ends() {
    let unit = Unit::read("systemd/leasehold-worker.service");
    let ended = Machine::new().run(&unit.command(), &["sh", "-c", "exit 4"]);
    assert_eq!(ended.status.code(), Some(4), "{ended:?}");
    assert_eq!(unit.one("Service", "Type"), "notify");
    assert_eq!(unit.one("Service", "TimeoutStartSec"), "infinity");
    let ttl = option(&unit.command(), "--ttl").expect("said");
    assert!(seconds(unit.one("Service", "WatchdogSec")) > seconds(ttl));
}

#[test]
fn the_units_give_the_job_its_time_to_end() {
    for file in UNITS {
        let unit = Unit::read(file);
        let stop = seconds(unit.one("Service", "TimeoutStopSec"));
        let kill_after = option(&unit.command(), "--kill-after").expect("said");
        assert!(stop > seconds(kill_after), "{file}");
        assert_eq!(unit.one("Service", "KillMode"), "mixed", "{file}");
    }
}

#[test]
fn the_units_variables_are_known_to_the_tool() {
    let machine = Machine::new();
    let help = machine
        .program(env!("CARGO_BIN_EXE_leasehold"))
        .args(["run", "--help"])
        .output();
    let help = String::from_utf8(help.unwrap().stdout).unwrap();
    for unit in UNITS.map(Unit::read) {
        for variable in unit.all("Service", "Environment") {
            let name = variable.split_once('=').unwrap().0;
            assert!(help.contains(name), "{name}");
        }
    }
}

#[test]
fn the_timer_starts_the_unit_beside_it() {
    let timer = Unit::read("systemd/leasehold-nightly.timer");
    let time = timer
        .one("Timer", "OnCalendar")
        .strip_prefix("*-*-* ")
        .expect("each day");
    let parts: Vec<u8> = time.split(':').map(|part| part.parse().unwrap()).collect();
    assert!(parts.len() == 3 && parts[0] < 24 && parts[1] < 60 && parts[2] < 60);
    assert_eq!(timer.one("Install", "WantedBy"), "timers.target");
}
