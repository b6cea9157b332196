//! Help, completions and the man page name every command and option.

use super::Place;

fn output(arguments: &[&str]) -> String {
    let place = Place::new();
    let ended = place.start(place.tool(arguments)).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stdout
}

/// The long options in a help text.
fn options(help: &str) -> Vec<String> {
    let words = help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let mut options: Vec<_> = words
        .filter(|word| word.starts_with("--") && word.len() > 2)
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
    for command in ["RUN", "STATUS", "CHECK", "WAIT", "EVICT", "COMPLETIONS"] {
        assert!(page.contains(&format!(".SH \"{command}\"")), "{command}");
    }
    for option in options(&output(&["run", "--help"])) {
        let escaped = option.replace('-', "\\-");
        assert!(page.contains(&escaped), "{option}");
    }
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
