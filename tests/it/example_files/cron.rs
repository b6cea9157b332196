//! The crontabs, and machines whose clocks differ.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;

use super::programs::built;
use super::{Machine, example, stderr};
use crate::harness::redis_server::RedisServer;
use crate::harness::server_clock::ServerClock;
use crate::harness::times::LIMIT;
use crate::harness::wait::{at, now, until_so};

/// The command of a line, after minute, hour, day of the month, month and day of the week.
fn scheduled_command(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().skip(5).collect();
    words.join(" ")
}

/// The commands of a crontab.
fn commands(file: &str) -> Vec<String> {
    let table = example(file);
    let lines = table.lines().filter(|line| line.contains(" -- "));
    lines.map(scheduled_command).collect()
}

#[test]
fn each_line_of_a_crontab_runs_its_job_and_skips_a_held_name() {
    let commands = ["cron/nightly.crontab", "cron/hourly.crontab"].map(commands);
    assert_eq!(commands.each_ref().map(Vec::len), [2, 1]);
    for line in commands.concat() {
        let machine = Machine::new();
        let (tool, _) = line.split_once(" -- ").expect("a job");
        let inner = format!("{tool} -- touch ran");
        // As cron runs it: by a shell.
        let nested = format!("{tool} -- sh -c 'touch outer; {inner}'");
        let ended = machine.program("/bin/sh").args(["-c", &nested]).output();
        let ended = ended.unwrap();
        assert_eq!(ended.status.code(), Some(0), "{line}: {}", stderr(&ended));
        assert_eq!(stderr(&ended), "", "{line}: cron would mail it");
        assert!(machine.0.path().join("outer").exists(), "{line}");
        assert!(!machine.0.path().join("ran").exists(), "{line}");
    }
}

/// An hour of the machines below.
const HOUR_S: u64 = 5;
/// By how much their clocks are wrong.
const WRONG_BY_MS: [i64; 3] = [-500, 0, 500];
/// Waits for each hour by the machine's own clock, as cron does, and runs the command of the crontab, and the same
/// without a least hold.
const CRON: &str = r#"
for hour in $HOURS; do
  while [ "$(date +%s)" -lt "$hour" ]; do sleep 0.02; done
  KEPT & UNKEPT & wait
done
"#;

fn seconds_since_1970() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed();
    since.expect("it is later than 1970").as_secs()
}

fn times_in(file: &Path) -> usize {
    fs::read_to_string(file).map_or(0, |text| text.lines().count())
}

#[tokio::test]
async fn three_machines_whose_clocks_differ_run_the_hourly_job_once_an_hour() {
    let server = RedisServer::start().await;
    let folder = tempfile::tempdir().unwrap();
    let [line] = &commands("cron/hourly.crontab")[..] else {
        panic!("one line");
    };
    // Its half an hour is half of ours.
    let least = format!("{}ms", HOUR_S * 500);
    let job = |file: &str| {
        let file = folder.path().join(file);
        format!(" -- sh -c 'echo ran >> {}; sleep 0.2'", file.display())
    };
    let (tool, _) = line.split_once(" -- ").expect("a job");
    let kept = tool.replace("30min", &least) + &job("kept");
    let unkept = tool.replace(" --hold-at-least 30min hourly", " unkept") + &job("unkept");
    assert!(
        kept.contains(&least) && !unkept.contains("--hold"),
        "{line}"
    );
    let first = (seconds_since_1970() + 1).next_multiple_of(HOUR_S) + HOUR_S;
    let machines = WRONG_BY_MS.map(|wrong_by_ms| {
        let machine = Machine::new();
        fs::write(machine.0.path().join("store"), server.url()).unwrap();
        let clock = ServerClock::in_folder(machine.0.path());
        clock.step(wrong_by_ms);
        let cron = CRON.replace("UNKEPT", &unkept).replace("KEPT", &kept);
        let mut command = machine.program("/bin/sh");
        command.args(["-c", &cron]);
        command.env("HOURS", format!("{first} {}", first + HOUR_S));
        clock.rule(&mut command);
        (command.spawn().unwrap(), machine)
    });
    for (mut cron, _machine) in machines {
        assert!(cron.wait().unwrap().success());
    }
    assert_eq!(times_in(&folder.path().join("kept")), 2);
    let unkept = times_in(&folder.path().join("unkept"));
    assert!(
        unkept > 2,
        "without it the job ran {unkept} times in two hours"
    );
}

/// Starts the program that runs once for each hour, on a machine whose clock is so many minutes from two o'clock.
fn once_per_fire(server: &RedisServer, minutes: i64, job: &[&str]) -> (Child, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let clock = ServerClock::in_folder(folder.path());
    let two_o_clock = seconds_since_1970() / 86_400 * 86_400 + 7_200;
    let seconds = two_o_clock.checked_add_signed(minutes * 60).unwrap();
    clock.stand_still_at(seconds * 1_000_000);
    let mut command = Command::new(built("once_per_fire"));
    command.args(job).env("LEASEHOLD_STORE", server.url());
    clock.rule(&mut command);
    let started = command.stdout(Stdio::piped()).spawn();
    (started.unwrap(), folder)
}

fn ended((process, _folder): (Child, tempfile::TempDir)) -> (bool, String) {
    let ended = process.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    (ended.status.success(), said)
}

#[tokio::test]
async fn a_fire_that_failed_or_whose_machine_died_is_run_by_another_and_then_done() {
    let server = RedisServer::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ran");
    let text = file.to_str().unwrap();
    let (succeeded, said) = ended(once_per_fire(&server, -20, &["false"]));
    assert!(!succeeded && said.starts_with("running"), "{said}");
    let job = format!("echo begun >> {text}; sleep 2");
    let (mut dying, _folder) = once_per_fire(&server, 0, &["sh", "-c", &job]);
    until_so("its job", async || times_in(&file) == 1).await;
    let others = [20, -20, 0].map(|minutes| once_per_fire(&server, minutes, &["sh", "-c", &job]));
    at(now().after(LIMIT / 10)).await;
    dying.kill().unwrap();
    dying.wait().unwrap();
    let mut said = others.map(ended).map(|(succeeded, said)| {
        assert!(succeeded, "{said}");
        said
    });
    said.sort();
    let [done, done_too, running] = &said;
    assert_eq!([done, done_too], ["done by another machine\n"; 2]);
    assert!(running.ends_with("done: Released\n"), "{running}");
    assert_eq!(
        times_in(&file),
        2,
        "the one that died, and the one that did it"
    );
    // Also a machine that comes late.
    let (_, late) = ended(once_per_fire(&server, 20, &["sh", "-c", &job]));
    assert_eq!(&late, done);
}
