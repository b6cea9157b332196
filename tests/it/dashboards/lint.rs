//! The rules of Grafana's dashboard linter, and our own: what makes a board import without an edit, and be understood.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Panel, boards};

fn choices(board: &Value) -> &Vec<Value> {
    board["templating"]["list"].as_array().unwrap()
}

#[test]
fn a_board_imports_and_provisions_without_an_edit() {
    let mut addresses = BTreeSet::new();
    for (file, board) in boards() {
        let title = &board["title"];
        assert!(addresses.insert(board["uid"].to_string()), "{title}");
        assert_eq!(board["uid"], file.trim_end_matches(".json"), "{title}");
        assert!(board["id"].is_null(), "{title}");
        // What Grafana 10.3 writes; later ones read it.
        assert_eq!(board["schemaVersion"], 39, "{title}");
        assert_eq!(board["editable"], false, "{title}");
        assert_eq!(board["tags"], serde_json::json!(["leasehold"]), "{title}");
        // Resolved by the import wizard only, and in the way of a provisioned file.
        let text = board.to_string();
        assert!(board.get("__inputs").is_none(), "{title}");
        assert!(!text.contains("${DS_"), "{title}");
    }
}

#[test]
fn a_board_has_the_choices_that_an_operator_expects() {
    for (_, board) in boards() {
        let title = &board["title"];
        let source = &choices(&board)[0];
        assert_eq!(
            (&source["name"], &source["label"], &source["type"]),
            (
                &"datasource".into(),
                &"Data Source".into(),
                &"datasource".into()
            ),
            "{title}"
        );
        for (index, name) in [(1, "job"), (2, "instance")] {
            let choice = &choices(&board)[index];
            assert_eq!(choice["name"], name, "{title}");
        }
        for choice in &choices(&board)[1..] {
            assert_eq!(choice["allValue"], ".+", "{title} {choice}");
            assert_eq!(choice["refresh"], 2, "{title} {choice}");
            assert_eq!(choice["multi"], true, "{title} {choice}");
            assert_eq!(choice["includeAll"], true, "{title} {choice}");
            assert_eq!(choice["datasource"]["uid"], "${datasource}", "{title}");
        }
    }
}

#[test]
fn a_panel_has_a_title_a_unit_and_what_good_looks_like() {
    let mut titles = BTreeSet::new();
    for panel in Panel::all() {
        let location = panel.location();
        assert!(titles.insert(location.clone()), "{location} is there twice");
        let unit = &panel.json["fieldConfig"]["defaults"]["unit"];
        assert!(
            unit.as_str().is_some_and(|unit| !unit.is_empty()),
            "{location}"
        );
        let description = panel.text("description");
        for part in [". Good: ", ". If not: "] {
            assert!(description.contains(part), "{location} lacks {part:?}");
        }
        assert!(description.ends_with('.'), "{location}");
        assert_eq!(
            panel.json["datasource"]["uid"], "${datasource}",
            "{location}"
        );
        assert!(!panel.expressions().is_empty(), "{location}");
    }
}

#[test]
fn panels_do_not_overlap() {
    for (_, board) in boards() {
        let mut taken = BTreeSet::new();
        for panel in board["panels"].as_array().unwrap() {
            let grid = |key: &str| panel["gridPos"][key].as_u64().unwrap();
            assert!(grid("x") + grid("w") <= 24, "{panel}");
            for x in grid("x")..grid("x") + grid("w") {
                for y in grid("y")..grid("y") + grid("h") {
                    assert!(taken.insert((x, y)), "{}", panel["title"]);
                }
            }
        }
    }
}

#[test]
fn a_query_keeps_to_the_choices_and_to_the_rate_interval() {
    for panel in Panel::all() {
        for expression in panel.expressions() {
            let location = format!("{} {expression}", panel.location());
            let selectors = expression.matches("leasehold_").count();
            let filter = r#"{job=~"$job", instance=~"$instance""#;
            assert_eq!(expression.matches(filter).count(), selectors, "{location}");
            for range in expression.split('[').skip(1) {
                let range = range.split(']').next().unwrap();
                // Of a sum there is no range, but a subquery, whose steps are a part of every interval of scrapes.
                let range = range.strip_suffix(":5s").unwrap_or(range);
                let is_known = ["$__rate_interval", "$__range"].contains(&range);
                assert!(is_known, "{location}");
            }
            for metric in expression.split("leasehold_").skip(1) {
                let name = metric.split('{').next().unwrap();
                if name.ends_with("_total") {
                    let call = expression.split(&format!("leasehold_{name}{{")).next();
                    let call = call.unwrap();
                    let is_rate = ["rate(", "increase("].iter().any(|f| call.ends_with(f));
                    assert!(is_rate, "{location}");
                }
            }
        }
    }
}

const GREEN: &str = "green";
const RED: &str = "red";
const ORANGE: &str = "orange";
const GREY: &str = "#8e8e8e";

/// The labels whose values say how something went, and so have a colour each.
const OUTCOMES: [&str; 5] = ["outcome", "reason", "state", "end", "kind"];

/// The colour of each value: what went well, what is lost or refused, what needs a look, and what is neither.
const MEANINGS: [(&str, &[&str]); 4] = [
    (
        GREEN,
        &[
            "acquired",
            "renewed",
            "released",
            "admitted",
            "acknowledged",
            "delivered",
            "success",
            "up",
        ],
    ),
    (
        RED,
        &[
            "refused",
            "failed",
            "deadline",
            "watchdog_died",
            "already_lost",
            "lost",
            "stale",
            "conflict",
            "denied",
            "misconfigured",
            "missing",
            "missed",
            "failure",
            "down",
            "backward",
        ],
    ),
    (
        ORANGE,
        &[
            "timed_out",
            "unavailable",
            "evicted",
            "max_hold",
            "no_progress",
            "signal",
            "store",
            "time_limit",
            "away",
        ],
    ),
    (
        GREY,
        &[
            "held",
            "cancelled",
            "unknown",
            "dropped",
            "shutdown",
            "closed",
            "invalid",
            "unwanted",
            "forward",
        ],
    ),
];

fn colour_of(word: &str) -> Option<&'static str> {
    let mut meanings = MEANINGS.iter();
    let found = meanings.find(|(_, words)| words.contains(&word))?;
    Some(found.0)
}

/// The values of the labels with a meaning by which the series of a query are named.
fn shown_values(target: &Value) -> Vec<&'static str> {
    let legend = target["legendFormat"].as_str().unwrap_or_default();
    let expression = target["expr"].as_str().unwrap_or_default();
    let metrics = leasehold::metrics::table().iter();
    let metrics = metrics.filter(|metric| {
        let mut ends = ["{", "_bucket{", "_count{", "_sum{"].iter();
        ends.any(|end| expression.contains(&format!("{}{end}", metric.name)))
    });
    let labels = metrics.flat_map(|metric| metric.labels);
    labels
        .filter(|label| OUTCOMES.contains(&label.name))
        .filter(|label| legend.contains(&format!("{{{{{}}}}}", label.name)))
        .flat_map(|label| label.values.iter().copied())
        .collect()
}

/// The fixed colours of a panel, by the words that its overrides match.
fn colours(panel: &Panel) -> BTreeMap<String, String> {
    let overrides = panel.json["fieldConfig"]["overrides"].as_array();
    let overrides = overrides.into_iter().flatten().flat_map(|one| {
        let colour = one["properties"][0]["value"]["fixedColor"].as_str();
        // /(^| )(one|other)$/
        let words = one["matcher"]["options"].as_str().unwrap_or_default();
        let words = words.split(['(', ')', '|', '/', '^', '$']).map(str::trim);
        let words = words.filter(|word| !word.is_empty());
        words.filter_map(move |word| Some((word.to_owned(), colour?.to_owned())))
    });
    overrides.collect()
}

#[test]
fn a_word_with_a_meaning_has_its_colour_in_every_panel() {
    let mut checked = 0;
    for panel in Panel::all() {
        let colours = colours(&panel);
        for (word, colour) in &colours {
            let meaning = colour_of(word);
            assert!(
                meaning.is_none_or(|it| it == colour),
                "{} {word}",
                panel.location()
            );
        }
        for word in panel.json["targets"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(shown_values)
        {
            let location = panel.location();
            let meaning =
                colour_of(word).unwrap_or_else(|| panic!("{location}: {word} has no meaning"));
            let colour = colours.get(word).map(String::as_str);
            assert_eq!(colour, Some(meaning), "{location}: {word}");
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked}");
}

/// What never happens to a healthy fleet, where no label has a word for it.
const EVENTS: [&str; 2] = ["token fell", "two holders seen"];

/// A series that is always there, such as a count that is 0, is not drawn in red: what is red says so by its word, or by
/// its value.
#[test]
fn no_panel_draws_a_healthy_fleet_in_red() {
    for panel in Panel::all() {
        let location = panel.location();
        let config = &panel.json["fieldConfig"];
        assert_ne!(config["defaults"]["color"]["fixedColor"], RED, "{location}");
        let overrides = config["overrides"].as_array().unwrap().iter();
        for one in overrides.filter(|one| one.to_string().contains(r#""fixedColor":"red""#)) {
            let names = one["matcher"]["options"].as_str().unwrap();
            let names = names.rsplit('(').next().unwrap().split(')').next().unwrap();
            for name in names.split('|') {
                let is_bad = colour_of(name) == Some(RED) || EVENTS.contains(&name);
                assert!(is_bad, "{location}: {name}");
            }
        }
    }
}

#[test]
fn each_row_is_full() {
    for (_, board) in boards() {
        let mut rows: BTreeMap<u64, (u64, BTreeSet<u64>)> = BTreeMap::new();
        for panel in board["panels"].as_array().unwrap() {
            let grid = |key: &str| panel["gridPos"][key].as_u64().unwrap();
            let (width, heights) = rows.entry(grid("y")).or_default();
            *width += grid("w");
            heights.insert(grid("h"));
        }
        for (y, (width, heights)) in rows {
            let location = format!("{} at {y}", board["title"]);
            assert_eq!((width, heights.len()), (24, 1), "{location}");
        }
    }
}

#[test]
fn legends_are_lists() {
    for panel in Panel::all() {
        if panel.json["type"] == "timeseries" {
            let legend = &panel.json["options"]["legend"];
            assert_eq!(legend["displayMode"], "list", "{}", panel.location());
            assert_eq!(legend["placement"], "bottom", "{}", panel.location());
        }
    }
}
