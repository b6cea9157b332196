//! `leasehold status`: shows the holder of one name, or of all names, and the servers of the store.

use std::io::Write;
use std::time::{Duration, SystemTime};

use leasehold::Name;
use leasehold::clock::Timing;
use leasehold::store::{Hazard, Held, HeldState, Store};
use serde::Serialize;

use crate::args;
use crate::config::StoreSetting;
use crate::exit::{Exit, Failure};
use crate::members::{self, MemberRow};
use crate::say;
use crate::store::{Choice, first_contact};

/// How long the store may take to answer after the first contact.
const LIMIT: Duration = Duration::from_secs(10);

/// One lease as it is printed. Fields are added, never renamed.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// `held`, `evicted`, `kept`, `offered` or `keep-out`.
    state: &'static str,
    holder: Option<String>,
    label: Option<String>,
    host: String,
    pid: u32,
    token: Option<u64>,
    since: Option<String>,
    remaining_ms: Option<u64>,
}

/// Prints the leases.
pub fn main(
    arguments: args::StatusOptions,
    configured: Option<StoreSetting>,
) -> Result<Exit, Failure> {
    let name = arguments.name.as_deref().map(Name::new).transpose()?;
    let store = Choice::of(&arguments.store, configured)?;
    crate::block_on(async {
        let client = store
            .connect(name.as_ref(), arguments.store.connect_timeout, |builder| {
                builder
            })
            .await?;
        let contact = arguments.store.connect_timeout;
        let store = client.store();
        if arguments.members {
            let members = first_contact(contact, store.members(contact)).await?;
            print(&match arguments.json {
                true => json(members.iter().map(MemberRow::from).collect())?,
                false => members::lines(&members),
            });
            return Ok(Exit::Success);
        }
        if !arguments.json {
            print(&format!("store: {}\n", store.location()));
            // Before the leases: without enough servers they cannot be listed.
            print(&servers(&**store, contact).await);
        }
        // A long list needs many requests.
        let limit = contact.max(LIMIT);
        let leases: Vec<Held> = match &name {
            Some(name) => first_contact(contact, store.inspect(name, contact))
                .await?
                .into_iter()
                .collect(),
            None => first_contact(limit, store.list("", LIMIT)).await?,
        };
        if arguments.json {
            print(&json(leases.into_iter().map(Row::from).collect())?);
        } else {
            let hazards = first_contact(limit, store.hazards(LIMIT)).await?;
            print(&text(&hazards, &leases));
        }
        Ok(Exit::Success)
    })
}

/// Returns the lines of the servers. Not to know them is no reason to hide the leases.
async fn servers(store: &dyn Store, limit: Duration) -> String {
    match store.members(limit).await {
        Ok(members) if members::are_notable(&members) => members::lines(&members),
        Ok(_) => String::new(),
        Err(error) => {
            say::note(
                "servers",
                format_args!("the servers were not looked at: {error:#}"),
            );
            String::new()
        }
    }
}

fn json<T: Serialize>(rows: Vec<T>) -> Result<String, Failure> {
    serde_json::to_string_pretty(&rows)
        .map(|text| text + "\n")
        .map_err(|error| Failure::internal("cannot write the list", &error))
}

fn text(hazards: &[Hazard], leases: &[Held]) -> String {
    let mut text = String::new();
    let usual = |hazard: &&Hazard| hazard.concerns(Timing::DEFAULT_TTL);
    for hazard in hazards.iter().filter(usual) {
        text.push_str(&format!("hazard: {hazard}\n"));
    }
    if leases.is_empty() {
        text.push_str("nothing is held\n");
    }
    for held in leases {
        text.push_str(&format!("{} {}\n", held.name, facts(held)));
    }
    text
}

/// Prints the text. It is not an error if the reader closed the pipe early.
fn print(text: &str) {
    if let Err(error) = std::io::stdout().write_all(text.as_bytes()) {
        say::detail("unread", format_args!("output was not read: {error}"));
    }
}

/// Returns the facts about a holder, in the one form in which the tool prints them.
pub fn facts(held: &Held) -> String {
    let mut facts = Vec::new();
    if held.state != HeldState::Leased {
        facts.push(format!("state={}", word(held.state)));
    }
    // An offered name has no holder.
    if !held.info.host.is_empty() {
        // Another client wrote it: no escape sequence may reach the terminal.
        let host = held.info.host.escape_debug();
        facts.push(format!("host={host} pid={}", held.info.pid));
    }
    if let Some(label) = &held.info.label {
        facts.push(format!("label={label:?}"));
    }
    if let Some(token) = held.token {
        facts.push(format!("token={token}"));
    }
    if let Some(since) = held.since.and_then(rfc3339) {
        facts.push(format!("since={since}"));
    }
    facts.push(match held.remaining {
        Some(remaining) => format!("remaining={remaining:.1?}"),
        None => "remaining=unknown".into(),
    });
    facts.join(" ")
}

/// Returns the one word for how a name is taken.
pub const fn word(state: HeldState) -> &'static str {
    match state {
        HeldState::Evicted => "evicted",
        HeldState::Kept => "kept",
        HeldState::Offered => "offered",
        HeldState::KeepOut => "keep-out",
        _ => "held",
    }
}

impl From<Held> for Row {
    fn from(held: Held) -> Self {
        Self {
            name: held.name.to_string(),
            state: word(held.state),
            holder: held.by.map(|holder| holder.to_string()),
            label: held.info.label,
            host: held.info.host,
            pid: held.info.pid,
            token: held.token.map(|token| token.get()),
            since: held.since.and_then(rfc3339),
            remaining_ms: held
                .remaining
                .map(|remaining| u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

/// Formats a time as in RFC 3339. Returns `None` before 1970 and after 9999.
fn rfc3339(time: SystemTime) -> Option<String> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let sane = since < Duration::from_secs(253_402_300_800);
    sane.then(|| humantime::format_rfc3339_millis(time).to_string())
}
