//! Steps of the server's clock.

use super::*;

#[test]
fn a_step_of_the_servers_clock_moves_waiting_due_and_sent_renewals() {
    let mut bench = Bench::new();
    let (_, told) = bench.held(START.before(ms(10_000)));
    let batch = bench.batch(START);
    let (_, under_way) = bench.held(START.before(ms(10_000)));
    let sent = bench.batch(START);
    let (_, waiting) = bench.held(START);
    let server = |ms_later| Some(ms(1_000_000 + ms_later));
    let reply = |server_time| {
        let reply = Renewed::new(vec![Outcome::Renewed]);
        reply.at(server_time)
    };
    bench.schedule.settle(&batch, reply(server(0)), at(1));
    let again = {
        let term = bench.term(START);
        bench.batch(*term.renewal_window(false).end())
    };
    let before = [&told, &under_way, &waiting].map(|signal| signal.deadline().expect("held"));
    let seen_at = again.sent_at.after(ms(1));
    let passed = seen_at.since(START).as_millis() as u64;
    let settled = bench
        .schedule
        .settle(&again, reply(server(passed + 4_000)), seen_at);
    assert_eq!(settled.step.map(|(jump, _)| jump), Some("forward"));
    let after = [&told, &under_way, &waiting].map(|signal| signal.deadline().expect("held"));
    assert_eq!(
        after[0],
        bench.term(again.sent_at).deadline(),
        "confirmed by the new time"
    );
    for index in [1, 2] {
        let taken_off = before[index].since(after[index]);
        assert!(
            (4_000..4_010).contains(&taken_off.as_millis()),
            "{taken_off:?}"
        );
    }
    // Its reply was made before the step.
    let settled = bench.schedule.settle(&sent, reply(server(1)), seen_at);
    assert_eq!((settled.step, settled.renewed), (None, 1));
    let least = bench.term(START).deadline().before(ms(4_000));
    assert!(under_way.deadline().expect("held") <= least);
}

fn reply(server_ms: u64) -> Renewed {
    Renewed::new(vec![Outcome::Renewed]).at(Some(ms(1_000_000 + server_ms)))
}

fn timing(ttl: Duration, margin: Duration) -> Timing {
    Timing::new(ttl, Some(margin)).expect("valid")
}

#[test]
fn a_step_seen_by_a_short_lease_is_taken_off_a_long_older_one() {
    const MINUTE: u64 = 60_000;
    let mut bench = Bench::new();
    bench.timing = timing(ms(60 * MINUTE), ms(5_000));
    let (_, long) = bench.held(START);
    let first = bench.batch(at(20 * MINUTE));
    bench
        .schedule
        .settle(&first, reply(20 * MINUTE), at(20 * MINUTE + 1));
    let before = long.deadline().expect("held");
    bench.timing = timing(ms(3_000), ms(100));
    bench.held(at(30 * MINUTE));
    let second = bench.batch(at(30 * MINUTE + 1_000));
    let stepped = reply(40 * MINUTE + 1_000);
    let settled = bench
        .schedule
        .settle(&second, stepped, at(30 * MINUTE + 1_001));
    assert_eq!(settled.step.map(|(jump, _)| jump), Some("forward"));
    let taken_off = before.since(long.deadline().expect("held"));
    assert!(taken_off >= ms(10 * MINUTE), "{taken_off:?}");
}

#[test]
fn a_step_within_one_leases_margin_is_taken_off_one_of_a_smaller_margin() {
    let mut bench = Bench::new();
    bench.timing = timing(ms(30_000), ms(5_000));
    bench.held(START.before(ms(10_000)));
    let first = bench.batch(START);
    bench.schedule.settle(&first, reply(0), at(1));
    bench.timing = timing(ms(30_000), ms(100));
    let (_, narrow) = bench.held(at(5_000));
    let before = narrow.deadline().expect("held");
    let second = bench.batch(at(10_000));
    let settled = bench.schedule.settle(&second, reply(14_000), at(10_001));
    assert_eq!(settled.step.map(|(jump, _)| jump), Some("forward"));
    let taken_off = before.since(narrow.deadline().expect("held"));
    assert!(taken_off >= ms(4_000), "{taken_off:?}");
}

#[test]
fn a_grant_that_was_asked_for_before_a_step_was_seen_ends_earlier() {
    let mut bench = Bench::new();
    bench.held(START.before(ms(10_000)));
    let first = bench.batch(START);
    bench.schedule.settle(&first, reply(0), at(1));
    let second = bench.batch(at(10_000));
    let (id, signal) = bench.enroll(START);
    bench.schedule.claim_sent(id, at(10_000));
    bench.schedule.settle(&second, reply(14_000), at(10_001));
    let (sent_at, now) = (at(10_000), at(10_002));
    bench.grant(id, sent_at, now).expect("held");
    let promised = bench.term(sent_at).deadline();
    let taken_off = promised.since(signal.deadline().expect("held"));
    assert!(
        (4_000..4_010).contains(&taken_off.as_millis()),
        "{taken_off:?}"
    );
}
