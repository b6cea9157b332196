//! Scans a whole store for `leasehold export`: its leases, its queues, its servers, its hazards and its clock.

use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use leasehold::clock::{Clock, Monotonic, Timing};
use leasehold::store::spi::Renewal;
use leasehold::store::{Hazard, Held, HeldState, Member, MemberState, Store};
use leasehold::{Client, ClientId, Error, Holder, Name, Token};
use metrics::gauge;
use serde_json::json;
use tokio::signal::unix::SignalKind;

use super::page::Snapshot;
use super::pages::Pages;
use crate::exit::{Exit, Failure};
use crate::members::{self, MemberRow};
use crate::process;
use crate::say;
use crate::seen;
use crate::server_clock;

/// The shortest time between two scans, each of which reads every lease.
const EVERY: Duration = Duration::from_secs(15);

/// A scan takes at most one part in this many of the time.
const SHARE: u32 = 50;

/// The longest pause between two scans, however long one takes.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Limit for the list of a scan.
const LIST_LIMIT: Duration = Duration::from_secs(30);

/// Result of one scan.
#[derive(Debug, Clone, PartialEq)]
struct Found {
    leases: u32,
    waiters: u32,
    /// As unix time.
    oldest: Option<f64>,
    hazards: u32,
    /// Seconds by which the server's clock is ahead.
    clock_offset: Option<f64>,
}

/// Scans until a signal ends it.
pub async fn watch(client: &Client, pages: &Pages, limit: Duration) -> Result<Exit, Failure> {
    let kinds = [SignalKind::terminate(), SignalKind::interrupt()];
    let signal = tokio::select! {
        signal = process::signalled(kinds) => signal,
        never = scan_again_and_again(&**client.store(), pages, limit) => match never {},
    };
    signal
        .map(Exit::Signal)
        .map_err(|error| Failure::internal("cannot listen for signals", &error))
}

async fn scan_again_and_again(store: &dyn Store, pages: &Pages, limit: Duration) -> Infallible {
    let (kind, location) = (store.facts().kind, store.location());
    let mut seen = Vec::new();
    loop {
        let began = Monotonic.now();
        let (scan, members) = tokio::join!(scan(store, limit), store.members(limit));
        let now = Monotonic.now();
        show_members(kind, &members);
        let found = scan
            .as_ref()
            .map(|scan| found(&scan.leases, scan.hazards.len(), scan.clock_offset));
        show(kind, &location, &found, &members, pages);
        let is_scanned = scan.is_ok();
        let mut snapshot = Snapshot::first(location.clone());
        snapshot.scanned_at = Some(now);
        snapshot.servers = servers(&members);
        match scan {
            Ok(scan) => {
                let hazards = scan.hazards.iter();
                snapshot.hazards = hazards.map(|hazard| format!("hazard: {hazard}")).collect();
                seen = seen::listed(scan.leases, &seen, now);
                snapshot.leases.clone_from(&seen);
            }
            Err(error) => snapshot.error = Some(format!("{error:#}")),
        }
        pages.show(snapshot);
        let pause = pause(Monotonic.now().since(began), is_scanned);
        Monotonic.sleep_until(began.after(pause)).await;
    }
}

/// Returns how long to leave the store alone after a scan that took so long.
fn pause(took: Duration, is_scanned: bool) -> Duration {
    match is_scanned {
        true => took.saturating_mul(SHARE).clamp(EVERY, LONGEST_PAUSE),
        // It cost the store little, and the end of an outage is to be seen soon.
        false => EVERY,
    }
}

/// Answers of the store to one scan.
struct Scan {
    leases: Vec<Held>,
    hazards: Vec<Hazard>,
    clock_offset: Option<f64>,
}

async fn scan(store: &dyn Store, limit: Duration) -> Result<Scan, Error> {
    let leases = store.list("", LIST_LIMIT).await?;
    let mut hazards = store.hazards(limit).await?;
    hazards.retain(|hazard| hazard.concerns(Timing::DEFAULT_TTL));
    let clock_offset = clock_offset(store, limit).await?;
    Ok(Scan {
        leases,
        hazards,
        clock_offset,
    })
}

/// Returns a line for each server, if they are worth one.
fn servers(members: &Result<Vec<Member>, Error>) -> Vec<String> {
    match members {
        Ok(members) if members::are_notable(members) => {
            members::lines(members).lines().map(Into::into).collect()
        }
        Ok(_) => Vec::new(),
        Err(error) => vec![format!("the servers were not looked at: {error:#}")],
    }
}

fn found(leases: &[Held], hazards: usize, clock_offset: Option<f64>) -> Found {
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let is_held = |held: &&Held| matches!(held.state, HeldState::Leased | HeldState::Evicted);
    let held = leases.iter().filter(is_held);
    let oldest = held.clone().filter_map(|held| held.since).min();
    let oldest = oldest.and_then(|since| since.duration_since(SystemTime::UNIX_EPOCH).ok());
    Found {
        leases: number(held.count()),
        waiters: number(leases.iter().filter_map(|held| held.waiting).sum()),
        oldest: oldest.map(|since| since.as_secs_f64()),
        hazards: number(hazards),
        clock_offset,
    }
}

/// Returns how far the server's clock is ahead, in seconds. Asks for a renewal of a lease that no client has: it is
/// refused and changes nothing. `None` for a store without a clock of its own.
async fn clock_offset(store: &dyn Store, limit: Duration) -> Result<Option<f64>, Error> {
    let name = Name::new("leasehold-export/clock")?;
    let holder = Holder::draw(ClientId::draw())?;
    let renewal = Renewal::new(name, holder, Token::MAX, EVERY);
    let reading = server_clock::read(store, renewal, limit).await;
    Ok(reading.map(|clock| clock.server.as_secs_f64() - clock.ours.as_secs_f64()))
}

/// Sets the gauge of the servers that keep out. The library has counted the servers when they were looked at.
fn show_members(kind: &'static str, members: &Result<Vec<Member>, Error>) {
    let left = |member: &Member| match member.state {
        MemberState::Away { remaining } => remaining,
        _ => Duration::ZERO,
    };
    let longest = |members: &Vec<Member>| members.iter().map(left).max().unwrap_or_default();
    let longest = members.as_ref().ok().map(longest);
    let seconds = longest.map(|left| left.as_secs_f64());
    set(kind, "leasehold_store_keep_out_seconds", seconds);
}

/// Sets the gauges and the pages.
fn show(
    kind: &'static str,
    location: &str,
    found: &Result<Found, &Error>,
    members: &Result<Vec<Member>, Error>,
    pages: &Pages,
) {
    set_gauges(kind, found.as_ref().ok());
    let error = found.as_ref().err().map(|error| format!("{error:#}"));
    if let Some(error) = &error {
        say::note("scan", format_args!("the store was not scanned: {error}"));
    }
    let of = |value: fn(&Found) -> u32| found.as_ref().ok().map(value);
    let rows = |members: &Vec<Member>| members.iter().map(MemberRow::from).collect::<Vec<_>>();
    let status = json!({
        "version": 1,
        "store": location,
        "leases": of(|found| found.leases),
        "waiters": of(|found| found.waiters),
        "hazards": of(|found| found.hazards),
        "members": members.as_ref().ok().map(rows),
        "error": error,
    });
    pages.set(found.is_ok(), status);
}

fn set_gauges(kind: &'static str, found: Option<&Found>) {
    let set = |name, value| set(kind, name, value);
    let count = |of: fn(&Found) -> u32| found.map(of).map(f64::from);
    set("leasehold_store_leases", count(|found| found.leases));
    set("leasehold_store_waiters", count(|found| found.waiters));
    set("leasehold_store_hazards", count(|found| found.hazards));
    let oldest = found.and_then(|found| found.oldest);
    set("leasehold_store_oldest_lease_timestamp_seconds", oldest);
    let has_clock = found.is_none_or(|found| found.clock_offset.is_some());
    if has_clock {
        let offset = found.and_then(|found| found.clock_offset);
        set("leasehold_store_clock_offset_seconds", offset);
    }
}

/// Sets a gauge. After a scan that failed it tells nothing, so that no old value looks like a new one.
fn set(kind: &'static str, gauge: &'static str, value: Option<f64>) {
    gauge!(gauge, "store" => kind).set(value.unwrap_or(f64::NAN));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::recorder::Recorder;

    #[test]
    fn a_scan_that_failed_through_an_outage_is_made_again_soon() {
        assert_eq!(pause(LIST_LIMIT, false), EVERY);
        assert_eq!(pause(LIST_LIMIT, true), LONGEST_PAUSE);
        assert_eq!(pause(Duration::from_secs(1), true), Duration::from_secs(50));
        assert_eq!(pause(Duration::ZERO, true), EVERY);
    }

    #[test]
    fn offers_and_kept_names_are_no_leases_and_their_queues_count() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let held = |name: &str, state, since: u64| {
            let mut held = Held::new(Name::new(name).expect("valid"));
            held.state = state;
            held.since = Some(at(since));
            held.waiting = Some(2);
            held
        };
        let leases = [
            held("a", HeldState::Leased, 200),
            held("b", HeldState::Evicted, 100),
            held("c", HeldState::Offered, 50),
        ];
        let expected = Found {
            leases: 2,
            waiters: 6,
            oldest: Some(100.0),
            hazards: 1,
            clock_offset: None,
        };
        assert_eq!(found(&leases, 1, None), expected);
    }

    #[test]
    fn after_a_scan_that_failed_the_gauges_tell_nothing_and_the_pages_are_not_ready() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let pages = Pages::new(Recorder::of_test());
        let scanned = Found {
            leases: 7,
            waiters: 0,
            oldest: None,
            hazards: 0,
            clock_offset: Some(0.5),
        };
        let unavailable = Error::new(leasehold::ErrorKind::Unavailable, "no answer");
        let text = |found: Result<Found, &Error>| {
            metrics::with_local_recorder(&recorder, || {
                show("redis", "place", &found, &Ok(Vec::new()), &pages);
            });
            recorder.handle().render()
        };
        let leases = "leasehold_store_leases{store=\"redis\"}";
        let offset = "leasehold_store_clock_offset_seconds{store=\"redis\"}";
        let good = text(Ok(scanned));
        assert!(good.contains(&format!("{leases} 7\n")), "{good}");
        assert!(good.contains(&format!("{offset} 0.5\n")), "{good}");
        assert!(pages.is_ready());
        let bad = text(Err(&unavailable));
        assert!(bad.contains(&format!("{leases} NaN\n")), "{bad}");
        assert!(bad.contains(&format!("{offset} NaN\n")), "{bad}");
        assert!(!pages.is_ready() && pages.status().contains("no answer"));
    }
}
