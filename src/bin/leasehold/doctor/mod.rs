//! `leasehold doctor`: tries a store with a scratch name, examines its set-up and this machine, and prints what
//! endangers leases and how to fix it.
//!
//! Each part examines one thing and judges it, by functions that use no store and no file.

mod clock;
mod examination;
mod finding;
mod machine;

mod trial;
mod volume;

use std::path::PathBuf;
use std::time::Duration;

use leasehold::clock::Timing;
use leasehold::store::sqlite::Sqlite;

use crate::args;
use crate::choice::Choice;
use crate::exit::{Exit, Failure};
use crate::say;
use crate::span::as_typed;

pub use finding::Diagnosis;

/// Prints the findings.
pub fn main(arguments: args::DoctorOptions) -> Result<Exit, Failure> {
    let timing = Timing::new(arguments.ttl.time, None)
        .map_err(|error| as_typed(error.into(), &[("ttl", Some(&arguments.ttl))]))?;
    let choice = Choice::of(&arguments.store)?;
    let limit = arguments.store.connect_timeout.time;
    let diagnosis = crate::block_on(examine(&choice, limit, &timing))?;
    say::output(match arguments.json {
        true => say::json(&diagnosis)?,
        false => diagnosis.text(say::output_width().is_some() && say::are_colours_wanted()),
    })?;
    Ok(diagnosis.exit(arguments.strict))
}

async fn examine(choice: &Choice, limit: Duration, timing: &Timing) -> Result<Diagnosis, Failure> {
    let mut findings = Vec::from(machine::examine().await);
    let connected = choice.connect(None, limit, |builder| builder).await;
    if let Some(path) = path(choice)? {
        findings.extend(volume::examine(&path).into_iter().flatten());
    }
    let store = match connected {
        Ok(contact) => {
            contact.settle().await;
            let client = contact.client;
            let store = client.store();
            findings.extend(examination::examine(&**store, limit, timing).await?);
            let location = store.location();
            // So that an embedded store leaves no log next to its file.
            client.shutdown(limit).await;
            location
        }
        // A URL that cannot be parsed is a bad argument, not a finding.
        Err(failure) if failure.exit == Exit::Usage => return Err(failure),
        Err(failure) => {
            findings.push(examination::judge(failure, "store"));
            choice.shown()
        }
    };
    Ok(Diagnosis::new(store, findings))
}

/// Returns the file of an embedded store.
fn path(choice: &Choice) -> Result<Option<PathBuf>, Failure> {
    match choice {
        Choice::Default => Ok(Some(Sqlite::default_path()?)),
        Choice::Url(url, _) => {
            let path = url.strip_prefix("sqlite:");
            let path = path.map(|path| path.strip_prefix("//").unwrap_or(path));
            Ok(path.map(PathBuf::from))
        }
    }
}
