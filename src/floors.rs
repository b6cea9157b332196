//! The highest token seen of each name, so that a grant with a lower token is lifted or refused.
//!
//! Names that are held or waited for are remembered, however many they are. Of all other names a limited number is
//! kept: the least recently used are forgotten first.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::home::Home;
use crate::name::Name;
use crate::token::Token;

/// The number of remembered names that are neither held nor waited for. 4,096 names of 20 bytes take about half a
/// megabyte.
const IDLE_NAMES: usize = 4_096;

/// The floors of a client by name, shared with its leases.
#[derive(Debug)]
pub(crate) struct Floors {
    known: Mutex<Known>,
    home: Home,
}

#[derive(Debug, Default)]
struct Known {
    names: HashMap<Name, Kept>,
    /// The names without keepers, in the order of becoming idle.
    idle: BTreeMap<u64, Name>,
    last_mark: u64,
}

/// The state of one name.
#[derive(Debug, Default)]
struct Kept {
    highest: Option<Token>,
    /// The number of leases and requests that keep this name.
    keepers: u32,
    /// Its mark among the idle names; 0 while it has keepers.
    mark: u64,
}

/// The floor of one name, kept for as long as a lease or a request of this name lives.
#[derive(Debug)]
pub(crate) struct Floor {
    pub(crate) floors: Arc<Floors>,
    pub(crate) name: Name,
}

impl Floors {
    pub(crate) fn new(home: Home) -> Self {
        Self {
            known: Mutex::default(),
            home,
        }
    }

    /// Returns the floor of this name, which is remembered at least until the returned value is dropped.
    pub(crate) fn keep(self: &Arc<Self>, name: Name) -> Arc<Floor> {
        self.known.lock().change(&name, |kept| kept.keepers += 1);
        let floors = self.clone();
        Arc::new(Floor { floors, name })
    }

    /// Raises the floor of this name to a token; a lower token has no effect.
    pub(crate) fn raise(&self, name: &Name, token: Token) {
        let raise = |kept: &mut Kept| kept.highest = kept.highest.max(Some(token));
        self.known.lock().change(name, raise);
    }
}

impl Floor {
    /// Returns the highest token seen of this name.
    pub(crate) fn get(&self) -> Option<Token> {
        self.floors.known.lock().names.get(&self.name)?.highest
    }

    /// Like [`Floors::raise`].
    pub(crate) fn raise(&self, token: Token) {
        self.floors.raise(&self.name, token);
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that does not exist.
        if !self.floors.home.is_forked() {
            let leave = |kept: &mut Kept| kept.keepers = kept.keepers.saturating_sub(1);
            self.floors.known.lock().change(&self.name, leave);
        }
    }
}

impl Known {
    /// Updates a name. Forgets it at once if it has neither keepers nor a token; if there are too many names without
    /// keepers, forgets the one that was changed longest ago.
    fn change(&mut self, name: &Name, change: impl FnOnce(&mut Kept)) {
        let kept = self.names.entry(name.clone()).or_default();
        self.idle.remove(&std::mem::take(&mut kept.mark));
        change(kept);
        if kept.keepers > 0 {
            return;
        }
        if kept.highest.is_none() {
            self.names.remove(name);
            return;
        }
        self.last_mark += 1;
        kept.mark = self.last_mark;
        self.idle.insert(self.last_mark, name.clone());
        if self.idle.len() > IDLE_NAMES
            && let Some((_, oldest)) = self.idle.pop_first()
        {
            self.names.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floors() -> Arc<Floors> {
        Arc::new(Floors::new(Home::here()))
    }

    fn name(index: usize) -> Name {
        Name::new(format!("n{index}")).expect("valid")
    }

    fn token(value: u64) -> Token {
        Token::new(value).expect("valid")
    }

    /// Raises the floors of as many names as are remembered, from this one on.
    fn raise_others(floors: &Floors, first: usize) {
        for index in first..first + IDLE_NAMES {
            floors.raise(&name(index), token(1));
        }
    }

    fn knows(floors: &Floors, index: usize) -> bool {
        floors.known.lock().names.contains_key(&name(index))
    }

    #[test]
    fn a_floor_only_rises() {
        let floors = floors();
        floors.raise(&name(1), token(7));
        floors.raise(&name(1), token(3));
        assert_eq!(floors.keep(name(1)).get(), Some(token(7)));
        assert_eq!(floors.keep(name(2)).get(), None);
    }

    #[test]
    fn the_names_left_longest_ago_are_forgotten() {
        let floors = floors();
        raise_others(&floors, 0);
        floors.raise(&name(0), token(2));
        drop(floors.keep(name(1)));
        floors.raise(&name(IDLE_NAMES), token(1));
        floors.raise(&name(IDLE_NAMES + 1), token(1));
        assert!(knows(&floors, 0) && knows(&floors, 1));
        assert!(!knows(&floors, 2) && !knows(&floors, 3));
        assert_eq!(floors.known.lock().names.len(), IDLE_NAMES);
        assert_eq!(floors.known.lock().idle.len(), IDLE_NAMES);
    }

    #[test]
    fn a_kept_floor_is_not_forgotten_until_it_is_the_oldest_one_left() {
        let floors = floors();
        let one = floors.keep(name(0));
        one.raise(token(5));
        let other = floors.keep(name(0));
        raise_others(&floors, 1);
        drop(one);
        raise_others(&floors, 1);
        assert_eq!(other.get(), Some(token(5)));
        drop(other);
        raise_others(&floors, 2);
        assert!(!knows(&floors, 0));
    }

    #[test]
    fn a_client_of_more_names_than_are_remembered_knows_the_floors_of_all_it_holds() {
        let floors = floors();
        let held: Vec<_> = (0..5_000).map(|index| floors.keep(name(index))).collect();
        held.iter().for_each(|floor| floor.raise(token(9)));
        assert!(held.iter().all(|floor| floor.get() == Some(token(9))));
        drop(held);
        assert_eq!(floors.known.lock().idle.len(), IDLE_NAMES);
        assert_eq!(floors.known.lock().names.len(), IDLE_NAMES);
    }

    #[test]
    fn a_name_without_a_token_leaves_nothing_behind() {
        let floors = floors();
        drop(floors.keep(name(1)));
        let known = floors.known.lock();
        assert!(known.names.is_empty() && known.idle.is_empty());
    }
}
