//! The table of mutants.

use std::path::Path;
use std::{fs, iter};

use serde::Deserialize;

/// All rows, and the edits that let the copy choose among them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    /// Edits of the copy where a script or a schema is loaded.
    #[serde(default)]
    pub(crate) loader: Vec<Edit>,
    pub(crate) mutant: Vec<Mutant>,
}

/// A text that is replaced in the copy: always, or if the mutant that it belongs to is chosen.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
    pub(crate) file: String,
    pub(crate) text: String,
    pub(crate) becomes: String,
}

/// A bug, and the tests that must fail with it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutant {
    pub(crate) name: String,
    /// What is wrong, in one sentence.
    pub(crate) bug: String,
    pub(crate) file: String,
    /// A whole expression, statement or block in Rust; any text in Lua and SQL.
    pub(crate) text: String,
    pub(crate) becomes: String,
    /// What else changes in Rust with it, where one edit does not make the bug.
    #[serde(default)]
    pub(crate) also: Vec<Edit>,
    /// Each is a test program (`lib`, `it`, `model`, `mutants` of none) and a filter: one failure in each is asked for.
    pub(crate) tests: Vec<String>,
}

impl Mutant {
    pub(crate) fn is_rust(&self) -> bool {
        self.file.ends_with(".rs")
    }

    /// The files that it changes, each with the text and what that becomes.
    pub(crate) fn edits(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let also = self.also.iter();
        let also = also.map(|edit| (&*edit.file, &*edit.text, &*edit.becomes));
        iter::once((&*self.file, &*self.text, &*self.becomes)).chain(also)
    }
}

/// Reads the table of the tree at this folder.
///
/// # Panics
/// If there is no such table, or it cannot be read.
pub(crate) fn read(tree: &Path) -> Table {
    let path = tree.join("tests/mutants/table.toml");
    let text = fs::read_to_string(&path).expect("tests/mutants/table.toml is there");
    toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn tree() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
    }

    #[test]
    fn the_text_of_each_row_occurs_exactly_once_in_its_file() {
        let table = read(tree());
        let rows = table.mutant.iter().flat_map(Mutant::edits);
        let loaders = table.loader.iter();
        let loaders = loaders.map(|edit| (&*edit.file, &*edit.text, &*edit.becomes));
        for (file, text, becomes) in rows.chain(loaders) {
            let source = fs::read_to_string(tree().join(file)).expect(file);
            assert_eq!(source.matches(text).count(), 1, "{file}: {text}");
            assert_ne!(text, becomes, "{file}");
        }
    }

    #[test]
    fn each_row_has_a_name_of_its_own_and_tests() {
        let table = read(tree());
        let mut names = HashSet::new();
        for row in &table.mutant {
            assert!(names.insert(&row.name), "{} is there twice", row.name);
            assert!(!row.tests.is_empty(), "{}", row.name);
            assert!(row.also.is_empty() || row.is_rust(), "{}", row.name);
        }
    }
}
