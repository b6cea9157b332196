//! All lines of a client, and the one subscription that wakes them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::line::{Found, Line, Step, Ticket, Wake};
use super::{Outage, Pace};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::store::{Notice, Notices, Store};
use crate::telemetry;

/// Names that are followed though nobody waits for them: whoever waits again and again for one name does not subscribe
/// to it again and again. A few dozen bytes each, here and on the server.
const IDLE_NAMES: usize = 1_024;
/// Hints in a row that nobody waited for, after which an idle name is no longer followed.
const UNWANTED_HINTS: u32 = 16;
/// The pause after a look that failed: a server that comes back is found soon, and one that refuses is not hammered.
const AFTER_FAILURE: Duration = Duration::from_millis(100);
/// The pause before the subscription is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// All lines of a client. When it is dropped, its thread ends.
#[derive(Debug)]
pub(crate) struct Hub {
    shared: Arc<Shared>,
}

/// What the waiters and the hub's thread share.
#[derive(Debug)]
struct Shared {
    lines: Mutex<Lines>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// Ends the thread.
    closing: Notify,
}

#[derive(Debug)]
struct Lines {
    by_name: HashMap<Name, Entry>,
    last_ticket: Ticket,
    /// Names that nobody waits for, with the mark of their idleness; longest idle first.
    idle: VecDeque<(u64, Name)>,
    hearing: Hearing,
    is_closed: bool,
}

#[derive(Debug)]
struct Entry {
    line: Line,
    is_followed: bool,
    /// Since when nobody waits, in marks; 0 while somebody does.
    idle_since: u64,
    unwanted_hints: u32,
}

/// Whether the store gives hints.
#[derive(Debug)]
enum Hearing {
    /// Nobody has waited yet. Exits: Starting.
    Never,
    /// The thread is subscribing. Exits: Live, Deaf.
    Starting,
    /// Exits: Deaf (the thread ended).
    Live(Arc<dyn Notices>),
    /// Waiters look by time only. No exits.
    Deaf,
}

impl Hub {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let lines = Lines {
            by_name: HashMap::new(),
            last_ticket: 0,
            idle: VecDeque::new(),
            hearing: Hearing::Never,
            is_closed: false,
        };
        Self {
            shared: Arc::new(Shared {
                lines: Mutex::new(lines),
                clock: store.clock(),
                store,
                closing: Notify::new(),
            }),
        }
    }

    /// Joins the line of this name, as the last one.
    pub(crate) fn join(&self, name: &Name, outage: Outage) -> Place {
        let woken = Arc::new(Notify::new());
        let ticket = self.shared.lines().join(name, woken.clone());
        Place {
            shared: self.shared.clone(),
            name: name.clone(),
            ticket,
            woken,
            outage,
            has_left: false,
        }
    }

    /// Wakes all waiters to hear that the client was shut down, and ends the subscription.
    pub(crate) fn close(&self) {
        let wakes: Vec<Wake> = {
            let mut lines = self.shared.lines();
            lines.is_closed = true;
            let entries = lines.by_name.values();
            entries.flat_map(|entry| entry.line.waiters()).collect()
        };
        wakes.into_iter().for_each(Wake::now);
        self.shared.closing.notify_one();
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.close();
    }
}

/// A waiter's place in line. Dropping it leaves the line, and passes on what this waiter was woken for.
#[derive(Debug)]
#[must_use = "a place that is dropped is given up"]
pub(crate) struct Place {
    shared: Arc<Shared>,
    name: Name,
    ticket: Ticket,
    woken: Arc<Notify>,
    outage: Outage,
    has_left: bool,
}

/// What a waiter's turn is.
#[derive(Debug)]
pub(crate) enum Turn {
    /// To look, and to tell what was found.
    Look,
    /// To fail, as the look failed that somebody made while this waiter stood in line.
    Failed(Error),
    /// To hear that the client was shut down.
    Closed,
}

impl Place {
    /// Waits for this waiter's turn.
    ///
    /// # Cancel safety
    /// Dropping it leaves the place as it is; what it was woken for is there at the next call.
    pub(crate) async fn turn(&self) -> Turn {
        loop {
            let step = {
                let mut lines = self.shared.lines();
                if lines.is_closed {
                    return Turn::Closed;
                }
                let line = &mut lines.entry(&self.name).line;
                if self.outage == Outage::Fail
                    && let Some(error) = line.failure(self.ticket)
                {
                    return Turn::Failed(error.copy());
                }
                line.step(self.ticket, self.shared.clock.now())
            };
            if step == Step::Look {
                return Turn::Look;
            }
            let woken = self.woken.notified();
            match step {
                Step::Sleep(until) => tokio::select! {
                    () = woken => {}
                    () = self.shared.clock.nap_until(until) => {}
                },
                Step::Look | Step::Stand => woken.await,
            }
        }
    }

    /// Begins a look before its time, if this waiter is the first in line.
    pub(crate) fn look_now(&self) -> bool {
        let mut lines = self.shared.lines();
        lines.entry(&self.name).line.look_now(self.ticket)
    }

    /// Tells what the look found instead of a grant. Where the name is held, listens for it from now on. Where the look
    /// failed, those fail as well who do not wait an outage out.
    pub(crate) fn found(&self, found: Found) {
        let remaining = match &found {
            Found::Held(held) => held.remaining,
            Found::Failed(_) => Some(AFTER_FAILURE),
        };
        let is_held = matches!(found, Found::Held(_));
        let now = self.shared.clock.now();
        let wakes: Vec<Wake> = {
            let mut lines = self.shared.lines();
            let pause = lines.pace().pause(remaining, fastrand::u16(..));
            let line = &mut lines.entry(&self.name).line;
            line.found(found, now.after(pause));
            let all = line.waiters().filter(|_| !is_held);
            all.collect()
        };
        wakes.into_iter().for_each(Wake::now);
        if is_held {
            Shared::listen_for(&self.shared, &self.name);
        }
    }

    /// Tells that the look brought a grant for `ttl`, and leaves.
    pub(crate) fn granted(mut self, ttl: Duration) {
        self.has_left = true;
        let now = self.shared.clock.now();
        let wake = {
            let mut lines = self.shared.lines();
            let pause = lines.pace().pause(Some(ttl), fastrand::u16(..));
            let line = &mut lines.entry(&self.name).line;
            let wake = line.granted(self.ticket, now.after(pause));
            lines.tidy(&self.name);
            wake
        };
        wake.now();
    }

    /// What was found when somebody looked last.
    pub(crate) fn last_found(&self) -> Option<Found> {
        let mut lines = self.shared.lines();
        lines.entry(&self.name).line.last_found().cloned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.has_left {
            return;
        }
        let wake = {
            let mut lines = self.shared.lines();
            let wake = lines.entry(&self.name).line.leave(self.ticket);
            lines.tidy(&self.name);
            wake
        };
        wake.now();
    }
}

impl Lines {
    fn join(&mut self, name: &Name, waiter: Arc<Notify>) -> Ticket {
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        let entry = self.by_name.entry(name.clone()).or_insert_with(Entry::new);
        entry.idle_since = 0;
        entry.line.join(ticket, waiter);
        ticket
    }

    fn entry(&mut self, name: &Name) -> &mut Entry {
        let entry = self.by_name.get_mut(name);
        entry.expect("a line stays while somebody has a place in it")
    }

    fn pace(&self) -> Pace {
        match self.hearing {
            Hearing::Live(_) => Pace::WITH_NOTICES,
            Hearing::Never | Hearing::Starting | Hearing::Deaf => Pace::WITHOUT_NOTICES,
        }
    }

    /// Forgets a line that nobody stands in, unless its name is worth following a while longer.
    fn tidy(&mut self, name: &Name) {
        let entry = self.entry(name);
        if !entry.line.is_empty() {
            return;
        }
        if !entry.is_followed {
            self.by_name.remove(name);
            return;
        }
        self.last_ticket += 1;
        let mark = self.last_ticket;
        self.entry(name).idle_since = mark;
        self.idle.push_back((mark, name.clone()));
        if self.idle.len() > IDLE_NAMES
            && let Some((mark, name)) = self.idle.pop_front()
            && self
                .by_name
                .get(&name)
                .is_some_and(|entry| entry.idle_since == mark)
        {
            self.unfollow(&name);
        }
    }

    fn unfollow(&mut self, name: &Name) {
        self.by_name.remove(name);
        if let Hearing::Live(notices) = &self.hearing {
            notices.unfollow(name);
        }
    }

    fn hint(&mut self, name: &Name) -> Option<Wake> {
        let entry = self.by_name.get_mut(name)?;
        if !entry.line.is_empty() {
            entry.unwanted_hints = 0;
            return Some(entry.line.hint());
        }
        entry.unwanted_hints += 1;
        if entry.unwanted_hints > UNWANTED_HINTS {
            self.unfollow(name);
        }
        None
    }

    /// Goes on without hints: what was planned by their pace is looked at now.
    fn go_deaf(&mut self) -> (Hearing, Vec<Wake>) {
        let before = std::mem::replace(&mut self.hearing, Hearing::Deaf);
        self.by_name.retain(|_, entry| !entry.line.is_empty());
        self.idle.clear();
        (before, self.hint_all())
    }

    fn hint_all(&mut self) -> Vec<Wake> {
        let entries = self.by_name.values_mut();
        entries.map(|entry| entry.line.hint()).collect()
    }
}

impl Entry {
    fn new() -> Self {
        Self {
            line: Line::new(),
            is_followed: false,
            idle_since: 0,
            unwanted_hints: 0,
        }
    }
}

impl Shared {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a name that somebody waits for; the first time, starts the thread.
    fn listen_for(shared: &Arc<Self>, name: &Name) {
        let mut lines = shared.lines();
        match &lines.hearing {
            Hearing::Deaf | Hearing::Starting => {}
            Hearing::Live(notices) => {
                let notices = notices.clone();
                let entry = lines.entry(name);
                if !std::mem::replace(&mut entry.is_followed, true) {
                    notices.follow(name);
                }
            }
            Hearing::Never if lines.is_closed => {}
            Hearing::Never => {
                lines.hearing = Hearing::Starting;
                let listener = Listener(shared.clone());
                let thread = std::thread::Builder::new().name("leasehold-notices".into());
                if thread.spawn(move || listener.run()).is_err() {
                    lines.hearing = Hearing::Deaf;
                }
            }
        }
    }
}

/// The hub's thread: hears the notices and wakes the lines. However it ends, waiters look by time from then on.
struct Listener(Arc<Shared>);

impl Listener {
    fn run(self) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        if let Ok(runtime) = runtime {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = self.0.closing.notified() => {}
                    () = self.listen() => {}
                }
            });
        }
    }

    /// Listens for as long as it can.
    async fn listen(&self) {
        let Some(notices) = self.subscribe().await else {
            return;
        };
        self.follow_all(&notices);
        loop {
            let wakes = match notices.next().await {
                Notice::Freed(name) => self.0.lines().hint(&name).into_iter().collect(),
                Notice::Reconnected => self.0.lines().hint_all(),
            };
            wakes.into_iter().for_each(Wake::now);
        }
    }

    /// The store's notices, if it gives them to us.
    async fn subscribe(&self) -> Option<Arc<dyn Notices>> {
        loop {
            match self.0.store.notices().await {
                Ok(notices) => return notices.map(Arc::from),
                Err(error) if is_passing(error.kind()) => {
                    let again = self.0.clock.now().after(RETRY);
                    self.0.clock.nap_until(again).await;
                }
                Err(error) => {
                    telemetry::notices_refused(&error);
                    return None;
                }
            }
        }
    }

    fn follow_all(&self, notices: &Arc<dyn Notices>) {
        let mut lines = self.0.lines();
        for (name, entry) in &mut lines.by_name {
            entry.is_followed = true;
            notices.follow(name);
        }
        lines.hearing = Hearing::Live(notices.clone());
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The store's notices are dropped outside the mutex.
        let (_notices, wakes) = self.0.lines().go_deaf();
        wakes.into_iter().for_each(Wake::now);
    }
}

fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable | ErrorKind::TimedOut)
}
