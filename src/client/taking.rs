//! Leads one caller to a permit of a pool, or to a name alone that others share: decides which request it sends next,
//! by the answers that it has. Pure: it knows no runtime and no clock.
//!
//! A pool has a *door*, the lease on its own name, and permits, the leases on `name#1`, `name#2` and so on. Each side
//! writes its own and then reads the other's:
//!
//! ```text
//!  fast     claim a permit, then look at the door: free, it counts; taken, give the permit back and queue at the door
//!  behind   take the door, claim a permit that is free, then release the door: it counts if the door was still held
//!  alone    take the door, then look at each permit: holds the name alone once each was seen free
//! ```
//!
//! # Invariants
//! 1. One request at a time: a look is sent after the answer that it has to follow was heard.
//! 2. A permit that was taken on the fast path counts only after a look at the door that followed its grant and showed
//!    it free. Every lease of the door counts as taken, another taker's too.
//! 3. Behind the door, where a name may be held alone, a permit counts only if the release of the door says that this
//!    very grant was held until then.
//! 4. Looks at permits count only for the grant of the door that they followed, and all of them are needed.
//! 5. A caller that does not wait, or whose client knows that others wait, looks at the door before each claim; so it
//!    takes no permit from a client that waits.

use std::collections::BTreeSet;

/// The most permits of a pool. Each is a name of its own, and a caller that finds none free looks at all of them.
pub const MAX_PERMITS: u16 = 256;

/// The permits of a name that is shared, and so the most that can share it at once. It is part of the wire: who looks
/// at fewer does not see the others. A newer version may look at more, but may take more only once all others look at
/// them.
pub const SHARED_PERMITS: u16 = 64;

/// The part of a name that a caller takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// One of this many permits. No caller ever holds the name alone.
    Permit(u16),
    /// A share of the name, together with others.
    Shared,
    /// The same, with the token of the door: by the door in any case.
    SharedFenced,
    /// The name alone.
    Exclusive,
}

/// One acquisition, by the answers that it has.
#[derive(Debug)]
pub struct Taking {
    access: Access,
    waits: bool,
    /// True if it looks at the door before each claim.
    is_careful: bool,
    phase: TakePhase,
    /// Permits that seemed free, to be tried; the last one first.
    candidates: Vec<u16>,
    has_surveyed: bool,
    /// For the name alone: the permits that were seen free since the door was granted.
    seen_free: BTreeSet<u16>,
}

/// Which answer is awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TakePhase {
    /// Exits: Claiming (the door is free), Door (taken), the end.
    Looking,
    /// Exits: Confirming (granted), Surveying or Looking or Claiming (taken), Door, the end.
    Claiming,
    /// Exits: Claiming or Looking (one is free), Door (none is), the end.
    Surveying,
    /// Exits: Returning (the door is taken), the end.
    Confirming,
    /// Exits: Door (it waits), the end.
    Returning,
    /// Exits: Behind (granted), the end.
    Door,
    /// Exits: ClaimingBehind (one is free), Door (it was lost), the end.
    Behind,
    /// Exits: LeavingDoor (granted), Behind (taken).
    ClaimingBehind,
    /// Exits: Returning (the door was lost before), the end.
    LeavingDoor,
    /// There was no free permit for a caller that does not wait. Exit: the end.
    Refusing,
}

/// The next request of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeStep {
    /// Look whether the door is free.
    LookAtDoor,
    /// Claim this permit.
    Claim(u16),
    /// Look at all permits once.
    Survey,
    /// Release the permit.
    GiveBack,
    /// Claim the door: in its queue, if the caller waits.
    TakeDoor,
    /// Look at the permits until one is free that was not reported since the door was granted; look again at one that
    /// was claimed in vain.
    AwaitFree,
    /// Release the door.
    LeaveDoor,
    /// The end: what was taken counts.
    Done,
    /// The end: others have it, and the caller does not wait.
    Refused,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakeAnswer {
    /// To a look at the door: whether it is free, and whether the permit that was claimed before is still held.
    Door {
        /// True if no client has the door, or is offered it.
        is_free: bool,
        /// True if the permit's deadline has not passed. Without meaning before a claim.
        is_permit_held: bool,
    },
    /// To a claim of a permit: it was granted.
    Granted,
    /// To a claim of a permit: another holder has it.
    Taken,
    /// To a look at permits: these are free.
    Free(Vec<u16>),
    /// To the release of a permit.
    GaveBack,
    /// To the claim of the door: it was granted.
    DoorGranted,
    /// To the claim of the door by a caller that does not wait: another holder has it.
    DoorTaken,
    /// The door was lost while a permit was awaited.
    DoorLost,
    /// To the release of the door.
    DoorLeft {
        /// True if the store answered that this very grant of the door was held until then.
        was_held: bool,
        /// True if the permit's deadline has not passed.
        is_permit_held: bool,
    },
}

impl Access {
    /// Returns the number of permits.
    pub const fn permits(self) -> u16 {
        match self {
            Self::Permit(count) => count,
            _ => SHARED_PERMITS,
        }
    }

    /// Returns the number of permits that are tried before all are looked at. Looking at all takes a request for each,
    /// so a larger pool is worth more guesses: with five for 64 permits, half of them taken, one is free 31 times of
    /// 32.
    pub const fn guesses(self) -> u16 {
        1 + self.permits() / 16
    }
}

impl Taking {
    /// Begins an acquisition, with its first step. `is_door_taken`: the client found the door taken and has not seen
    /// it free since. `guesses` are the permits that are tried first, the last one first.
    pub fn begin(
        access: Access,
        waits: bool,
        is_door_taken: bool,
        guesses: Vec<u16>,
    ) -> (Self, TakeStep) {
        let mut taking = Self {
            access,
            waits,
            is_careful: !waits || is_door_taken,
            phase: TakePhase::Claiming,
            candidates: guesses,
            has_surveyed: false,
            seen_free: BTreeSet::new(),
        };
        let step = match access {
            Access::SharedFenced | Access::Exclusive => {
                taking.go(TakePhase::Door, TakeStep::TakeDoor)
            }
            Access::Permit(_) | Access::Shared => taking.try_next(),
        };
        (taking, step)
    }

    /// Takes in the answer to the last step. Returns the next one.
    pub fn hear(&mut self, heard: TakeAnswer) -> TakeStep {
        match (self.phase, heard) {
            (TakePhase::Looking, TakeAnswer::Door { is_free: true, .. }) => self.claim_next(),
            (TakePhase::Looking, TakeAnswer::Door { .. }) => self.go_to_door(),
            (TakePhase::Claiming, TakeAnswer::Granted) => {
                self.go(TakePhase::Confirming, TakeStep::LookAtDoor)
            }
            (TakePhase::Claiming, TakeAnswer::Taken) => self.try_next(),
            (TakePhase::Surveying, TakeAnswer::Free(free)) => {
                self.has_surveyed = true;
                self.candidates = free;
                self.try_next()
            }
            (
                TakePhase::Confirming,
                TakeAnswer::Door {
                    is_free,
                    is_permit_held,
                },
            ) => self.settle(is_free && is_permit_held),
            (TakePhase::Returning, TakeAnswer::GaveBack) => self.go_to_door(),
            (phase, heard) => self.hear_at_door(phase, heard),
        }
    }

    /// The same, from the claim of the door on.
    fn hear_at_door(&mut self, phase: TakePhase, heard: TakeAnswer) -> TakeStep {
        match (phase, heard) {
            (TakePhase::Door, TakeAnswer::DoorGranted) => {
                self.seen_free.clear();
                let step = if self.waits {
                    TakeStep::AwaitFree
                } else {
                    TakeStep::Survey
                };
                self.go(TakePhase::Behind, step)
            }
            (TakePhase::Behind, TakeAnswer::Free(free)) => self.behind(free),
            (TakePhase::Behind, TakeAnswer::DoorLost) => self.go_to_door(),
            (TakePhase::ClaimingBehind, TakeAnswer::Granted) => {
                self.go(TakePhase::LeavingDoor, TakeStep::LeaveDoor)
            }
            (TakePhase::ClaimingBehind, TakeAnswer::Taken) => self.next_behind(),
            (
                TakePhase::LeavingDoor,
                TakeAnswer::DoorLeft {
                    was_held,
                    is_permit_held,
                },
            ) => {
                // Where no caller is ever alone, the door is for the order only.
                let is_in_order = was_held || matches!(self.access, Access::Permit(_));
                self.settle(is_permit_held && is_in_order)
            }
            (TakePhase::Door, TakeAnswer::DoorTaken)
            | (TakePhase::Refusing, TakeAnswer::DoorLeft { .. }) => TakeStep::Refused,
            (phase, heard) => unreachable!("{heard:?} is no answer in {phase:?}"),
        }
    }

    /// Ends with the permit if it counts; otherwise gives it back.
    fn settle(&mut self, counts: bool) -> TakeStep {
        match counts {
            true => TakeStep::Done,
            false => self.go(TakePhase::Returning, TakeStep::GiveBack),
        }
    }

    /// The permits that seemed free and are left, while the door is held.
    pub fn others(&self) -> &[u16] {
        &self.candidates
    }

    fn go(&mut self, phase: TakePhase, step: TakeStep) -> TakeStep {
        self.phase = phase;
        step
    }

    /// Tries the next permit that may be free; if there is none, looks which are.
    fn try_next(&mut self) -> TakeStep {
        match (self.candidates.is_empty(), self.has_surveyed) {
            (false, _) if self.is_careful => self.go(TakePhase::Looking, TakeStep::LookAtDoor),
            (false, _) => self.claim_next(),
            (true, false) => self.go(TakePhase::Surveying, TakeStep::Survey),
            (true, true) => self.go_to_door(),
        }
    }

    fn claim_next(&mut self) -> TakeStep {
        let permit = self.candidates.pop().expect("one is left to be tried");
        self.go(TakePhase::Claiming, TakeStep::Claim(permit))
    }

    fn go_to_door(&mut self) -> TakeStep {
        match self.waits {
            true => self.go(TakePhase::Door, TakeStep::TakeDoor),
            false => TakeStep::Refused,
        }
    }

    /// Takes in which permits are free, while the door is held.
    fn behind(&mut self, free: Vec<u16>) -> TakeStep {
        if self.access != Access::Exclusive {
            self.candidates = free;
            return self.next_behind();
        }
        self.seen_free.extend(free);
        let is_alone = self.seen_free.len() == usize::from(self.access.permits());
        match (is_alone, self.waits) {
            (true, _) => TakeStep::Done,
            (false, true) => TakeStep::AwaitFree,
            (false, false) => self.go(TakePhase::Refusing, TakeStep::LeaveDoor),
        }
    }

    fn next_behind(&mut self) -> TakeStep {
        match (self.candidates.pop(), self.waits) {
            (Some(permit), _) => self.go(TakePhase::ClaimingBehind, TakeStep::Claim(permit)),
            (None, true) => self.go(TakePhase::Behind, TakeStep::AwaitFree),
            (None, false) => self.go(TakePhase::Refusing, TakeStep::LeaveDoor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: TakeAnswer = door(true, true);
    const TAKEN: TakeAnswer = door(false, true);

    const fn door(is_free: bool, is_permit_held: bool) -> TakeAnswer {
        TakeAnswer::Door {
            is_free,
            is_permit_held,
        }
    }

    const fn left(was_held: bool, is_permit_held: bool) -> TakeAnswer {
        TakeAnswer::DoorLeft {
            was_held,
            is_permit_held,
        }
    }

    /// The steps after these answers.
    fn steps(mut begun: (Taking, TakeStep), answers: &[TakeAnswer]) -> Vec<TakeStep> {
        let mut steps = vec![begun.1];
        steps.extend(answers.iter().map(|answer| begun.0.hear(answer.clone())));
        steps
    }

    fn waiting(access: Access) -> (Taking, TakeStep) {
        Taking::begin(access, true, false, vec![3])
    }

    fn trying(access: Access) -> (Taking, TakeStep) {
        Taking::begin(access, false, false, vec![3])
    }

    #[test]
    fn a_permit_counts_after_a_look_that_follows_its_grant_and_shows_the_door_free() {
        let all = steps(waiting(Access::Permit(4)), &[TakeAnswer::Granted, FREE]);
        let [claim, look, done] = all[..] else {
            panic!("{all:?}");
        };
        assert_eq!(claim, TakeStep::Claim(3));
        assert_eq!((look, done), (TakeStep::LookAtDoor, TakeStep::Done));
    }

    #[test]
    fn a_permit_whose_deadline_passed_during_the_look_does_not_count() {
        let answers = [TakeAnswer::Granted, door(true, false)];
        let all = steps(waiting(Access::Shared), &answers);
        assert_eq!(all.last(), Some(&TakeStep::GiveBack));
    }

    #[test]
    fn who_finds_the_door_taken_gives_the_permit_back_before_it_asks_for_the_door() {
        let answers = [TakeAnswer::Granted, TAKEN, TakeAnswer::GaveBack];
        let all = steps(waiting(Access::Shared), &answers);
        assert_eq!(all[2..], [TakeStep::GiveBack, TakeStep::TakeDoor]);
        let all = steps(trying(Access::Shared), &[&[FREE][..], &answers].concat());
        assert_eq!(all[3..], [TakeStep::GiveBack, TakeStep::Refused]);
    }

    #[test]
    fn another_permit_is_looked_for_and_confirmed_anew() {
        let answers = [
            TakeAnswer::Taken,
            TakeAnswer::Free(vec![1, 2]),
            TakeAnswer::Taken,
            TakeAnswer::Granted,
            FREE,
        ];
        let all = steps(waiting(Access::Permit(4)), &answers);
        let expected = [
            TakeStep::Claim(3),
            TakeStep::Survey,
            TakeStep::Claim(2),
            TakeStep::Claim(1),
            TakeStep::LookAtDoor,
            TakeStep::Done,
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn who_finds_no_permit_free_queues_at_the_door() {
        let answers = [TakeAnswer::Taken, TakeAnswer::Free(vec![])];
        let all = steps(waiting(Access::Permit(4)), &answers);
        assert_eq!(all.last(), Some(&TakeStep::TakeDoor));
    }

    #[test]
    fn a_try_looks_at_the_door_before_each_claim() {
        let answers = [
            FREE,
            TakeAnswer::Taken,
            TakeAnswer::Free(vec![1, 2]),
            FREE,
            TakeAnswer::Taken,
            TAKEN,
        ];
        let all = steps(trying(Access::Permit(4)), &answers);
        let expected = [
            TakeStep::LookAtDoor,
            TakeStep::Claim(3),
            TakeStep::Survey,
            TakeStep::LookAtDoor,
            TakeStep::Claim(2),
            TakeStep::LookAtDoor,
            TakeStep::Refused,
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn a_client_that_found_the_door_taken_claims_no_permit_before_it_is_free() {
        let found_taken = Taking::begin(Access::Permit(4), true, true, vec![3]);
        let all = steps(found_taken, &[TAKEN]);
        assert_eq!(all, [TakeStep::LookAtDoor, TakeStep::TakeDoor]);
    }

    fn behind(access: Access) -> Vec<TakeAnswer> {
        let to_the_door = [TakeAnswer::Granted, TAKEN, TakeAnswer::GaveBack];
        let mut answers = match access {
            Access::Permit(_) | Access::Shared => to_the_door.to_vec(),
            _ => vec![],
        };
        answers.extend([
            TakeAnswer::DoorGranted,
            TakeAnswer::Free(vec![7]),
            TakeAnswer::Granted,
        ]);
        answers
    }

    fn after_the_door(access: Access, answer: TakeAnswer) -> Option<TakeStep> {
        let answers = [behind(access), vec![answer]].concat();
        steps(waiting(access), &answers).last().copied()
    }

    #[test]
    fn behind_the_door_a_share_counts_only_if_the_door_was_held_until_its_release() {
        for access in [Access::Shared, Access::SharedFenced] {
            let counts = |answer| after_the_door(access, answer);
            assert_eq!(counts(left(true, true)), Some(TakeStep::Done));
            assert_eq!(counts(left(false, true)), Some(TakeStep::GiveBack));
            assert_eq!(counts(left(true, false)), Some(TakeStep::GiveBack));
        }
    }

    #[test]
    fn behind_the_door_of_a_plain_pool_the_permits_own_lease_counts() {
        let counts = |answer| after_the_door(Access::Permit(9), answer);
        assert_eq!(counts(left(false, true)), Some(TakeStep::Done));
        assert_eq!(counts(left(true, false)), Some(TakeStep::GiveBack));
    }

    #[test]
    fn a_reader_with_a_fence_passes_through_the_door() {
        for waits in [true, false] {
            let (_, step) = Taking::begin(Access::SharedFenced, waits, false, vec![3]);
            assert_eq!(step, TakeStep::TakeDoor);
        }
    }

    #[test]
    fn a_try_that_has_the_door_and_no_permit_releases_the_door() {
        let answers = [
            TakeAnswer::DoorGranted,
            TakeAnswer::Free(vec![]),
            left(true, false),
        ];
        let all = steps(trying(Access::SharedFenced), &answers);
        assert_eq!(
            all[1..],
            [TakeStep::Survey, TakeStep::LeaveDoor, TakeStep::Refused]
        );
        let held_by_one = TakeAnswer::Free((2..=SHARED_PERMITS).collect());
        let answers = [TakeAnswer::DoorGranted, held_by_one, left(true, false)];
        let all = steps(trying(Access::Exclusive), &answers);
        assert_eq!(all.last(), Some(&TakeStep::Refused));
    }

    #[test]
    fn a_writer_is_alone_once_each_permit_was_seen_free_since_its_door_was_granted() {
        let half = SHARED_PERMITS / 2;
        let first = TakeAnswer::Free((1..=half).collect());
        let second = TakeAnswer::Free((half + 1..=SHARED_PERMITS).collect());
        let answers = [TakeAnswer::DoorGranted, first.clone(), second.clone()];
        let all = steps(waiting(Access::Exclusive), &answers);
        assert_eq!(all[2..], [TakeStep::AwaitFree, TakeStep::Done]);
        // Permits seen free before the door was lost do not count.
        let answers = [
            TakeAnswer::DoorGranted,
            first,
            TakeAnswer::DoorLost,
            TakeAnswer::DoorGranted,
            second,
        ];
        let all = steps(waiting(Access::Exclusive), &answers);
        assert_eq!(all.last(), Some(&TakeStep::AwaitFree));
    }
}
