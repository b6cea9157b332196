//! What the tool prints for programs, held to the page that describes it.

use std::collections::{BTreeMap, BTreeSet};

use rustix::process::Signal;
use serde_json::Value;

use super::export::{address, page};
use super::{HOLDER, Sandbox};
use crate::harness::tree::root;

/// The rows of one section of the page: the type of each field, and whether it may be null or absent.
pub(super) struct Section {
    title: String,
    fields: BTreeMap<String, (String, String)>,
    /// The words of the field, where it is a word.
    words: BTreeMap<String, Vec<String>>,
}

impl Section {
    pub(super) fn of(title: &str) -> Self {
        let page = std::fs::read_to_string(root().join("src/bin/leasehold/fields.md"));
        let page = page.expect("the page");
        let section = page.split("\n## ").find(|section| {
            let first = section.lines().next();
            first == Some(title)
        });
        let section = section.unwrap_or_else(|| panic!("no {title} on the page"));
        let mut all = Self {
            title: title.into(),
            fields: BTreeMap::new(),
            words: BTreeMap::new(),
        };
        let mut above = String::new();
        for line in section.lines() {
            if let Some(list) = line.strip_prefix("Each of `") {
                above = format!("{}[].", list.trim_end_matches("`:"));
            }
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let ["", field, kind, what, ""] = cells[..] else {
                continue;
            };
            let Some(field) = field.strip_prefix('`').and_then(|it| it.strip_suffix('`')) else {
                continue;
            };
            let field = format!("{above}{field}");
            // `word`: its meaning
            let words = what.split("`: ").filter_map(|part| part.rsplit('`').next());
            all.words
                .insert(field.clone(), words.map(Into::into).collect());
            let (kind, may_be) = kind.split_once(" or ").unwrap_or((kind, ""));
            all.fields.insert(field, (kind.into(), may_be.into()));
        }
        assert!(all.fields.contains_key("version"), "{title}");
        all
    }

    /// Fails unless this text is an object of the fields of the page.
    pub(super) fn check(&self, text: &str) {
        let json: Value = serde_json::from_str(text).unwrap_or_else(|error| {
            panic!("{}: no JSON: {error}: {text}", self.title);
        });
        assert_eq!(json["version"], 1, "{}", self.title);
        self.check_object("", &json);
    }

    fn check_object(&self, above: &str, json: &Value) {
        let what = format!("{}: {json}", self.title);
        let object = json.as_object().unwrap_or_else(|| panic!("{what}"));
        let in_object = |field: &&String| {
            let rest = field.strip_prefix(above);
            rest.is_some_and(|rest| !rest.contains('.'))
        };
        let described: BTreeSet<_> = self.fields.keys().filter(in_object).cloned().collect();
        let printed: BTreeSet<_> = object.keys().map(|key| format!("{above}{key}")).collect();
        let unknown: Vec<_> = printed.difference(&described).collect();
        assert!(unknown.is_empty(), "not on the page: {unknown:?}: {what}");
        for missing in described.difference(&printed) {
            assert_eq!(self.fields[missing].1, "absent", "{missing} lacks: {what}");
        }
        for (key, value) in object {
            self.check_value(&format!("{above}{key}"), value);
        }
    }

    fn check_value(&self, field: &str, value: &Value) {
        let (kind, may_be) = &self.fields[field];
        let what = format!("{}: {field} is {value}", self.title);
        match (kind.as_str(), value) {
            (_, Value::Null) => assert_eq!(may_be, "null", "{what}"),
            ("text", Value::String(_)) => {}
            ("word", Value::String(word)) => assert!(self.words[field].contains(word), "{what}"),
            ("number" | "ms", Value::Number(number)) => {
                assert!(number.is_u64(), "{what}");
            }
            ("list", Value::Array(items)) => {
                for item in items.iter().filter(|item| item.is_object()) {
                    self.check_object(&format!("{field}[]."), item);
                }
            }
            _ => panic!("the page says {kind}: {what}"),
        }
    }
}

#[test]
fn what_is_printed_about_a_store_has_the_fields_of_the_page() {
    let sandbox = Sandbox::new();
    let status = Section::of("`status --json`");
    let tell = |arguments: &[&str]| sandbox.start(sandbox.tool(arguments)).end().stdout;
    status.check(&tell(&["status", "--json"]));
    let mut job = sandbox.run(&["--label", "a job", "--permits", "1"], HOLDER);
    sandbox.mark("first");
    let held = tell(&["status", "--json"]);
    assert!(held.contains("\"permit\": 1"), "{held}");
    status.check(&held);
    tell(&["evict", "x#1"]);
    status.check(&tell(&["status", "--json", "x"]));
    sandbox.let_go();
    job.end();
    Section::of("`status --members --json`").check(&tell(&["status", "--members", "--json"]));
    Section::of("`doctor --json`").check(&tell(&["doctor", "--json"]));
}

#[test]
fn what_a_run_prints_and_writes_has_the_fields_of_the_page() {
    let sandbox = Sandbox::new();
    let report = Section::of("`run --report FILE`");
    let written = || std::fs::read_to_string(sandbox.path("report.json")).expect("written");
    let options = [
        "--report",
        "report.json",
        "--json",
        "--metrics",
        "localhost:0",
    ];
    let script = format!("cp $LEASEHOLD_STATUS_FILE status.json; {HOLDER}");
    let mut job = sandbox.run(&options, &script);
    sandbox.mark("first");
    report.check(&written());
    let status = std::fs::read_to_string(sandbox.path("status.json")).expect("copied");
    Section::of("The status file").check(&status);
    let of_job = Section::of("`/status` of `run --metrics`");
    of_job.check(&page(&address(&job), "/status").1);
    let rival = sandbox
        .run(&["-n", "--report", "report.json"], "true")
        .end();
    assert_eq!(rival.code, Some(75), "{rival:?}");
    report.check(&written());
    sandbox.let_go();
    let ended = job.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    report.check(&written());
    let events = Section::of("`run --json`");
    assert!(ended.stderr.lines().count() > 3, "{ended:?}");
    ended.stderr.lines().for_each(|line| events.check(line));
}

#[test]
fn the_status_of_an_exporter_has_the_fields_of_the_page() {
    let sandbox = Sandbox::new();
    let export = sandbox.start(sandbox.tool(&["export", "--listen", "localhost:0"]));
    let address = address(&export);
    let status = Section::of("`/status` of `export`");
    // Before the first scan or after it: both are described.
    status.check(&page(&address, "/status").1);
    super::wait_until("a scan", || page(&address, "/readyz").0.contains(" 200 "));
    status.check(&page(&address, "/status").1);
    export.signal(Signal::TERM);
}
