//! Tests of batches: which leases share one, which go first, and how long it may take.

use super::*;
use crate::store::MAX_BATCH;

#[test]
fn a_turn_fills_no_more_batches_than_there_is_room_for() {
    let mut bench = Bench::new();
    let seconds = [1, 2, 4, 8, 16, 32, 64, 128];
    for ttl in seconds.map(Duration::from_secs) {
        bench.timing = Timing::new(ttl, None).expect("valid");
        for _ in 0..300 {
            bench.held(START.before(ttl * 2 / 3));
        }
    }
    let mut seen = HashSet::new();
    let mut turns = 0;
    while bench.next() <= START {
        let turn = bench.turn(START);
        assert!(turn.batches.len() <= BATCHES_IN_FLIGHT);
        for batch in turn.batches {
            assert!((1..=MAX_BATCH).contains(&batch.renewals.len()));
            seen.extend(batch.tickets.iter().map(|ticket| ticket.id));
        }
        turns += 1;
        assert!(turns <= 20);
    }
    assert_eq!(seen.len(), 300 * seconds.len());
}

#[test]
fn the_nearest_deadline_is_sent_first() {
    let mut bench = Bench::new();
    for age_ms in [12_000, 20_000, 11_000, 25_000] {
        bench.held(START.before(ms(age_ms)));
    }
    let batches = bench.turn(START).batches;
    let names = batches.iter().flat_map(|batch| &batch.renewals);
    let names: Vec<&str> = names.map(|renewal| renewal.name.as_str()).collect();
    assert_eq!(names, ["n4", "n2", "n1", "n3"]);
}

#[test]
fn what_is_urgent_does_not_cut_the_time_of_what_is_not() {
    let mut bench = Bench::new();
    bench.held(START.before(ms(11_000)));
    bench.timing = Timing::new(ms(1_000), None).expect("valid");
    bench.held(START.before(ms(400)));
    let batches = bench.turn(START).batches;
    let limits: Vec<Duration> = batches.iter().map(|batch| batch.limit).collect();
    assert_eq!(limits, [ms(1_000) / 6, ms(2_000)]);
}

#[test]
fn a_batch_has_no_more_time_than_the_one_of_it_that_has_least() {
    let mut bench = Bench::new();
    bench.held(START.before(ms(26_380)));
    bench.timing = Timing::new(ms(6_000), None).expect("valid");
    bench.held(START.before(ms(2_060)));
    // Half of the 3 s that are left, and a sixth of the shorter ttl.
    let batch = bench.batch(START);
    assert_eq!((batch.renewals.len(), batch.limit), (2, ms(1_000)));
}

#[test]
fn what_falls_due_near_its_deadline_does_not_wait_behind_a_backlog() {
    let mut bench = Bench::new();
    for _ in 0..3 * MAX_BATCH {
        bench.held(START);
    }
    bench.turn_with(at(10_000), 1, 0);
    bench.timing = Timing::new(ms(1_000), None).expect("valid");
    let (urgent, _) = bench.held(at(10_001));
    let batches = bench.turn_with(at(10_400), 1, 0).batches;
    let ids: Vec<LeaseId> = batches[0].tickets.iter().map(|ticket| ticket.id).collect();
    assert_eq!(ids, [urgent]);
}

#[test]
fn what_ends_soonest_goes_first_however_many_fell_due_before_it() {
    let mut bench = Bench::new();
    for _ in 0..2 * STEPS_PER_TURN {
        bench.held(START);
    }
    bench.timing = Timing::new(ms(20_000), None).expect("valid");
    // Ends in 24.6 s; the others fell due before it and end in 29.4 s.
    let (urgent, _) = bench.held(at(5_000));
    let batch = &bench.turn(at(15_000)).batches[0];
    assert!(batch.tickets.iter().any(|ticket| ticket.id == urgent));
}

#[test]
fn leases_that_fall_due_about_the_same_time_share_a_batch() {
    let mut bench = Bench::new();
    for index in 0..5_000 {
        bench.held(START.after(Duration::from_micros(200 * index)));
    }
    let (mut renewals, mut batches) = (0, 0);
    while renewals < 5_000 {
        let now = bench.next();
        for batch in bench.turn(now).batches {
            batches += 1;
            renewals += batch.renewals.len();
            bench.settle(&batch, renewed, now);
        }
    }
    assert!(batches < 100, "{batches}");
}
