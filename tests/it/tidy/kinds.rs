//! The lists of stores outside of `src/store`: each has all kinds. A kind that is added to the table fails here by the
//! name of each list that forgot it.

use std::fs;

use leasehold::store::kinds;

use crate::harness::tree::root;

/// A list: its file, and the words between which it stands. An empty word is the beginning or the end of the file.
type List = (&'static str, &'static str, &'static str);

/// Lists that people read, and those that have a store tested and measured.
const LISTS: [List; 15] = [
    ("README.md", "## Which store", "## The fence"),
    ("src/README.md", "## Rooms", "## Journeys"),
    ("src/lib.rs", "//! # Features", "//! The command-line tool"),
    (
        "src/store/README.md",
        "# Which store?",
        "## What each keeps",
    ),
    ("src/store/README.md", "| fault |", "\n"),
    (
        "src/store/README.md",
        "## What each costs",
        "## Other locks",
    ),
    ("src/bin/leasehold/README.md", "| `--store` |", "\n\n"),
    ("Cargo.toml", "[features]", "[dependencies]"),
    (
        "src/bin/leasehold/Cargo.toml",
        "[features]",
        "[dependencies]",
    ),
    ("tests/run", "leasehold-cli $(features", "check_alone()"),
    ("tests/it/main.rs", "", ""),
    ("tests/it/pools/stores.rs", "", ""),
    ("tests/it/recorded/mod.rs", "", ""),
    ("tests/campaign/grounds/mod.rs", "", ""),
    ("benches/stores/main.rs", "", ""),
];

fn has_kind((file, from, to): List, word: &str) -> bool {
    let text = fs::read_to_string(root().join(file)).unwrap();
    let (_, list) = text
        .split_once(from)
        .unwrap_or_else(|| panic!("{file}: {from}"));
    let end = list
        .find(to)
        .filter(|_| !to.is_empty())
        .unwrap_or(list.len());
    list[..end].to_lowercase().contains(word)
}

fn forgotten(word: &str) -> Vec<List> {
    let lists = LISTS.into_iter();
    lists.filter(|list| !has_kind(*list, word)).collect()
}

#[test]
fn every_list_of_stores_has_all_kinds() {
    let shared = kinds().iter().filter(|kind| kind.word != "memory");
    let missing: Vec<_> = shared
        .map(|kind| (kind.word, forgotten(kind.word)))
        .collect();
    let missing: Vec<_> = missing
        .iter()
        .filter(|(_, lists)| !lists.is_empty())
        .collect();
    assert!(
        missing.is_empty(),
        "a kind of store is not in these lists: {missing:#?}"
    );
}

#[test]
fn a_kind_that_was_only_added_to_the_table_is_missing_in_every_list() {
    assert_eq!(forgotten("a-new-kind"), LISTS);
}
