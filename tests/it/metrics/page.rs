//! The page in the docs, held to the table in the code.

use std::fmt::Write as _;

use leasehold::metrics::{Metric, table};

use crate::harness::tree::root;

/// What stands between these lines is made from the table.
const BEGIN: &str = "<!-- made from the table: see tests/it/metrics/page.rs -->\n";
const END: &str = "<!-- end of what is made -->\n";

fn labels(metric: &Metric) -> String {
    let shown = metric.labels.iter().map(|label| match label.values {
        [] => format!("`{}`", label.name),
        values => format!("`{}` = {}", label.name, values.join(" / ")),
    });
    shown.collect::<Vec<_>>().join("; ")
}

fn write_row(page: &mut String, metric: &Metric) {
    let (name, kind, help) = (metric.name, metric.kind.as_str(), metric.help);
    writeln!(page, "| `{name}` | {kind} | {} | {help} |", labels(metric)).unwrap();
}

fn write_rows(page: &mut String, is_of_tool: bool) {
    page.push_str("| name | type | labels | what it tells |\n|---|---|---|---|\n");
    let rows = table()
        .iter()
        .filter(|metric| metric.is_of_tool == is_of_tool);
    rows.for_each(|metric| write_row(page, metric));
}

fn page_of_metrics() -> String {
    let mut page = String::from("# The metrics of the library\n\n");
    write_rows(&mut page, false);
    page.push_str("\n# The metrics of the tool\n\n");
    write_rows(&mut page, true);
    page.push_str("\n# Buckets\n\n| metric | upper bounds |\n|---|---|\n");
    for metric in table().iter().filter(|metric| !metric.buckets.is_empty()) {
        let bounds: Vec<_> = metric.buckets.iter().map(ToString::to_string).collect();
        writeln!(page, "| `{}` | {} |", metric.name, bounds.join(", ")).unwrap();
    }
    page
}

/// The page is written anew with `LEASEHOLD_WRITE_PAGES=1`.
#[test]
fn the_page_of_metrics_is_that_of_the_table() {
    let path = root().join("src/metrics.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("a begin");
    let (_, after) = rest.split_once(END).expect("an end");
    let expected = format!("{before}{BEGIN}{}{END}{after}", page_of_metrics());
    if std::env::var_os("LEASEHOLD_WRITE_PAGES").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    assert!(
        page == expected,
        "write src/metrics.md anew: LEASEHOLD_WRITE_PAGES=1 cargo test --all-features --test it metrics::page"
    );
}

#[test]
fn the_table_keeps_the_rules_of_prometheus() {
    let mut names = std::collections::BTreeSet::new();
    for metric in table() {
        let name = metric.name;
        assert!(names.insert(name), "{name} is there twice");
        assert!(name.starts_with("leasehold_"), "{name}");
        let is_counter = metric.kind == leasehold::metrics::MetricKind::Counter;
        assert_eq!(name.ends_with("_total"), is_counter, "{name}");
        assert_eq!(name.ends_with("_seconds"), metric.unit.is_some(), "{name}");
        let is_histogram = metric.kind == leasehold::metrics::MetricKind::Histogram;
        assert_eq!(!metric.buckets.is_empty(), is_histogram, "{name}");
        assert!(metric.buckets.is_sorted_by(|a, b| a < b), "{name}");
        assert!(!metric.help.ends_with('.'), "{name}");
    }
}
