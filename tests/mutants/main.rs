//! Plants each bug of `table.toml` in a copy of the tree, and runs the tests that must then fail:
//!
//!     cargo run --package leasehold-mutants [-- FILTER]
//!
//! The copy is `target/mutants`, and one build serves all rows. Before the rows, all their tests run once without a bug,
//! and must pass. At its end the program prints a table.
#![expect(
    clippy::disallowed_methods,
    reason = "it times and ends other programs; no lease is measured"
)]

mod programs;
mod table;
mod weave;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{env, fs};

use self::programs::{Ended, Programs};
use self::table::Mutant;

fn main() -> ExitCode {
    let tree = fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).expect("the tree");
    let filter = env::args().nth(1);
    let table = table::read(&tree);
    let copy = tree.join("target/mutants");
    weave::weave(&tree, &table, &copy);
    let programs = Programs::build(&copy, &tree.join("target"));
    let is_asked = |row: &&Mutant| filter.as_ref().is_none_or(|word| row.name.contains(word));
    let rows: Vec<&Mutant> = table.mutant.iter().filter(is_asked).collect();

    println!("\nrunning {} mutants", rows.len());
    let sound = without_a_bug(&programs, &rows);
    let mut result =
        String::from("| mutant | bug | file | caught by | time |\n|---|---|---|---|---|\n");
    let mut failed = 0;
    for row in &rows {
        let began = Instant::now();
        let misses: Vec<&str> = row
            .tests
            .iter()
            .filter_map(|test| missed(&programs, row, test))
            .collect();
        let took = began.elapsed();
        let is_caught = misses.is_empty();
        failed += u32::from(!is_caught);
        println!(
            "test {} ... {} ({:.1} s)",
            row.name,
            if is_caught { "ok" } else { "FAILED" },
            took.as_secs_f64()
        );
        for test in &misses {
            println!("    passed with the bug: {test}");
        }
        let tests = if is_caught {
            row.tests.join("`, `")
        } else {
            "NOT CAUGHT".into()
        };
        let Mutant {
            name, bug, file, ..
        } = row;
        writeln!(
            result,
            "| `{name}` | {bug} | `{file}` | `{tests}` | {:.1} s |",
            took.as_secs_f64()
        )
        .expect("a string");
    }
    failed += u32::from(!sound);
    println!(
        "\ntest result: {}. {} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out\n",
        if failed == 0 { "ok" } else { "FAILED" },
        rows.len() as u32 + 1 - failed
    );
    println!("{result}");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs the tests of all rows as they are. What fails without a bug proves nothing with one.
fn without_a_bug(programs: &Programs, rows: &[&Mutant]) -> bool {
    let began = Instant::now();
    let mut tests: Vec<&str> = rows
        .iter()
        .flat_map(|row| row.tests.iter().map(String::as_str))
        .collect();
    tests.sort_unstable();
    tests.dedup();
    let mut is_sound = true;
    for test in tests {
        let ended = programs.run(test, None);
        if ended != Ended::Passed {
            println!("    without a bug: {test}: {ended:?}");
            is_sound = false;
        }
    }
    let word = if is_sound { "ok" } else { "FAILED" };
    println!(
        "test without_a_bug ... {word} ({:.1} s)",
        began.elapsed().as_secs_f64()
    );
    is_sound
}

/// Returns the test if it did not fail.
fn missed<'a>(programs: &Programs, row: &Mutant, test: &'a str) -> Option<&'a str> {
    let ended = programs.run(test, Some(&row.name));
    (!matches!(ended, Ended::Failed | Ended::Hung)).then_some(test)
}

/// A test that hangs with a bug has caught it; none of them takes so long without.
const LIMIT: Duration = Duration::from_secs(300);
