//! The highest token seen of each name, so that a grant whose token fell is lifted or refused.
//!
//! Bounded: the names that were looked at longest ago are forgotten first.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use crate::name::Name;
use crate::token::Token;

/// How many names are remembered. 4,096 names of 20 bytes are about half a megabyte.
const NAMES: usize = 4_096;

/// Floors by name: a client's, shared with its leases.
#[derive(Debug, Default)]
pub(crate) struct Floors(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    tokens: HashMap<Name, (Token, u64)>,
    by_age: BTreeMap<u64, Name>,
    looks: u64,
}

impl Floors {
    /// The highest token seen of this name.
    pub(crate) fn get(&self, name: &Name) -> Option<Token> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.tokens.get(name).map(|(token, _)| *token)
    }

    /// Notes a token; a lower one than before changes nothing.
    pub(crate) fn raise(&self, name: &Name, token: Token) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.raise(name, token);
    }
}

impl Known {
    fn raise(&mut self, name: &Name, token: Token) {
        self.looks += 1;
        let highest = match self.tokens.get(name) {
            Some((before, look)) => {
                self.by_age.remove(look);
                token.max(*before)
            }
            None => token,
        };
        self.tokens.insert(name.clone(), (highest, self.looks));
        self.by_age.insert(self.looks, name.clone());
        if self.tokens.len() > NAMES
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.tokens.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(index: usize) -> Name {
        Name::new(format!("n{index}")).expect("valid")
    }

    fn token(value: u64) -> Token {
        Token::new(value).expect("valid")
    }

    #[test]
    fn a_floor_only_rises() {
        let floors = Floors::default();
        floors.raise(&name(1), token(7));
        floors.raise(&name(1), token(3));
        assert_eq!(floors.get(&name(1)), Some(token(7)));
        assert_eq!(floors.get(&name(2)), None);
    }

    #[test]
    fn the_names_seen_longest_ago_are_forgotten() {
        let floors = Floors::default();
        for index in 0..NAMES {
            floors.raise(&name(index), token(1));
        }
        floors.raise(&name(0), token(2));
        floors.raise(&name(NAMES), token(1));
        assert_eq!(floors.get(&name(0)), Some(token(2)));
        assert_eq!(floors.get(&name(1)), None);
        let known = floors.0.into_inner().expect("not poisoned");
        assert_eq!(known.tokens.len(), NAMES);
        assert_eq!(known.by_age.len(), NAMES);
    }
}
