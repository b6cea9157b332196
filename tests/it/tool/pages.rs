//! Help, completions and the man page name every command and option.

use super::Sandbox;
use crate::harness::tree::root;

fn output(arguments: &[&str]) -> String {
    let sandbox = Sandbox::new();
    let ended = sandbox.start(sandbox.tool(arguments)).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stdout
}

/// The long options in a help text.
fn options(help: &str) -> Vec<String> {
    let words = help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let mut options: Vec<_> = words
        .filter(|word| word.starts_with("--") && word.len() > 2 && !word.starts_with("---"))
        .map(Into::into)
        .collect();
    options.sort();
    options.dedup();
    options
}

#[test]
fn completions_know_every_option_of_run() {
    let options = options(&output(&["run", "--help"]));
    assert!(options.len() > 15, "{options:?}");
    for shell in ["bash", "zsh", "fish"] {
        let script = output(&["completions", shell]);
        for option in &options {
            let bare = option.trim_start_matches('-');
            assert!(script.contains(bare), "{shell} {option}");
        }
    }
}

#[test]
fn the_man_page_has_every_command_and_option() {
    let page = output(&["man"]);
    for command in [
        "RUN",
        "HOLD",
        "STATUS",
        "CHECK",
        "WAIT",
        "EVICT",
        "INIT",
        "DOCTOR",
        "TOP",
        "EXPORT",
        "COMPLETIONS",
    ] {
        assert!(page.contains(&format!(".SH \"{command}\"")), "{command}");
    }
    for option in options(&output(&["run", "--help"])) {
        let escaped = option.replace('-', "\\-");
        assert!(page.contains(&escaped), "{option}");
    }
}

#[test]
fn the_man_page_names_no_page_that_does_not_exist() {
    let page = output(&["man"]);
    assert!(page.contains("\nleasehold run\n"), "{page}");
    assert!(!page.contains("(1)"), "{page}");
}

#[test]
fn the_short_help_fits_a_screen_and_the_stores_are_in_one_place() {
    for command in [
        "run", "hold", "status", "wait", "evict", "doctor", "top", "export",
    ] {
        let short = output(&[command, "-h"]);
        assert!(short.trim().lines().count() <= 24, "{command} {short}");
        let long = output(&[command, "--help"]);
        assert!(!long.contains("redis+cluster"), "{command} {long}");
    }
    let first = output(&["-h"]);
    assert!(first.trim().lines().count() <= 24, "{first}");
    let short = output(&["run", "-h"]);
    assert!(
        short.lines().all(|line| line.chars().count() <= 80),
        "{short}"
    );
    assert!(output(&["--help"]).contains("redis+cluster"));
}

#[test]
fn every_exit_code_is_in_the_help() {
    let help = output(&["run", "--help"]);
    for code in [
        "64", "69", "75", "77", "78", "79", "124", "125", "126", "127",
    ] {
        assert!(help.contains(&format!("\n  {code}")), "{code}");
    }
}

#[test]
fn the_man_page_has_the_exit_codes_of_the_help_in_the_same_words() {
    let help = output(&["run", "--help"]);
    let page = output(&["man"]).replace("\\-", "-").replace("\\*(Aq", "'");
    let table = |text: &str| -> Vec<String> {
        let lines = text.split("Exit codes:\n").nth(1).expect("a table").lines();
        let lines = lines.take_while(|line| !line.is_empty());
        lines.map(Into::into).collect()
    };
    let in_help = table(&help);
    assert!(in_help.len() > 10, "{in_help:?}");
    assert_eq!(table(&page), in_help);
}

/// The README and the reference of the tool, without the options of cargo and of the tests.
fn readme() -> String {
    let page = include_str!("../../../src/bin/leasehold/README.md");
    let (_, reference) = page.split_once("## Commands").expect("a reference");
    let text = [include_str!("../../../README.md"), reference].concat();
    let lines = text.lines().filter(|line| {
        !["cargo ", "tests/run"]
            .iter()
            .any(|other| line.contains(other))
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_option_that_a_page_names_exists() {
    let mut known = output(&["--help"]);
    for command in [
        "run",
        "hold",
        "status",
        "check",
        "wait",
        "evict",
        "init",
        "doctor",
        "top",
        "export",
        "completions",
    ] {
        known += &output(&[command, "--help"]);
    }
    let known = options(&known);
    let coming_from = include_str!("../../../src/coming_from.md");
    let named = options(&(readme() + coming_from));
    assert!(named.contains(&"--shared".into()), "{named:?}");
    for option in named {
        assert!(known.contains(&option), "no command has {option}");
    }
}

#[test]
fn the_readme_and_the_help_have_the_same_exit_codes() {
    let number = |text: &str| text.trim().parse::<u8>().ok();
    let help = output(&["run", "--help"]);
    let in_help = help.split("Exit codes:").nth(1).expect("a table");
    let mut in_help: Vec<_> = in_help
        .lines()
        .take_while(|line| !line.starts_with("When"))
        .filter_map(|line| number(line.split_whitespace().next()?))
        .collect();
    let readme = readme();
    let in_readme = readme
        .split("Exit codes of `run`:")
        .nth(1)
        .expect("a table");
    let mut in_readme: Vec<_> = in_readme
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .filter_map(|line| line.split('|').nth(1))
        .flat_map(|codes| codes.split(',').filter_map(number))
        .collect();
    in_help.sort_unstable();
    in_readme.sort_unstable();
    assert!(in_help.len() > 8, "{in_help:?}");
    assert_eq!(in_help, in_readme);
}

#[test]
fn the_readme_tries_the_lean_tool_and_installs_the_full_one() {
    let readme = root().join("README.md");
    let readme = std::fs::read_to_string(readme).expect("it is there");
    let mut commands = readme.lines().filter(|line| line.starts_with("cargo "));
    let first = commands.next().expect("a command");
    let lean = "cargo run -p leasehold-cli --no-default-features -- run ";
    assert!(first.starts_with(lean), "{first}");
    let install = commands.find(|line| line.starts_with("cargo install"));
    let install = install.expect("a command");
    assert!(install.ends_with(" --path src/bin/leasehold"), "{install}");
}
