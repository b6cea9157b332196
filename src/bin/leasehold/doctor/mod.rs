//! `leasehold doctor`: tries a store with a scratch name, examines its set-up and this machine, and prints what
//! endangers leases and how to fix it.
//!
//! The probes ([`trial`], [`clock`], [`place`], [`machine`]) collect [`facts`]; [`judge`] and [`link`] turn them into
//! [findings](finding) and use no store and no file.

mod clock;
mod facts;
mod finding;
mod judge;
mod link;
mod machine;
mod place;
mod trial;

use std::path::PathBuf;
use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::clock::Timing;
use leasehold::store::Store;
use leasehold::store::sqlite::Sqlite;

use crate::args;
use crate::config::StoreSetting;
use crate::exit::{Exit, Failure};
use crate::say;
use crate::span::as_typed;
use crate::store::Choice;
use crate::timeline::Distances;

use facts::{Reached, Trouble};
use finding::Diagnosis;
use link::Link;
use trial::Trial;

/// Prints the findings.
pub fn main(
    arguments: args::DoctorOptions,
    configured: Option<StoreSetting>,
) -> Result<Exit, Failure> {
    let typed = |failure| as_typed(failure, &[("ttl", Some(&arguments.ttl))]);
    let timing = Timing::new(arguments.ttl.time, None).map_err(|error| typed(error.into()))?;
    let distances = Distances::new(&timing, None);
    let distances = distances.map_err(|error| typed(Failure::usage(error)))?;
    let outage = distances.outage(&timing);
    let choice = Choice::of(&arguments.store, configured)?;
    let limit = arguments.store.connect_timeout;
    let diagnosis = crate::block_on(examine(&choice, limit, &timing, outage))?;
    say::output(match arguments.json {
        true => say::json(&diagnosis)?,
        false => diagnosis.text(say::output_width().is_some() && say::are_colours_wanted()),
    })?;
    Ok(diagnosis.exit(arguments.strict))
}

async fn examine(
    choice: &Choice,
    limit: Duration,
    timing: &Timing,
    outage: Duration,
) -> Result<Diagnosis, Failure> {
    let mut findings = Vec::new();
    if let Choice::Url(url) = choice {
        findings.extend(Link::of(url).map(|link| link.judge()));
    }
    let connected = choice.connect(None, limit, |builder| builder).await;
    if let Some(place) = path(choice)?.and_then(|path| place::look(&path)) {
        findings.extend(judge::place(&place));
    }
    let store = match connected {
        Ok(contact) => {
            let client = contact.client;
            let store = client.store();
            let (facts, machine) = probe(&**store, limit).await?;
            findings.extend(judge::reached(facts, timing, outage));
            findings.extend(judge::machine(&machine));
            let location = store.location();
            // So that an embedded store leaves no log beside its file.
            client.shutdown(limit).await;
            location
        }
        // A URL that cannot be parsed is a bad argument, not a finding.
        Err(failure) if failure.exit == Exit::Usage => return Err(failure),
        Err(failure) => {
            findings.push(judge::unreached(&Trouble::from(failure)));
            findings.extend(judge::machine(&machine::look().await));
            choice.shown()
        }
    };
    Ok(Diagnosis::new(store, findings))
}

/// Collects all facts about an open store, and about the machine meanwhile.
async fn probe(store: &dyn Store, limit: Duration) -> Result<(Reached, facts::Machine), Failure> {
    let trial = Trial::new(store, limit)?;
    let members = store.members(limit).await.map_err(Trouble::from);
    let hazards = store.hazards(limit).await.map_err(Trouble::from);
    let cycles = trial.cycles().await;
    let mut reached = Reached {
        members,
        hazards,
        max_ttl: store.facts().max_ttl,
        trial: cycles,
        notice: None,
        turns: None,
        clock: None,
    };
    if reached.trial.is_err() {
        return Ok((reached, machine::look().await));
    }
    reached.notice = Some(trial.notice().await);
    reached.turns = Some(trial.turns().await);
    let (clock, machine) = clock::read(&trial, machine::look()).await;
    match clock {
        Ok(clock) => reached.clock = clock,
        Err(trouble) => reached.trial = Err(trouble),
    }
    Ok((reached, machine))
}

/// Returns the file of an embedded store.
fn path(choice: &Choice) -> Result<Option<PathBuf>, Failure> {
    match choice {
        Choice::Default => Ok(Some(Sqlite::default_path()?)),
        Choice::Url(url) => {
            let path = url.strip_prefix("sqlite:");
            let path = path.map(|path| path.strip_prefix("//").unwrap_or(path));
            Ok(path.map(PathBuf::from))
        }
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        let kind = match failure.exit {
            Exit::Unreachable => Some(ErrorKind::Unavailable),
            Exit::Denied => Some(ErrorKind::Denied),
            Exit::Misconfigured => Some(ErrorKind::Misconfigured),
            _ => None,
        };
        Self {
            kind,
            message: failure.message,
            is_kept_out: false,
        }
    }
}
