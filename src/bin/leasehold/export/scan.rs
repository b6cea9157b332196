//! Scans a whole store for `leasehold export`: its leases, its queues, its servers, its hazards and its clock.

use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use leasehold::clock::{Clock, Instant, Monotonic, Timing};
use leasehold::store::{Hazard, Held, Member, MemberState, Store};
use leasehold::{Client, Error};
use metrics::gauge;
use serde::Serialize;
use tokio::signal::unix::SignalKind;

use super::http::{Content, Pages, Status};
use super::page::Snapshot;
use crate::exit::{Exit, Failure};
use crate::members::{self, Server};
use crate::process;
use crate::say;
use crate::seen::{self, Pauses, Seen};
use crate::server_clock;

/// Minimum time between two scans, because each reads every lease.
const EVERY: Duration = Duration::from_secs(15);

/// Scans take at most one part in this many of the time.
const SHARE: u32 = 50;

/// Limit for the list of a scan.
const LIST_LIMIT: Duration = Duration::from_secs(30);

/// A store as its last scan found it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Scanned {
    /// Version of this format.
    version: u32,
    /// The URL of the store, or the path of its file, without secrets.
    store: String,
    /// Number of leases that have a holder; `null` before the first scan and after one that failed.
    leases: Option<usize>,
    /// Number of clients that wait in turn; `null` as `leases` is.
    waiters: Option<usize>,
    /// Number of hazards: what in the set-up of the store weakens the promises; `null` as `leases` is.
    hazards: Option<usize>,
    /// The servers of the store; `null` before the first scan, and if they could not be read.
    members: Option<Vec<Server>>,
    /// Why the last scan failed; `null` if it did not.
    error: Option<String>,
}

/// Answers of the store to one scan.
struct Scan {
    leases: Vec<Held>,
    hazards: Vec<Hazard>,
    /// Seconds by which the server's clock is ahead, if it has one.
    clock_offset: Option<f64>,
}

/// Scans until a signal ends it.
pub async fn watch(client: &Client, pages: &Pages, limit: Duration) -> Result<Exit, Failure> {
    let kinds = [SignalKind::terminate(), SignalKind::interrupt()];
    let signalled = process::signalled(kinds)
        .map_err(|error| Failure::internal("cannot listen for signals", &error))?;
    tokio::select! {
        signal = signalled => Ok(Exit::Told(signal)),
        never = scan_again_and_again(&**client.store(), pages, limit) => match never {},
    }
}

async fn scan_again_and_again(store: &dyn Store, pages: &Pages, limit: Duration) -> Infallible {
    let mut pauses = Pauses::new(SHARE, EVERY);
    let mut seen = Vec::new();
    loop {
        let began = Monotonic.now();
        let (scan, members) = tokio::join!(scan(store, limit), store.members(limit));
        let now = Monotonic.now();
        if let Err(error) = &scan {
            say::note("scan", format_args!("the store was not scanned: {error:#}"));
        }
        let kind = store.facts().kind;
        set_gauges(kind, scan.as_ref().ok(), members.as_deref().ok());
        let pause = pauses.after(now.since(began), Duration::ZERO, scan.is_ok());
        let content = content(store.location(), now, scan, &members, &mut seen);
        pages.content.send_replace(content);
        Monotonic.sleep_until(began.after(pause)).await;
    }
}

/// Returns what the pages show before the first scan.
pub fn unscanned(store: String) -> Content {
    Content {
        is_ready: false,
        status: Status::Store(Scanned {
            version: 1,
            store: store.clone(),
            leases: None,
            waiters: None,
            hazards: None,
            members: None,
            error: None,
        }),
        snapshot: Some(Snapshot {
            store,
            ..Snapshot::default()
        }),
    }
}

/// Returns what the pages show after a scan of this store that ended now, with what earlier scans have seen.
fn content(
    store: String,
    now: Instant,
    scan: Result<Scan, Error>,
    members: &Result<Vec<Member>, Error>,
    seen: &mut Vec<Seen>,
) -> Content {
    let of = |count: fn(&Scan) -> usize| scan.as_ref().ok().map(count);
    let rows = |members: &Vec<Member>| members.iter().map(Server::of).collect();
    let error = scan.as_ref().err().map(|error| format!("{error:#}"));
    let status = Status::Store(Scanned {
        version: 1,
        store: store.clone(),
        leases: of(|scan| scan.held().count()),
        waiters: of(Scan::waiters),
        hazards: of(|scan| scan.hazards.len()),
        members: members.as_ref().ok().map(rows),
        error: error.clone(),
    });
    let servers = members::notable(members).unwrap_or_else(|why| why);
    let mut snapshot = Snapshot {
        store,
        servers: servers.lines().map(Into::into).collect(),
        error,
        scanned_at: Some(now),
        ..Snapshot::default()
    };
    let is_ready = scan.is_ok();
    if let Ok(scan) = scan {
        let hazards = scan.hazards.iter();
        snapshot.hazards = hazards.map(|hazard| format!("hazard: {hazard}")).collect();
        *seen = seen::listed(scan.leases, seen, now);
        snapshot.leases.clone_from(seen);
    }
    Content {
        is_ready,
        status,
        snapshot: Some(snapshot),
    }
}

impl Scan {
    fn held(&self) -> impl Iterator<Item = &Held> {
        self.leases.iter().filter(|held| seen::is_lease(held))
    }

    fn waiters(&self) -> usize {
        self.leases.iter().filter_map(|held| held.waiting).sum()
    }

    /// When the oldest of them was granted, as unix time.
    fn oldest(&self) -> Option<f64> {
        let since = self.held().filter_map(|held| held.since).min()?;
        let since = since.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        Some(since.as_secs_f64())
    }
}

async fn scan(store: &dyn Store, limit: Duration) -> Result<Scan, Error> {
    let leases = store.list("", LIST_LIMIT).await?;
    let mut hazards = store.hazards(limit).await?;
    hazards.retain(|hazard| hazard.concerns(Timing::DEFAULT_TTL));
    let clock = server_clock::read(store, limit).await?;
    Ok(Scan {
        leases,
        hazards,
        clock_offset: clock.map(|clock| clock.offset()),
    })
}

/// Sets the gauges of a store. After a scan that failed they have no value, so that no old value looks like a new one.
fn set_gauges(kind: &'static str, scan: Option<&Scan>, members: Option<&[Member]>) {
    let set = |name, value: Option<f64>| {
        gauge!(name, "store" => kind).set(value.unwrap_or(f64::NAN));
    };
    let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    let count = |of: fn(&Scan) -> usize| scan.map(of).map(number);
    set("leasehold_store_leases", count(|scan| scan.held().count()));
    set("leasehold_store_waiters", count(Scan::waiters));
    set("leasehold_store_hazards", count(|scan| scan.hazards.len()));
    let oldest = scan.and_then(Scan::oldest);
    set("leasehold_store_oldest_lease_timestamp_seconds", oldest);
    let has_clock = scan.is_none_or(|scan| scan.clock_offset.is_some());
    if has_clock {
        let offset = scan.and_then(|scan| scan.clock_offset);
        set("leasehold_store_clock_offset_seconds", offset);
    }
    let left = |member: &Member| match member.state {
        MemberState::Away { remaining } => remaining.as_secs_f64(),
        _ => 0.0,
    };
    // The library counted the servers when it read them.
    let longest = members.map(|members| members.iter().map(left).fold(0.0, f64::max));
    set("leasehold_store_keep_out_seconds", longest);
}

#[cfg(test)]
mod tests {
    use leasehold::Name;
    use leasehold::store::HeldState;

    use super::*;

    fn scan_of(leases: Vec<Held>) -> Scan {
        Scan {
            leases,
            hazards: Vec::new(),
            clock_offset: Some(0.5),
        }
    }

    #[test]
    fn kept_names_are_no_leases_and_their_queues_count() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let held = |name: &str, state, since: u64| {
            let mut held = Held::new(Name::new(name).expect("valid"));
            held.state = state;
            held.since = Some(at(since));
            held.waiting = Some(2);
            held
        };
        let scan = scan_of(vec![
            held("a", HeldState::Leased, 200),
            held("b", HeldState::Evicted, 100),
            held("c", HeldState::Kept, 50),
        ]);
        assert_eq!((scan.held().count(), scan.waiters()), (2, 6));
        assert_eq!(scan.oldest(), Some(100.0));
        let now = Instant::from_nanos(1);
        let seen = seen::listed(scan.leases, &[], now);
        let said = seen::summary(&seen, 3, Some(now), now);
        assert!(said.starts_with("2 leases, 6 waiting"), "{said}");
    }

    #[test]
    fn after_a_scan_that_failed_the_gauges_tell_nothing_and_the_pages_are_not_ready() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let text = |scan: Option<&Scan>| {
            metrics::with_local_recorder(&recorder, || set_gauges("redis", scan, None));
            recorder.handle().render()
        };
        let leases = "leasehold_store_leases{store=\"redis\"}";
        let offset = "leasehold_store_clock_offset_seconds{store=\"redis\"}";
        let scanned = scan_of(vec![Held::new(Name::new("a").expect("valid")); 7]);
        let good = text(Some(&scanned));
        assert!(good.contains(&format!("{leases} 7\n")), "{good}");
        assert!(good.contains(&format!("{offset} 0.5\n")), "{good}");
        let bad = text(None);
        assert!(bad.contains(&format!("{leases} NaN\n")), "{bad}");
        assert!(bad.contains(&format!("{offset} NaN\n")), "{bad}");
        let shown = |scan| {
            let (store, members) = ("address".into(), Ok(Vec::new()));
            content(store, Instant::ZERO, scan, &members, &mut Vec::new())
        };
        assert!(shown(Ok(scanned)).is_ready);
        let failed = shown(Err(Error::new(
            leasehold::ErrorKind::Unavailable,
            "no answer",
        )));
        assert!(!failed.is_ready && failed.status.json().contains("no answer"));
    }
}
