//! `leasehold status`: shows the holder of one name, or of all names, and the servers of the store.

use std::time::Duration;

use leasehold::Name;
use leasehold::clock::{Clock, Monotonic, Timing, wall_clock};
use leasehold::store::{Hazard, Held, HeldState, Store};
use serde::Serialize;
use serde_json::Value;

use crate::args;
use crate::choice::Contact;
use crate::exit::{Exit, Failure};
use crate::members::{self, Server};
use crate::pool::permits_of;
use crate::progress;
use crate::row::{NEW_STORE, Taken, permit, pool_of, printable, rfc3339};
use crate::say;
use crate::seen::{Order, described, listed};
use crate::span::milliseconds;
use crate::table::{Column, Table};

/// Limit for the store's answer after the first contact.
const LIMIT: Duration = Duration::from_secs(10);

/// The leases of a store, in the order of their names, or the lease of one name and its permits.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Leases {
    /// Version of this format.
    version: u32,
    /// The URL of the store, or the path of its file, without secrets.
    store: String,
    /// The leases, and names that are taken without one.
    leases: Vec<Lease>,
}

/// A lease as programs read it, in JSON and in lines of key=value.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Lease {
    /// The name, which is that of the permit for one of a pool.
    name: String,
    state: Taken,
    /// The host of the holder; empty if it is not known, as where no holder has the name.
    host: String,
    /// The process of the holder on its host, which for a run is that of the tool; 0 if it is not known.
    pid: u32,
    /// The label that the holder gave itself; `null` without one.
    label: Option<String>,
    /// The identity of the holder's claim; `null` if it is not known.
    holder: Option<String>,
    /// The fencing token; `null` if it is not known.
    token: Option<u64>,
    /// When the lease was granted by the store's wall clock, in UTC, as `2026-11-28T15:30:00.123Z`; `null` if it is not
    /// known.
    since: Option<String>,
    /// Time until the name is free unless the lease is renewed; `null` if the store knows no end.
    remaining_ms: Option<u64>,
    /// Number of clients that wait in turn; `null` if the store has no queue or cannot read it.
    waiting: Option<usize>,
    /// The number of a permit, whose pool is the name before the `#`; `null` for a lease that is no permit.
    permit: Option<u16>,
    /// Time since the job last reported progress; `null` unless it is a job of this user on this machine that did.
    progress_ms: Option<u64>,
}

/// The servers of a store.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Servers {
    /// Version of this format.
    version: u32,
    /// The URL of the store, or the path of its file, without secrets.
    store: String,
    /// The servers that the store is made of.
    members: Vec<Server>,
}

/// Prints the leases.
pub fn main(arguments: args::StatusOptions) -> Result<Exit, Failure> {
    let name = arguments.name.as_deref().map(Name::new).transpose()?;
    crate::block_on(async {
        let contact = arguments.store.connect(name.as_ref(), None).await?;
        contact.settle().await;
        if arguments.members {
            return show_members(&contact, arguments.json).await;
        }
        if !arguments.json && !arguments.quiet {
            show_store(&**contact.client.store(), contact.left()).await?;
        }
        let mut leases = leases(&contact, name.as_ref()).await?;
        // As in the table.
        leases.sort_by(|one, two| pool_of(one).cmp(&pool_of(two)));
        if arguments.quiet {
            return Ok(match leases.is_empty() {
                true => Exit::Free,
                false => Exit::Success,
            });
        }
        say::output(if arguments.json {
            say::json(&Leases {
                version: 1,
                store: contact.client.store().location(),
                leases: leases.iter().map(Lease::of).collect(),
            })?
        } else {
            let hazards = hazards(&contact, leases.is_empty()).await?;
            let is_folded = name.is_none() && !arguments.verbose;
            aside(&above(&hazards, leases.is_empty()))?;
            text(&leases, arguments.verbose, is_folded)
        })?;
        Ok(Exit::Success)
    })
}

/// Prints where the leases are. Before them, because without enough servers they cannot be listed.
async fn show_store(store: &dyn Store, limit: Duration) -> Result<(), Failure> {
    aside(&format!("store: {}\n", store.location()))?;
    match members::notable(&store.members(limit).await) {
        Ok(servers) => aside(&servers)?,
        Err(why) => say::note("servers", why),
    }
    Ok(())
}

/// Prints what is no lease: on a terminal above the table; otherwise on standard error, so that the lines in a pipe are
/// leases.
fn aside(text: &str) -> Result<(), Failure> {
    if say::output_width().is_some() {
        return say::output(text);
    }
    for line in text.lines() {
        say::note("status", line);
    }
    Ok(())
}

async fn show_members(contact: &Contact, is_json: bool) -> Result<Exit, Failure> {
    let store = contact.client.store();
    let members = contact
        .answer(async |left| store.members(left).await)
        .await?;
    say::output(match is_json {
        true => say::json(&Servers {
            version: 1,
            store: store.location(),
            members: members.iter().map(Server::of).collect(),
        })?,
        false => members::lines(&members),
    })?;
    Ok(Exit::Success)
}

/// Returns the lease of this name and its permits as a pool, or all leases, which takes many requests.
async fn leases(contact: &Contact, name: Option<&Name>) -> Result<Vec<Held>, Failure> {
    let store = contact.client.store();
    let Some(name) = name else {
        let listing = contact.long_answer(LIMIT, async |_| store.list("", LIMIT).await);
        return listing.await;
    };
    let held = contact.answer(async |left| store.inspect(name, left).await);
    let held = held.await?;
    let permits = permits_of(&**store, name).await;
    Ok(held.into_iter().chain(permits).collect())
}

/// Returns the hazards. A failure here does not hide the leases, except if the store cannot be reached: then there are
/// none.
async fn hazards(contact: &Contact, is_empty: bool) -> Result<Vec<Hazard>, Failure> {
    let store = contact.client.store();
    let looking = contact.long_answer(LIMIT, async |_| store.hazards(LIMIT).await);
    match looking.await {
        Err(failure) if !is_empty => {
            let what = format_args!("the hazards could not be read: {failure}");
            say::note("hazards", what);
            Ok(Vec::new())
        }
        hazards => hazards,
    }
}

/// Returns what is said above the leases.
fn above(hazards: &[Hazard], is_empty: bool) -> String {
    let mut text = String::new();
    let usual = |hazard: &&Hazard| hazard.concerns(Timing::DEFAULT_TTL);
    for hazard in hazards.iter().filter(usual) {
        text.push_str(&format!("hazard: {hazard}\n"));
    }
    if is_empty {
        text.push_str("nothing is held\n");
    }
    text
}

fn text(leases: &[Held], has_tokens: bool, is_folded: bool) -> String {
    match say::output_width() {
        _ if leases.is_empty() => String::new(),
        Some(width) => table(leases, width, has_tokens, is_folded),
        None => leases.iter().map(line).collect(),
    }
}

/// Returns the leases as a table of this width.
fn table(leases: &[Held], width: usize, has_tokens: bool, is_folded: bool) -> String {
    let (now, wall_clock) = (Monotonic.now(), wall_clock());
    let leases = listed(leases.to_vec(), &[], now);
    let mut order = Order::by(Column::Name);
    order.is_folded = is_folded;
    let rows = order.rows(&leases);
    let rows = rows.iter();
    let rows = rows.map(|row| described(&leases, row, now, wall_clock));
    let rows: Vec<_> = rows.collect();
    let columns: Vec<_> = Column::ALL
        .into_iter()
        .filter(|column| has_tokens || *column != Column::Token)
        .collect();
    let table = Table::fit(&columns, &rows, width);
    let mut text = table.head() + "\n";
    for row in &rows {
        text.push_str(&match say::are_colours_wanted() {
            true => row.tone.paint(&table.row(row)),
            false => table.row(row),
        });
        text.push('\n');
    }
    if leases
        .iter()
        .any(|seen| seen.held.state == HeldState::KeepOut)
    {
        text.push_str(&format!("keeps out: {NEW_STORE}\n"));
    }
    text
}

impl Lease {
    fn of(held: &Held) -> Self {
        Self {
            name: held.name.to_string(),
            state: held.state.into(),
            host: held.info.host.clone(),
            pid: held.info.pid,
            label: held.info.label.clone(),
            holder: held.by.map(|holder| holder.to_string()),
            token: held.token.map(|token| token.get()),
            since: held.since.and_then(rfc3339),
            remaining_ms: held.remaining.map(milliseconds),
            waiting: held.waiting,
            permit: permit(held).map(|(_, number)| number),
            progress_ms: progress::of(held).map(milliseconds),
        }
    }
}

/// The fields of a line, in their order: all but the name, which is first, the holder and the permit.
const OF_LINE: [&str; 9] = [
    "state",
    "host",
    "pid",
    "label",
    "token",
    "since",
    "remaining_ms",
    "waiting",
    "progress_ms",
];

/// Returns a line with the facts that are known and unusual.
fn line(held: &Held) -> String {
    let lease = Lease::of(held);
    let is_told = |key: &str, value: &Value| match key {
        "state" => lease.state != Taken::Held,
        "host" | "pid" => !lease.host.is_empty(),
        "waiting" => lease.waiting > Some(0),
        _ => !value.is_null(),
    };
    let bare = |text: &str| !text.is_empty() && !text.contains([' ', '"', '=']);
    let object = serde_json::to_value(&lease).unwrap_or_default();
    let facts = OF_LINE.iter().map(|key| (*key, &object[*key]));
    let facts = facts.filter(|(key, value)| is_told(key, value));
    let facts = facts.map(|(key, value)| match (key.strip_suffix("_ms"), value) {
        (Some(key), time) => {
            let time = Duration::from_millis(time.as_u64().unwrap_or_default());
            format!(" {key}={time:.1?}")
        }
        (_, Value::String(text)) if bare(text) => format!(" {key}={text}"),
        (_, value) => format!(" {key}={value}"),
    });
    // Other clients wrote parts of it: no escape sequence may reach the terminal.
    printable(&format!("{}{}", lease.name, facts.collect::<String>())) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_each_field_of_the_object_but_what_it_leaves_out_on_purpose() {
        let lease = Lease::of(&Held::new(Name::new("a").expect("valid")));
        let object = serde_json::to_value(&lease).expect("JSON");
        let object = object.as_object().expect("an object");
        let left_out = ["name", "holder", "permit"];
        assert!(
            OF_LINE
                .iter()
                .chain(&left_out)
                .all(|key| object.contains_key(*key))
        );
        assert_eq!(OF_LINE.len() + left_out.len(), object.len(), "{object:?}");
    }
}
