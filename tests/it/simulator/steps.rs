//! The steps of an acquisition of a permit or a share, answer by answer.

use leasehold::internals::taking::{Access, SHARED_PERMITS};

use super::taking::{TakeAnswer, TakeStep, Taking};

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

/// An acquisition: whether it waits, and whether the client found the door taken.
type Begun = (Access, bool, bool);

/// The steps after these answers.
fn steps((access, waits, is_door_taken): Begun, answers: &[TakeAnswer]) -> Vec<TakeStep> {
    let (mut taking, first) = Taking::begin(access, waits, is_door_taken, vec![3]);
    let later = answers.iter().map(|answer| taking.hear(answer.clone()));
    std::iter::once(first).chain(later).collect()
}

const fn waiting(access: Access) -> Begun {
    (access, true, false)
}

const fn trying(access: Access) -> Begun {
    (access, false, false)
}

#[test]
fn a_permit_counts_after_a_check_that_follows_its_grant_and_shows_the_door_free() {
    let all = steps(waiting(Access::Permit(4)), &[TakeAnswer::Granted, FREE]);
    let [claim, check, done] = all[..] else {
        panic!("{all:?}");
    };
    assert_eq!(claim, TakeStep::Claim(3));
    assert_eq!((check, done), (TakeStep::CheckDoor, TakeStep::Done));
}

#[test]
fn a_permit_whose_deadline_passed_during_the_check_does_not_count() {
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
fn another_permit_is_sought_and_confirmed_anew() {
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
        TakeStep::CheckDoor,
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
fn a_try_checks_the_door_before_each_claim() {
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
        TakeStep::CheckDoor,
        TakeStep::Claim(3),
        TakeStep::Survey,
        TakeStep::CheckDoor,
        TakeStep::Claim(2),
        TakeStep::CheckDoor,
        TakeStep::Refused,
    ];
    assert_eq!(all, expected);
}

#[test]
fn a_client_that_found_the_door_taken_claims_no_permit_before_it_is_free() {
    let found_taken = (Access::Permit(4), true, true);
    let all = steps(found_taken, &[TAKEN]);
    assert_eq!(all, [TakeStep::CheckDoor, TakeStep::TakeDoor]);
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
