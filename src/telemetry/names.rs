//! Series of single names, for groups that ask for them: a limited number of names, first come, first served.
//!
//! A series cannot be taken back from a recorder. So a name keeps its series once it was held, and shows 0 while it is
//! not.

use std::collections::{HashMap, HashSet};

use metrics::gauge;
use parking_lot::Mutex;

use super::sink::Sink;
use super::survey::unix_seconds_in;
use super::{quietly, table};
use crate::name::Name;

/// The names of one group that have series.
#[derive(Debug, Default)]
pub(super) struct Names {
    limit: usize,
    /// The seconds until the deadline of each name; NaN while it is not held.
    left: HashMap<Name, f64>,
    /// Names beyond the limit, each counted once: forgotten when there are too many of them.
    folded: HashSet<Name>,
}

impl Sink {
    /// Gives each name of this group series of its own, up to the limit.
    pub(crate) fn allow_names(&self, limit: usize) {
        let mut names = self.names.lock();
        names.limit = names.limit.max(limit);
    }
}

impl Names {
    /// Takes the names of a group for a survey: none counts as held until it is recorded. At the end of the survey
    /// their gauges are set, and the names are put back.
    pub(super) fn take(of: &Mutex<Self>) -> Self {
        let mut of = of.lock();
        let mut names = Self {
            limit: of.limit,
            left: std::mem::take(&mut of.left),
            folded: std::mem::take(&mut of.folded),
        };
        names.left.values_mut().for_each(|left| *left = f64::NAN);
        names
    }

    pub(super) fn note_held(&mut self, name: &Name, left: f64) {
        if let Some(known) = self.left.get_mut(name) {
            // Two clients that both believe to hold it: the later deadline is the grant that stands.
            *known = known.max(left);
        } else if self.left.len() < self.limit {
            self.left.insert(name.clone(), left);
        } else if self.limit > 0 && !self.folded.contains(name) {
            if self.folded.len() >= self.limit {
                self.folded.clear();
            }
            self.folded.insert(name.clone());
            Sink::of_process().add(&table::LABEL_OVERFLOW, &[], 1);
        }
    }

    /// Sets the gauges, and remembers the names.
    pub(super) fn tell(self, group: &'static str, of: &Mutex<Self>) {
        for (name, left) in &self.left {
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
        let mut of = of.lock();
        (of.left, of.folded) = (self.left, self.folded);
    }
}
