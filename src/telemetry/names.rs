//! Series of single names, for groups that ask for them: at most a given number of names, those that were held first.
//!
//! A series cannot be taken back from a recorder. So a name keeps its place once it was held, and shows 0 while it is
//! not.

use std::collections::{BTreeMap, HashMap};

use metrics::gauge;
use parking_lot::Mutex;

use super::counts::Counts;
use super::survey::unix_seconds_in;
use super::{quietly, table};
use crate::group::Group;
use crate::name::Name;

/// The state of a group from survey to survey.
#[derive(Debug, Default)]
struct KnownNames {
    limit: usize,
    names: Vec<Name>,
    /// Names beyond the limit, each counted once: forgotten when there are too many of them.
    folded: Vec<Name>,
}

static KNOWN: Mutex<BTreeMap<&'static str, KnownNames>> = Mutex::new(BTreeMap::new());

/// Gives each name of this group series of its own, up to the limit.
pub(crate) fn allow_names(group: Group, limit: usize) {
    if limit > 0 {
        let mut known = KNOWN.lock();
        let known = known.entry(group.as_str()).or_default();
        known.limit = known.limit.max(limit);
    }
}

/// The names of one group that have series, with the seconds until the deadline of those that are held.
#[derive(Debug)]
pub(super) struct Names {
    limit: usize,
    held: HashMap<Name, f64>,
    order: Vec<Name>,
    /// Held now, and beyond the limit.
    over: Vec<Name>,
}

impl Names {
    /// Those of this group, if it asked for any.
    pub(super) fn of(group: &str) -> Option<Self> {
        let known = KNOWN.lock();
        let known = known.get(group)?;
        let unheld = known.names.iter().map(|name| (name.clone(), f64::NAN));
        Some(Self {
            limit: known.limit,
            held: unheld.collect(),
            order: known.names.clone(),
            over: Vec::new(),
        })
    }

    pub(super) fn note_held(&mut self, name: &Name, left: f64) {
        if let Some(known) = self.held.get_mut(name) {
            // Two clients that both believe to hold it: the later deadline is the grant that stands.
            *known = known.max(left);
        } else if self.order.len() < self.limit {
            self.held.insert(name.clone(), left);
            self.order.push(name.clone());
        } else if self.over.len() < self.limit {
            self.over.push(name.clone());
        }
    }

    /// Sets the gauges, and remembers the names.
    pub(super) fn tell(self, group: &'static str) {
        for (name, left) in &self.held {
            let name = name.as_str();
            let is_held = f64::from(u8::from(!left.is_nan()));
            let deadline = unix_seconds_in(*left);
            quietly(|| {
                let held = table::LEASE_HELD.name;
                gauge!(held, "group" => group, "name" => name.to_owned()).set(is_held);
                let ends = table::LEASE_DEADLINE.name;
                gauge!(ends, "group" => group, "name" => name.to_owned()).set(deadline);
            });
        }
        let mut known = KNOWN.lock();
        let known = known.entry(group).or_default();
        known.names = self.order;
        for name in self.over {
            if !known.folded.contains(&name) {
                Counts::of_process().add(&table::LABEL_OVERFLOW, &[], 1);
                if known.folded.len() >= known.limit {
                    known.folded.clear();
                }
                known.folded.push(name);
            }
        }
    }
}
