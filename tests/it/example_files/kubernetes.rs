//! The CronJob, the Deployment, and the rights that both need.

use serde_json::Value;

use super::{Machine, example, option, seconds, setting, stderr, with_job};

const FILE: &str = "kubernetes/cronjob.yaml";
const FILES: [&str; 2] = [FILE, "kubernetes/deployment.yaml"];

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
fn the_deployments_command_runs() {
    let words = command_words(&example(FILES[1]));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ended = Machine::new().run(&words, &["true"]);
    assert_eq!(ended.status.code(), Some(0), "{}", stderr(&ended));
}

#[test]
fn the_pods_give_the_job_its_time_to_end() {
    for file in FILES.map(example) {
        let words = command_words(&file);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let stop = seconds(setting(&file, "terminationGracePeriodSeconds: "));
        assert!(stop > seconds(option(&words, "--kill-after").expect("said")));
    }
}

#[test]
fn the_pods_take_no_variables_from_services_of_the_name_leasehold() {
    for file in FILES.map(example) {
        assert_eq!(setting(&file, "enableServiceLinks: "), "false");
    }
}

#[test]
fn the_pods_keep_their_leases_in_their_namespace_as_the_account_that_has_the_rights() {
    let rights = example("kubernetes/rights.yaml");
    let page = include_str!("../../../src/store/kubernetes/README.md");
    assert!(page.contains(setting(&rights, "verbs: ")), "as on the page");
    for file in FILES.map(example) {
        let store = setting(&file, "value: ");
        let store: Value = serde_json::from_str(store).expect("a quoted text");
        assert_eq!(store, "kubernetes:");
        let account = setting(&file, "serviceAccountName: ");
        assert!(rights.contains(&format!(
            "kind: ServiceAccount\nmetadata:\n  name: {account}\n"
        )));
    }
}
