//! The rules of the house that no lint holds: layers, pure rooms, names, and what the pages say that is there. Each
//! fault is named with its file and line.

mod kinds;
mod pages;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::harness::tree::root;

/// The rooms from the ground up: a room uses only lower floors.
const FLOORS: &[&[&str]] = &[
    &["error", "future", "words"],
    &[
        "name",
        "token",
        "holder",
        "group",
        "reason",
        "term",
        "clock",
        "home",
        "kinds",
        "percent",
        "codes",
        "conditional_puts",
    ],
    &["telemetry", "floors"],
    &["metrics", "store", "fence"],
    &["watchdog"],
    &["lease", "waiting"],
    &["client"],
    &["blocking"],
];

/// The neighbours that may be used on the same floor.
const NEIGHBOURS: &[(&str, &str)] = &[("clock", "term"), ("error", "words")];

/// The one of the pure files that awaits: its requests, which its driver sends. The simulator is such a driver.
const STEERING: &str = "client/taking.rs";

/// Files, and folders of files, that decide without a clock, a runtime or I/O.
const PURE: &[&str] = &[
    "token.rs",
    "holder.rs",
    "term.rs",
    "fence/rule.rs",
    "store/memory/queue.rs",
    "store/quorum/protocol",
    "store/record/observed.rs",
    "store/record/rules.rs",
    "store/record/value.rs",
    "client/taking.rs",
    "waiting/waiters.rs",
    "watchdog/claiming.rs",
    "watchdog/doubtful.rs",
    "watchdog/schedule",
    "watchdog/server_time.rs",
    "bin/leasehold/timeline.rs",
];

/// Fails with all of these faults, if there are any.
fn assert_none(faults: impl IntoIterator<Item = String>) {
    let faults: Vec<_> = faults.into_iter().collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// The files that git knows, by this pattern.
fn tracked(pattern: &str) -> Vec<PathBuf> {
    let listed = Command::new("git")
        .args(["ls-files", pattern])
        .current_dir(root())
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    listed.lines().map(PathBuf::from).collect()
}

struct Source {
    path: PathBuf,
    /// Without the tests at its foot.
    code: String,
}

fn sources(folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod ").next().unwrap().to_owned();
                found.push(Source { path, code });
            }
        }
    }
    assert!(folder != "src" || !found.is_empty());
    found
}

fn library() -> Vec<Source> {
    let is_library = |source: &Source| {
        // The tool, and the package for Python, are users of the library.
        let of_users = ["bin", "python"];
        let mut parts = source.path.components();
        !parts.any(|part| of_users.iter().any(|user| part.as_os_str() == *user))
    };
    sources("src").into_iter().filter(is_library).collect()
}

impl Source {
    /// Whether it is this file of `src`, or lies in this folder.
    fn is_in(&self, part: &str) -> bool {
        let src = root().join("src");
        self.path.starts_with(src.join(part))
    }

    /// `store/redis/mod.rs` belongs to the room `store`.
    fn room(&self) -> String {
        let src = root().join("src");
        let inside = self.path.strip_prefix(src).unwrap();
        let first = inside.components().next().unwrap().as_os_str();
        first.to_str().unwrap().trim_end_matches(".rs").to_owned()
    }

    fn lines_without_comments(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.code.lines().enumerate();
        lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    /// Its path from the root of the repository.
    fn shown(&self) -> String {
        let path = self.path.strip_prefix(root()).unwrap();
        path.display().to_string()
    }

    /// The rooms named by `crate::room` anywhere in the code, with their lines. `use crate::{...}` names none, which
    /// stands on no floor.
    fn used_rooms(&self) -> Vec<(usize, String)> {
        let lines = self.lines_without_comments();
        let rooms = lines.flat_map(|(index, line)| {
            let names = line.split("crate::").skip(1).map(|rest| {
                let is_part = |c: &char| c.is_alphanumeric() || *c == '_';
                rest.chars().take_while(is_part).collect()
            });
            names.map(move |name| (index + 1, name))
        });
        rooms.collect()
    }
}

fn floor(room: &str) -> Option<usize> {
    FLOORS.iter().position(|rooms| rooms.contains(&room))
}

#[test]
fn a_room_uses_only_lower_floors() {
    let mut faults = Vec::new();
    for source in library() {
        let room = source.room();
        if ["lib", "internals", "manual"].contains(&room.as_str()) {
            continue;
        }
        let Some(own) = floor(&room) else {
            faults.push(format!("{}:1: {room} stands on no floor", source.shown()));
            continue;
        };
        for (line, used) in source.used_rooms() {
            if used == room || NEIGHBOURS.contains(&(room.as_str(), used.as_str())) {
                continue;
            }
            // Not a room: a macro, or a name that lib.rs re-exports, which the library itself must not use.
            if floor(&used).is_none_or(|below| below >= own) {
                let at = source.shown();
                faults.push(format!("{at}:{line}: crate::{used} is not below {room}"));
            }
        }
    }
    assert_none(faults);
}

#[test]
fn the_pure_rooms_know_no_runtime_and_no_clock() {
    let all = sources("src");
    for part in PURE {
        let files: Vec<_> = all.iter().filter(|source| source.is_in(part)).collect();
        assert!(
            !files.is_empty(),
            "{part} is on the list of the pure files and is no file"
        );
        assert_none(files.into_iter().flat_map(impure));
    }
}

fn impure(source: &Source) -> Vec<String> {
    let awaits_nothing = !source.is_in(STEERING);
    let mut faults = Vec::new();
    for (index, text) in source.lines_without_comments() {
        let barred = [
            "tokio::",
            "crate::clock",
            "std::net",
            "std::fs",
            "std::thread",
        ];
        let awaited: &[&str] = if awaits_nothing {
            &["async fn", ".await"]
        } else {
            &[]
        };
        let found = barred
            .iter()
            .chain(awaited)
            .filter(|word| text.contains(**word));
        faults.extend(found.map(|word| format!("{}:{}: {word}", source.shown(), index + 1)));
    }
    faults
}

/// Type names that several rooms share, because they mean the same there: the parts that each store has, and the words for
/// what is inside.
const SHARED_NAMES: &[&str] = &[
    // Parts of a store, named alike from store to store so that a reader of one finds them in the next.
    "Address",
    "Record",
    "Builder",
    "Connection",
    "Connections",
    "Connector",
    "Ended",
    "Engine",
    "Failure",
    "Listener",
    "ListeningConnection",
    "Notices",
    "OpenConnection",
    "Purpose",
    "SetUp",
    "Unanswered",
    "Waiting",
    "Queue",
    "Row",
    // Each fence, and the words for what lies behind a handle.
    "Error",
    "Fence",
    "Inner",
    "Shared",
    "State",
    // The client without async has the same two types as the one with it.
    "Client",
    "Lease",
    // A test bench: its checks, and what they stand on.
    "Bench",
];

/// The name of the type that this line defines.
fn defined_type(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let mut words = line.splitn(2, ' ');
    let is_type = matches!(words.next(), Some("struct" | "enum" | "trait"));
    let rest = words.next().filter(|_| is_type)?;
    let end = rest.find(|c: char| !c.is_alphanumeric())?;
    Some(&rest[..end])
}

#[test]
fn a_type_name_has_one_meaning_in_the_library() {
    let mut files: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
    let is_test = |source: &Source| {
        source
            .path
            .components()
            .any(|part| part.as_os_str() == "tests")
    };
    for source in library().into_iter().filter(|source| !is_test(source)) {
        for (_, line) in source.lines_without_comments() {
            if let Some(name) = defined_type(line) {
                let files = files.entry(name.to_owned()).or_default();
                files.insert(source.path.clone());
            }
        }
    }
    for shared in SHARED_NAMES {
        assert!(
            files.contains_key(*shared),
            "{shared} is on the list and defined nowhere"
        );
    }
    files.retain(|name, paths| paths.len() > 1 && !SHARED_NAMES.contains(&name.as_str()));
    assert!(files.is_empty(), "defined more than once: {files:#?}");
}

#[test]
fn no_test_is_ignored() {
    // Put together, so that this file does not find itself.
    let barred = ["#[ig", "nore"].concat();
    let all = ["src", "tests"].map(sources).into_iter().flatten();
    assert_none(all.flat_map(|source| {
        let lines = source.code.lines().enumerate();
        let found = lines.filter(|(_, line)| line.contains(&barred));
        let at = found.map(|(index, _)| format!("{}:{}: {barred}", source.shown(), index + 1));
        at.collect::<Vec<_>>()
    }));
}

#[test]
fn async_examples_in_docs_hide_the_same_main() {
    for source in library() {
        for line in source.code.lines().map(str::trim_start) {
            let Some(doc) = line.strip_prefix("//!").or(line.strip_prefix("///")) else {
                continue;
            };
            let is_other = doc.contains("block_on(")
                || doc.starts_with(" # async fn ") && !doc.contains("async fn main()");
            assert!(
                !is_other,
                "{}: `{line}` instead of `# #[tokio::main]` and `# async fn main()`",
                source.path.display()
            );
        }
    }
}

#[test]
fn docs_rs_shows_every_feature_but_the_internal_one() {
    let manifest = root().join("Cargo.toml");
    let manifest: toml::Table = fs::read_to_string(manifest).unwrap().parse().unwrap();
    let features = manifest["features"].as_table().unwrap().keys();
    let public = features.filter(|feature| {
        !["default", "internals"].contains(&feature.as_str()) && !feature.starts_with('_')
    });
    let public: BTreeSet<&str> = public.map(String::as_str).collect();
    let shown = &manifest["package"]["metadata"]["docs"]["rs"]["features"];
    let shown = shown.as_array().unwrap().iter();
    let shown: BTreeSet<&str> = shown.filter_map(|feature| feature.as_str()).collect();
    assert_eq!(shown, public);
}

/// Whether this is a file or a folder of the tests or of the library, or a function in such a file.
fn is_room(path: &str) -> bool {
    let home = root();
    if path.ends_with(".rs") {
        return home.join(path).is_file();
    }
    let inside = path.replace("::", "/");
    ["tests/it", "src"].into_iter().any(|root| {
        let room = home.join(root).join(&inside);
        if room.is_dir() || room.with_extension("rs").is_file() {
            return true;
        }
        let (Some(parent), Some(name)) = (room.parent(), room.file_name()) else {
            return false;
        };
        let function = format!("fn {}(", name.to_string_lossy());
        let files = [parent.with_extension("rs"), parent.join("mod.rs")];
        let mut texts = files
            .iter()
            .filter_map(|file| fs::read_to_string(file).ok());
        texts.any(|text| text.contains(&function))
    })
}

#[test]
fn every_test_that_the_index_names_is_there() {
    let index = root().join("tests/it/README.md");
    let index = fs::read_to_string(index).unwrap();
    let (_, table) = index.split_once("## From promise to test").unwrap();
    let rows = table.lines().filter(|line| line.starts_with('|'));
    let named: Vec<&str> = rows
        .flat_map(|row| row.split('`').skip(1).step_by(2))
        .collect();
    assert!(named.len() > 40, "{named:?}");
    let gone: Vec<&&str> = named.iter().filter(|path| !is_room(path)).collect();
    assert_eq!(gone, Vec::<&&str>::new(), "tests/it/README.md names these");
}

#[test]
fn only_the_folder_of_long_tests_has_a_name_that_leaves_tests_out() {
    let tests = root().join("tests");
    let homes = ["it", "campaign"].map(|binary| tests.join(binary).join("main.rs"));
    for source in ["src", "tests"].map(sources).into_iter().flatten() {
        let named = source.lines_without_comments().any(|(_, line)| {
            let module = line.trim_end().strip_suffix("faults;").unwrap_or_default();
            module.split_whitespace().any(|word| word == "mod")
        });
        assert!(
            !named || homes.contains(&source.path),
            "{} has a module whose tests `--skip faults::` leaves out",
            source.path.display()
        );
    }
}
