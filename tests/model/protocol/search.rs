//! Breadth-first search of all states, up to the order of alike members, with the shortest way to a broken promise.
//!
//! A state that was seen is kept as a fingerprint of 64 bits: of 30 million states a search loses one by chance once in
//! 40,000 times.

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::time::Duration;

use leasehold::clock::{Boottime, Clock};

/// What is searched.
pub trait Space {
    /// A state.
    type State: Clone + Hash;
    /// A step from one state to the next.
    type Step: Copy;

    /// Returns the first state.
    fn first(&self) -> Self::State;
    /// Adds the steps that may be possible.
    fn steps(&self, state: &Self::State, steps: &mut Vec<Self::Step>);
    /// Returns the state after a step, if the step is possible and changes anything.
    fn go(&self, state: &Self::State, step: Self::Step) -> Option<Self::State>;
    /// Brings states that differ only in the order of what is alike into one form.
    fn settle(&self, state: &mut Self::State);
    /// Returns the promise that the state breaks.
    fn broken(&self, state: &Self::State) -> Option<&'static str>;
    /// Describes a step from this state.
    fn describe(&self, state: &Self::State, step: Self::Step) -> String;
}

/// What a search found.
#[derive(Debug, Clone)]
pub struct Found {
    /// How many different states were seen.
    pub states: usize,
    /// The longest of the shortest ways.
    pub depth: usize,
    /// Whether all states were seen.
    pub is_whole: bool,
    /// How long it took.
    pub took: Duration,
    /// The promise that was broken, and the way there.
    pub broken: Option<(&'static str, Vec<String>)>,
}

/// Searches up to the first state that breaks a promise, or up to so many states.
pub fn search<S: Space>(space: &S, most: usize) -> Found {
    let began = Boottime.now();
    let mut seen: HashSet<u64, BuildHasherDefault<Ready>> = HashSet::default();
    let mut first = space.first();
    space.settle(&mut first);
    seen.insert(fingerprint(&first));
    // From which state each was reached, and by which step.
    let mut ways: Vec<Option<(u32, S::Step)>> = vec![None];
    let mut level = vec![(first, 0_u32)];
    let mut depth = 0;
    let mut steps = Vec::new();
    let mut end = None;
    'search: while !level.is_empty() && ways.len() < most {
        let mut next = Vec::new();
        for (state, at) in level {
            steps.clear();
            space.steps(&state, &mut steps);
            for step in &steps {
                let Some(mut to) = space.go(&state, *step) else {
                    continue;
                };
                space.settle(&mut to);
                if !seen.insert(fingerprint(&to)) {
                    continue;
                }
                ways.push(Some((at, *step)));
                let place = u32::try_from(ways.len() - 1).expect("fewer states than that");
                if let Some(promise) = space.broken(&to) {
                    end = Some((promise, place));
                    break 'search;
                }
                next.push((to, place));
            }
        }
        level = next;
        depth += 1;
    }
    Found {
        states: ways.len(),
        depth,
        is_whole: end.is_none() && ways.len() < most,
        took: Boottime.now().since(began),
        broken: end.map(|(promise, place)| (promise, told(space, &ways, place))),
    }
}

/// Returns the way to a state, in words.
fn told<S: Space>(space: &S, ways: &[Option<(u32, S::Step)>], mut place: u32) -> Vec<String> {
    let mut way = Vec::new();
    while let Some((from, step)) = ways[place as usize] {
        way.push(step);
        place = from;
    }
    let mut state = space.first();
    space.settle(&mut state);
    let mut words = Vec::new();
    for step in way.into_iter().rev() {
        words.push(space.describe(&state, step));
        state = space.go(&state, step).expect("it was possible before");
        space.settle(&mut state);
    }
    words
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (states, depth) = (self.states, self.depth);
        write!(f, "{states:>9} states, depth {depth:>2}, ")?;
        write!(f, "{:>5.1} s, ", self.took.as_secs_f64())?;
        match &self.broken {
            Some((promise, way)) => write!(f, "{promise} broken in {} steps", way.len()),
            None if self.is_whole => f.write_str("holds"),
            None => f.write_str("nothing found, not all searched"),
        }
    }
}

fn fingerprint(state: &impl Hash) -> u64 {
    let mut mixing = Mixing {
        mixed: 0x9e37_79b9_7f4a_7c15,
        ..Mixing::default()
    };
    state.hash(&mut mixing);
    mixing.finish()
}

/// Gathers words of eight bytes, because the states are made of single ones, and mixes them by multiplication.
#[derive(Debug, Default)]
struct Mixing {
    mixed: u64,
    word: u64,
    bits: u32,
}

impl Mixing {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.mixed.rotate_left(29) ^ word) * 0x9fb2_1c65_1e98_df25;
        self.mixed = (product >> 64) as u64 ^ product as u64 ^ word.rotate_left(41);
    }
}

impl Hasher for Mixing {
    fn finish(&self) -> u64 {
        let mixed = (self.mixed ^ self.word).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u8(*byte));
    }

    fn write_u8(&mut self, byte: u8) {
        self.word |= u64::from(byte) << self.bits;
        self.bits += 8;
        if self.bits == 64 {
            self.mix(self.word);
            (self.word, self.bits) = (0, 0);
        }
    }

    fn write_u16(&mut self, number: u16) {
        self.write(&number.to_le_bytes());
    }

    fn write_usize(&mut self, number: usize) {
        self.mix(number as u64);
    }
}

/// Takes a fingerprint as its own hash.
#[derive(Debug, Default)]
struct Ready(u64);

impl Hasher for Ready {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only fingerprints are hashed");
    }

    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }
}
