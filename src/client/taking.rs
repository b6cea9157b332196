//! Leads one caller to a permit of a pool, or to a name alone that others share: [`take`] decides which request is sent
//! next, by the answers to those before. Pure: it knows no runtime and no clock, and has a [`Pool`] send the requests.
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

use crate::error::Error;

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

/// Sends the requests of one acquisition, and has what was granted. It must not send one before it is polled.
pub trait Pool {
    /// Returns whether this client found the door taken and has not seen it free since.
    fn is_door_taken(&self) -> bool;

    /// Returns whether the deadline of the permit that was claimed has not passed.
    fn is_permit_held(&self) -> bool;

    /// Looks whether the door is free: no client has it, or is offered it.
    fn is_door_free(&mut self) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Claims this permit. Returns whether it was granted.
    fn claim(&mut self, permit: u16) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Releases the permit.
    fn give_back(&mut self) -> impl Future<Output = ()> + Send;

    /// Claims the door: in its queue, if the caller waits.
    fn take_door(&mut self) -> impl Future<Output = Result<DoorAnswer, Error>> + Send;

    /// Looks at all permits once. Returns those that are free, or `None` if the door was lost meanwhile.
    fn survey(&mut self) -> impl Future<Output = Result<Option<Vec<u16>>, Error>> + Send;

    /// Looks at the permits until some are free that were not returned since the door was granted, or that were claimed
    /// in vain since. Returns `None` once the door is lost.
    fn await_free(&mut self) -> impl Future<Output = Result<Option<Vec<u16>>, Error>> + Send;

    /// Releases the door; these permits seemed free and are left. Returns whether the store answered that this very
    /// grant of the door was held until then.
    fn leave_door(&mut self, others: &[u16]) -> impl Future<Output = bool> + Send;
}

/// The answer to a claim of the door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoorAnswer {
    /// It was granted.
    Granted,
    /// Another holder has it, and the caller does not wait.
    Taken,
    /// Another task of this client had it, and handed over a permit that counts.
    Given,
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

/// Takes a permit, or the name alone. Returns whether what was granted counts; `false` only to a caller that does not
/// wait, if others have it. `guesses` are the permits that are tried first, the last one first.
///
/// # Errors
/// The first error of a request. What was granted until then is given up by the caller.
pub async fn take(
    pool: &mut impl Pool,
    access: Access,
    waits: bool,
    guesses: Vec<u16>,
) -> Result<bool, Error> {
    let is_by_door = matches!(access, Access::SharedFenced | Access::Exclusive);
    if !is_by_door {
        let is_careful = !waits || pool.is_door_taken();
        if take_outside(pool, is_careful, guesses).await? {
            return Ok(true);
        }
        if !waits {
            return Ok(false);
        }
    }
    loop {
        match pool.take_door().await? {
            DoorAnswer::Granted => {}
            DoorAnswer::Taken => return Ok(false),
            DoorAnswer::Given => return Ok(true),
        }
        let is_taken = match access {
            Access::Exclusive => be_alone(pool, access.permits(), waits).await?,
            _ => take_behind(pool, access, waits).await?,
        };
        if is_taken || !waits {
            return Ok(is_taken);
        }
    }
}

/// Takes a permit without the door. Returns `false` where the caller is to queue at the door.
async fn take_outside(
    pool: &mut impl Pool,
    is_careful: bool,
    mut candidates: Vec<u16>,
) -> Result<bool, Error> {
    let mut has_surveyed = false;
    loop {
        let Some(permit) = candidates.pop() else {
            if has_surveyed {
                return Ok(false);
            }
            has_surveyed = true;
            candidates = pool.survey().await?.unwrap_or_default();
            continue;
        };
        if is_careful && !pool.is_door_free().await? {
            return Ok(false);
        }
        if pool.claim(permit).await? {
            let counts = pool.is_door_free().await? && pool.is_permit_held();
            if !counts {
                pool.give_back().await;
            }
            return Ok(counts);
        }
    }
}

/// Takes a permit while the door is held, and releases the door. Returns `false` if it has to begin again at the door,
/// or if there is none for a caller that does not wait.
async fn take_behind(pool: &mut impl Pool, access: Access, waits: bool) -> Result<bool, Error> {
    while let Some(mut free) = look(pool, waits).await? {
        while let Some(permit) = free.pop() {
            if pool.claim(permit).await? {
                let was_held = pool.leave_door(&free).await;
                // Where no caller is ever alone, the door is for the order only.
                let is_in_order = was_held || matches!(access, Access::Permit(_));
                let counts = is_in_order && pool.is_permit_held();
                if !counts {
                    pool.give_back().await;
                }
                return Ok(counts);
            }
        }
        if !waits {
            pool.leave_door(&[]).await;
            break;
        }
    }
    Ok(false)
}

/// Looks at the permits while the door is held, until each was seen free. Returns as [`take_behind`] does.
async fn be_alone(pool: &mut impl Pool, permits: u16, waits: bool) -> Result<bool, Error> {
    let mut seen_free = BTreeSet::new();
    while let Some(free) = look(pool, waits).await? {
        seen_free.extend(free);
        if seen_free.len() == usize::from(permits) {
            return Ok(true);
        }
        if !waits {
            pool.leave_door(&[]).await;
            break;
        }
    }
    Ok(false)
}

/// Looks which permits are free while the door is held. Returns `None` if the door was lost.
async fn look(pool: &mut impl Pool, waits: bool) -> Result<Option<Vec<u16>>, Error> {
    if waits {
        pool.await_free().await
    } else {
        pool.survey().await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use futures_util::FutureExt as _;

    use super::*;

    /// The next request of a caller.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum TakeStep {
        LookAtDoor,
        Claim(u16),
        Survey,
        GiveBack,
        TakeDoor,
        AwaitFree,
        LeaveDoor,
        Done,
        Refused,
    }

    /// An answer to it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    enum TakeAnswer {
        /// The door is free, and the permit's deadline has not passed.
        Door {
            is_free: bool,
            is_permit_held: bool,
        },
        Granted,
        Taken,
        Free(Vec<u16>),
        GaveBack,
        DoorGranted,
        DoorLost,
        /// The door was held until then, and the permit's deadline has not passed.
        DoorLeft {
            was_held: bool,
            is_permit_held: bool,
        },
    }

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

    /// A pool that gives these answers one after the other, and then none.
    #[derive(Default)]
    struct Scripted {
        answers: VecDeque<TakeAnswer>,
        steps: Vec<TakeStep>,
        is_door_taken: bool,
        is_permit_held: bool,
    }

    impl Scripted {
        async fn ask(&mut self, step: TakeStep) -> TakeAnswer {
            self.steps.push(step);
            match self.answers.pop_front() {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        }

        async fn looks(&mut self, step: TakeStep) -> Result<Option<Vec<u16>>, Error> {
            match self.ask(step).await {
                TakeAnswer::Free(free) => Ok(Some(free)),
                TakeAnswer::DoorLost => Ok(None),
                other => panic!("{other:?} to {step:?}"),
            }
        }
    }

    impl Pool for Scripted {
        fn is_door_taken(&self) -> bool {
            self.is_door_taken
        }

        fn is_permit_held(&self) -> bool {
            self.is_permit_held
        }

        async fn is_door_free(&mut self) -> Result<bool, Error> {
            match self.ask(TakeStep::LookAtDoor).await {
                TakeAnswer::Door {
                    is_free,
                    is_permit_held,
                } => {
                    self.is_permit_held = is_permit_held;
                    Ok(is_free)
                }
                other => panic!("{other:?} to a look at the door"),
            }
        }

        async fn claim(&mut self, permit: u16) -> Result<bool, Error> {
            match self.ask(TakeStep::Claim(permit)).await {
                TakeAnswer::Granted => Ok(true),
                TakeAnswer::Taken => Ok(false),
                other => panic!("{other:?} to a claim"),
            }
        }

        async fn give_back(&mut self) {
            assert_eq!(self.ask(TakeStep::GiveBack).await, TakeAnswer::GaveBack);
        }

        async fn take_door(&mut self) -> Result<DoorAnswer, Error> {
            let answer = self.ask(TakeStep::TakeDoor).await;
            assert_eq!(answer, TakeAnswer::DoorGranted);
            Ok(DoorAnswer::Granted)
        }

        async fn survey(&mut self) -> Result<Option<Vec<u16>>, Error> {
            self.looks(TakeStep::Survey).await
        }

        async fn await_free(&mut self) -> Result<Option<Vec<u16>>, Error> {
            self.looks(TakeStep::AwaitFree).await
        }

        async fn leave_door(&mut self, _: &[u16]) -> bool {
            match self.ask(TakeStep::LeaveDoor).await {
                TakeAnswer::DoorLeft {
                    was_held,
                    is_permit_held,
                } => {
                    self.is_permit_held = is_permit_held;
                    was_held
                }
                other => panic!("{other:?} to the release of the door"),
            }
        }
    }

    /// An acquisition: whether it waits, and whether the client found the door taken.
    type Begun = (Access, bool, bool);

    /// The steps after these answers.
    fn steps((access, waits, is_door_taken): Begun, answers: &[TakeAnswer]) -> Vec<TakeStep> {
        let mut pool = Scripted {
            answers: answers.to_vec().into(),
            is_door_taken,
            ..Scripted::default()
        };
        let taken = take(&mut pool, access, waits, vec![3]).now_or_never();
        assert!(pool.answers.is_empty(), "left: {:?}", pool.answers);
        pool.steps.extend(taken.map(|taken| match taken {
            Ok(true) => TakeStep::Done,
            Ok(false) => TakeStep::Refused,
            Err(error) => panic!("{error}"),
        }));
        pool.steps
    }

    const fn waiting(access: Access) -> Begun {
        (access, true, false)
    }

    const fn trying(access: Access) -> Begun {
        (access, false, false)
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
        let found_taken = (Access::Permit(4), true, true);
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
            let all = steps((Access::SharedFenced, waits, false), &[]);
            assert_eq!(all, [TakeStep::TakeDoor]);
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
