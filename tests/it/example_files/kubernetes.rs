//! The CronJob.

use saphyr::{LoadableYamlNode, Yaml};

use super::{Machine, option, read, said, seconds};

fn text<'a>(node: &'a Yaml<'a>) -> &'a str {
    node.as_str().unwrap_or_else(|| panic!("text: {node:?}"))
}

fn texts<'a>(node: &'a Yaml<'a>) -> Vec<&'a str> {
    let all = node
        .as_sequence()
        .unwrap_or_else(|| panic!("a list: {node:?}"));
    all.iter().map(text).collect()
}

#[test]
fn the_cron_jobs_command_runs_and_a_held_name_is_no_failure() {
    let file = read("kubernetes/cronjob.yaml");
    let documents = Yaml::load_from_str(&file).expect("YAML");
    assert_eq!(documents.len(), 1);
    let job = &documents[0];
    assert_eq!(text(&job["apiVersion"]), "batch/v1");
    assert_eq!(text(&job["kind"]), "CronJob");
    let schedule: Vec<&str> = text(&job["spec"]["schedule"]).split_whitespace().collect();
    assert_eq!(schedule.len(), 5);

    let pod = &job["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let words = [texts(&container["command"]), texts(&container["args"])].concat();
    let stop = pod["terminationGracePeriodSeconds"].as_integer().unwrap();
    let kill_after = seconds(option(&words, "--kill-after").expect("said"));
    assert!(stop.unsigned_abs() > kill_after.as_secs());

    let machine = Machine::new();
    let ended = machine.run(&words, &["sh", "-c", "exit 3"]);
    assert_eq!(ended.status.code(), Some(3), "{}", said(&ended));

    // Held by the job itself; a wait of minutes is cut short, the rest stays as it is.
    let short: Vec<&str> = words
        .iter()
        .map(|word| {
            if word.starts_with("--wait=") {
                "--wait=100ms"
            } else {
                word
            }
        })
        .collect();
    let inner = super::with_job(&short, &["touch", "ran"]);
    let job = [&["leasehold"], &inner[1..]].concat();
    let ended = machine.run(&words, &job);
    assert_eq!(ended.status.code(), Some(0), "{}", said(&ended));
    assert!(said(&ended).contains("not acquired"), "{}", said(&ended));
    assert!(!machine.0.path().join("ran").exists());
}

#[test]
fn the_cron_job_mounts_the_store_where_the_tool_looks_for_it() {
    let file = read("kubernetes/cronjob.yaml");
    let documents = Yaml::load_from_str(&file).expect("YAML");
    let pod = &documents[0]["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let variables = container["env"].as_sequence().unwrap();
    let is_store = |variable: &&Yaml| text(&variable["name"]) == "LEASEHOLD_STORE_FILE";
    let store = variables.iter().find(is_store).expect("named");
    let mount = &container["volumeMounts"][0];
    let expected = format!("{}/store", text(&mount["mountPath"]));
    assert_eq!(text(&store["value"]), expected);
    assert_eq!(text(&mount["name"]), text(&pod["volumes"][0]["name"]));
}
