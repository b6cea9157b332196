//! `leasehold status`: shows the holder of one name, or of all names, and the servers of the store.

use std::time::Duration;

use leasehold::Name;
use leasehold::clock::{Clock, Monotonic, Timing, wall_clock};
use leasehold::store::{Hazard, Held, HeldState, Store};
use serde_json::{Value, json};

use crate::args;
use crate::choice::Contact;
use crate::exit::{Exit, Failure};
use crate::members;
use crate::pool::permits_of;
use crate::progress;
use crate::row::{NEW_STORE, permit, pool_of, printable, rfc3339, state};
use crate::say;
use crate::seen::{Order, described, listed};
use crate::span::milliseconds;
use crate::table::{Column, Table};

/// Limit for the store's answer after the first contact.
const LIMIT: Duration = Duration::from_secs(10);

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
            let leases: Vec<_> = leases.iter().map(object).collect();
            let store = contact.client.store().location();
            say::json(&json!({"version": 1, "store": store, "leases": leases}))?
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
    let rows = members.iter().map(members::json);
    let rows: Vec<_> = rows.collect();
    say::output(match is_json {
        true => say::json(&json!({"version": 1, "store": store.location(), "members": rows}))?,
        false => members::lines(&members),
    })?;
    Ok(Exit::Success)
}

/// Returns the lease of this name and its permits as a pool, or all leases, for which a store needs many requests.
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

/// Returns the hazards. Not to know them is no reason to hide leases, but a store that is not there has none either.
async fn hazards(contact: &Contact, is_empty: bool) -> Result<Vec<Hazard>, Failure> {
    let store = contact.client.store();
    let looking = contact.long_answer(LIMIT, async |_| store.hazards(LIMIT).await);
    match looking.await {
        Err(failure) if !is_empty => {
            let what = format_args!("hazards were not looked for: {failure}");
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

/// Returns a lease as programs read it, in JSON and in lines of key=value. Facts are added, never renamed.
fn facts(held: &Held) -> [(&'static str, Value); 11] {
    let number = permit(held).map(|(_, number)| number);
    let (word, ..) = state(held.state);
    [
        // `held`, `evicted`, `kept`, `offered` or `keep-out`.
        ("state", json!(word)),
        ("host", json!(held.info.host)),
        ("pid", json!(held.info.pid)),
        ("label", json!(held.info.label)),
        ("holder", json!(held.by.map(|holder| holder.to_string()))),
        ("token", json!(held.token.map(|token| token.get()))),
        ("since", json!(held.since.and_then(rfc3339))),
        ("remaining_ms", json!(held.remaining.map(milliseconds))),
        ("waiting", json!(held.waiting)),
        // The number of a permit, whose pool is the name before it.
        ("permit", json!(number)),
        // Time since its job reported progress, if it is a job of this user on this machine that did.
        ("progress_ms", json!(progress::of(held).map(milliseconds))),
    ]
}

fn object(held: &Held) -> Value {
    let facts = facts(held)
        .into_iter()
        .chain([("name", json!(held.name.as_str()))]);
    facts.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Returns a line of what is known and not the usual.
fn line(held: &Held) -> String {
    let has_holder = !held.info.host.is_empty();
    let is_told = |(key, value): &(&str, Value)| match *key {
        "state" => held.state != HeldState::Leased,
        "host" | "pid" => has_holder,
        "holder" | "permit" => false,
        "waiting" => held.waiting > Some(0),
        _ => !value.is_null(),
    };
    let bare = |text: &str| !text.is_empty() && !text.contains([' ', '"', '=']);
    let facts = facts(held).into_iter().filter(is_told);
    let facts = facts.map(|(key, value)| match (key.strip_suffix("_ms"), value) {
        (Some(key), time) => {
            let time = Duration::from_millis(time.as_u64().unwrap_or_default());
            format!(" {key}={time:.1?}")
        }
        (_, Value::String(text)) if bare(&text) => format!(" {key}={text}"),
        (_, value) => format!(" {key}={value}"),
    });
    // Another client wrote some of it: no escape sequence may reach the terminal.
    printable(&format!("{}{}", held.name, facts.collect::<String>())) + "\n"
}
