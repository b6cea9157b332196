//! `leasehold top`: a live table of a store's leases.
//!
//! ```text
//!   keys ----> model --> view --> terminal
//!              ^   |
//!        reads |   | the names on the screen
//!              |   v
//!              store
//! ```
//!
//! Keys, reads and drawings take turns on one thread, and none of them holds the model while it waits: no slow answer
//! of the store holds up a key. A list reads every lease, so a big store is listed seldom enough that it costs the
//! server less than a hundredth of its time. Between two lists only the names on the screen are read, once a second.

mod keys;
mod model;
mod view;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io::{self, IsTerminal};
use std::time::Duration;

use futures_util::future::try_join_all;
use leasehold::clock::{Clock, Monotonic, wall_clock};
use leasehold::store::{Eviction, Held, Store};
use leasehold::{Error, Name};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tokio::signal::unix::SignalKind;
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::args;
use crate::exit::{Exit, Failure};
use crate::process;
use crate::say;
use crate::seen::Pauses;

use keys::Action;
use model::Model;
use view::Context;

/// Interval between updates of the screen.
const REFRESH: Duration = Duration::from_secs(1);

/// Lists may take one part in `SHARE` of the server's time. The view may cost a hundredth in all, and the reads of the
/// screen take their part of it.
const SHARE: u32 = 150;

/// Limit for a list, which is many requests.
const LIST_LIMIT: Duration = Duration::from_secs(30);

/// For a single request.
const LIMIT: Duration = Duration::from_secs(5);

/// Interval between reads of the servers' states.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// Maximum number of names that are read at the same time.
const AT_ONCE: usize = 16;

/// Shows the table until the operator quits.
pub fn main(arguments: args::TopOptions) -> Result<Exit, Failure> {
    if !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
        return Err(Failure::usage(
            "top refused: standard input or output is no terminal; expected one, or `leasehold status`",
        ));
    }
    crate::block_on(async {
        let client = arguments.store.connect(None, None).await?.client;
        let top = Top {
            store: &**client.store(),
            model: RefCell::new(Model::new()),
            changed: Notify::new(),
            round_trip: Cell::new(Duration::MAX),
        };
        let shown = top.show().await;
        ratatui::restore();
        shown.map_err(|error| Failure::internal("cannot use the terminal", &error))
    })
}

/// The view, as the tasks below share it.
struct Top<'a> {
    store: &'a dyn Store,
    model: RefCell<Model>,
    /// There is something new to draw.
    changed: Notify,
    /// The quickest read of a name: the round trip to the server.
    round_trip: Cell<Duration>,
}

impl Top<'_> {
    async fn show(&self) -> io::Result<Exit> {
        // Before the terminal is taken, which a signal has to give back.
        let signalled = process::signalled([SignalKind::terminate(), SignalKind::hangup()])?;
        // Restores the terminal should we panic.
        let terminal = ratatui::try_init()?;
        let (evictions, evicted) = channel(1);
        tokio::select! {
            exit = self.act(events()?, evictions) => exit,
            Err(error) = self.draw(terminal) => Err(error),
            signal = signalled => Ok(Exit::Told(signal)),
            never = self.evict(evicted) => match never {},
            never = self.list() => match never {},
            never = self.inspect_again() => match never {},
            never = self.read_servers() => match never {},
        }
    }

    /// Draws each change, and once a second the time that has passed.
    async fn draw(&self, mut terminal: DefaultTerminal) -> io::Result<Infallible> {
        loop {
            let context = Context {
                store: self.store.location(),
                has_colours: say::are_colours_wanted(),
                now: Monotonic.now(),
                wall_clock: wall_clock(),
            };
            terminal.draw(|frame| view::draw(frame, &mut self.model.borrow_mut(), &context))?;
            let _ = tokio::time::timeout(REFRESH, self.changed.notified()).await;
        }
    }

    fn change(&self, change: impl FnOnce(&mut Model)) {
        change(&mut self.model.borrow_mut());
        self.changed.notify_one();
    }

    /// Acts on the events of the terminal until a key ends the view. A change of its size needs no more than a new
    /// drawing.
    async fn act(
        &self,
        mut events: Receiver<io::Result<Event>>,
        evictions: Sender<Name>,
    ) -> io::Result<Exit> {
        while let Some(event) = events.recv().await {
            let action = match event? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    keys::press(&mut self.model.borrow_mut(), key)
                }
                _ => Action::None,
            };
            match action {
                Action::Quit => break,
                Action::Evict(name) => {
                    let message = match evictions.try_send(name.clone()) {
                        Ok(()) => format!("evicting the holder of {name} ..."),
                        Err(_) => {
                            format!("the store is busy: the holder of {name} was not evicted")
                        }
                    };
                    self.change(|model| model.message = Some(message));
                }
                Action::None => self.changed.notify_one(),
            }
        }
        Ok(Exit::Success)
    }

    /// Evicts the holders of these names, and reads the names at once.
    async fn evict(&self, mut names: Receiver<Name>) -> Infallible {
        while let Some(name) = names.recv().await {
            // Why it failed is not shown as a fault: the next read that succeeds would clear that.
            let message = match self.store.evict(&name, Eviction::Marked, LIMIT).await {
                Ok(true) => format!("evicted the holder of {name}: it is told at its next renewal"),
                Ok(false) => format!("no holder to evict name={name}"),
                Err(error) => format!("{error:#}"),
            };
            self.change(|model| model.message = Some(message));
            self.inspect_screen().await;
        }
        std::future::pending().await
    }

    async fn list(&self) -> Infallible {
        let mut pauses = Pauses::new(SHARE, REFRESH);
        // Held only for the time that it takes.
        if let Ok(name) = Name::new("leasehold-top") {
            let _ = self.inspect(&name).await;
        }
        loop {
            let began = Monotonic.now();
            let listed = self.store.list("", LIST_LIMIT).await;
            let now = Monotonic.now();
            let pause = pauses.after(now.since(began), self.round_trip.get(), listed.is_ok());
            self.change(|model| match listed {
                Ok(leases) => model.listed(leases, now),
                Err(error) => model.fault = Some(format!("{error:#}")),
            });
            Monotonic.sleep_until(began.after(pause)).await;
        }
    }

    async fn inspect_again(&self) -> Infallible {
        loop {
            Monotonic.sleep_until(Monotonic.now().after(REFRESH)).await;
            self.inspect_screen().await;
        }
    }

    async fn inspect(&self, name: &Name) -> Result<Option<Held>, Error> {
        let began = Monotonic.now();
        let held = self.store.inspect(name, LIMIT).await?;
        let took = Monotonic.now().since(began);
        self.round_trip.set(self.round_trip.get().min(took));
        Ok(held)
    }

    /// Reads the names on the screen.
    async fn inspect_screen(&self) {
        let names = self.model.borrow().names();
        for names in names.chunks(AT_ONCE) {
            let inspections = names.iter().map(|name| self.inspect(name));
            let found: Result<Vec<_>, Error> = try_join_all(inspections).await;
            let now = Monotonic.now();
            let found = match found {
                Ok(found) => found,
                // It is shown until a whole read succeeds, and not only its next part.
                Err(error) => {
                    return self.change(|model| model.fault = Some(format!("{error:#}")));
                }
            };
            self.change(|model| {
                for (name, held) in names.iter().zip(found) {
                    model.seen(name, held, now);
                }
            });
        }
    }

    /// Reads the servers' states repeatedly. Not together with the lists, because a server that hangs takes a read its
    /// whole limit.
    async fn read_servers(&self) -> Infallible {
        loop {
            // The list of leases reports why they cannot be read.
            if let Ok(members) = self.store.members(LIMIT).await {
                self.change(|model| model.read_servers(members, Monotonic.now()));
            }
            let next = Monotonic.now().after(LOOK_EVERY);
            Monotonic.sleep_until(next).await;
        }
    }
}

/// Reads the events of the terminal, on a thread because that blocks.
fn events() -> io::Result<Receiver<io::Result<Event>>> {
    let (read, events) = channel(1);
    std::thread::Builder::new()
        .name("keys".into())
        .spawn(move || while read.blocking_send(event::read()).is_ok() {})?;
    Ok(events)
}
