//! The contract of a fence as tests. Whoever writes a guard puts a [`Guarded`] around it and calls [`check`].
//!
//! The checks run against the real storage, under resources and names that no other run uses, and hold every answer and
//! the stored row after it to [`judge`]. Each panics with its own name and what it saw.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use uuid::Uuid;

use super::{Admission, Pass, Refusal, Reply, judge};
use crate::error::{Error, ErrorKind};
use crate::holder::Holder;
use crate::name::Name;
use crate::token::Token;

/// A guard on its real storage, with one register of text behind it for each resource.
///
/// A guard whose functions take a [`Pass`] gets the refusal of a missing one from [`Pass::required`], as its users do.
pub trait Guarded: fmt::Debug + Send + Sync + 'static {
    /// Raises the fence and writes nothing.
    fn raise<'a>(
        &'a self,
        resource: &'a str,
        shown: Option<&'a Pass>,
    ) -> Reply<'a, Result<(), Error>>;

    /// Overwrites the register in the same step in which the pass is checked.
    fn write<'a>(
        &'a self,
        resource: &'a str,
        shown: Option<&'a Pass>,
        value: &'a str,
    ) -> Reply<'a, Result<(), Error>>;

    /// Reads the register, without the fence.
    fn read<'a>(&'a self, resource: &'a str) -> Reply<'a, Option<String>>;

    /// Reads the fence's row.
    fn row<'a>(&'a self, resource: &'a str) -> Reply<'a, Option<Pass>>;

    /// Forgets whatever is only in this process, as if it had been killed and started again.
    fn restart(&self) -> Reply<'_, ()> {
        Box::pin(async {})
    }
}

type Check = for<'a> fn(&'a Bench) -> Reply<'a, ()>;

macro_rules! checks {
    ($($check:ident),* $(,)?) => {
        &[$((stringify!($check), (|bench| Box::pin($check(bench))) as Check)),*]
    };
}

const CHECKS: &[(&str, Check)] = checks![
    the_first_write_is_accepted_and_its_pass_kept,
    a_holder_writes_many_times,
    a_successor_writes,
    a_raise_bars_the_older_before_any_write,
    two_leases_of_one_process_have_passes_of_their_own,
    an_equal_token_of_another_holder_is_a_conflict,
    another_lease_name_is_a_conflict,
    a_missing_pass_is_refused_and_changes_nothing,
    every_pair_of_steps_is_judged_by_the_rule,
    long_histories_are_judged_by_the_rule,
    odd_resources_are_kept_apart,
    the_fence_survives_a_restart,
    a_write_cut_short_keeps_its_raise,
    an_unknown_answer_is_resolved_by_reading_back,
    a_raise_beside_a_slow_write_loses_nothing,
    a_raise_beside_many_writers_loses_nothing,
    contended_raises_end_at_the_highest,
];

/// Runs every check against this guard, one after the other.
///
/// # Panics
/// Where the guard breaks the contract, with the name of the check.
pub async fn check(guard: Arc<dyn Guarded>) {
    let run = Uuid::new_v4().simple().to_string();
    for (name, check) in CHECKS {
        let bench = Bench {
            guard: guard.clone(),
            prefix: format!("{run}/{name}"),
            client: Uuid::new_v4(),
        };
        let outcome = tokio::spawn(async move { check(&bench).await }).await;
        if let Err(broken) = outcome {
            panic!("fence {guard:?} breaks `{name}`: {broken}");
        }
    }
}

/// A guard, and the resources that belong to one check.
struct Bench {
    guard: Arc<dyn Guarded>,
    prefix: String,
    client: Uuid,
}

/// One step of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Raise,
    Write,
}

impl Bench {
    fn resource(&self, rest: impl fmt::Display) -> String {
        format!("{}/{rest}", self.prefix)
    }

    /// A pass of this check's lease name; `claim` tells holders apart, each in a process of its own.
    fn pass(&self, claim: u64, token: u64) -> Pass {
        self.pass_for("lease é", claim, token)
    }

    fn pass_for(&self, name: &str, claim: u64, token: u64) -> Pass {
        let client = Uuid::from_u128(self.client.as_u128() ^ u128::from(claim));
        Pass::new(
            Name::new(self.resource(name)).expect("a valid name"),
            Holder::new(client, claim),
            // As high as real ones, so that a number kept as a double or in 32 bits is found out.
            Token::new((1 << 53) - 1_000 + token).expect("a valid token"),
        )
    }

    async fn take(
        &self,
        step: Step,
        resource: &str,
        pass: &Pass,
        value: &str,
    ) -> Result<(), Error> {
        match step {
            Step::Raise => self.guard.raise(resource, Some(pass)).await,
            Step::Write => self.guard.write(resource, Some(pass), value).await,
        }
    }

    async fn written(&self, resource: &str, pass: &Pass, value: &str) {
        let answer = self.guard.write(resource, Some(pass), value).await;
        answer.unwrap_or_else(|error| panic!("write of {pass:?} failed: {}", chain(&error)));
        assert_eq!(self.guard.read(resource).await.as_deref(), Some(value));
        assert_eq!(self.guard.row(resource).await.as_ref(), Some(pass));
    }

    async fn raised(&self, resource: &str, pass: &Pass) {
        let answer = self.guard.raise(resource, Some(pass)).await;
        answer.unwrap_or_else(|error| panic!("raise of {pass:?} failed: {}", chain(&error)));
        assert_eq!(self.guard.row(resource).await.as_ref(), Some(pass));
    }

    /// Both steps under this pass are refused so, and change neither register nor row.
    async fn refused(&self, resource: &str, pass: &Pass, refusal: &Refusal) {
        let before = self.seen(resource).await;
        for step in [Step::Raise, Step::Write] {
            let error = match self.take(step, resource, pass, "refused").await {
                Ok(()) => panic!("{step:?} of {pass:?} was accepted"),
                Err(error) => error,
            };
            assert_eq!(error.kind(), ErrorKind::Stale, "{}", chain(&error));
            assert_eq!(Refusal::of(&error), Some(refusal), "{}", chain(&error));
            assert_eq!(
                self.seen(resource).await,
                before,
                "after a refused {step:?}"
            );
        }
    }

    async fn seen(&self, resource: &str) -> (Option<String>, Option<Pass>) {
        (
            self.guard.read(resource).await,
            self.guard.row(resource).await,
        )
    }

    /// Takes the steps one by one; each answer, the register and the row have to be the rule's.
    async fn history(&self, resource: &str, steps: &[(Step, &Pass)]) {
        let (mut row, mut register) = (None::<Pass>, None::<String>);
        for (index, (step, pass)) in steps.iter().enumerate() {
            let value = index.to_string();
            let answer = self.take(*step, resource, pass, &value).await;
            let expected = judge(row.as_ref(), pass);
            let seen = match &answer {
                Ok(()) => None,
                Err(error) => Some(Refusal::of(error).unwrap_or_else(|| {
                    panic!("step {index} of {steps:?} failed: {}", chain(error))
                })),
            };
            assert_eq!(seen, expected.as_ref().err(), "step {index} of {steps:?}");
            if expected == Ok(Admission::Raise) {
                row = Some((*pass).clone());
            }
            if expected.is_ok() && *step == Step::Write {
                register = Some(value);
            }
            let expected = (register.clone(), row.clone());
            assert_eq!(
                self.seen(resource).await,
                expected,
                "after {index} of {steps:?}"
            );
        }
    }

    /// Passes in every relation that the rule knows.
    fn relations(&self) -> Vec<Pass> {
        vec![
            self.pass(1, 1),
            self.pass(2, 2),
            self.pass(3, 2),
            self.pass(2, 3),
            self.pass_for("another lease", 4, 2),
        ]
    }
}

async fn the_first_write_is_accepted_and_its_pass_kept(bench: &Bench) {
    let resource = bench.resource("a");
    assert_eq!(bench.seen(&resource).await, (None, None));
    bench.written(&resource, &bench.pass(1, 1), "first").await;
}

async fn a_holder_writes_many_times(bench: &Bench) {
    let (resource, pass) = (bench.resource("a"), bench.pass(1, 1));
    for value in ["one", "two", "three"] {
        bench.written(&resource, &pass, value).await;
    }
    bench.raised(&resource, &pass).await;
}

async fn a_successor_writes(bench: &Bench) {
    let resource = bench.resource("a");
    bench.written(&resource, &bench.pass(1, 1), "first").await;
    // Not the next number: tokens rise, but are not dense.
    bench
        .written(&resource, &bench.pass(2, 500), "second")
        .await;
}

async fn a_raise_bars_the_older_before_any_write(bench: &Bench) {
    let resource = bench.resource("a");
    let (older, successor) = (bench.pass(1, 1), bench.pass(2, 2));
    bench.written(&resource, &older, "older").await;
    bench.raised(&resource, &successor).await;
    let stale = Refusal::Stale {
        stored: successor.token,
    };
    bench.refused(&resource, &older, &stale).await;
    assert_eq!(bench.guard.read(&resource).await.as_deref(), Some("older"));
    bench.written(&resource, &successor, "successor").await;
    bench.refused(&resource, &older, &stale).await;
}

async fn two_leases_of_one_process_have_passes_of_their_own(bench: &Bench) {
    let resource = bench.resource("a");
    let (first, mut second) = (bench.pass(1, 1), bench.pass(2, 2));
    second.holder = Holder::new(first.holder.client(), 2);
    bench.written(&resource, &first, "first").await;
    bench.written(&resource, &second, "second").await;
    let stale = Refusal::Stale {
        stored: second.token,
    };
    bench.refused(&resource, &first, &stale).await;
}

async fn an_equal_token_of_another_holder_is_a_conflict(bench: &Bench) {
    let resource = bench.resource("a");
    let (known, twin) = (bench.pass(1, 1), bench.pass(2, 1));
    bench.written(&resource, &known, "known").await;
    let conflict = Refusal::conflict(&known);
    bench.refused(&resource, &twin, &conflict).await;
    bench.written(&resource, &known, "known again").await;
}

async fn another_lease_name_is_a_conflict(bench: &Bench) {
    let resource = bench.resource("a");
    let known = bench.pass(1, 2);
    bench.written(&resource, &known, "known").await;
    for token in 1..=3 {
        let other = bench.pass_for("another lease", 1, token);
        bench
            .refused(&resource, &other, &Refusal::conflict(&known))
            .await;
    }
}

async fn a_missing_pass_is_refused_and_changes_nothing(bench: &Bench) {
    let resource = bench.resource("a");
    for known in [false, true] {
        if known {
            bench.written(&resource, &bench.pass(1, 1), "known").await;
        }
        let before = bench.seen(&resource).await;
        let answers = [
            bench.guard.raise(&resource, None).await,
            bench.guard.write(&resource, None, "missing").await,
        ];
        for answer in answers {
            let error = answer.expect_err("a write without a pass is refused");
            assert_eq!(
                Refusal::of(&error),
                Some(&Refusal::Missing),
                "{}",
                chain(&error)
            );
        }
        assert_eq!(bench.seen(&resource).await, before);
    }
}

async fn every_pair_of_steps_is_judged_by_the_rule(bench: &Bench) {
    let passes = bench.relations();
    let steps: Vec<_> = [Step::Raise, Step::Write]
        .into_iter()
        .flat_map(|step| passes.iter().map(move |pass| (step, pass)))
        .collect();
    for (first_index, first) in steps.iter().enumerate() {
        for (second_index, second) in steps.iter().enumerate() {
            let resource = bench.resource(format_args!("{first_index}-{second_index}"));
            bench.history(&resource, &[*first, *second]).await;
        }
    }
}

async fn long_histories_are_judged_by_the_rule(bench: &Bench) {
    let passes = bench.relations();
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let steps: Vec<_> = (0..8)
            .map(|_| {
                let step = if random.bool() {
                    Step::Raise
                } else {
                    Step::Write
                };
                (step, &passes[random.usize(..passes.len())])
            })
            .collect();
        bench.history(&bench.resource(seed), &steps).await;
    }
}

async fn odd_resources_are_kept_apart(bench: &Bench) {
    let odd = [
        "x",
        "X",
        "x ",
        "x'",
        "x\"",
        "x%",
        "é",
        "x\\",
        "x;",
        "x:y",
        "x\u{2028}",
    ];
    for (index, rest) in odd.iter().enumerate() {
        let pass = bench.pass(index as u64 + 1, index as u64 + 1);
        bench.written(&bench.resource(rest), &pass, rest).await;
    }
    for (index, rest) in odd.iter().enumerate() {
        let pass = bench.pass(index as u64 + 1, index as u64 + 1);
        let expected = (Some((*rest).to_owned()), Some(pass));
        assert_eq!(bench.seen(&bench.resource(rest)).await, expected);
    }
}

async fn the_fence_survives_a_restart(bench: &Bench) {
    let resource = bench.resource("a");
    let (older, successor) = (bench.pass(1, 1), bench.pass(2, 2));
    bench.written(&resource, &older, "older").await;
    bench.raised(&resource, &successor).await;
    bench.guard.restart().await;
    let stale = Refusal::Stale {
        stored: successor.token,
    };
    bench.refused(&resource, &older, &stale).await;
    bench.written(&resource, &successor, "successor").await;
}

/// However early a write is cut off, what it wrote is never there without its raise.
async fn a_write_cut_short_keeps_its_raise(bench: &Bench) {
    for polls in 1..=12 {
        let resource = bench.resource(polls);
        let (older, successor) = (bench.pass(1, 1), bench.pass(2, 2));
        bench.written(&resource, &older, "older").await;
        let write = bench.guard.write(&resource, Some(&successor), "successor");
        let _unheard = Cut::after(polls, write).await;
        bench.guard.restart().await;
        if bench.guard.read(&resource).await.as_deref() == Some("successor") {
            let stale = Refusal::Stale {
                stored: successor.token,
            };
            bench.refused(&resource, &older, &stale).await;
        }
    }
}

async fn an_unknown_answer_is_resolved_by_reading_back(bench: &Bench) {
    for polls in 1..=12 {
        let resource = bench.resource(polls);
        let (older, successor) = (bench.pass(1, 1), bench.pass(2, 2));
        bench.raised(&resource, &older).await;
        let write = bench.guard.write(&resource, Some(&older), "unknown");
        let _unheard = Cut::after(polls, write).await;
        // From this answer on the unheard write can no longer land: what is read now is what became of it.
        bench.raised(&resource, &successor).await;
        let settled = bench.guard.read(&resource).await;
        assert!(
            matches!(settled.as_deref(), None | Some("unknown")),
            "{settled:?}"
        );
        for _ in 0..5 {
            tokio::task::yield_now().await;
            assert_eq!(
                bench.guard.read(&resource).await,
                settled,
                "after the raise"
            );
        }
        // The successor's own unheard write is simply repeated.
        let write = bench.guard.write(&resource, Some(&successor), "mine");
        let _unheard = Cut::after(polls, write).await;
        bench.written(&resource, &successor, "mine").await;
    }
}

/// However far a write has come, a raise either waits for it or bars it: nothing lands between the successor's first
/// read and its own write.
async fn a_raise_beside_a_slow_write_loses_nothing(bench: &Bench) {
    for polls in 1..=12 {
        let resource = bench.resource(polls);
        let (older, successor) = (bench.pass(1, 1), bench.pass(2, 2));
        bench.written(&resource, &older, "begin").await;
        let mut write = bench.guard.write(&resource, Some(&older), "older");
        let early = Cut::after(polls, &mut write).await;
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
        let expected = if answer.is_ok() { "older" } else { "begin" };
        assert_eq!(
            base.as_deref(),
            Some(expected),
            "the write answered {answer:?}"
        );
        assert_eq!(bench.guard.read(&resource).await, base);
    }
}

async fn a_raise_beside_many_writers_loses_nothing(bench: &Bench) {
    for round in 0..20 {
        let resource = bench.resource(round);
        let (older, successor) = (bench.pass(1, 1), bench.pass(2, 2));
        bench.written(&resource, &older, "begin").await;
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (guard, resource, older) =
                    (bench.guard.clone(), resource.clone(), older.clone());
                tokio::spawn(async move {
                    let mut last = Ok(());
                    for turn in 0.. {
                        let value = format!("older {writer} {turn}");
                        last = guard.write(&resource, Some(&older), &value).await;
                        if last.is_err() {
                            break;
                        }
                    }
                    last
                })
            })
            .collect();
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        bench.raised(&resource, &successor).await;
        let base = bench.guard.read(&resource).await;
        for writer in writers {
            let error = writer
                .await
                .expect("no panic")
                .expect_err("refused in the end");
            let stored = successor.token;
            assert_eq!(
                Refusal::of(&error),
                Some(&Refusal::Stale { stored }),
                "{}",
                chain(&error)
            );
        }
        assert_eq!(
            bench.guard.read(&resource).await,
            base,
            "an older write landed after the successor's raise and read"
        );
    }
}

async fn contended_raises_end_at_the_highest(bench: &Bench) {
    let resource = bench.resource("a");
    let mut raises = tokio::task::JoinSet::new();
    for token in 1..=16 {
        let (guard, resource, pass) = (
            bench.guard.clone(),
            resource.clone(),
            bench.pass(token, token),
        );
        raises.spawn(async move {
            let answer = guard.raise(&resource, Some(&pass)).await;
            if let Err(error) = &answer {
                assert!(
                    matches!(Refusal::of(error), Some(Refusal::Stale { stored }) if *stored > pass.token),
                    "{}",
                    chain(error)
                );
            }
            answer.is_ok()
        });
    }
    let accepted = raises.join_all().await.into_iter().filter(|ok| *ok).count();
    assert!(accepted >= 1);
    assert_eq!(bench.guard.row(&resource).await, Some(bench.pass(16, 16)));
}

/// A future that is given up after so many polls, as if its caller had been dropped there.
struct Cut<F> {
    future: F,
    polls: u32,
}

impl<F> Cut<F> {
    fn after(polls: u32, future: F) -> Self {
        Self { future, polls }
    }
}

impl<F: Future + Unpin> Future for Cut<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.polls -= 1;
        match Pin::new(&mut self.future).poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.polls == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// An error with all that caused it.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}
