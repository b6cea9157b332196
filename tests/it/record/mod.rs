//! Leases over a compare-and-set, on a storage in memory whose clock and answers the tests set.

use std::collections::BTreeSet;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold::clock::Manual;
use leasehold::store::record::{MARK, Record, Records};
use leasehold::store::{Eviction, HeldState, Outcome, Release, Store, conformance};
use leasehold::{ErrorKind, Token};

use crate::harness::asking::{asked, claim, granted, held, next_token, released, renewed};
use crate::harness::register::MemoryRegister;
use crate::harness::times::{LIMIT, LONG};

/// Longer than a record stays when it is over.
const HOURS: Duration = Duration::from_secs(3 * 60 * 60);
const TTL: Duration = Duration::from_secs(10);

/// Opens the storage as another process would.
fn open(register: &MemoryRegister) -> Records<MemoryRegister> {
    Records::new(register.clone())
}

async fn keeps_the_contract(register: MemoryRegister) {
    conformance::check(move || ready(Arc::new(open(&register)) as Arc<dyn Store>)).await;
}

#[tokio::test]
async fn a_storage_that_tells_its_time_keeps_the_contract() {
    keeps_the_contract(MemoryRegister::new()).await;
}

#[tokio::test]
async fn a_storage_that_is_asked_for_its_time_and_removes_nothing_keeps_the_contract() {
    let mut register = MemoryRegister::new().without_removal();
    register.tells_time = false;
    keeps_the_contract(register).await;
}

#[tokio::test]
async fn a_claim_after_the_clients_own_release_and_a_renewal_are_one_request_each() {
    let register = MemoryRegister::new();
    let store = open(&register);
    next_token(&store, "a").await;
    let reads = register.reads.load(Ordering::Relaxed);
    let puts = register.puts.load(Ordering::Relaxed);
    let again = claim("a", LONG);
    granted(&store, &again).await;
    assert!(matches!(renewed(&store, &again).await, Outcome::Renewed));
    assert_eq!(released(&store, &again).await, Release::Released);
    assert_eq!(register.reads.load(Ordering::Relaxed), reads);
    assert_eq!(register.puts.load(Ordering::Relaxed), puts + 3);
}

#[tokio::test]
async fn the_storages_time_is_asked_for_once_and_only_where_a_name_is_taken() {
    let mut register = MemoryRegister::new();
    register.tells_time = false;
    next_token(&open(&register), "a").await;
    next_token(&open(&register), "a").await;
    assert_eq!(register.times.load(Ordering::Relaxed), 0, "it was free");
    granted(&open(&register), &claim("a", LONG)).await;
    let store = open(&register);
    for _ in 0..3 {
        held(&store, &claim("a", LONG)).await;
    }
    assert_eq!(register.times.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_name_whose_record_was_removed_gets_a_higher_token() {
    let register = MemoryRegister::new();
    let store = open(&register);
    // Ahead of every clock, so that only what was remembered lifts the next one.
    let floor = Token::new(next_token(&store, "a").await.get() + 3_600_000_000 * 9);
    let lifted = claim("a", LONG).with_floor(floor.expect("a token"));
    let token = granted(&store, &lifted).await;
    released(&store, &lifted).await;
    register.pass(HOURS);
    for register in [register.clone(), register.clone().without_removal()] {
        let store = open(&register);
        store.list("", LIMIT).await.expect("listed");
        let record = register.records().remove("a");
        assert_eq!(record.and_then(|record| record.token), None);
        let mark = register.records()[MARK].token;
        assert!(mark >= Some(token), "{mark:?}");
        let next = granted(&open(&register), &claim("a", TTL)).await;
        assert!(next > token, "{next} after {token}");
        register.pass(HOURS);
    }
}

#[tokio::test]
async fn records_are_removed_only_when_they_have_been_over_for_an_hour() {
    let register = MemoryRegister::new();
    let store = open(&register);
    next_token(&store, "free").await;
    granted(&store, &claim("dead", TTL)).await;
    let kept = claim("kept", LONG);
    granted(&store, &kept).await;
    let day = Duration::from_secs(24 * 60 * 60);
    let release = store.release(&kept.name, kept.holder, Some(day), LIMIT);
    assert_eq!(release.await.expect("answered"), Release::Released);
    let live = claim("live", LONG);
    granted(&store, &live).await;
    let mut left = BTreeSet::from(["dead", "free", "kept", "live"]);
    let passes = [
        (Duration::from_secs(59 * 60), &[][..]),
        (HOURS, &["dead", "free"]),
        (day, &["kept"]),
    ];
    for (time, removed) in passes {
        register.pass(time);
        assert!(matches!(renewed(&store, &live).await, Outcome::Renewed));
        // It renewed in the storage's time, too.
        open(&register).list("", LIMIT).await.expect("listed");
        for name in removed {
            left.remove(name);
        }
        let keys = register.records().into_keys().filter(|key| key != MARK);
        let expected = left.iter().map(ToString::to_string);
        assert_eq!(keys.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn ten_thousand_names_leave_as_many_records_as_leases() {
    let register = MemoryRegister::new();
    let lasting = open(&register);
    let leases: Vec<_> = (0..10)
        .map(|index| claim(&format!("held/{index}"), LONG))
        .collect();
    for lease in &leases {
        granted(&lasting, lease).await;
    }
    let mut most = 0;
    for batch in 0..100 {
        // Each batch is a process of its own, as that of a job that a timer starts.
        let store = open(&register);
        for index in 0..100 {
            next_token(&store, &format!("job/{batch}/{index}")).await;
        }
        register.pass(Duration::from_secs(10 * 60));
        for lease in &leases {
            assert!(matches!(renewed(&lasting, lease).await, Outcome::Renewed));
        }
        most = most.max(register.records().len());
    }
    // What is young, and what claims had not yet swept.
    assert!(most < 2_500, "{most} records at once");
    register.pass(HOURS);
    for lease in &leases {
        assert!(matches!(renewed(&lasting, lease).await, Outcome::Renewed));
    }
    open(&register).list("", LIMIT).await.expect("listed");
    let records = register.records();
    assert_eq!(records.len(), leases.len() + 1, "and the mark");
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_granted_when_it_is_asked_again() {
    let register = MemoryRegister::new();
    let store = open(&register);
    next_token(&store, "a").await;
    let doubtful = claim("a", LONG);
    register.lost_answers.store(1, Ordering::Relaxed);
    let error = asked(&store, &doubtful, LIMIT).await.expect_err("lost");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(
        held(&store, &claim("a", LONG)).await.by,
        Some(doubtful.holder)
    );
    let token = granted(&store, &doubtful).await;
    assert_eq!(register.records()["a"].token, Some(token));
    register.lost_answers.store(1, Ordering::Relaxed);
    assert!(matches!(
        renewed(&store, &doubtful).await,
        Outcome::Unknown(_)
    ));
    assert!(matches!(renewed(&store, &doubtful).await, Outcome::Renewed));
    assert_eq!(released(&store, &doubtful).await, Release::Released);
}

#[tokio::test]
async fn a_refusal_is_never_answered_from_what_was_seen_before() {
    let register = MemoryRegister::new();
    let (store, other) = (open(&register), open(&register));
    let lease = claim("a", LONG);
    granted(&store, &lease).await;
    assert_eq!(released(&other, &lease).await, Release::Released);
    // This store still has the lease in hand.
    let next = claim("a", LONG);
    granted(&store, &next).await;
    assert_eq!(released(&other, &next).await, Release::Released);
    let third = claim("a", LONG);
    granted(&other, &third).await;
    assert!(matches!(renewed(&store, &next).await, Outcome::Refused));
    assert_eq!(released(&store, &third).await, Release::Released);
}

#[tokio::test]
async fn a_release_of_a_lease_that_has_run_out_leaves_no_renewal_to_begin_it_anew() {
    let register = MemoryRegister::new();
    let store = open(&register);
    let lease = claim("a", TTL);
    granted(&store, &lease).await;
    register.pass(TTL * 2);
    // By a process that sees it run out.
    assert_eq!(released(&open(&register), &lease).await, Release::Released);
    assert!(matches!(renewed(&store, &lease).await, Outcome::Refused));
    assert_eq!(register.records()["a"].state, None);
}

#[tokio::test]
async fn a_put_that_fails_does_not_begin_the_count_of_a_dead_holder_anew() {
    let register = MemoryRegister::new();
    granted(&open(&register), &claim("a", TTL)).await;
    let clock = Arc::new(Manual::new());
    let store = Records::with_clock(register.clone(), clock.clone());
    held(&store, &claim("a", LONG)).await;
    clock.advance(TTL);
    register.lost_requests.store(1, Ordering::Relaxed);
    let waiting = claim("a", LONG);
    asked(&store, &waiting, LIMIT)
        .await
        .expect_err("the put was lost");
    granted(&store, &waiting).await;
}

#[tokio::test]
async fn a_renewal_makes_no_ttl_shorter() {
    let register = MemoryRegister::new();
    let store = open(&register);
    let lease = claim("a", LONG);
    granted(&store, &lease).await;
    let mut renewal = lease.renewal();
    renewal.ttl = TTL;
    // With its answer lost, the holder would count on the longer one.
    let renewed = store.renew(&[renewal], LIMIT).await.outcomes;
    assert!(matches!(renewed[..], [Outcome::Renewed]), "{renewed:?}");
    assert_eq!(register.records()["a"].ttl(), LONG);
}

#[tokio::test]
async fn a_lease_of_another_program_is_respected_for_its_time_and_then_taken() {
    let register = MemoryRegister::new();
    register.write("a", Record::foreign(TTL, "elsewhere".into()));
    let store = open(&register);
    let seen = held(&store, &claim("a", LONG)).await;
    assert_eq!((seen.by, seen.token), (None, None));
    assert_eq!(seen.info.host, "elsewhere");
    register.pass(TTL * 2);
    granted(&open(&register), &claim("a", LONG)).await;
}

#[tokio::test]
async fn a_marked_eviction_lasts_no_shorter_than_the_holder_counts() {
    let register = MemoryRegister::new();
    let store = open(&register);
    let lease = claim("a", TTL);
    granted(&store, &lease).await;
    // By one that has just seen the lease, so as for a whole ttl.
    let other = open(&register);
    let evicted = other.evict(&lease.name, Eviction::Marked, LIMIT).await;
    assert!(evicted.expect("answered"));
    let seen = held(&open(&register), &claim("a", LONG)).await;
    assert_eq!(seen.state, HeldState::Evicted);
    assert!(seen.remaining > Some(TTL / 2), "{seen:?}");
    assert!(matches!(renewed(&store, &lease).await, Outcome::Evicted));
    assert_eq!(released(&store, &lease).await, Release::Released);
    granted(&other, &claim("a", LONG)).await;
}
