//! Every way out, each taken once.

use super::*;

fn refused() -> Outcome {
    Outcome::Refused
}

fn evicted() -> Outcome {
    Outcome::Evicted
}

/// A lease that this outcome of its renewal has ended.
fn lost_by(bench: &mut Bench, outcome: fn() -> Outcome) -> LeaseId {
    let (id, _) = bench.held(START);
    let batch = bench.batch(at(10_000));
    bench.settle(&batch, outcome, at(10_001));
    assert_eq!(bench.losses().len(), 1);
    id
}

/// The one release that is due.
fn leaving(bench: &mut Bench, now: Instant) -> Leaving {
    let mut releases = bench.turn(now).releases;
    assert_eq!(releases.len(), 1);
    releases.remove(0)
}

#[test]
fn a_claim_that_was_answered_and_not_granted_leaves_nothing_to_do() {
    let mut bench = Bench::new();
    let (id, _) = bench.enroll(START);
    let before = bench.schedule.claim_sent(id, START);
    bench.schedule.claim_answered(id, before);
    bench.must_wake();
    bench.schedule.give_up(id, at(1));
    assert!(!bench.must_wake());
    assert!(bench.schedule.is_empty());
}

#[test]
fn a_claim_with_an_unanswered_attempt_is_released_until_one_ttl_after_it_was_sent() {
    let mut bench = Bench::new();
    let (id, _) = bench.enroll(START);
    bench.schedule.claim_sent(id, START);
    let before = bench.schedule.claim_sent(id, at(1_000));
    bench.schedule.claim_answered(id, before);
    bench.schedule.give_up(id, at(2_000));
    let mut sent = Vec::new();
    while !bench.schedule.is_empty() {
        let now = bench.next().max(at(2_000));
        let leaving = leaving(&mut bench, now);
        sent.push(now);
        bench.schedule.settle_release(leaving.ticket, true, now);
    }
    assert_eq!(sent.first(), Some(&at(2_000)));
    assert_eq!(sent.last(), Some(&START.after(TTL).after(ms(1_000))));
}

#[test]
fn a_lease_that_is_left_is_released_and_never_renewed_again() {
    let mut bench = Bench::new();
    let (id, _) = bench.held(START);
    bench.must_wake();
    bench.schedule.give_up(id, at(1));
    assert!(bench.must_wake());
    let leaving = leaving(&mut bench, at(1));
    bench.schedule.settle_release(leaving.ticket, true, at(2));
    assert!(bench.schedule.is_empty());
    assert_eq!(bench.next(), Instant::FAR_FUTURE);
}

#[test]
fn no_check_succeeds_from_the_moment_at_which_the_guard_ends() {
    let mut bench = Bench::new();
    let (dropped, of_dropped) = bench.held(START);
    let (released, of_released) = bench.held(START);
    bench.schedule.leave(dropped, None, at(1));
    bench.schedule.withdraw(released, None, at(1));
    for signal in [of_dropped, of_released] {
        assert_eq!(signal.check(at(1)), Err(LossReason::Released));
    }
}

#[test]
fn a_grant_that_comes_too_late_is_not_held_and_is_released() {
    let mut bench = Bench::new();
    let (id, _) = bench.enroll(START);
    let before = bench.schedule.claim_sent(id, START);
    bench.schedule.claim_answered(id, before);
    let late = at(22_000);
    assert_eq!(bench.grant(id, START, late), Err(Useless::Late));
    assert_eq!(bench.held_count(), 0);
    bench.must_wake();
    bench.schedule.give_up(id, late);
    assert!(bench.must_wake());
    let _ = leaving(&mut bench, late);
}

#[test]
fn a_claim_whose_grant_came_too_late_is_held_when_it_is_asked_again() {
    let mut bench = Bench::new();
    let (id, signal) = bench.enroll(START);
    let late = at(22_000);
    for (sent_at, hold) in [(START, Err(Useless::Late)), (late, Ok(()))] {
        let before = bench.schedule.claim_sent(id, sent_at);
        bench.schedule.claim_answered(id, before);
        assert_eq!(bench.grant(id, sent_at, late), hold);
    }
    assert_eq!(bench.held_count(), 1);
    assert!(signal.check(late.after(TTL / 2)).is_ok());
}

#[test]
fn after_a_refusal_nothing_is_sent() {
    let mut bench = Bench::new();
    let id = lost_by(&mut bench, refused);
    bench.must_wake();
    bench.schedule.give_up(id, at(11_000));
    assert!(!bench.must_wake());
    assert!(bench.schedule.is_empty());
}

#[test]
fn after_any_other_loss_the_release_waits_until_the_guard_is_dropped() {
    let mut bench = Bench::new();
    let id = lost_by(&mut bench, evicted);
    assert!(bench.turn(at(29_000)).releases.is_empty());
    bench.must_wake();
    bench.schedule.give_up(id, at(29_000));
    assert!(bench.must_wake());
    let _ = leaving(&mut bench, at(29_000));
}

#[test]
fn a_release_of_the_users_is_taken_over_when_its_report_does_not_come() {
    let mut bench = Bench::new();
    let (id, _) = bench.held(START);
    let (withdrawn, _) = bench.schedule.withdraw(id, None, at(1));
    let withdrawn = withdrawn.expect("something to release");
    assert!(bench.must_wake());
    assert!(bench.turn(at(7_500)).releases.is_empty());
    let leaving = leaving(&mut bench, at(7_501));
    // The report comes after all: it is no longer waited for.
    bench.must_wake();
    let ticket = withdrawn.ticket;
    bench.schedule.settle_release(ticket, true, at(7_502));
    assert!(!bench.must_wake());
    assert!(!bench.schedule.is_empty());
    bench
        .schedule
        .settle_release(leaving.ticket, true, at(7_503));
    assert!(bench.schedule.is_empty());
}

#[test]
fn a_release_that_the_user_gives_up_is_taken_over_at_once() {
    let mut bench = Bench::new();
    let (id, _) = bench.held(START);
    let (withdrawn, _) = bench.schedule.withdraw(id, Some(ms(500)), at(1));
    let ticket = withdrawn.expect("something to release").ticket;
    bench.next();
    bench.must_wake();
    bench.schedule.take_over(ticket, at(2));
    assert!(bench.must_wake());
    let leaving = leaving(&mut bench, at(2));
    assert_eq!(leaving.keep_for, Some(ms(500)));
    // The user's signal counts no more.
    bench.must_wake();
    bench.schedule.take_over(ticket, at(3));
    assert!(!bench.must_wake());
    bench.schedule.settle_release(ticket, true, at(3));
    assert!(!bench.schedule.is_empty());
    bench.schedule.settle_release(leaving.ticket, true, at(4));
    assert!(bench.schedule.is_empty());
}

#[test]
fn a_users_release_that_fails_soon_is_repeated_before_the_watchdog_takes_over() {
    let mut bench = Bench::new();
    let (id, _) = bench.held(START);
    let (withdrawn, _) = bench.schedule.withdraw(id, None, at(1));
    let ticket = withdrawn.expect("something to release").ticket;
    assert_eq!(bench.next(), at(7_501));
    bench.must_wake();
    bench.schedule.settle_release(ticket, false, at(2));
    assert!(bench.must_wake(), "the loop is to be woken");
    let _ = leaving(&mut bench, at(1_002));
}

#[test]
fn a_name_is_kept_once_by_a_release_that_was_answered() {
    let mut bench = Bench::new();
    let (id, _) = bench.enroll(START);
    bench.schedule.claim_sent(id, START);
    let before = bench.schedule.claim_sent(id, at(1));
    bench.schedule.claim_answered(id, before);
    bench.grant(id, at(1), at(1)).expect("held");
    bench.schedule.leave(id, Some(ms(500)), at(2));
    let first = leaving(&mut bench, at(2));
    assert_eq!(first.keep_for, Some(ms(500)));
    bench.schedule.settle_release(first.ticket, true, at(3));
    assert_eq!(leaving(&mut bench, at(1_003)).keep_for, None);
}

#[test]
fn a_lost_name_is_not_kept() {
    let mut bench = Bench::new();
    let id = lost_by(&mut bench, evicted);
    bench.schedule.leave(id, Some(ms(500)), at(11_000));
    assert_eq!(leaving(&mut bench, at(11_000)).keep_for, None);
    let mut bench = Bench::new();
    let id = lost_by(&mut bench, evicted);
    let (withdrawn, _) = bench.schedule.withdraw(id, Some(ms(500)), at(11_000));
    assert_eq!(withdrawn.expect("something to release").keep_for, None);
}

#[test]
fn a_name_that_the_client_gave_up_by_itself_is_kept() {
    let keep = Some(ms(500));
    let mut bench = Bench::new();
    let (id, _) = bench.held(START);
    bench.schedule.close(LossReason::Shutdown);
    bench.schedule.leave(id, keep, at(1));
    assert_eq!(leaving(&mut bench, at(1)).keep_for, keep);
    for limits in [
        Limits {
            max_hold: Some(ms(100)),
            ..Limits::default()
        },
        Limits {
            progress_within: Some(ms(100)),
            ..Limits::default()
        },
    ] {
        let mut bench = Bench::new();
        let (id, signal) = bench.hold(START, limits);
        bench.turn(at(101));
        assert!(signal.deadline().is_err());
        bench.schedule.leave(id, keep, at(102));
        assert_eq!(leaving(&mut bench, at(102)).keep_for, keep);
    }
}

#[test]
fn closing_tells_each_holder_once_and_waits_for_the_guards() {
    let mut bench = Bench::new();
    let lost = lost_by(&mut bench, refused);
    let (held, signal) = bench.held(START);
    let (claimed, _) = bench.enroll(START);
    bench.schedule.close(LossReason::Shutdown);
    let losses = bench.schedule.take_effects().losses;
    assert_eq!(losses.len(), 2);
    assert_eq!(signal.deadline(), Err(LossReason::Shutdown));
    assert!(
        losses.iter().any(|loss| loss.deadline.is_none()),
        "a claim had no deadline"
    );
    bench.schedule.close(LossReason::WatchdogDied);
    assert_eq!(bench.losses(), []);
    assert_eq!(
        bench.grant(claimed, at(1), at(1)).err(),
        Some(Useless::Ended)
    );
    for id in [held, claimed, lost] {
        assert!(!bench.schedule.is_empty());
        bench.schedule.give_up(id, at(10_002));
    }
    for leaving in bench.turn(at(10_002)).releases {
        bench
            .schedule
            .settle_release(leaving.ticket, true, at(10_003));
    }
    assert!(bench.schedule.is_empty());
}

#[test]
fn the_loop_is_woken_to_see_that_nothing_is_left_and_not_before() {
    let mut bench = Bench::new();
    let id = lost_by(&mut bench, refused);
    bench.next();
    bench.must_wake();
    bench.schedule.give_up(id, at(11_000));
    assert!(!bench.must_wake(), "it is open");
    let ids = [lost_by(&mut bench, refused), lost_by(&mut bench, refused)];
    let (released, _) = bench.held(START);
    bench.schedule.retire();
    let (withdrawn, _) = bench.schedule.withdraw(released, None, at(11_000));
    let ticket = withdrawn.expect("something to release").ticket;
    assert!(!bench.schedule.is_done());
    bench.make_room(0, 0);
    bench.schedule.next_wake();
    bench.must_wake();
    bench.schedule.give_up(ids[0], at(11_000));
    assert!(!bench.must_wake());
    bench.schedule.settle_release(ticket, true, at(11_000));
    assert!(!bench.must_wake());
    bench.schedule.withdraw(ids[1], None, at(11_000));
    assert!(bench.must_wake());
    assert!(bench.schedule.is_done());
}

#[test]
fn the_loop_is_woken_by_the_last_answer_to_a_release() {
    let mut bench = Bench::new();
    let (id, _) = bench.held(START);
    bench.schedule.retire();
    let (withdrawn, _) = bench.schedule.withdraw(id, None, at(1));
    let ticket = withdrawn.expect("something to release").ticket;
    bench.next();
    bench.must_wake();
    bench.schedule.settle_release(ticket, true, at(2));
    assert!(bench.must_wake());
}

#[test]
fn a_closing_schedule_takes_no_claims_in() {
    for close in [
        |schedule: &mut Schedule| schedule.close(LossReason::Shutdown),
        Schedule::retire,
    ] {
        let mut bench = Bench::new();
        close(&mut bench.schedule);
        let (name, holder) = (
            Name::new("n").expect("valid"),
            Holder::new(ClientId::from_u128(0), 1),
        );
        let signal = Arc::new(Signal::new(START));
        let timing = bench.timing;
        let enrolled = bench.schedule.enroll(name, holder, 0, timing, signal);
        assert_eq!(enrolled, None);
    }
}

#[test]
fn a_retired_schedule_renews_on_what_is_held() {
    let mut bench = Bench::new();
    bench.held(START);
    bench.schedule.retire();
    let batch = bench.batch(at(10_000));
    assert_eq!(bench.settle(&batch, renewed, at(10_001)).renewed, 1);
}

#[test]
fn a_loss_that_a_check_found_is_told_once() {
    let late = START.after(TTL);
    for (check_at, turns) in [(at(0), false), (late, false), (late, true)] {
        let mut bench = Bench::new();
        let (id, signal) = bench.held(START);
        let is_lost = signal.check(check_at).is_err();
        if turns {
            bench.turn(check_at);
        }
        assert_eq!(bench.schedule.leave(id, None, check_at), !is_lost);
        let told = is_lost.then_some(LossReason::Deadline);
        assert_eq!(bench.losses(), Vec::from_iter(told));
        bench.turn(late);
        assert_eq!(bench.losses(), []);
    }
}
