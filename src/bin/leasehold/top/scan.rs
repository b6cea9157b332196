//! Reads the store for the live view, on a thread of its own, so that no slow answer holds up a key.
//!
//! A list reads every lease, so a big store is listed seldom enough that it costs the server less than a hundredth of
//! its time. Between two lists only the names on the screen are looked at, once a second.

use std::mem;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::clock::{Clock, Instant, Monotonic};
use leasehold::store::{Eviction, Held, Member, Store};
use leasehold::{Client, Error, Name};
use tokio::signal::unix::SignalKind;
use tokio::sync::mpsc::Receiver;

use crate::process;

/// Interval at which the screen is brought up to date.
pub const REFRESH: Duration = Duration::from_secs(1);

/// The longest pause between two lists, however long one takes.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Lists may take one part in `SHARE` of the server's time. The view may cost a hundredth in all, and the looks at the
/// screen take their part of it.
const SHARE: u32 = 150;

/// Limit for a list, which is many requests.
const LIST_LIMIT: Duration = Duration::from_secs(30);

/// For a single request.
const LIMIT: Duration = Duration::from_secs(5);

/// Interval between looks at the servers.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// Most names that are looked at at the same time.
const AT_ONCE: usize = 16;

/// A request of the view to the reader.
#[derive(Debug)]
pub enum Request {
    /// These names are on the screen.
    Show(Vec<Name>),
    Evict(Name),
}

/// An update of the reader for the view.
#[derive(Debug)]
pub enum Update {
    Listed(Vec<Held>),
    Seen(Vec<(Name, Option<Held>)>),
    /// The servers of the store.
    Looked(Vec<Member>),
    /// True if the name was held.
    Evicted(Name, bool),
    Failed(Error),
    /// The program is to end, by this signal.
    Ended(i32),
}

/// The reader's state.
struct Scan {
    store: Arc<dyn Store>,
    updates: SyncSender<Update>,
    on_screen: Vec<Name>,
    list_at: Instant,
    look_at: Instant,
    /// The quickest single request yet: what a round trip takes.
    round_trip: Duration,
    /// What the last list took.
    list_took: Duration,
}

/// Reads until the view has ended.
pub async fn run(client: Client, requests: Receiver<Request>, updates: SyncSender<Update>) {
    let signals = [SignalKind::terminate(), SignalKind::hangup()];
    let now = Monotonic.now();
    tokio::spawn(look_at_servers(client.store().clone(), updates.clone()));
    let scan = Scan {
        store: client.store().clone(),
        updates: updates.clone(),
        on_screen: Vec::new(),
        list_at: now,
        look_at: now,
        round_trip: Duration::MAX,
        list_took: Duration::MAX,
    };
    tokio::select! {
        () = scan.run(requests) => {}
        Ok(number) = process::signalled(signals) => {
            // The terminal has to be restored.
            let _ = updates.send(Update::Ended(number));
        }
    }
}

impl Scan {
    async fn run(mut self, mut requests: Receiver<Request>) {
        let mut is_watched = true;
        while is_watched {
            let due = self.list_at.min(self.look_at);
            let told = tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => self.serve(request).await,
                    None => return,
                },
                () = Monotonic.sleep_until(due) => self.refresh().await,
            };
            // A view that has ended reads no updates.
            is_watched = match told.unwrap_or_else(|error| Some(Update::Failed(error))) {
                Some(update) => self.updates.send(update).is_ok(),
                None => true,
            };
        }
    }

    async fn serve(&mut self, request: Request) -> Result<Option<Update>, Error> {
        match request {
            Request::Show(names) => {
                self.on_screen = names;
                Ok(None)
            }
            Request::Evict(name) => {
                let evicting = self.store.evict(&name, Eviction::Marked, LIMIT);
                let was_held = evicting.await?;
                self.look_at = Monotonic.now();
                Ok(Some(Update::Evicted(name, was_held)))
            }
        }
    }

    /// Lists the store if that is due, else looks at what is on the screen.
    async fn refresh(&mut self) -> Result<Option<Update>, Error> {
        let began = Monotonic.now();
        self.look_at = began.after(REFRESH);
        if began < self.list_at {
            return self.look().await.map(Some);
        }
        self.list_at = self.look_at;
        let leases = self.store.list("", LIST_LIMIT).await?;
        let ended = Monotonic.now();
        let took = ended.since(began);
        // One list can have met a server that stood still, and a large store takes long each time.
        let cost = took.min(mem::replace(&mut self.list_took, took));
        self.list_at = ended.after(pause(cost, self.round_trip));
        self.look_at = ended.after(REFRESH);
        Ok(Some(Update::Listed(leases)))
    }

    async fn look(&mut self) -> Result<Update, Error> {
        let mut seen = Vec::new();
        for names in self.on_screen.chunks(AT_ONCE) {
            let began = Monotonic.now();
            let looks = names.iter().map(|name| self.store.inspect(name, LIMIT));
            let found = join_all(looks).await;
            self.round_trip = self.round_trip.min(Monotonic.now().since(began));
            for (name, held) in names.iter().zip(found) {
                seen.push((name.clone(), held?));
            }
        }
        Ok(Update::Seen(seen))
    }
}

/// Looks at the servers again and again. Beside the lists, because a server that hangs takes a look its whole limit.
async fn look_at_servers(store: Arc<dyn Store>, updates: SyncSender<Update>) {
    loop {
        // Why they cannot be looked at is told with the leases.
        if let Ok(members) = store.members(LIMIT).await
            && updates.send(Update::Looked(members)).is_err()
        {
            return;
        }
        Monotonic
            .sleep_until(Monotonic.now().after(LOOK_EVERY))
            .await;
    }
}

/// Pause after a list that took this long, in which the server is left alone. The way there and back costs the server
/// nothing, and a list makes it twice at least.
fn pause(took: Duration, round_trip: Duration) -> Duration {
    let on_the_way = round_trip.saturating_mul(2);
    let cost = match round_trip {
        Duration::MAX => took,
        _ => took.saturating_sub(on_the_way),
    };
    (cost * SHARE).clamp(REFRESH, LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_list_costs_the_server_less_than_a_hundredth_of_its_time() {
        for (took, round_trip, expected) in [
            (ms(1), ms(1), REFRESH),
            (ms(100), ms(1), ms(14_700)),
            // A small store, far away.
            (ms(100), ms(50), REFRESH),
            (ms(100), Duration::MAX, ms(15_000)),
            (ms(5_000), ms(1), LONGEST_PAUSE),
            (ms(1_002), ms(1), ms(150_000)),
        ] {
            assert_eq!(pause(took, round_trip), expected, "{took:?} {round_trip:?}");
        }
    }
}
