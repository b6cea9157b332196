//! `leasehold`: runs a command while holding a lease, and ends it before another holder can get the lease.
//!
//! The tool uses only the public API of the library. A job runs this program in four processes: the tool itself, the
//! [warden], the [guardian] below it and, for a moment, the [shim] that becomes the command.

#![expect(
    unreachable_pub,
    reason = "a program exports nothing; pub marks what its other modules use"
)]
#![cfg_attr(
    not(feature = "top"),
    expect(
        dead_code,
        reason = "all columns and colours of the table are in every build"
    )
)]

#[cfg(not(target_os = "linux"))]
compile_error!("the tool runs on Linux only: its guardian needs signalfd, timerfd and a subreaper");

#[cfg(any(test, not(all(feature = "export", feature = "top"))))]
mod absent;
mod alarm;
mod args;
mod channel;
mod check;
mod choice;
mod config;
mod doctor;
mod evict;
mod exit;
#[cfg(feature = "export")]
mod export;
#[cfg(all(test, feature = "export"))]
mod fields;
mod file;
mod generate;
mod guardian;
mod help;
mod hold;
mod init;
mod log;
mod members;
mod pool;
mod process;
mod progress;
mod row;
mod run;
mod say;
mod seen;
mod server_clock;
mod shim;
mod span;
mod status;
mod status_file;
mod store_file;
mod table;
mod timeline;
#[cfg(feature = "top")]
mod top;
mod tree;
mod wait;
mod waiting;
mod warden;

use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;

#[cfg(not(feature = "export"))]
use absent::export;
#[cfg(not(feature = "top"))]
use absent::top;
use args::{Arguments, Command};
use exit::{Exit, Failure};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == warden::ARGUMENT => warden::main(arguments.collect()).into(),
        Some(first) if first == guardian::ARGUMENT => guardian::main(arguments.collect()).into(),
        Some(first) if first == shim::ARGUMENT => shim::main(arguments).into(),
        _ => tool().into(),
    }
}

fn tool() -> Exit {
    let result = match (Arguments::read(), config::check_values()) {
        (Err(help), _) if !help.use_stderr() => {
            say::output(help.render().to_string()).map(|()| Exit::Success)
        }
        // A variable may be why the arguments are wrong.
        (_, Err(empty)) => Err(empty),
        (Err(error), Ok(())) => {
            let _ = error.print();
            Ok(Exit::Usage)
        }
        (Ok(arguments), Ok(())) => log::start().and_then(|()| act(arguments)),
    };
    let exit = result.unwrap_or_else(|mut failure| {
        failure.say();
        failure.exit
    });
    say::flush();
    if let Exit::Told(number) = exit {
        exit::by_signal(number);
    }
    exit
}

fn act(mut arguments: Arguments) -> Result<Exit, Failure> {
    let files = config::Files::read(&mut arguments)?;
    let result = match files.fill(arguments)?.command {
        Command::Run(arguments) => run::main(*arguments),
        Command::Hold(arguments) => hold::main(*arguments),
        Command::Status(arguments) => status::main(arguments),
        Command::Check(arguments) => check::main(arguments),
        Command::Progress => progress::main(),
        Command::Wait(arguments) => wait::main(arguments),
        Command::Evict(arguments) => evict::main(arguments),
        Command::Init(arguments) => init::main(arguments),
        Command::Doctor(arguments) => doctor::main(arguments),
        Command::Top(arguments) => top::main(arguments),
        Command::Export(arguments) => export::main(arguments),
        Command::Completions(arguments) => generate::completions(arguments),
        Command::Man => generate::man(),
    };
    result.map_err(|failure| files.named_in(failure))
}

/// Runs a command that uses a store, on a runtime of its own.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let failed = |error: io::Error| Failure::internal("cannot start a runtime", &error);
    // The runtime panics if there are no descriptors for its signals.
    let spare = (0..8).map(|_| io::stdin().as_fd().try_clone_to_owned());
    drop(spare.collect::<io::Result<Vec<_>>>().map_err(failed)?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let result = runtime.block_on(work);
    // A store that hangs must not delay the end of the tool.
    runtime.shutdown_background();
    result
}
