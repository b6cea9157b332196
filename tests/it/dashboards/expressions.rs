//! Every expression, read by Prometheus itself.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use super::{Panel, filled_in};

#[test]
fn every_expression_of_a_board_parses() {
    let mut rules = String::from("groups:\n  - name: panels\n    rules:\n");
    let mut number = 0;
    for panel in Panel::all() {
        for expression in panel.expressions() {
            number += 1;
            let expression = serde_json::to_string(&filled_in(expression)).unwrap();
            writeln!(
                rules,
                "      - record: panel:{number}\n        expr: {expression}"
            )
            .unwrap();
        }
    }
    assert!(number > 40, "{number}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("panels.yml");
    fs::write(&file, &rules).unwrap();
    let checked = Command::new("promtool")
        .args(["check", "rules"])
        .arg(file)
        .output();
    let checked = checked.expect("promtool is missing: apt-get install -y prometheus");
    let complaint = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{complaint}\n{rules}");
}
