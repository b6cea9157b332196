//! Writes that are cut off, whose replies are lost, or that run at the same time as others.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use super::{Bench, Guarded};
use crate::error::Error;
use crate::fence::{Pass, Refusal};

pub(super) async fn the_fence_survives_a_restart(bench: &Bench) {
    let (resource, older, successor) = bench.succession("a");
    bench.written(&resource, &older, "older").await;
    bench.raised(&resource, &successor).await;
    bench.guard.restart().await;
    bench.refused(&resource, &older, &successor).await;
    bench.written(&resource, &successor, "successor").await;
}

/// However early a write is cut off, its value is never there without its raise.
pub(super) async fn a_write_cut_short_keeps_its_raise(bench: &Bench) {
    for polls in 1..=12 {
        let (resource, older, successor) = bench.succession(polls);
        bench.written(&resource, &older, "older").await;
        let write = bench.guard.write(&resource, Some(&successor), "successor");
        let _unheard = cut(polls, write).await;
        bench.guard.restart().await;
        if bench.guard.read(&resource).await.as_deref() == Some("successor") {
            bench.refused(&resource, &older, &successor).await;
        }
    }
}

pub(super) async fn an_unknown_answer_is_resolved_by_reading_back(bench: &Bench) {
    for polls in 1..=12 {
        let (resource, older, successor) = bench.succession(polls);
        bench.raised(&resource, &older).await;
        let write = bench.guard.write(&resource, Some(&older), "unknown");
        let _unheard = cut(polls, write).await;
        // After this reply the lost write can no longer land: what is read now is its outcome.
        bench.raised(&resource, &successor).await;
        let settled = bench.guard.read(&resource).await;
        assert!(
            matches!(settled.as_deref(), None | Some("unknown")),
            "{settled:?}"
        );
        for _ in 0..5 {
            tokio::task::yield_now().await;
            let later = bench.guard.read(&resource).await;
            assert_eq!(later, settled, "after the raise");
        }
        // If the reply to the successor's own write is lost, it repeats the write.
        let write = bench.guard.write(&resource, Some(&successor), "mine");
        let _unheard = cut(polls, write).await;
        bench.written(&resource, &successor, "mine").await;
    }
}

/// However far a write has come, a raise either waits for it or bars it: no write lands between the successor's first
/// read and its own write.
pub(super) async fn a_raise_beside_a_slow_write_loses_nothing(bench: &Bench) {
    for polls in 1..=12 {
        let (resource, older, successor) = bench.succession(polls);
        bench.written(&resource, &older, "begin").await;
        let mut write = bench.guard.write(&resource, Some(&older), "older");
        let early = cut(polls, &mut write).await;
        let read = async {
            bench.raised(&resource, &successor).await;
            bench.guard.read(&resource).await
        };
        let rest = async {
            match early {
                Some(answer) => answer,
                None => write.await,
            }
        };
        let (base, answer) = tokio::join!(biased; read, rest);
        let expected = Some(if answer.is_ok() { "older" } else { "begin" });
        assert_eq!(base.as_deref(), expected, "the write answered {answer:?}");
        assert_eq!(bench.guard.read(&resource).await, base);
    }
}

pub(super) async fn a_raise_beside_many_writers_loses_nothing(bench: &Bench) {
    for round in 0..20 {
        let (resource, older, successor) = bench.succession(round);
        bench.written(&resource, &older, "begin").await;
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let guard = bench.guard.clone();
                let (resource, older) = (resource.clone(), older.clone());
                tokio::spawn(write_until_refused(guard, resource, older, writer))
            })
            .collect();
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        bench.raised(&resource, &successor).await;
        let base = bench.guard.read(&resource).await;
        for writer in writers {
            let error = writer.await.expect("no panic");
            let stored = successor.token;
            let stale = Some(&Refusal::Stale { stored });
            assert_eq!(Refusal::of(&error), stale, "{error:#}");
        }
        let why = "an older write landed after the successor's raise and read";
        assert_eq!(bench.guard.read(&resource).await, base, "{why}");
    }
}

async fn write_until_refused(
    guard: Arc<dyn Guarded>,
    resource: String,
    pass: Pass,
    writer: u32,
) -> Error {
    for turn in 0.. {
        let value = format!("older {writer} {turn}");
        if let Err(error) = guard.write(&resource, Some(&pass), &value).await {
            return error;
        }
    }
    unreachable!("it is refused in the end")
}

pub(super) async fn contended_raises_end_at_the_highest(bench: &Bench) {
    let resource = bench.resource("a");
    let mut raises = tokio::task::JoinSet::new();
    for token in 1..=16 {
        let (guard, resource) = (bench.guard.clone(), resource.clone());
        let pass = bench.pass(token, token);
        raises.spawn(async move {
            let answer = guard.raise(&resource, Some(&pass)).await;
            if let Err(error) = &answer {
                let refusal = Refusal::of(error);
                let is_stale =
                    matches!(refusal, Some(Refusal::Stale { stored }) if *stored > pass.token);
                assert!(is_stale, "{error:#}");
            }
            answer.is_ok()
        });
    }
    let accepted = raises.join_all().await.into_iter().filter(|ok| *ok).count();
    assert!(accepted >= 1);
    assert_eq!(bench.guard.row(&resource).await, Some(bench.pass(16, 16)));
}

/// Drops a future after this many polls, as if its caller had been dropped there.
async fn cut<F: Future + Unpin>(polls: u32, mut future: F) -> Option<F::Output> {
    let mut left = polls;
    let cut = poll_fn(|context| {
        left -= 1;
        match Pin::new(&mut future).poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    cut.await
}
