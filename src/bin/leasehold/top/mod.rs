//! `leasehold top`: a live table of a store's leases.
//!
//! ```text
//!   keys --> keys --> model --> view --> terminal          this thread, which never waits for the store
//!                       ^ |
//!               updates | | requests
//!                       | v
//!                      scan --> store                      a thread of its own
//! ```

mod keys;
mod model;
mod scan;
mod view;

use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use leasehold::clock::{Clock, Instant, Monotonic, wall_clock};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tokio::sync::mpsc::Sender;

use crate::args;
use crate::exit::{Exit, Failure};
use crate::say;
use crate::store::StoreOptions;

use keys::Action;
use model::Model;
use scan::{Request, Update};
use view::Context;

/// Time that the view waits for a key before it draws the store's changes.
const TICK: Duration = Duration::from_millis(100);

/// Most requests that the reader may leave unread. A further one is left out, and made again with the next refresh.
const REQUESTS: usize = 16;

/// Most updates that the view may leave unread; the reader waits at more.
const UPDATES: usize = 4;

/// Shows the table until the operator quits.
pub fn main(arguments: args::TopOptions) -> Result<Exit, Failure> {
    if !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
        return Err(Failure::usage(
            "top refused: standard input or output is no terminal; expected one, or `leasehold status`",
        ));
    }
    let (store, requests, updates) = start(arguments.store)?;
    let mut view = View {
        model: Model::new(),
        store,
        has_colours: say::are_colours_wanted(),
        requests,
        updates,
        drawn_at: Instant::ZERO,
        shown_at: Instant::ZERO,
    };
    // Restores the terminal should we panic.
    let terminal = ratatui::try_init();
    let shown = terminal.and_then(|mut terminal| view.run(&mut terminal));
    ratatui::restore();
    shown.map_err(|error| Failure::internal("cannot use the terminal", &error))
}

/// Connects, and starts to read the store. Returns where the store is.
fn start(options: StoreOptions) -> Result<(String, Sender<Request>, Receiver<Update>), Failure> {
    let (requests, requested) = tokio::sync::mpsc::channel(REQUESTS);
    let (told, updates) = sync_channel(UPDATES);
    let (connected, connection) = sync_channel(1);
    let read = move || {
        let reading = async {
            match options.connect(None, None).await {
                Ok(contact) => {
                    let client = contact.client;
                    let _ = connected.send(Ok(client.store().location()));
                    scan::run(client, requested, told).await;
                }
                Err(failure) => {
                    let _ = connected.send(Err(failure));
                }
            }
            Ok(())
        };
        // Without a runtime the connection is dropped, which the view sees.
        let _ = crate::block_on(reading);
    };
    std::thread::Builder::new()
        .name("scan".into())
        .spawn(read)
        .map_err(|error| Failure::internal("cannot start a thread", &error))?;
    let store = connection
        .recv()
        .map_err(|error| Failure::internal("cannot read the store", &error))??;
    Ok((store, requests, updates))
}

struct View {
    model: Model,
    store: String,
    has_colours: bool,
    requests: Sender<Request>,
    updates: Receiver<Update>,
    drawn_at: Instant,
    /// When the reader was last told what is on the screen.
    shown_at: Instant,
}

impl View {
    fn run(&mut self, terminal: &mut DefaultTerminal) -> io::Result<Exit> {
        let mut is_stale = true;
        loop {
            let now = Monotonic.now();
            if is_stale || now.since(self.drawn_at) >= scan::REFRESH {
                self.draw(terminal, now)?;
            }
            is_stale = event::poll(TICK)?;
            if is_stale && self.read_key()? == Action::Quit {
                return Ok(Exit::Success);
            }
            while let Ok(update) = self.updates.try_recv() {
                if let Update::Ended(signal) = update {
                    return Ok(Exit::Signal(signal));
                }
                self.take(update);
                is_stale = true;
            }
        }
    }

    fn draw(&mut self, terminal: &mut DefaultTerminal, now: Instant) -> io::Result<()> {
        let context = Context {
            store: self.store.clone(),
            has_colours: self.has_colours,
            now,
            wall_clock: wall_clock(),
        };
        terminal.draw(|frame| view::draw(frame, &mut self.model, &context))?;
        self.drawn_at = now;
        if now.since(self.shown_at) >= scan::REFRESH / 2 {
            let rows = self.model.screen();
            let names = rows.map(|(row, _)| row.held.name.clone()).collect();
            if self.requests.try_send(Request::Show(names)).is_ok() {
                self.shown_at = now;
            }
        }
        Ok(())
    }

    /// Acts on an event of the terminal. A change of its size needs no more than a new drawing.
    fn read_key(&mut self) -> io::Result<Action> {
        let Event::Key(key) = event::read()? else {
            return Ok(Action::None);
        };
        if key.kind == KeyEventKind::Release {
            return Ok(Action::None);
        }
        let action = keys::press(&mut self.model, key);
        if let Action::Evict(name) = &action {
            let request = Request::Evict(name.clone());
            self.model.message = Some(match self.requests.try_send(request) {
                Ok(()) => format!("evicting the holder of {name} ..."),
                Err(_) => format!("the store is busy: the holder of {name} was not evicted"),
            });
        }
        Ok(action)
    }

    fn take(&mut self, update: Update) {
        let now = Monotonic.now();
        match update {
            Update::Listed(leases) => self.model.listed(leases, now),
            Update::Seen(seen) => {
                for (name, held) in seen {
                    self.model.seen(&name, held, now);
                }
            }
            Update::Looked(members) => self.model.looked(members, now),
            Update::Evicted(name, true) => {
                self.model.message = Some(format!(
                    "evicted the holder of {name}: it is told at its next renewal"
                ));
            }
            Update::Evicted(name, false) => {
                self.model.message = Some(format!("no holder to evict name={name}"));
            }
            Update::Ended(_) => {}
            Update::Failed(error) => self.model.fault = Some(format!("{error:#}")),
        }
    }
}
