//! The client's positions in the store's queues: which it has, and which it is to give up. Pure.
//!
//! The client has one position for all its fair waiters of a name. It gives the position up when the last of them
//! leaves, because a client that is not there at its turn costs the others the time of an offer.

use std::collections::HashSet;

use crate::name::Name;

/// The most positions that wait to be given up. Beyond them, the store finds the client dead at its turn.
const LEAVING: usize = 1_024;

/// The client's positions.
#[derive(Debug, Default)]
pub(super) struct Positions {
    /// The names in whose queue the client is, or may be.
    held: HashSet<Name>,
    /// The names whose queue the client is to leave.
    leaving: Vec<Name>,
}

impl Positions {
    /// The client asks for a position. It may have it from now on, whether or not it hears the answer.
    pub(super) fn ask(&mut self, name: &Name) {
        if !self.held.contains(name) {
            self.held.insert(name.clone());
        }
    }

    /// The client was granted the name, and has a position again only if `is_queued`.
    pub(super) fn granted(&mut self, name: &Name, is_queued: bool) {
        if is_queued {
            self.ask(name);
        } else {
            self.held.remove(name);
        }
    }

    /// The client has no waiter for this name any more.
    pub(super) fn give_up(&mut self, name: &Name) {
        if let Some(name) = self.held.take(name) {
            self.leave(name);
        }
    }

    /// The client has no waiter any more.
    pub(super) fn give_up_all(&mut self) {
        for name in std::mem::take(&mut self.held) {
            self.leave(name);
        }
    }

    /// The client leaves this queue, and the store does not know it yet.
    pub(super) fn leave(&mut self, name: Name) {
        if self.leaving.len() < LEAVING {
            self.leaving.push(name);
        }
    }

    pub(super) fn has_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Takes the names whose queue the client is to leave.
    pub(super) fn take_leaving(&mut self) -> Vec<Name> {
        std::mem::take(&mut self.leaving)
    }
}
