//! A store that was just opened, as by a new process: it reads the stored state, and has seen nothing before.

use std::time::Duration;

use super::bench::Bench;
use super::{Check, Eviction, HeldState, LONG, Release};
use crate::token::Token;

pub(crate) const CHECKS: &[(&str, Check)] = checks![
    another_process_sees_the_same_leases,
    tokens_rise_across_processes,
    a_dead_holders_name_is_granted_to_a_process_that_never_saw_it,
    a_kept_name_is_granted_to_a_process_that_never_saw_it,
    an_evicted_holders_name_is_granted_to_a_process_that_never_saw_it,
];

async fn another_process_sees_the_same_leases(bench: &Bench) {
    let claim = bench.claim("a", LONG);
    let token = bench.granted(&claim).await;
    let other = bench.opened_anew().await;
    let held = other.held(&bench.claim("a", LONG)).await;
    assert_eq!((held.by, held.token), (Some(claim.holder), Some(token)));
    let seen = other.inspect(&claim.name).await.expect("it is taken");
    assert_eq!((seen.by, seen.token), (Some(claim.holder), Some(token)));
    let listed = other.list(&claim.name).await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(other.release(&claim).await, Release::Released);
    assert_eq!(bench.inspect(&claim.name).await, None);
    assert!(bench.is_refused(&claim).await);
    other.store.close().await;
}

async fn tokens_rise_across_processes(bench: &Bench) {
    let mut last = None;
    for _ in 0..4 {
        let other = bench.opened_anew().await;
        let claim = other.claim("a", LONG);
        let token = other.granted(&claim).await;
        assert!(Some(token) > last, "{token} after {last:?}");
        last = Some(token);
        assert_eq!(other.release(&claim).await, Release::Released);
        other.store.close().await;
    }
}

async fn a_dead_holders_name_is_granted_to_a_process_that_never_saw_it(bench: &Bench) {
    let claim = bench.claim("a", bench.short());
    let token = bench.granted(&claim).await;
    bench.outlast(bench.short()).await;
    assert!(first_claim_is_granted(bench).await > token);
}

async fn a_kept_name_is_granted_to_a_process_that_never_saw_it(bench: &Bench) {
    let claim = bench.claim("a", LONG);
    bench.granted(&claim).await;
    let soon = bench.within(bench.short());
    let kept = bench.release_keeping(&claim, bench.short()).await;
    assert_eq!(kept, Release::Released);
    let other = bench.opened_anew().await;
    let held = other.held(&bench.claim("a", LONG)).await;
    assert_eq!(held.state, HeldState::Kept);
    drop(soon);
    other.store.close().await;
    bench.outlast(bench.short()).await;
    first_claim_is_granted(bench).await;
}

async fn an_evicted_holders_name_is_granted_to_a_process_that_never_saw_it(bench: &Bench) {
    let claim = bench.claim("a", bench.short() * 2);
    let soon = bench.within(bench.short() * 2);
    bench.granted(&claim).await;
    assert!(bench.evict(&claim.name, Eviction::Marked).await);
    drop(soon);
    bench.outlast(bench.short() * 2).await;
    bench.pass_evicted(&claim, Duration::ZERO).await;
    first_claim_is_granted(bench).await;
}

/// Claims the name by the first request of a store that was never asked before. Returns the token.
async fn first_claim_is_granted(bench: &Bench) -> Token {
    let other = bench.opened_anew().await;
    let token = other.granted(&other.claim("a", LONG)).await;
    other.store.close().await;
    token
}
