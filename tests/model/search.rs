//! Breadth-first search of all states, up to the order of alike members, with the shortest way to a broken promise.
//!
//! A state that was seen is kept as a fingerprint of 64 bits: of 30 million states a search loses one by chance once in
//! 40,000 times.

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::time::Duration;

use leasehold::clock::{Boottime, Clock, Instant};

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
    walk(space, most, |_, _, _| ()).found(space)
}

/// What a search has walked through.
pub(crate) struct Walked<S> {
    began: Instant,
    /// From which state each was reached, and by which step.
    ways: Vec<Option<(u32, S)>>,
    depth: usize,
    /// Whether all states were seen, and none breaks a promise.
    pub(crate) is_whole: bool,
    /// The broken promise, and the state that breaks it.
    pub(crate) broken: Option<(&'static str, u32)>,
}

/// Searches as [`search`] does, and shows each step with the fingerprint of its end, and that state where it is new.
pub(crate) fn walk<S: Space>(
    space: &S,
    most: usize,
    mut see: impl FnMut(Option<(u32, S::Step)>, u64, Option<&S::State>),
) -> Walked<S::Step> {
    let mut walked = Walked {
        began: Boottime.now(),
        ways: vec![None],
        depth: 0,
        is_whole: false,
        broken: None,
    };
    let mut seen: HashSet<u64, BuildHasherDefault<Ready>> = HashSet::default();
    let mut first = space.first();
    space.settle(&mut first);
    seen.insert(fingerprint(&first));
    see(None, fingerprint(&first), Some(&first));
    let mut level = vec![(first, 0_u32)];
    let mut steps = Vec::new();
    while !level.is_empty() && walked.ways.len() < most {
        let mut next = Vec::new();
        for (state, at) in level {
            steps.clear();
            space.steps(&state, &mut steps);
            for step in &steps {
                let Some(mut to) = space.go(&state, *step) else {
                    continue;
                };
                space.settle(&mut to);
                let print = fingerprint(&to);
                let is_new = seen.insert(print);
                see(Some((at, *step)), print, is_new.then_some(&to));
                if !is_new {
                    continue;
                }
                walked.ways.push(Some((at, *step)));
                let index = u32::try_from(walked.ways.len() - 1).expect("fewer states than that");
                if let Some(promise) = space.broken(&to) {
                    walked.broken = Some((promise, index));
                    return walked;
                }
                next.push((to, index));
            }
        }
        level = next;
        walked.depth += 1;
    }
    walked.is_whole = walked.ways.len() < most;
    walked
}

impl<T: Copy> Walked<T> {
    /// Returns the verdict, with the way to the state that breaks a promise.
    pub(crate) fn found<S: Space<Step = T>>(&self, space: &S) -> Found {
        let told = |(promise, index)| (promise, told(space, &self.ways, index));
        Found {
            states: self.ways.len(),
            depth: self.depth,
            is_whole: self.is_whole && self.broken.is_none(),
            took: Boottime.now().since(self.began),
            broken: self.broken.map(told),
        }
    }
}

/// Returns the way to a state, in words.
fn told<S: Space>(space: &S, ways: &[Option<(u32, S::Step)>], mut index: u32) -> Vec<String> {
    let mut way = Vec::new();
    while let Some((from, step)) = ways[index as usize] {
        way.push(step);
        index = from;
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

/// The fingerprint of a state.
pub(crate) fn fingerprint(state: &impl Hash) -> u64 {
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

    fn write_u64(&mut self, number: u64) {
        self.mix(number);
    }

    // The variant of an enum.
    fn write_isize(&mut self, number: isize) {
        self.write_u8(number as u8);
    }

    fn write_usize(&mut self, number: usize) {
        self.mix(number as u64);
    }
}

/// Takes a fingerprint as its own hash.
#[derive(Debug, Default)]
pub(crate) struct Ready(u64);

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
