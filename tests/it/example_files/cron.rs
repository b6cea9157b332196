//! The crontab.

use std::ops::RangeInclusive;

use super::{Machine, read, said};

/// Minute, hour, day of the month, month, day of the week.
const FIELDS: [RangeInclusive<u8>; 5] = [0..=59, 0..=23, 1..=31, 1..=12, 0..=7];

/// The command of each line, its five fields checked.
fn commands(table: &str) -> Vec<&str> {
    let is_entry = |line: &&str| {
        let first = line.chars().next();
        first.is_some_and(|first| first.is_ascii_digit() || first == '*')
    };
    table
        .lines()
        .filter(is_entry)
        .map(|line| {
            let mut rest = line;
            for range in &FIELDS {
                let (field, after) = rest.split_once(' ').unwrap();
                assert!(is_field(field, range), "{field} in {line}");
                rest = after.trim_start();
            }
            assert!(!rest.replace("\\%", "").contains('%'), "{line}");
            rest
        })
        .collect()
}

/// `*`, `*/n` or a number; the example needs no more.
fn is_field(field: &str, range: &RangeInclusive<u8>) -> bool {
    let number = field.strip_prefix("*/").unwrap_or(field);
    field == "*" || number.parse().is_ok_and(|number| range.contains(&number))
}

#[test]
fn each_line_of_the_crontab_runs_its_job_and_skips_a_held_name() {
    let table = read("cron/nightly.crontab");
    let commands = commands(&table);
    assert_eq!(commands.len(), 2);
    for line in commands {
        let machine = Machine::new();
        let (tool, _) = line.split_once(" -- ").expect("a job");
        let inner = format!("{tool} -- touch ran");
        // As cron runs it: by a shell.
        let nested = format!("{tool} -- sh -c 'touch outer; {inner}'");
        let ended = machine.program("/bin/sh").args(["-c", &nested]).output();
        let ended = ended.unwrap();
        assert_eq!(ended.status.code(), Some(0), "{line}: {}", said(&ended));
        assert_eq!(said(&ended), "", "{line}: cron would mail it");
        assert!(machine.0.path().join("outer").exists(), "{line}");
        assert!(!machine.0.path().join("ran").exists(), "{line}");
    }
}

#[test]
fn a_field_out_of_range_is_seen() {
    assert!(is_field("*/5", &FIELDS[0]));
    assert!(!is_field("60", &FIELDS[0]));
    assert!(!is_field("0", &FIELDS[2]));
}

#[test]
fn the_crontab_sets_only_what_the_tool_and_cron_know() {
    let table = read("cron/nightly.crontab");
    let names = table.lines().filter(|line| !line.starts_with('#'));
    let names = names.filter_map(|line| line.split_once('=').map(|(name, _)| name));
    let names: Vec<&str> = names.filter(|name| !name.contains(' ')).collect();
    assert_eq!(names, ["LEASEHOLD_STORE_FILE", "PATH"]);
}
