//! The rules for what people read: the lengths of the first pages, of lines and of names, and worn words.

use std::fs;

use super::{Source, sources};
use crate::harness::tree::root;

/// Lines of README.
const README_LINES: usize = 110;

/// Words that the glossary of the code map explains.
const GLOSSARY_WORDS: usize = 60;

/// Columns of a line of comment in `src`.
const COMMENT_COLUMNS: usize = 120;

/// Words in the name of a test.
const NAME_WORDS: usize = 15;

fn read(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap()
}

#[test]
fn the_front_pages_stay_short() {
    let readme = read("README.md").lines().count();
    assert!(readme <= README_LINES, "README.md has {readme} lines");
    let words = glossary(&read("src/README.md"));
    assert!(words.len() > 20, "{words:?}");
    assert!(words.len() <= GLOSSARY_WORDS, "{} {words:?}", words.len());
}

/// The words in the first column of the glossary's table.
fn glossary(map: &str) -> Vec<String> {
    let (_, table) = map.split_once("## Glossary").unwrap();
    let rows = table.lines().skip_while(|line| !line.starts_with("|---"));
    let rows = rows.skip(1).take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.split('|').nth(1).unwrap());
    let words = cells.flat_map(|cell| cell.split(','));
    words.map(|word| word.trim().to_owned()).collect()
}

fn is_doc(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("///") || line.starts_with("//!")
}

#[test]
fn lines_of_comments_are_not_too_wide() {
    for Source { path, .. } in sources("src") {
        let text = fs::read_to_string(&path).unwrap();
        let comments = text
            .lines()
            .filter(|line| line.trim_start().starts_with("//"));
        for line in comments {
            assert!(line.chars().count() <= COMMENT_COLUMNS, "{path:?}: {line}");
        }
    }
}

#[test]
fn the_name_of_a_test_is_not_a_paragraph() {
    let mut long = Vec::new();
    for source in ["src", "tests"].map(sources).into_iter().flatten() {
        let text = fs::read_to_string(&source.path).unwrap();
        let names = text.lines().filter_map(function);
        let too_long = names.filter(|name| name.split('_').count() > NAME_WORDS);
        long.extend(too_long.map(str::to_owned));
    }
    assert!(long.is_empty(), "more than {NAME_WORDS} words: {long:#?}");
}

/// The name of the function that begins on this line.
fn function(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let rest = line.strip_prefix("async ").unwrap_or(line);
    rest.strip_prefix("fn ")?.split(['(', '<']).next()
}

/// Pages whose words are counted, besides the documentation in `src`.
const PAGES: [&str; 26] = [
    "README.md",
    "CHANGELOG.md",
    "benches/README.md",
    "dashboards/README.md",
    "dashboards/runbook.md",
    "examples/README.md",
    "src/README.md",
    "src/bin/leasehold/README.md",
    "src/bin/leasehold/comparison.md",
    "src/coming_from.md",
    "src/fence/README.md",
    "src/manual/failure.md",
    "src/manual/fencing.md",
    "src/manual/promises.md",
    "src/manual/waiting.md",
    "src/metrics.md",
    "src/store/README.md",
    "src/store/postgres/README.md",
    "src/store/quorum/README.md",
    "src/store/redis/README.md",
    "src/store/redis/deployments.md",
    "src/store/zookeeper/README.md",
    "tests/campaign/README.md",
    "tests/campaign/faults.md",
    "tests/it/README.md",
    "tests/mutants/README.md",
];

/// Words that hide an actor, or that mean something else than what is meant, and the number of lines in which each is right.
const WORN: [(&str, usize); 14] = [
    ("whoever", 0),
    ("somebody", 0),
    ("nobody", 2),
    ("anybody", 0),
    ("beside", 5),
    ("so far", 0),
    ("so many", 1),
    ("is gone", 2),
    ("is over", 4),
    ("mend", 0),
    ("heed", 0),
    ("hasten", 0),
    ("tell", 13),
    ("tells", 20),
];

#[test]
fn worn_words_do_not_come_back() {
    let lines = doc_lines();
    for (worn, limit) in WORN {
        let worn = format!(" {worn} ");
        let found = lines.iter().filter(|(_, line)| words(line).contains(&worn));
        let found: Vec<_> = found.collect();
        let count = found.len();
        assert!(count <= limit, "{count} lines with{worn}: {found:#?}");
    }
}

/// The words of a line in lower case, with a space around each.
fn words(line: &str) -> String {
    let line = line.to_lowercase();
    let words = line.split(|c: char| !c.is_alphabetic());
    let words = words.filter(|word| !word.is_empty());
    words.fold(" ".to_owned(), |line, word| line + word + " ")
}

/// The lines of all pages and of all comments that become documentation, each with its file.
fn doc_lines() -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for page in PAGES {
        let text = read(page);
        lines.extend(text.lines().map(|line| (page.to_owned(), line.to_owned())));
    }
    for Source { path, code } in sources("src") {
        let docs = code.lines().filter(|line| is_doc(line));
        let file = path.display().to_string();
        lines.extend(docs.map(|line| (file.clone(), line.to_owned())));
    }
    lines
}
