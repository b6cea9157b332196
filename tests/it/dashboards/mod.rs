//! The boards, the rules and the pages in `dashboards`: that they agree with the table of metrics and with each other,
//! and that every panel and alert reacts to the fault it is for.

mod agreement;
mod expressions;
mod lint;
mod live;
mod rules;

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::harness::tree::root;

fn path(file: &str) -> PathBuf {
    root().join("dashboards").join(file)
}

fn read(file: &str) -> String {
    fs::read_to_string(path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The boards as their files have them, with the files' names.
fn boards() -> Vec<(String, Value)> {
    let files = fs::read_dir(path(".")).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<String> = files.filter(|file| file.ends_with(".json")).collect();
    files.sort();
    assert_eq!(files.len(), 3, "{files:?}");
    let board = |file: String| {
        let json = serde_json::from_str(&read(&file)).unwrap();
        (file, json)
    };
    files.into_iter().map(board).collect()
}

/// A panel as its file has it.
struct Panel {
    board: String,
    json: Value,
}

impl Panel {
    /// Those of all boards, without the rows.
    fn all() -> Vec<Self> {
        let panels = boards().into_iter().flat_map(|(file, board)| {
            let panels = board["panels"].as_array().unwrap().clone();
            panels.into_iter().map(move |json| Self {
                board: file.clone(),
                json,
            })
        });
        panels.filter(|panel| panel.json["type"] != "row").collect()
    }

    /// For messages: where it is.
    fn location(&self) -> String {
        let title = self.json["title"].as_str().unwrap_or("no title");
        format!("{}: {title}", self.board)
    }

    fn text(&self, key: &str) -> &str {
        self.json[key].as_str().unwrap_or_default()
    }

    fn expressions(&self) -> Vec<&str> {
        let targets = self.json["targets"].as_array().unwrap().iter();
        targets
            .map(|target| target["expr"].as_str().unwrap())
            .collect()
    }
}

/// The expression with every choice at `All`, for a Prometheus that is asked without Grafana.
fn filled_in(expression: &str) -> String {
    let choices = [
        ("$__rate_interval", "10s"),
        ("$__range", "2m"),
        ("$instance", ".+"),
        ("$group", ".+"),
        ("$store", ".+"),
        ("$name", ".+"),
        ("$job", ".+"),
    ];
    let filled = choices
        .iter()
        .fold(expression.to_owned(), |text, (name, value)| {
            text.replace(name, value)
        });
    assert!(!filled.contains('$'), "{filled}");
    filled
}
