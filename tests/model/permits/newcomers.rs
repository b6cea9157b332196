//! Whether newcomers can keep the waiter that has the door from its permit for ever. Requests are answered at once
//! here, and the waiter tries without end.
//!
//! "For ever" is a way that comes back to where it was: at some moment the search *remembers* the scene, and it finds
//! this scene again after the waiter has tried each permit that it needs in vain, and a newcomer has taken one.

use crate::search::Space;

/// The number of newcomers.
const NEWCOMERS: usize = 3;

/// What a search tries.
#[derive(Debug, Clone, Copy)]
pub struct Newcomers {
    /// How they come.
    pub coming: Coming,
    /// Whether the one at the door is a writer, which has to see each permit free; a reader takes one.
    pub is_writer: bool,
    /// How many permits there are.
    pub permits: u8,
    /// Whether it is asked that none takes a permit twice; else that none is kept away for ever.
    pub is_bound: bool,
    /// Whether a limit of the waiter's hold ends its door, at any moment, and not only what it was handed.
    pub is_limited: bool,
}

/// How newcomers come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coming {
    /// Each claims first; it finds the door taken, and queues there.
    ToQueue,
    /// Each claims first; it finds the door taken, and comes again.
    ToTry,
    /// The same, but who found the door taken asks at the door from then on.
    ToTryAndRemember,
    /// The same, but clients are new ones each time.
    EverNew,
    /// Each checks the door first, and claims if it was free, once for each check.
    ToCheckFirst,
    /// A door that a reader holds counts as free.
    PastReaders,
}

/// A state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Race {
    scene: Scene,
    /// Which newcomers have taken a permit, a bit each, and whether one has twice.
    taken: u8,
    is_twice: bool,
    remembered: Option<Scene>,
    /// The permits that were tried in vain since, and whether one was taken.
    in_vain: u8,
    was_taken: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Scene {
    newcomers: [Newcomer; NEWCOMERS],
    /// The permits that the waiter saw free, a bit each.
    seen: u8,
    is_served: bool,
    /// The waiter's door has ended by a limit, and the waiter asks for it again.
    is_out: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
enum Newcomer {
    /// Exits: Claimed; with a check first none, because the door is taken.
    #[default]
    Away,
    /// It saw the door free before it was granted. Exits: Claimed.
    Late,
    /// It has this permit, and has not checked the door. Exits: Refused, Holds.
    Claimed(u8),
    /// It found the door taken. Exits: Away, Queues.
    Refused(u8),
    /// Exits: Away, Queues.
    Holds(u8),
    /// It asks at the door. Exits: Remembers, or Away, as a new client.
    Queues,
    /// It was refused at the door. Exits: Queues.
    Remembers,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stride {
    /// The waiter tries a permit.
    Try(u8),
    /// A newcomer takes a permit.
    Take(u8, u8),
    /// A newcomer goes on: checks the door, releases, comes or goes.
    GoOn(u8),
    /// The door ends by the waiter's limit, or is granted again.
    TurnDoor,
    /// The search remembers the scene.
    Remember,
}

impl Space for Newcomers {
    type State = Race;
    type Step = Stride;

    fn first(&self) -> Race {
        let mut race = Race::default();
        if self.coming == Coming::ToCheckFirst {
            race.scene.newcomers = [Newcomer::Late; NEWCOMERS];
        }
        race
    }

    fn steps(&self, _: &Race, steps: &mut Vec<Stride>) {
        steps.extend([Stride::Remember, Stride::TurnDoor]);
        for who in 0..NEWCOMERS as u8 {
            steps.push(Stride::GoOn(who));
            steps.extend((0..self.permits).map(|permit| Stride::Take(who, permit)));
        }
        steps.extend((0..self.permits).map(Stride::Try));
    }

    fn go(&self, race: &Race, step: Stride) -> Option<Race> {
        if race.scene.is_served {
            return None;
        }
        let mut next = *race;
        match step {
            Stride::Try(_) if race.scene.is_out => return None,
            Stride::Try(permit) => self.attempt(&mut next, permit),
            Stride::TurnDoor if !self.is_limited => return None,
            Stride::TurnDoor => {
                next.scene.is_out ^= true;
                // Checks count for the grant of the door that they followed.
                next.scene.seen = 0;
            }
            Stride::Take(who, permit) => self.take(&mut next, who.into(), permit)?,
            Stride::GoOn(who) => {
                let newcomer = &mut next.scene.newcomers[usize::from(who)];
                *newcomer = match race.scene.is_out {
                    true => self.goes_on_past_the_open_door(*newcomer),
                    false => self.goes_on(*newcomer),
                };
            }
            Stride::Remember if self.is_bound || race.remembered.is_some() => return None,
            Stride::Remember => next.remembered = Some(race.scene),
        }
        Some(next)
    }

    fn settle(&self, _: &mut Race) {}

    fn broken(&self, race: &Race) -> Option<&'static str> {
        let needed = ((1 << self.permits) - 1) & !race.scene.seen;
        let is_again = race.remembered == Some(race.scene);
        let is_kept_away = is_again && race.was_taken && race.in_vain & needed == needed;
        (is_kept_away || self.is_bound && race.is_twice).then_some("T")
    }

    fn describe(&self, _: &Race, step: Stride) -> String {
        format!("{step:?}")
    }
}

impl Newcomers {
    fn attempt(&self, race: &mut Race, permit: u8) {
        if race.scene.has_taken(permit) {
            race.in_vain |= u8::from(race.remembered.is_some()) << permit;
            return;
        }
        race.scene.seen |= 1 << permit;
        race.scene.is_served = !self.is_writer || race.scene.seen == (1 << self.permits) - 1;
    }

    fn take(&self, race: &mut Race, who: usize, permit: u8) -> Option<()> {
        let newcomer = &mut race.scene.newcomers[who];
        let may_claim = match *newcomer {
            Newcomer::Away => self.coming != Coming::ToCheckFirst,
            other => other == Newcomer::Late,
        };
        if !may_claim || race.scene.has_taken(permit) {
            return None;
        }
        race.scene.newcomers[who] = Newcomer::Claimed(permit);
        race.is_twice |= race.taken >> who & 1 == 1;
        race.taken |= 1 << who;
        race.was_taken = race.remembered.is_some();
        Some(())
    }

    fn goes_on_past_the_open_door(&self, newcomer: Newcomer) -> Newcomer {
        match newcomer {
            Newcomer::Claimed(permit) => Newcomer::Holds(permit),
            Newcomer::Queues | Newcomer::Remembers => Newcomer::Away,
            Newcomer::Away if self.coming == Coming::ToCheckFirst => Newcomer::Late,
            other => self.goes_on(other),
        }
    }

    fn goes_on(&self, newcomer: Newcomer) -> Newcomer {
        match (newcomer, self.coming) {
            (Newcomer::Claimed(permit), Coming::PastReaders) if !self.is_writer => {
                Newcomer::Holds(permit)
            }
            (Newcomer::Claimed(permit), _) => Newcomer::Refused(permit),
            (Newcomer::Refused(_) | Newcomer::Holds(_), coming) => match coming {
                Coming::ToTry | Coming::ToCheckFirst | Coming::PastReaders => Newcomer::Away,
                Coming::ToQueue | Coming::ToTryAndRemember | Coming::EverNew => Newcomer::Queues,
            },
            (Newcomer::Queues, Coming::EverNew) => Newcomer::Away,
            (Newcomer::Queues, Coming::ToTryAndRemember) => Newcomer::Remembers,
            (Newcomer::Remembers, _) => Newcomer::Queues,
            (still, _) => still,
        }
    }
}

impl Scene {
    fn has_taken(&self, permit: u8) -> bool {
        let has = |newcomer: &Newcomer| match *newcomer {
            Newcomer::Claimed(of) | Newcomer::Refused(of) | Newcomer::Holds(of) => of == permit,
            _ => false,
        };
        self.newcomers.iter().any(has)
    }
}
