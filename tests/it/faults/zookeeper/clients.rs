//! Clients that stand still longer than their leases and sessions live, and clients that are killed.

use std::time::Duration;

use super::{TTL, ensemble, quick};
use crate::faults::contender::Contender;
use crate::harness::wait::{at, now};

/// How long a busy machine may take beside what the promise says.
const SLACK: Duration = Duration::from_secs(10);
/// The time-out of the sessions that own the places in queues, and how long a place is offered.
const PLACE: Duration = Duration::from_secs(9 + 2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_stood_still_is_told_as_it_wakes_and_takes_its_turn_again() {
    let ensemble = ensemble().await;
    let url = quick(&ensemble.url(""));
    let (mut first, mut second) = (Contender::start(&url, TTL), Contender::start(&url, TTL));
    // Within the session, and past it.
    for still_for in [TTL + Duration::from_secs(1), Duration::from_secs(13)] {
        first.claim();
        let (token, _) = first.granted();
        second.claim();
        first.pause();
        let paused_at = now();
        let (next, granted_at) = second.granted();
        let granted_after = granted_at.since(paused_at);
        assert!(next > token, "{next} after {token}");
        assert!(granted_after < TTL + SLACK, "{granted_after:?}");
        at(paused_at.after(still_for)).await;
        first.resume();
        let resumed_at = now();
        let told = first.lost();
        let told_after = told.at.since(resumed_at);
        eprintln!(
            "case=client stopped for {still_for:?}: granted_after={granted_after:.1?} told_after_waking={told_after:.1?}"
        );
        assert!(told_after < SLACK, "{told_after:?}");
        first.claim();
        second.release();
        assert_eq!(second.released().what, "Released");
        let (last, _) = first.granted();
        assert!(last > next, "{last} after {next}");
        first.release();
        assert_eq!(first.released().what, "Released");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_costs_its_ttl_and_a_killed_waiter_one_offer() {
    let ensemble = ensemble().await;
    let url = quick(&ensemble.url(""));
    let mut holder = Contender::start(&url, TTL);
    let mut waiters: Vec<_> = (0..3).map(|_| Contender::start(&url, TTL)).collect();
    holder.claim();
    let (mut last, _) = holder.granted();
    for waiter in &mut waiters {
        waiter.claim();
        // So that they stand in this order.
        at(now().after(Duration::from_millis(500))).await;
    }
    holder.kill();
    let killed_at = now();
    let (token, granted_at) = waiters[0].granted();
    let granted_after = granted_at.since(killed_at);
    eprintln!("case=holder killed: granted_after={granted_after:.1?}");
    assert!(token > last, "{token} after {last}");
    assert!(granted_after < TTL + SLACK, "{granted_after:?}");
    last = token;
    waiters[1].kill();
    let killed_at = now();
    waiters[0].release();
    assert_eq!(waiters[0].released().what, "Released");
    let (token, granted_at) = waiters[2].granted();
    let granted_after = granted_at.since(killed_at);
    eprintln!("case=waiter killed: granted_after={granted_after:.1?}");
    assert!(token > last, "{token} after {last}");
    assert!(granted_after < PLACE + SLACK, "{granted_after:?}");
}
