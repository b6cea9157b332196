//! The rules, as Prometheus and its promtool read them, with their tests and their runbook.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::Value;

use super::{Panel, filled_in, path, read};
use crate::harness::prometheus_server::PrometheusServer;

/// A rule.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) expression: String,
    pub(super) is_alert: bool,
    pub(super) is_critical: bool,
    annotations: Value,
}

impl Rule {
    /// All rules, as a Prometheus has read them.
    pub(super) fn all() -> Vec<Self> {
        let config = format!("rule_files: ['{}/*.yml']\n", path("rules").display());
        let server = PrometheusServer::start(&config);
        let groups = server.data("rules")["groups"].take();
        let rules = groups.as_array().unwrap().iter();
        let rules = rules.flat_map(|group| group["rules"].as_array().unwrap());
        rules.map(Self::read).collect()
    }

    fn read(json: &Value) -> Self {
        let text = |key: &str| json[key].as_str().unwrap().to_owned();
        Self {
            name: text("name"),
            expression: text("query"),
            is_alert: json["type"] == "alerting",
            is_critical: json["labels"]["severity"] == "critical",
            annotations: json["annotations"].clone(),
        }
    }

    pub(super) fn alerts() -> Vec<Self> {
        let alerts = Self::all().into_iter().filter(|rule| rule.is_alert);
        let alerts: Vec<Self> = alerts.collect();
        assert!(alerts.len() > 10, "{alerts:?}");
        alerts
    }
}

fn promtool(arguments: &[&str]) -> Output {
    let mut promtool = Command::new("promtool");
    let ended = promtool.args(arguments).current_dir(path("rules")).output();
    ended.expect("promtool is missing: apt-get install -y --no-install-recommends prometheus")
}

fn assert_passes(arguments: &[&str]) {
    let ended = promtool(arguments);
    let said = String::from_utf8_lossy(&ended.stdout);
    let complaint = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}\n{complaint}");
}

/// The names of the files in a folder.
fn files(folder: &str) -> Vec<String> {
    let files = std::fs::read_dir(path(folder)).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    files.filter(|file| file.ends_with(".yml")).collect()
}

#[test]
fn promtool_has_no_complaint_about_the_rules() {
    let files = files("rules");
    let mut arguments = vec!["check", "rules", "--lint=all", "--lint-fatal"];
    arguments.extend(files.iter().map(String::as_str));
    assert_passes(&arguments);
}

#[test]
fn promtool_has_no_complaint_about_the_example_of_a_configuration() {
    assert_passes(&["check", "config", "../scrape/prometheus.yml"]);
}

#[test]
fn the_tests_of_the_rules_pass() {
    let files: Vec<String> = files("rules/tests")
        .iter()
        .map(|file| format!("tests/{file}"))
        .collect();
    let mut arguments = vec!["test", "rules"];
    arguments.extend(files.iter().map(String::as_str));
    assert_passes(&arguments);
}

#[test]
fn each_alert_is_tested_firing_quiet_and_with_its_target_absent() {
    let tests: String = files("rules/tests")
        .iter()
        .map(|file| read(&format!("rules/tests/{file}")))
        .collect();
    for alert in Rule::alerts() {
        for case in ["fires", "must not", "target disappears"] {
            let name = format!("- name: \"{} {case}: ", alert.name);
            assert!(tests.contains(&name), "no test is called {name}");
        }
    }
}

/// The panel next to the alert asks what the alert asks: a hand-over, which one scrape shows as two holders, is none.
#[test]
fn a_hand_over_is_not_drawn_as_two_holders_and_two_holders_are() {
    let panels = Panel::all().into_iter();
    let panel = panels.filter(|panel| panel.text("title") == "Holders of each name");
    let panel: Vec<_> = panel.collect();
    let expression = panel[0].expressions()[0].replace("$__rate_interval", "1m");
    let expression = filled_in(&expression);
    let series = |instance: &str, values: &str| {
        let labels = format!("job=\"j\", instance=\"{instance}\", group=\"g\", name=\"ledger\"");
        format!("{{series: 'leasehold_lease_held{{{labels}}}', values: {values}}}")
    };
    // A holder whose process is new, one that has held it before, and one that never lets go.
    let cases = [
        ("_x8 1x20", "1x10 0x20", 1),
        ("0x8 1x20", "1x10 0x20", 1),
        ("0x8 1x20", "1x30", 2),
    ];
    for (new, old, most) in cases {
        let asked = format!("max_over_time(({expression})[5m:5s])");
        let test = format!(
            "rule_files: []\nevaluation_interval: 15s\ntests:\n- interval: 15s\n  input_series:\n  - {}\n  - {}\n  \
             promql_expr_test:\n  - expr: '{asked}'\n    eval_time: 5m\n    exp_samples:\n    - {{labels: '{{name=\"ledger\"}}', \
             value: {most}}}\n",
            series("new", new),
            series("old", old),
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, test).unwrap();
        assert_passes(&["test", "rules", file.path().to_str().unwrap()]);
    }
}

/// A test that passes whatever the rules say would be none.
#[test]
fn an_alert_that_never_fires_fails_its_tests() {
    let folder = tempfile::tempdir().unwrap();
    let copy = |file: &str, text: String| std::fs::write(folder.path().join(file), text).unwrap();
    std::fs::create_dir(folder.path().join("tests")).unwrap();
    let tests = files("rules/tests");
    for file in &tests {
        copy(
            &format!("tests/{file}"),
            read(&format!("rules/tests/{file}")),
        );
    }
    copy("recording.yml", read("rules/recording.yml"));
    // All of them at once: each is missed by the cases that make it fire.
    let silent = read("rules/alerts.yml").replace("- alert: Lease", "- alert: OtherLease");
    copy("alerts.yml", silent);
    let mut promtool = Command::new("promtool");
    promtool.args(["test", "rules"]).args(&tests);
    let ended = promtool.current_dir(folder.path().join("tests")).output();
    let complaint = String::from_utf8(ended.unwrap().stderr).unwrap();
    for alert in Rule::alerts() {
        let missed = format!("ALERTS{{alertname=\\\"{}\\\"", alert.name);
        assert!(
            complaint.contains(&missed),
            "{missed} is not missed: {complaint}"
        );
    }
}

#[test]
fn each_alert_has_its_entry_in_the_runbook_and_its_line_in_the_readme() {
    let (runbook, readme) = (read("runbook.md"), read("README.md"));
    let alerts = Rule::alerts();
    for alert in &alerts {
        let name = &alert.name;
        for key in ["summary", "description"] {
            let text = alert.annotations[key].as_str().unwrap_or_default();
            assert!(!text.is_empty(), "{name} has no {key}");
        }
        let link = format!("runbook.md#{}", name.to_lowercase());
        assert_eq!(alert.annotations["runbook_url"], link.as_str(), "{name}");
        let severity = if alert.is_critical {
            "critical"
        } else {
            "warning"
        };
        let row = format!("| [`{name}`]({link}) | {severity} |");
        assert!(readme.contains(&row), "README.md lacks {row}");
        let (_, entry) = runbook
            .split_once(&format!("\n## {name}\n"))
            .unwrap_or_else(|| panic!("no entry for {name}"));
        let entry = entry.split("\n## ").next().unwrap();
        for part in ["**It means**", "**Look at**", "**Do**", "**Meanwhile**"] {
            assert!(entry.contains(part), "the entry of {name} lacks {part}");
        }
    }
    let names: BTreeSet<&str> = alerts.iter().map(|alert| alert.name.as_str()).collect();
    let entries = runbook
        .lines()
        .filter_map(|line| line.strip_prefix("## Leasehold"));
    for entry in entries {
        let entry = format!("Leasehold{entry}");
        assert!(names.contains(entry.as_str()), "{entry} is no alert");
    }
}
