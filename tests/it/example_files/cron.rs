//! The crontab.

use super::{Machine, read, said};

/// The command of a line, after minute, hour, day of the month, month and day of the week.
fn command(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().skip(5).collect();
    words.join(" ")
}

#[test]
fn each_line_of_the_crontab_runs_its_job_and_skips_a_held_name() {
    let table = read("cron/nightly.crontab");
    let lines = table.lines().filter(|line| line.contains(" -- "));
    let commands: Vec<String> = lines.map(command).collect();
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
