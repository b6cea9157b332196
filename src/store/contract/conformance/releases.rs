//! Releases: which name is freed, for whom and after how long, and the answer.

use std::time::Duration;

use super::bench::Bench;
use super::{Check, Eviction, HeldState, LONG, MAX_KEEP, Release};

pub(crate) const CHECKS: &[(&str, Check)] = checks![
    a_release_frees_once,
    a_release_of_another_holder_frees_nothing,
    a_release_says_that_another_holder_came_and_went,
    a_release_after_an_eviction_says_so,
    a_kept_release_stays_taken_for_its_time,
    a_name_that_is_to_stay_taken_for_ever_is_released,
];

async fn a_release_frees_once(bench: &Bench) {
    let claim = bench.claim("a", LONG);
    assert_eq!(bench.release(&claim).await, Release::NotHeld);
    bench.granted(&claim).await;
    assert_eq!(bench.release(&claim).await, Release::Released);
    assert_eq!(bench.release(&claim).await, Release::NotHeld);
    assert_eq!(bench.inspect(&claim.name).await, None);
}

async fn a_release_of_another_holder_frees_nothing(bench: &Bench) {
    let (first, second) = (bench.claim("a", LONG), bench.claim("a", LONG));
    bench.granted(&first).await;
    assert_eq!(bench.release(&second).await, Release::NotHeld);
    bench.held(&second).await;
}

async fn a_release_says_that_another_holder_came_and_went(bench: &Bench) {
    let (first, second) = (bench.claim("a", bench.short()), bench.claim("a", LONG));
    bench.granted(&first).await;
    bench.pass(bench.short() * 2).await;
    bench.granted(&second).await;
    assert_eq!(bench.release(&first).await, Release::NotHeld);
    let held = bench.inspect(&second.name).await.expect("still taken");
    assert_eq!(held.by, Some(second.holder));
    assert_eq!(bench.release(&second).await, Release::Released);
    assert_eq!(bench.release(&first).await, Release::NotHeld);
}

async fn a_release_after_an_eviction_says_so(bench: &Bench) {
    let claim = bench.claim("a", LONG);
    bench.granted(&claim).await;
    assert!(bench.evict(&claim.name, Eviction::Now).await);
    assert_eq!(bench.release(&claim).await, Release::NotHeld);
}

async fn a_kept_release_stays_taken_for_its_time(bench: &Bench) {
    let claim = bench.claim("a", LONG);
    bench.granted(&claim).await;
    let soon = bench.within(bench.short() * 2);
    let kept = bench.release_keeping(&claim, bench.short() * 2).await;
    assert_eq!(kept, Release::Released);
    let held = bench.held(&bench.claim("a", LONG)).await;
    assert_eq!(held.state, HeldState::Kept);
    assert_eq!(bench.state(&claim.name).await, Some(HeldState::Kept));
    assert!(bench.is_refused(&claim).await);
    assert_eq!(bench.release(&claim).await, Release::NotHeld);
    bench.held(&bench.claim("a", LONG)).await;
    drop(soon);
    bench.pass(bench.short() * 3).await;
    bench.granted(&bench.claim("a", LONG)).await;
}

async fn a_name_that_is_to_stay_taken_for_ever_is_released(bench: &Bench) {
    let claim = bench.claim("a", LONG);
    bench.granted(&claim).await;
    let kept = bench.release_keeping(&claim, Duration::MAX).await;
    assert_eq!(kept, Release::Released);
    let kept = bench.inspect(&claim.name).await.expect("still taken");
    assert_eq!(kept.state, HeldState::Kept);
    let longest = Some(MAX_KEEP - LONG)..=Some(MAX_KEEP);
    assert!(longest.contains(&kept.remaining), "{kept:?}");
}
