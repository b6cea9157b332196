//! What a store needs to keep its promises: the table on the page of stores, held to what the stores report, to the
//! README, and to a server as it is installed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use leasehold::store::kinds;
use serde_json::Value;

use super::Sandbox;
use crate::harness::redis_server::Setup;
use crate::harness::tree::root;

/// A row of the table.
#[derive(Debug)]
struct Need {
    store: String,
    what: String,
    /// What is kept with it, in the README's words.
    keeps: String,
    /// `yes`, `no`, or `no, with ...`.
    by_default: String,
    hazard: String,
}

/// The rows of the table below this heading of a page, without its head.
fn rows_under(page: &str, heading: &str) -> Vec<Vec<String>> {
    let page = fs::read_to_string(root().join(page)).unwrap();
    let (_, section) = page
        .split_once(&format!("\n{heading}\n"))
        .expect("the section");
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let cells = |row: &str| {
        row.trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().into())
            .collect()
    };
    rows.map(cells).collect()
}

fn needs() -> Vec<Need> {
    let rows = rows_under("src/store/README.md", "## What a set-up needs");
    let needs = rows.into_iter().map(|row| {
        let [store, what, keeps, by_default, hazard] = row.try_into().expect("five cells");
        let hazard = hazard.trim_matches('`').into();
        Need {
            store,
            what,
            keeps,
            by_default,
            hazard,
        }
    });
    needs.collect()
}

/// What stands in a text between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The sources of the stores, each as one line of single spaces without the signs of a continued text.
fn add_sources(folder: &Path, all: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_sources(&path, all);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = fs::read_to_string(&path).unwrap().replace("\\\n", "\n");
            all.push(text.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
}

/// The identifier of a hazard that this text begins with.
fn identifier(text: &str) -> Option<&str> {
    let (id, _) = text.split_once('"')?;
    let (store, rest) = id.split_once('-')?;
    let is_word = rest.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let mut stores = kinds().iter().map(|kind| kind.word);
    (is_word && stores.any(|known| known == store)).then_some(id)
}

#[test]
fn the_table_of_needs_has_each_hazard_that_a_store_can_report_once() {
    let mut texts = Vec::new();
    add_sources(&root().join("src/store"), &mut texts);
    let parts = texts.iter().flat_map(|text| text.split('"'));
    let quoted = parts.map(|part| format!("{part}\""));
    let reported: BTreeSet<_> = quoted
        .filter_map(|text| identifier(&text).map(str::to_owned))
        .collect();
    let needs = needs();
    let listed: BTreeSet<_> = needs.iter().map(|need| need.hazard.clone()).collect();
    assert_eq!(reported, listed);
    assert_eq!(listed.len(), needs.len(), "one is there twice: {needs:#?}");
}

#[test]
fn each_setting_of_the_table_of_needs_is_in_what_is_reported_without_it() {
    let mut texts = Vec::new();
    add_sources(&root().join("src/store"), &mut texts);
    for need in needs() {
        let id = format!("\"{}\",", need.hazard);
        // To the next row of the store's table.
        let told = texts.iter().flat_map(|text| text.split(&id).skip(1));
        let told = told.map(|rest| rest.split("::new(").next().unwrap_or(rest));
        let told: Vec<_> = told.collect();
        for setting in quoted(&need.what) {
            assert!(
                told.iter().any(|told| told.contains(setting)),
                "{setting} of {need:?}: {told:?}"
            );
        }
    }
}

/// Whether a row of the README's table is about a store of the table of needs.
fn is_of(readme: &str, store: &str) -> bool {
    match store {
        "Redis" | "Sentinel" | "Sentinel, Cluster" | "Cluster" => readme == "Redis, Valkey",
        store => readme
            .split(", ")
            .any(|one| one.eq_ignore_ascii_case(store)),
    }
}

#[test]
fn the_readme_claims_nothing_that_a_server_as_it_is_installed_does_not_keep() {
    let claims = rows_under("README.md", "## Which store");
    let needs = needs();
    for claim in &claims {
        let [store, _, survives, _] = &claim[..] else {
            panic!("no row of four: {claim:?}");
        };
        let of_store: Vec<_> = needs
            .iter()
            .filter(|need| is_of(store, &need.store))
            .collect();
        assert!(!of_store.is_empty(), "{store}");
        for need in &of_store {
            let is_claimed = need.by_default.starts_with("no") && survives.contains(&need.keeps);
            let setting = quoted(&need.what).next().unwrap_or(&need.what);
            assert!(
                !is_claimed || survives.contains(setting),
                "{survives} without {need:?}"
            );
        }
        for setting in quoted(survives) {
            let setting = setting.trim_start_matches('?').split('=').next().unwrap();
            let is_needed = of_store.iter().any(|need| need.what.contains(setting));
            assert!(is_needed, "{setting} of the README is no need of {store}");
        }
    }
}

#[test]
fn the_column_of_needs_beside_the_costs_names_only_what_the_table_has() {
    let needs = needs();
    for row in rows_under("src/store/README.md", "## What each costs and needs") {
        let needed = row.last().expect("a cell");
        for setting in quoted(needed).filter(|setting| *setting != "leasehold init") {
            let is_there = needs.iter().any(|need| need.what.contains(setting));
            assert!(is_there, "{setting} of {row:?}");
        }
    }
}

#[tokio::test]
async fn a_redis_as_it_is_installed_lacks_what_the_table_says_and_no_more() {
    // What redis.conf has, instead of what the tests use.
    let setup = Setup::default().with(["--save", "3600 1 300 100 60 10000"]);
    let server = setup.start().await;
    let sandbox = Sandbox::new();
    let url = server.url();
    let doctor = sandbox
        .start(sandbox.tool(&["doctor", "--json", "--store", &url]))
        .end();
    let diagnosis: Value = serde_json::from_str(&doctor.stdout).expect("JSON");
    let findings = diagnosis["findings"].as_array().expect("a list").iter();
    let bad = findings.filter(|finding| finding["verdict"] != "ok");
    let ids: BTreeSet<_> = bad.filter_map(|finding| finding["id"].as_str()).collect();
    let ids: Vec<_> = ids
        .into_iter()
        .filter(|id| id.starts_with("redis-"))
        .collect();
    let needs = needs();
    let lacking = needs
        .iter()
        .filter(|need| need.store == "Redis" && need.by_default == "no");
    let lacking: Vec<_> = lacking.map(|need| &*need.hazard).collect();
    assert_eq!(ids, lacking, "{diagnosis}");
}
