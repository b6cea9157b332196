//! Removal of records that are over, and the high-water record that their tokens are raised into.
//!
//! A *remover* reads a record that has been over for long, raises the high-water to its token, and deletes the
//! record, each on the version that it has read. A *claimer* takes a name on the version of its record; where
//! there is none, or an emptied one, it reads the high-water then, and puts a token above that.
//!
//! Time is in ticks, and counts only two things: for how long a record has been over, and for how long a put for a
//! record that does not exist has been under way since the read that did not find it. Such a put is lost when it is too
//! old. Any other request is under way for as long as it likes. Tokens count as numbers up to [`Removal::last`], and
//! a claim may skip one, as a clock does.

use crate::search::Space;
use crate::serving::Serving;

/// How many names a state has room for.
const NAMES: usize = 2;
/// How many clients, of one kind.
const EACH: usize = 2;
/// How long a put may be under way.
const FLIGHT: u8 = 1;

/// What a search tries.
#[derive(Debug, Clone)]
pub struct Removal {
    /// How many names there are.
    pub names: u8,
    /// How many claimers.
    pub claimers: usize,
    /// How many removers.
    pub removers: usize,
    /// The highest token that is granted.
    pub last: u8,
    /// Whether the store deletes no record on a version: it is emptied, also of its token, and a rule of the store may
    /// clear it at any time after.
    pub empties: bool,
    /// A rule that is replaced by a wrong one.
    pub wrong: Option<Careless>,
}

/// A rule of removal that is replaced by a wrong one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Careless {
    /// The high-water is read before the record.
    MarkFirst,
    /// A name without a record is minted from nothing.
    MintsFromNothing,
    /// The high-water is not raised.
    NotRaised,
    /// The high-water is raised once the record is deleted.
    RaisedLater,
    /// The high-water is written on whatever version there is.
    RaisedAnyVersion,
    /// The record is deleted whatever its version.
    DeletesAnyVersion,
    /// The record is deleted before no put from before its end is under way.
    RemovesEarly,
    /// What poisons a claim on a name without a record has no token.
    PoisonsWithNothing,
    /// The store's own rule clears each record that is old.
    ClearsAny,
}

/// A state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Prefix {
    records: [Option<Held>; NAMES],
    /// The high-water.
    mark: u8,
    /// The highest token of each name that was granted.
    granted: [u8; NAMES],
    claimers: [Claimer; EACH],
    removers: [Remover; EACH],
    broken: Option<&'static str>,
}

/// A record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Held {
    token: u8,
    is_over: bool,
    is_emptied: bool,
    /// How long it has been over, or emptied.
    age: u8,
}

/// What a claimer is about to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
enum Claimer {
    #[default]
    Idle,
    /// It reads the high-water: the name has no record. Since when.
    Mints(u8, u8),
    /// It reads the high-water: the record has been emptied. Its version.
    MintsOn(u8, bool),
    /// It has read the high-water too early.
    Minted(u8, u8),
    /// It creates the record with a token above this; since when.
    Creates(u8, u8, u8),
    /// It takes the record with a token above this, on this version.
    Takes(u8, u8, bool),
}

/// What a remover is about to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
enum Remover {
    #[default]
    Idle,
    /// It reads the high-water for this record.
    HasRead(Seen),
    /// It writes the high-water, on this version.
    Raises(Seen, bool),
    /// It deletes the record.
    Deletes(Seen),
}

/// A record that a remover has read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Seen {
    name: u8,
    token: u8,
    is_current: bool,
    /// Whether it is deleted already.
    is_deleted: bool,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// All clocks go on.
    Tick,
    /// The lease of a name is over.
    End(u8),
    /// The store's own rule clears a record.
    Clear(u8),
    /// A claimer reads for the first time, at this name.
    Claim(u8, u8),
    /// A claimer goes on; whether it skips a token.
    GoOn(u8, bool),
    /// It makes a claim of its own fail, that is under way.
    Poison(u8),
    /// It is lost with its request.
    Drop(u8),
    /// A remover reads for the first time, at this name.
    Remove(u8, u8),
    /// A remover goes on.
    Clean(u8),
    /// It is lost with its request.
    Forget(u8),
}

impl Removal {
    /// One name, with so many claimers and removers.
    pub fn new(claimers: usize, removers: usize) -> Self {
        Self {
            names: 1,
            claimers,
            removers,
            last: 4,
            empties: false,
            wrong: None,
        }
    }

    /// The same with two names.
    #[must_use]
    pub fn of_two(self) -> Self {
        Self { names: 2, ..self }
    }

    /// The same in a store that deletes no record on a version.
    #[must_use]
    pub fn emptying(self) -> Self {
        Self {
            empties: true,
            ..self
        }
    }

    /// The same with this rule replaced.
    #[must_use]
    pub fn wrong(self, wrong: Careless) -> Self {
        Self {
            wrong: Some(wrong),
            ..self
        }
    }

    fn has(&self, wrong: Careless) -> bool {
        self.wrong == Some(wrong)
    }

    /// How long a record has been over that is removed: for longer than a put is under way.
    fn old(&self) -> u8 {
        match self.has(Careless::RemovesEarly) {
            true => FLIGHT,
            false => FLIGHT + 1,
        }
    }

    fn claim(&self, world: &mut Prefix, at: usize, name: u8) -> bool {
        if world.claimers[at] != Claimer::Idle {
            return false;
        }
        world.claimers[at] = match self.has(Careless::MarkFirst) {
            true => Claimer::Minted(name, world.mark),
            false => read(world, name, None),
        };
        true
    }

    fn go_on(&self, world: &mut Prefix, at: usize, skips: bool) -> bool {
        let skips_one = u8::from(skips);
        let claimer = world.claimers[at];
        world.claimers[at] = match claimer {
            Claimer::Idle => return false,
            Claimer::Mints(..) | Claimer::MintsOn(..) | Claimer::Minted(..) if skips => {
                return false;
            }
            Claimer::Mints(name, since) => Claimer::Creates(name, self.mark(world), since),
            Claimer::MintsOn(name, is_current) => {
                Claimer::Takes(name, self.mark(world), is_current)
            }
            Claimer::Minted(name, mark) => read(world, name, Some(mark)),
            Claimer::Creates(name, mark, _) => {
                let token = mark + 1 + skips_one;
                if world.records[usize::from(name)].is_none() {
                    self.grant(world, name, token);
                }
                Claimer::Idle
            }
            Claimer::Takes(name, last, is_current) => {
                let token = last + 1 + skips_one;
                if is_current {
                    self.grant(world, name, token);
                }
                Claimer::Idle
            }
        };
        true
    }

    /// What a read of the high-water shows.
    fn mark(&self, world: &Prefix) -> u8 {
        match self.has(Careless::MintsFromNothing) {
            true => 0,
            false => world.mark,
        }
    }

    fn grant(&self, world: &mut Prefix, name: u8, token: u8) {
        if token > self.last {
            return;
        }
        let granted = &mut world.granted[usize::from(name)];
        if token <= *granted {
            world.broken.get_or_insert("TokensRise");
        }
        *granted = token.max(*granted);
        world.write(
            name,
            Some(Held {
                token,
                ..Held::default()
            }),
        );
    }

    fn poison(&self, world: &mut Prefix, at: usize) -> bool {
        let Claimer::Creates(name, mark, _) = world.claimers[at] else {
            return false;
        };
        let token = match self.has(Careless::PoisonsWithNothing) {
            true => 0,
            false => mark,
        };
        world.claimers[at] = Claimer::Idle;
        if world.records[usize::from(name)].is_none() {
            world.write(
                name,
                Some(Held {
                    token,
                    is_over: true,
                    ..Held::default()
                }),
            );
        }
        true
    }

    fn remove(&self, world: &mut Prefix, at: usize, name: u8) -> bool {
        let record = world.records[usize::from(name)];
        let Some(record) = record.filter(|record| record.is_over && record.age >= self.old())
        else {
            return false;
        };
        let is_idle = world.removers[at] == Remover::Idle;
        if is_idle && !record.is_emptied {
            let seen = Seen {
                name,
                token: record.token,
                is_current: true,
                is_deleted: false,
            };
            let is_raised = self.has(Careless::NotRaised) || self.has(Careless::RaisedLater);
            world.removers[at] = match is_raised {
                true => Remover::Deletes(seen),
                false => Remover::HasRead(seen),
            };
            return true;
        }
        false
    }

    fn clean(&self, world: &mut Prefix, at: usize) -> bool {
        world.removers[at] = match world.removers[at] {
            Remover::Idle => return false,
            Remover::HasRead(seen) if world.mark < seen.token => Remover::Raises(seen, true),
            Remover::HasRead(seen) if seen.is_deleted => Remover::Idle,
            Remover::HasRead(seen) => Remover::Deletes(seen),
            Remover::Raises(seen, is_current) => {
                if is_current || self.has(Careless::RaisedAnyVersion) {
                    world.raise(seen.token);
                    match seen.is_deleted {
                        true => Remover::Idle,
                        false => Remover::Deletes(seen),
                    }
                } else {
                    Remover::HasRead(seen)
                }
            }
            Remover::Deletes(seen) => {
                let record = world.records[usize::from(seen.name)];
                let is_any = self.has(Careless::DeletesAnyVersion);
                if let Some(record) = record.filter(|_| seen.is_current || is_any) {
                    if !record.is_over {
                        world.broken.get_or_insert("LiveIsKept");
                    }
                    let emptied = Held {
                        token: 0,
                        is_over: true,
                        is_emptied: true,
                        age: 0,
                    };
                    world.write(seen.name, self.empties.then_some(emptied));
                }
                match self.has(Careless::RaisedLater) {
                    true => Remover::HasRead(Seen {
                        is_deleted: true,
                        ..seen
                    }),
                    false => Remover::Idle,
                }
            }
        };
        true
    }

    fn clear(&self, world: &mut Prefix, name: u8) -> bool {
        let record = world.records[usize::from(name)];
        let is_cleared = |record: &Held| {
            let is_old = record.is_over && record.age >= self.old();
            record.is_emptied || is_old && self.has(Careless::ClearsAny)
        };
        let is_possible = self.empties && record.as_ref().is_some_and(is_cleared);
        if is_possible {
            world.write(name, None);
        }
        is_possible
    }
}

impl Prefix {
    /// The record has another version from now on.
    fn write(&mut self, name: u8, record: Option<Held>) {
        self.records[usize::from(name)] = record;
        for claimer in &mut self.claimers {
            if let Claimer::Takes(of, _, is_current) | Claimer::MintsOn(of, is_current) = claimer
                && *of == name
            {
                *is_current = false;
            }
        }
        for remover in &mut self.removers {
            if let Remover::HasRead(seen) | Remover::Raises(seen, _) | Remover::Deletes(seen) =
                remover
                && seen.name == name
            {
                seen.is_current = false;
            }
        }
    }

    fn raise(&mut self, token: u8) {
        self.mark = token;
        for remover in &mut self.removers {
            if let Remover::Raises(_, is_current) = remover {
                *is_current = false;
            }
        }
    }

    fn tick(&mut self) {
        for record in self.records.iter_mut().flatten() {
            if record.is_over {
                record.age = (record.age + 1).min(FLIGHT + 1);
            }
        }
        for claimer in &mut self.claimers {
            if let Claimer::Mints(_, since) | Claimer::Creates(_, _, since) = claimer {
                *since += 1;
                if *since > FLIGHT {
                    *claimer = Claimer::Idle;
                }
            }
        }
    }
}

/// A claimer reads the record.
fn read(world: &Prefix, name: u8, mark: Option<u8>) -> Claimer {
    match (world.records[usize::from(name)], mark) {
        (None, None) => Claimer::Mints(name, 0),
        (None, Some(mark)) => Claimer::Creates(name, mark, 0),
        (Some(record), None) if record.is_emptied => Claimer::MintsOn(name, true),
        (Some(record), Some(mark)) if record.is_emptied => Claimer::Takes(name, mark, true),
        (Some(record), _) if record.is_over => Claimer::Takes(name, record.token, true),
        (Some(_), _) => Claimer::Idle,
    }
}

impl Space for Removal {
    type State = Prefix;
    type Step = Move;

    fn first(&self) -> Prefix {
        Prefix::default()
    }

    fn steps(&self, _: &Prefix, steps: &mut Vec<Move>) {
        steps.push(Move::Tick);
        for name in 0..self.names {
            steps.extend([Move::End(name), Move::Clear(name)]);
        }
        for at in 0..self.claimers as u8 {
            steps.extend((0..self.names).map(|name| Move::Claim(at, name)));
            steps.extend([false, true].map(|skips| Move::GoOn(at, skips)));
            steps.extend([Move::Poison(at), Move::Drop(at)]);
        }
        for at in 0..self.removers as u8 {
            steps.extend((0..self.names).map(|name| Move::Remove(at, name)));
            steps.extend([Move::Clean(at), Move::Forget(at)]);
        }
    }

    fn go(&self, world: &Prefix, step: Move) -> Option<Prefix> {
        let mut next = *world;
        let is_possible = match step {
            Move::Tick => {
                next.tick();
                true
            }
            Move::End(name) => match next.records[usize::from(name)] {
                Some(record) if !record.is_over => {
                    let is_over = true;
                    next.write(name, Some(Held { is_over, ..record }));
                    true
                }
                _ => false,
            },
            Move::Clear(name) => self.clear(&mut next, name),
            Move::Claim(at, name) => self.claim(&mut next, at.into(), name),
            Move::GoOn(at, skips) => self.go_on(&mut next, at.into(), skips),
            Move::Poison(at) => self.poison(&mut next, at.into()),
            Move::Drop(at) => {
                next.claimers[usize::from(at)] = Claimer::Idle;
                true
            }
            Move::Remove(at, name) => self.remove(&mut next, at.into(), name),
            Move::Clean(at) => self.clean(&mut next, at.into()),
            Move::Forget(at) => {
                next.removers[usize::from(at)] = Remover::Idle;
                true
            }
        };
        is_possible.then_some(next)
    }

    fn settle(&self, world: &mut Prefix) {
        for claimer in &mut world.claimers {
            if matches!(
                claimer,
                Claimer::Takes(_, _, false) | Claimer::MintsOn(_, false)
            ) {
                *claimer = Claimer::Idle;
            }
        }
    }

    fn broken(&self, world: &Prefix) -> Option<&'static str> {
        world.broken
    }

    fn describe(&self, _: &Prefix, step: Move) -> String {
        format!("{step:?}")
    }
}

/// A name is served once it has no record.
impl Serving for Removal {
    fn may_need(&self, step: Move) -> bool {
        !matches!(step, Move::Claim(..) | Move::Drop(_) | Move::Forget(_))
    }

    fn served(&self, world: &Prefix) -> u8 {
        let names = world.records.iter().enumerate();
        names.fold(0, |served, (name, record)| {
            served | u8::from(record.is_none()) << name
        })
    }

    fn waiters(&self) -> u8 {
        (1 << self.names) - 1
    }
}
