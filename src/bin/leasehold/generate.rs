//! Generates completions and the man page from the arguments themselves, so that they are always up to date.

use std::io::{self, Write};

use crate::args::{self, Arguments};
use crate::exit::{Exit, Failure};
use crate::say;

/// Prints completions for a shell.
pub fn completions(arguments: args::CompletionsOptions) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut Arguments::definition(),
        "leasehold",
        &mut text,
    );
    say::output(&text).map(|()| Exit::Success)
}

/// Prints one page with all commands.
pub fn man() -> Result<Exit, Failure> {
    let mut text = Vec::new();
    page(&mut text).map_err(|error| Failure::internal("cannot write the page", &error))?;
    say::output(&text).map(|()| Exit::Success)
}

fn page(text: &mut Vec<u8>) -> io::Result<()> {
    let mut command = Arguments::definition();
    command.build();
    let mut first = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut first)?;
    let mut first = String::from_utf8_lossy(&first).into_owned();
    // The commands are sections of this page, and no pages of their own.
    for subcommand in command.get_subcommands() {
        let name = subcommand.get_name();
        first = first.replace(
            &format!("leasehold\\-{name}(1)"),
            &format!("leasehold {name}"),
        );
    }
    text.write_all(first.as_bytes())?;
    for subcommand in command.get_subcommands() {
        let page = clap_mangen::Man::new(subcommand.clone());
        writeln!(text, ".SH \"{}\"", subcommand.get_name().to_uppercase())?;
        page.render_description_section(text)?;
        page.render_synopsis_section(text)?;
        page.render_options_section(text)?;
        page.render_extra_section(text)?;
    }
    Ok(())
}
