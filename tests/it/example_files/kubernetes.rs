//! The CronJob.

use super::{Machine, example, option, seconds, setting, stderr, with_job};

const FILE: &str = "kubernetes/cronjob.yaml";

/// The container's command and arguments.
fn command_words(file: &str) -> Vec<String> {
    let command = setting(file, "command: ");
    let mut words: Vec<String> = serde_json::from_str(command).expect("a list in one line");
    let (_, args) = file.split_once("args:\n").expect("arguments");
    let args = args
        .lines()
        .map_while(|line| line.trim().strip_prefix("- "));
    words.extend(args.map(Into::into));
    words
}

#[test]
fn the_cron_jobs_command_runs_and_a_held_name_is_no_failure() {
    let file = example(FILE);
    let words = command_words(&file);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let machine = Machine::new();
    let ended = machine.run(&words, &["sh", "-c", "exit 3"]);
    assert_eq!(ended.status.code(), Some(3), "{}", stderr(&ended));

    // Held by the job itself; a wait of minutes is cut short, the rest stays as it is.
    let short = words.iter().map(|word| match word.starts_with("--wait=") {
        true => "--wait=100ms",
        false => *word,
    });
    let inner = with_job(&short.collect::<Vec<_>>(), &["touch", "ran"]);
    let job = [&["leasehold"], &inner[1..]].concat();
    let ended = machine.run(&words, &job);
    assert_eq!(ended.status.code(), Some(0), "{}", stderr(&ended));
    assert!(
        stderr(&ended).contains("not acquired"),
        "{}",
        stderr(&ended)
    );
    assert!(!machine.0.path().join("ran").exists());
}

#[test]
fn the_pod_gives_the_job_its_time_to_end() {
    let file = example(FILE);
    let words = command_words(&file);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let stop = seconds(setting(&file, "terminationGracePeriodSeconds: "));
    assert!(stop > seconds(option(&words, "--kill-after").expect("said")));
}

#[test]
fn the_pod_takes_no_variables_from_services_of_the_name_leasehold() {
    assert_eq!(setting(&example(FILE), "enableServiceLinks: "), "false");
}
