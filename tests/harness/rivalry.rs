//! Many leases of one client, a rival that asks for their names all the time, and a caller that takes and frees other
//! names: what all of them see while servers fail.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::clock::Instant;
use leasehold::store::{self, Answer, Store};
use leasehold::{Attempt, Client, Error, Lease, Token};
use tokio::task::JoinHandle;

use super::asking::{asked, claim};
use super::leases::client_at;
use super::wait::{at, now, soon, until, until_so};

/// How often the rival asks.
const EVERY: Duration = Duration::from_millis(20);

/// The leases and those who watch them. Their tasks end on drop.
pub struct Rivalry {
    _client: Client,
    leases: Arc<Vec<Lease>>,
    seen: Arc<Mutex<Seen>>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// When the holder of a name was told of its loss.
    told: HashMap<String, Instant>,
    /// The grants of the rival.
    granted: HashMap<String, Granted>,
    calls: Calls,
}

/// A name that the rival was granted.
#[derive(Debug, Clone, Copy)]
struct Granted {
    at: Instant,
    /// The token was above the holder's.
    rises: bool,
    /// The holder believed in its lease at that moment. Only the lease itself says so for certain: on a busy machine its
    /// holder's task may run later.
    is_believed: bool,
}

/// The observations of the caller.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    pub made: usize,
    pub failed: usize,
    /// The longest time that one call took.
    pub worst: Duration,
    /// The longest time between two calls that succeeded.
    pub pause: Duration,
    /// The last failure.
    pub failure: Option<String>,
    succeeded_at: Option<Instant>,
}

/// How it ended.
pub struct Ended {
    pub leases: usize,
    /// Number of holders that were cancelled.
    pub lost: usize,
    /// How many names the rival was granted.
    pub granted: usize,
    /// The time that both had a name.
    pub overlaps: Vec<Duration>,
    pub calls: Calls,
}

impl Rivalry {
    /// Takes this many names by the store at one URL, while a rival asks for them over another.
    pub async fn begin(url: &str, rival_url: &str, names: usize, ttl: Duration) -> Self {
        let mut rivalry = Self::without_rival(url, names, ttl, 1).await;
        let rival = store::open(rival_url).await.expect("a URL in order");
        let (leases, seen) = (rivalry.leases.clone(), rivalry.seen.clone());
        let rival = tokio::spawn(rival_for(leases, rival, ttl, seen));
        rivalry.tasks.push(rival);
        rivalry
    }

    /// Takes that many names, and lets so many callers take and free others. For so many names that a rival would have no
    /// time to ask for all of them.
    pub async fn without_rival(url: &str, names: usize, ttl: Duration, callers: usize) -> Self {
        let client = client_at(url, ttl).await;
        let mut leases = Vec::new();
        for index in 0..names {
            let name = format!("rivalry-{index}");
            // A busy machine's replica may be slower than the server waits.
            let lease = until("the lease", async || {
                match client.try_acquire(name.as_str()).await {
                    Ok(Attempt::Acquired(lease)) => Some(lease),
                    _ => None,
                }
            });
            leases.push(lease.await);
        }
        let seen = Arc::<Mutex<Seen>>::default();
        let mut tasks: Vec<_> = leases.iter().map(|lease| note_loss(lease, &seen)).collect();
        let leases = Arc::new(leases);
        let store = store::open(url).await.expect("a URL in order");
        for caller in 0..callers {
            let call = call(store.clone(), caller, ttl, seen.clone());
            tasks.push(tokio::spawn(call));
        }
        Self {
            _client: client,
            leases,
            seen,
            tasks,
        }
    }

    /// Waits until each lease is renewed once more, or lost.
    pub async fn renewed_or_lost(&self) {
        let renewed = self.leases.iter().map(async |lease| {
            if let Some(term) = lease.term() {
                lease.renewed_past(term.deadline()).await;
            }
        });
        soon(join_all(renewed)).await;
    }

    /// Waits until every holder was cancelled.
    pub async fn all_are_lost(&self) {
        until_so("every holder is told", async || {
            let seen = self.seen.lock().expect("no panic");
            seen.told.len() == self.leases.len()
        })
        .await;
    }

    /// The observations so far.
    pub fn calls(&self) -> Calls {
        self.seen.lock().expect("no panic").calls.clone()
    }

    /// Waits until the caller succeeds again.
    pub async fn caller_succeeds(&self) {
        let begun_at = now();
        until_so("a call succeeds", async || {
            self.calls().succeeded_at.is_some_and(|at| at > begun_at)
        })
        .await;
    }

    /// Waits until the rival has every name.
    pub async fn rival_has_all(&self) {
        until_so("the rival has every name", async || {
            let seen = self.seen.lock().expect("no panic");
            seen.granted.len() == self.leases.len()
        })
        .await;
    }

    /// Ends it and returns its observations.
    pub fn end(self) -> Ended {
        let ended_at = now();
        let seen = self.seen.lock().expect("no panic");
        let overlaps = seen.granted.iter().filter_map(|(name, granted)| {
            assert!(granted.rises, "the token of {name} did not rise");
            let told_at = seen.told.get(name).copied().unwrap_or(ended_at);
            granted.is_believed.then(|| told_at.since(granted.at))
        });
        let ended = Ended {
            leases: self.leases.len(),
            lost: seen.told.len(),
            granted: seen.granted.len(),
            overlaps: overlaps.collect(),
            calls: seen.calls.clone(),
        };
        eprintln!("rivalry: {ended}");
        ended
    }
}

impl Drop for Rivalry {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = self.overlaps.iter().max().copied().unwrap_or_default();
        write!(
            f,
            "{} leases, {} lost, {} granted to the rival, {} overlaps (longest {longest:?}); {:?}",
            self.leases,
            self.lost,
            self.granted,
            self.overlaps.len(),
            self.calls
        )
    }
}

fn note_loss(lease: &Lease, seen: &Arc<Mutex<Seen>>) -> JoinHandle<()> {
    let (name, lost, seen) = (
        lease.name().to_string(),
        lease.cancellation_token(),
        seen.clone(),
    );
    tokio::spawn(async move {
        lost.cancelled().await;
        let told_at = now();
        seen.lock().expect("no panic").told.insert(name, told_at);
    })
}

async fn rival_for(
    leases: Arc<Vec<Lease>>,
    rival: Arc<dyn Store>,
    ttl: Duration,
    seen: Arc<Mutex<Seen>>,
) {
    let names: Vec<_> = leases.iter().map(|lease| lease.name().as_str()).collect();
    ask_for_all(&*rival, &names, ttl, |index, token| {
        let lease = &leases[index];
        let granted = Granted {
            at: now(),
            rises: token > lease.token(),
            is_believed: lease.check().is_ok(),
        };
        let mut seen = seen.lock().expect("no panic");
        seen.granted.insert(lease.name().to_string(), granted);
    })
    .await;
}

/// Asks for all of these names with this ttl all the time, each until it is granted, and reports the index and the token
/// of each grant.
pub async fn ask_for_all(
    store: &dyn Store,
    names: &[impl AsRef<str>],
    ttl: Duration,
    granted: impl Fn(usize, Token),
) {
    let claims = names.iter().map(|name| claim(name.as_ref(), ttl));
    let mut open: Vec<_> = claims.enumerate().collect();
    while !open.is_empty() {
        let answers = open.iter().map(async |(index, claim)| {
            let Ok(Answer::Granted(grant)) = asked(store, claim, ttl / 6).await else {
                return false;
            };
            granted(*index, grant.token);
            true
        });
        let mut granted = join_all(answers).await.into_iter();
        open.retain(|_| !granted.next().expect("one for each"));
        at(now().after(EVERY)).await;
    }
}

/// Takes a name and frees it again, each time another one. A sixth of the ttl is the limit of a call.
async fn call(store: Arc<dyn Store>, caller: usize, ttl: Duration, seen: Arc<Mutex<Seen>>) {
    let limit = ttl / 6;
    for index in 0_u64.. {
        let claim = claim(&format!("caller-{caller}-{}", index % 64), ttl);
        let begun_at = now();
        let taken = asked(&*store, &claim, limit).await;
        note_call(&seen, begun_at, taken.as_ref().err());
        let begun_at = now();
        let freed = store.release(&claim.name, claim.holder, None, limit).await;
        note_call(&seen, begun_at, freed.as_ref().err());
        at(now().after(Duration::from_millis(2))).await;
    }
}

fn note_call(seen: &Mutex<Seen>, begun_at: Instant, failure: Option<&Error>) {
    let ended_at = now();
    let mut seen = seen.lock().expect("no panic");
    let calls = &mut seen.calls;
    calls.made += 1;
    calls.worst = calls.worst.max(ended_at.since(begun_at));
    match failure {
        Some(failure) => {
            calls.failed += 1;
            calls.failure = Some(format!("{failure:#}"));
        }
        None => {
            let before = calls.succeeded_at.replace(ended_at);
            let pause = before.map_or(Duration::ZERO, |at| ended_at.since(at));
            calls.pause = calls.pause.max(pause);
        }
    }
}
