//! The limits that a holder sets itself.

use super::*;

#[test]
fn each_limit_begins_when_the_lease_is_handed_over_and_not_with_its_grant() {
    let most = Some(ms(5_000));
    for (reason, limits) in [
        (LossReason::NoProgress, progress_within(ms(5_000))),
        (
            LossReason::MaxHold,
            Limits {
                max_hold: most,
                ..Limits::default()
            },
        ),
    ] {
        let mut bench = Bench::new();
        let (id, _signal) = bench.held(START);
        bench.schedule.next_wake();
        bench.schedule.limit(id, limits, at(2_000));
        assert!(bench.must_wake(), "it ends before its first renewal");
        bench.turn(at(6_990));
        assert_eq!(bench.losses(), []);
        bench.turn(at(7_000));
        assert_eq!(bench.losses(), [reason]);
    }
}

#[test]
fn limits_revive_no_lease_that_was_lost_before_it_was_handed_over() {
    let mut bench = Bench::new();
    let (id, signal) = bench.held(START);
    bench.schedule.close(LossReason::Shutdown);
    bench.schedule.limit(id, progress_within(ms(5_000)), at(1));
    assert_eq!(bench.losses(), [LossReason::Shutdown]);
    assert_eq!(signal.deadline(), Err(LossReason::Shutdown));
}

#[test]
fn a_renewal_that_comes_between_progress_and_the_next_turn_ends_nothing() {
    let mut bench = Bench::new();
    let (_key, signal) = bench.hold(START, progress_within(ms(10_000)));
    let batch = bench.batch(at(9_990));
    signal.note_progress(at(9_995));
    let settled = bench.settle(&batch, renewed, at(10_001));
    assert_eq!(bench.losses(), []);
    assert_eq!(settled.renewed, 1);
}
