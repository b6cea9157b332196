//! Weaves all rows into a copy of the tree, each as a choice that the variable `MUTANT` makes at run time. So one
//! build serves all rows.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::table::{Mutant, Table};

/// The module that the copy of the library gets.
const CHOICE: &str = r#"
/// The bug that was chosen for this process.
#[doc(hidden)]
pub mod mutants {
    use std::sync::LazyLock;

    static CHOSEN: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("MUTANT").ok());

    pub fn has(name: &str) -> bool {
        CHOSEN.as_deref() == Some(name)
    }

    /// Returns a text that was compiled in, with the bug if it is one of that text.
    pub fn text(source: &'static str) -> &'static str {
        for (name, whole, from, to) in TEXTS {
            if has(name) && source.contains(whole) {
                return source.replace(whole, &whole.replace(from, to)).leak();
            }
        }
        source
    }
"#;

/// Makes the copy. What did not change since the last time is left as it is, so that cargo compiles little; what has
/// left the tree leaves the copy.
pub(crate) fn weave(tree: &Path, table: &Table, copy: &Path) {
    let files = woven(tree, table, copy);
    for file in files_below(copy) {
        let is_known = file.strip_prefix(copy).is_ok_and(|inside| {
            let inside = inside.to_str().expect("a path in UTF-8");
            files.contains_key(inside)
        });
        if !is_known {
            fs::remove_file(file).expect("removed");
        }
    }
    for (file, source) in files {
        let path = copy.join(&file);
        if fs::read_to_string(&path).is_ok_and(|old| old == source) {
            continue;
        }
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        let mode = fs::metadata(tree.join(&file)).expect("there").permissions();
        fs::write(&path, source).expect("written");
        fs::set_permissions(&path, mode).expect("set");
    }
}

/// The files below a folder, which may not be there yet.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("it is read").path());
    let files = paths.flat_map(|path| match path.is_dir() {
        true => files_below(&path),
        false => vec![path],
    });
    files.collect()
}

/// The files of the copy, with every bug in them.
fn woven(tree: &Path, table: &Table, copy: &Path) -> BTreeMap<String, String> {
    let mut files = files(tree);
    for edit in &table.loader {
        let source = files.get_mut(&edit.file).expect(&edit.file);
        *source = replaced(source, &edit.text, &edit.becomes);
    }
    for row in table.mutant.iter().filter(|row| row.is_rust()) {
        for edit in row.edits() {
            let source = files.get_mut(edit.0).expect(edit.0);
            *source = with_choice(source, &row.name, edit);
        }
    }
    let library = files.get_mut("src/lib.rs").expect("the library");
    library.push_str(&choice(table, copy));
    files
}

/// The texts of all files that git knows or would take, by path. What is no text is not needed by a test.
fn files(tree: &Path) -> BTreeMap<String, String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(tree)
        .output()
        .expect("git runs");
    let listed = String::from_utf8(listed.stdout).expect("paths in UTF-8");
    let read = |file: &str| Some((file.into(), fs::read_to_string(tree.join(file)).ok()?));
    listed.lines().filter_map(read).collect()
}

fn replaced(source: &str, text: &str, becomes: &str) -> String {
    assert_eq!(source.matches(text).count(), 1, "exactly once: {text}");
    source.replace(text, becomes)
}

/// Lets the source choose between the text of the row and what it becomes.
fn with_choice(source: &str, name: &str, (file, text, becomes): (&str, &str, &str)) -> String {
    let library = if file.starts_with("src/bin") {
        "leasehold"
    } else {
        "crate"
    };
    let choice = format!("if {library}::mutants::has({name:?}) {{ {becomes} }} else {{ {text} }}");
    let is_statement = text.trim_end().ends_with([';', '}']);
    let woven = replaced(
        source,
        text,
        &if is_statement {
            choice
        } else {
            format!("({choice})")
        },
    );
    // A function that chooses is not const.
    let at = source.find(text).expect("it was replaced");
    match woven[..at].rfind("fn ") {
        Some(start) if woven[..start].ends_with("const ") => {
            let before = &woven[..start - "const ".len()];
            format!("{before}{}", &woven[start..])
        }
        _ => woven,
    }
}

fn choice(table: &Table, copy: &Path) -> String {
    let mut rows = String::new();
    for row in table.mutant.iter().filter(|row| !row.is_rust()) {
        let file = copy.join(&row.file);
        let Mutant {
            name,
            text,
            becomes,
            ..
        } = row;
        writeln!(
            rows,
            "        ({name:?}, include_str!({file:?}), {text:?}, {becomes:?}),"
        )
        .expect("a string");
    }
    format!("{CHOICE}\n    const TEXTS: &[(&str, &str, &str, &str)] = &[\n{rows}    ];\n}}\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Write as _;
    use std::process::Stdio;

    use super::*;

    fn odd(source: &str, text: &str, becomes: &str) -> String {
        with_choice(source, "odd", ("src/term.rs", text, becomes))
    }

    #[test]
    fn every_row_leaves_its_file_well_formed() {
        let tree = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let table = crate::table::read(tree);
        let files = woven(tree, &table, tree);
        let rows = table.mutant.iter().filter(|row| row.is_rust());
        let touched: BTreeSet<&str> = rows.flat_map(Mutant::edits).map(|edit| edit.0).collect();
        for file in touched {
            let errors = syntax_errors(&files[file]);
            assert!(errors.is_empty(), "{file}, woven: {errors}");
        }
    }

    /// What rustc says of the source, which it only parses. Its flag is unstable.
    fn syntax_errors(source: &str) -> String {
        let mut rustc = Command::new("rustc")
            .args(["-Z", "parse-crate-root-only", "--edition", "2024", "-"])
            .env("RUSTC_BOOTSTRAP", "1")
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("rustc starts");
        let mut stdin = rustc.stdin.take().expect("it is piped");
        stdin.write_all(source.as_bytes()).expect("rustc reads");
        drop(stdin);
        let ended = rustc.wait_with_output().expect("rustc ends");
        String::from_utf8(ended.stderr).expect("UTF-8")
    }

    #[test]
    fn an_expression_becomes_a_choice() {
        let woven = odd("fn f() { g(a + b) }", "a + b", "a");
        assert_eq!(
            woven,
            "fn f() { g((if crate::mutants::has(\"odd\") { a } else { a + b })) }"
        );
    }

    #[test]
    fn a_statement_becomes_a_choice_of_statements() {
        let woven = odd("fn f() { a(); b(); }", "a();", "");
        assert_eq!(
            woven,
            "fn f() { if crate::mutants::has(\"odd\") {  } else { a(); } b(); }"
        );
    }

    #[test]
    fn a_function_that_chooses_is_not_const() {
        let source = "pub const fn f() { 1 }\nconst fn g() { 2 }";
        let woven = odd(source, "2", "3");
        assert!(
            woven.starts_with("pub const fn f() { 1 }\nfn g()"),
            "{woven}"
        );
    }

    #[test]
    fn two_bugs_choose_in_one_place() {
        let source = "fn f() { a(); }";
        let woven = odd(&odd(source, "a();", "b();"), "a();", "");
        let has = "if crate::mutants::has(\"odd\")";
        let expected =
            format!("fn f() {{ {has} {{ b(); }} else {{ {has} {{  }} else {{ a(); }} }} }}");
        assert_eq!(woven, expected);
    }
}
