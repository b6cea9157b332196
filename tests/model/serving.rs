//! Whether each waiter can still be served, whatever has happened: from each state that a search reaches some way must
//! lead to a state in which it is served.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::search::{Found, Ready, Space, walk};

/// A space with waiters.
pub trait Serving: Space {
    /// Whether a waiter may need this step to be served. It may not need another one's death, say.
    fn may_need(&self, step: Self::Step) -> bool;
    /// Returns the waiters that are served in this state, or want nothing any more, a bit each.
    fn served(&self, state: &Self::State) -> u8;
    /// Returns all waiters, a bit each.
    fn waiters(&self) -> u8;
}

/// Searches up to the first state that breaks a promise, or the first one from which a waiter can never be served.
pub fn search_serving<S: Serving>(space: &S, most: usize) -> Found {
    let mut graph = Graph::default();
    let mut walked = walk(space, most, |from, print, new| {
        if let Some(state) = new {
            graph.indices.insert(print, graph.served.len() as u32);
            graph.served.push(space.served(state));
        }
        if let Some((from, _)) = from.filter(|(_, step)| space.may_need(*step)) {
            graph.edges.push((graph.indices[&print], from));
        }
    });
    if walked.is_whole {
        let stuck = graph.first_stuck(space.waiters());
        walked.broken = stuck.map(|index| ("X3", index));
    }
    walked.found(space)
}

/// The states by their indices, with the steps that a waiter may need.
#[derive(Default)]
struct Graph {
    indices: HashMap<u64, u32, BuildHasherDefault<Ready>>,
    served: Vec<u8>,
    /// To which state, and from which.
    edges: Vec<(u32, u32)>,
}

impl Graph {
    /// Carries what is served back along the steps, until nothing changes.
    fn first_stuck(&mut self, waiters: u8) -> Option<u32> {
        let mut has_changed = true;
        while has_changed {
            has_changed = false;
            // The last first: most steps lead to a state that was found later.
            for (to, from) in self.edges.iter().rev() {
                let can = self.served[*from as usize] | self.served[*to as usize];
                has_changed |= can != self.served[*from as usize];
                self.served[*from as usize] = can;
            }
        }
        let stuck = self.served.iter().position(|can| can & waiters != waiters);
        stuck.map(|index| index as u32)
    }
}
