//! Names whose shard changes.

use super::*;
use crate::store::ServerTime;

impl Bench {
    /// Moves the name of this number to this shard.
    pub(super) fn move_to(&mut self, name: u64, shard: u32) {
        let name = Name::new(format!("n{name}")).expect("valid");
        self.moved.insert(name, shard);
    }
}

/// Thirty leases on a server that hangs: half of all.
fn half_on_a_hung_server(bench: &mut Bench) -> Vec<LeaseId> {
    bench.timing = Timing::new(ms(10_000), None).expect("valid");
    let ids = (0..60).map(|_| bench.held(START).0).collect();
    for name in 1..=30 {
        bench.move_to(name, 1);
    }
    ids
}

#[test]
fn a_renewal_that_falls_due_goes_to_the_shard_that_keeps_its_name_now() {
    let mut bench = Bench::new();
    let ids = half_on_a_hung_server(&mut bench);
    let batches = bench.schedule_turn(at(4_000)).batches;
    let of = |batch: &Batch| {
        (
            batch.shard,
            batch.tickets.iter().map(|ticket| ticket.id).collect(),
        )
    };
    let seen: HashMap<u32, HashSet<LeaseId>> = batches.iter().map(of).collect();
    let half = |range: std::ops::Range<usize>| ids[range].iter().copied().collect();
    assert_eq!(seen, HashMap::from([(0, half(30..60)), (1, half(0..30))]));
}

#[test]
fn what_waits_for_room_in_a_shard_that_fails_goes_where_its_name_is_now() {
    let mut bench = Bench::new();
    half_on_a_hung_server(&mut bench);
    let full = bench.schedule_turn(at(4_000)).batches;
    for batch in &full {
        bench.settle(batch, unknown, at(4_001));
    }
    bench.make_room(0, 0);
    // All of it is due, and has no room.
    assert!(bench.schedule_turn(at(6_000)).batches.is_empty());
    for name in 1..=10 {
        bench.move_to(name, 2);
    }
    assert!(
        bench.schedule_turn(at(6_001)).batches.is_empty(),
        "it was not asked again"
    );
    let late = full
        .into_iter()
        .find(|batch| batch.shard == 1)
        .expect("sent");
    bench.settle(&late, unknown, at(6_002));
    let batches = bench.schedule_turn(at(6_002)).batches;
    let counts: HashMap<_, _> = batches
        .iter()
        .map(|batch| (batch.shard, batch.tickets.len()))
        .collect();
    assert_eq!(counts, HashMap::from([(1, 20), (2, 10)]));
}

#[test]
fn a_release_goes_to_the_present_shard_of_its_name_and_frees_its_room() {
    let mut bench = Bench::new();
    let (id, _) = bench.held(START);
    bench.move_to(1, 5);
    bench.schedule.leave(id, None, at(1));
    let mut releases = Vec::new();
    while releases.is_empty() {
        releases = bench.schedule_turn(at(1)).releases;
    }
    assert_eq!(releases[0].shard, 5);
    bench.move_to(1, 6);
    bench.schedule.release_landed(5, false);
    assert!(
        bench
            .schedule
            .shards
            .iter()
            .all(|shard| shard.releases_in_flight == 0)
    );
}

#[test]
fn the_times_of_two_servers_are_not_compared() {
    let mut bench = Bench::new();
    bench.timing = Timing::new(ms(6_000), None).expect("valid");
    let (_, signal) = bench.held(START);
    let mut now = START;
    for (shard, server_ms) in [(0, 0), (1, 5_000), (0, 0), (1, 5_000)] {
        now = now.after(ms(2_500));
        bench.move_to(1, shard);
        let batch = bench.batch(now);
        let mut reply = Renewed::new(vec![Outcome::Renewed]);
        let time = now.since(START) + ms(server_ms);
        reply.server_time = Some(ServerTime { shard, time });
        let settled = bench.schedule.settle(&batch, reply, now.after(ms(1)));
        assert_eq!((settled.step, settled.renewed), (None, 1));
        assert_eq!(signal.deadline(), Ok(bench.term(now).deadline()));
    }
}

#[test]
fn a_renewal_falls_due_on_its_shard_though_the_one_before_has_no_room() {
    let mut bench = Bench::new();
    bench.held(START);
    let renew_at = bench.planned()[0];
    bench.make_room(0, 0);
    assert_eq!(bench.schedule.next_wake(), renew_at);
    bench.move_to(1, 1);
    let batches = bench.schedule_turn(renew_at).batches;
    assert_eq!(batches[0].shard, 1);
}
