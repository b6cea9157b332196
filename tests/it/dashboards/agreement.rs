//! Boards, rules and pages, held to the table of metrics.

use std::collections::BTreeSet;

use leasehold::metrics::{Metric, MetricKind, table};

use super::rules::Rule;
use super::{Panel, path, read};

/// The labels of a scrape.
const SCRAPED: [&str; 2] = ["job", "instance"];

/// A metric in an expression, with its matchers as text.
#[derive(Debug, PartialEq)]
struct Selector<'a> {
    name: &'a str,
    matchers: &'a str,
}

/// The metrics of ours in this text; not the recorded series, which have a colon.
fn selectors(text: &str) -> Vec<Selector<'_>> {
    let starts = text.match_indices("leasehold_").map(|(start, _)| start);
    let is_own = |start: &usize| {
        let before = text[..*start].chars().next_back();
        !before.is_some_and(|c| c == ':' || c == '_' || c.is_ascii_alphanumeric())
    };
    let found = starts.filter(is_own).filter_map(|start| {
        let rest = &text[start..];
        let end = rest.find(|c: char| !(c == '_' || c == ':' || c.is_ascii_alphanumeric()));
        let (name, rest) = rest.split_at(end.unwrap_or(rest.len()));
        let inside = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let matchers = inside.map_or("", |(inside, _)| inside);
        (!name.contains(':')).then_some(Selector { name, matchers })
    });
    found.collect()
}

#[test]
fn selectors_are_found_with_their_matchers() {
    let text = r#"rate(leasehold_a_total{group="x"}[5m]) / group:leasehold_b:ratio + leasehold_c"#;
    let found = selectors(text);
    let names: Vec<_> = found
        .iter()
        .map(|found| (found.name, found.matchers))
        .collect();
    assert_eq!(
        names,
        [("leasehold_a_total", r#"group="x""#), ("leasehold_c", "")]
    );
}

/// The metric of the table that has this series.
fn metric(series: &str) -> Option<(&'static Metric, bool)> {
    let exact = table().iter().find(|metric| metric.name == series);
    if let Some(metric) = exact {
        // A histogram has no series of its own name.
        return (metric.kind != MetricKind::Histogram).then_some((metric, false));
    }
    ["_bucket", "_sum", "_count"].iter().find_map(|suffix| {
        let name = series.strip_suffix(suffix)?;
        let metric = table().iter().find(|metric| metric.name == name)?;
        (metric.kind == MetricKind::Histogram).then_some((metric, *suffix == "_bucket"))
    })
}

/// Fails unless the table has the metric, each label that is matched, and each value that is matched.
fn assert_known(selector: &Selector<'_>, location: &str) {
    let Some((metric, is_bucket)) = metric(selector.name) else {
        panic!("{location}: {} is not in the table", selector.name);
    };
    for matcher in selector
        .matchers
        .split(", ")
        .filter(|text| !text.is_empty())
    {
        let (label, rest) = matcher.split_once(['=', '!']).expect("a matcher");
        if SCRAPED.contains(&label) || is_bucket && label == "le" {
            continue;
        }
        let known = metric.labels.iter().find(|known| known.name == label);
        let known = known.unwrap_or_else(|| panic!("{location}: {} has no {label}", metric.name));
        let values = rest.split('"').nth(1).expect("a quoted value");
        for value in values.split('|').filter(|value| !value.starts_with('$')) {
            let is_there = known.values.is_empty() || known.values.contains(&value);
            assert!(is_there, "{location}: {label} is never {value}");
        }
    }
}

/// The labels by which series are put together.
fn grouped_by(expression: &str) -> BTreeSet<&str> {
    let lists = ["by (", "on (", "ignoring ("];
    let found = lists.iter().flat_map(|list| expression.split(list).skip(1));
    let labels = found.flat_map(|rest| rest.split(')').next().unwrap().split(", "));
    labels.collect()
}

fn assert_agrees(expression: &str, location: &str) {
    let selectors = selectors(expression);
    for selector in &selectors {
        assert_known(selector, location);
    }
    let metrics = selectors.iter().filter_map(|found| metric(found.name));
    let known = metrics.flat_map(|(metric, _)| metric.labels.iter().map(|label| label.name));
    let known: BTreeSet<&str> = known.chain(SCRAPED).chain(["le"]).collect();
    if selectors.is_empty() {
        return;
    }
    for label in grouped_by(expression) {
        assert!(known.contains(label), "{location}: no metric has {label}");
    }
}

#[test]
fn boards_ask_for_what_is_in_the_table() {
    for panel in Panel::all() {
        for expression in panel.expressions() {
            assert!(!selectors(expression).is_empty(), "{}", panel.location());
            assert_agrees(expression, &panel.location());
        }
    }
}

#[test]
fn rules_ask_for_what_is_in_the_table_or_recorded() {
    let rules = Rule::all();
    let recorded: BTreeSet<&str> = rules
        .iter()
        .filter(|rule| !rule.is_alert)
        .map(|rule| rule.name.as_str())
        .collect();
    for rule in &rules {
        assert_agrees(&rule.expression, &rule.name);
        let words = rule
            .expression
            .split(|c: char| !(c == '_' || c == ':' || c.is_ascii_alphanumeric()));
        for word in words.filter(|word| word.contains(':')) {
            assert!(
                recorded.contains(word),
                "{}: {word} is not recorded",
                rule.name
            );
        }
    }
}

#[test]
fn each_metric_is_on_a_board() {
    let panels = Panel::all();
    let expressions = panels.iter().flat_map(Panel::expressions);
    let shown = expressions
        .flat_map(selectors)
        .filter_map(|found| metric(found.name));
    let shown: BTreeSet<&str> = shown.map(|(metric, _)| metric.name).collect();
    let missing = table().iter().map(|metric| metric.name);
    let missing: Vec<&str> = missing.filter(|name| !shown.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_pages_name_metrics_and_panels_that_are_there() {
    let titles: BTreeSet<String> = Panel::all()
        .iter()
        .map(|panel| panel.text("title").to_owned())
        .collect();
    for file in ["README.md", "runbook.md"] {
        let page = read(file);
        for selector in selectors(&page) {
            assert_known(&selector, file);
        }
        // A panel is named as *title*, and **this** is no panel.
        let named = page
            .split(" *")
            .skip(1)
            .filter(|rest| !rest.starts_with('*'));
        for (title, _) in named.filter_map(|rest| rest.split_once('*')) {
            assert!(titles.contains(title), "{file} names the panel {title:?}");
        }
    }
}

#[test]
fn the_pages_link_to_what_is_there() {
    for file in ["README.md", "runbook.md"] {
        for link in read(file).split("](").skip(1) {
            let link = link.split([')', '#']).next().unwrap();
            let is_there = link.starts_with("http") || path(link).exists();
            assert!(is_there, "{file} links to {link}");
        }
    }
}
