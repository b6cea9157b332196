//! The contract of a fence as tests. The author of a guard puts a [`Guarded`] around it and calls [`check`].
//!
//! The checks run against the real storage, with resources and names that no other run uses. They compare every answer,
//! and the stored row after it, with [`judge`]. Each check panics with its own name and what it saw.

mod at_once;
mod one_by_one;

use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

use super::{Admission, Pass, Refusal, judge};
use crate::error::{Error, ErrorKind};
use crate::future::BoxFuture;
use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::token::Token;

/// A guard on its real storage, with one text value per resource behind it: the register.
///
/// If the functions of a guard take a [`Pass`], a missing pass is refused by [`Pass::required`], as its users do it.
pub trait Guarded: fmt::Debug + Send + Sync + 'static {
    /// Raises the fence and writes nothing.
    fn raise<'a>(
        &'a self,
        resource: &'a str,
        shown: Option<&'a Pass>,
    ) -> BoxFuture<'a, Result<(), Error>>;

    /// Overwrites the register in the same step that checks the pass.
    fn write<'a>(
        &'a self,
        resource: &'a str,
        shown: Option<&'a Pass>,
        value: &'a str,
    ) -> BoxFuture<'a, Result<(), Error>>;

    /// Reads the register, without the fence.
    fn read<'a>(&'a self, resource: &'a str) -> BoxFuture<'a, Option<String>>;

    /// Reads the fence's row.
    fn row<'a>(&'a self, resource: &'a str) -> BoxFuture<'a, Option<Pass>>;

    /// Forgets everything that is only in this process, as if it had been killed and started again.
    fn restart(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

type Check = for<'a> fn(&'a Bench) -> BoxFuture<'a, ()>;

macro_rules! checks {
    ($($folder:ident::$check:ident),* $(,)?) => {
        &[$((stringify!($check), (|bench| Box::pin($folder::$check(bench))) as Check)),*]
    };
}

const CHECKS: &[(&str, Check)] = checks![
    one_by_one::every_pair_of_steps_is_judged_by_the_rule,
    one_by_one::a_missing_pass_is_refused_and_changes_nothing,
    one_by_one::long_histories_are_judged_by_the_rule,
    one_by_one::odd_resources_are_kept_apart,
    at_once::the_fence_survives_a_restart,
    at_once::a_write_cut_short_keeps_its_raise,
    at_once::an_unknown_answer_is_resolved_by_reading_back,
    at_once::a_raise_beside_a_slow_write_loses_nothing,
    at_once::a_raise_beside_many_writers_loses_nothing,
    at_once::contended_raises_end_at_the_highest,
];

/// Runs every check against this guard, one after the other.
///
/// # Panics
/// If the guard breaks the contract, with the name of the check.
pub async fn check(guard: Arc<dyn Guarded>) {
    let run = Uuid::new_v4().simple().to_string();
    for (name, check) in CHECKS {
        let bench = Bench {
            guard: guard.clone(),
            prefix: format!("{run}/{name}"),
            client: ClientId::draw(),
        };
        let outcome = tokio::spawn(async move { check(&bench).await }).await;
        if let Err(broken) = outcome {
            panic!("fence {guard:?} breaks `{name}`: {broken}");
        }
    }
}

/// A guard, and the resources of one check.
struct Bench {
    guard: Arc<dyn Guarded>,
    prefix: String,
    client: ClientId,
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

    /// Returns a pass for the lease name of this check; each `claim` is another holder, in a process of its own.
    fn pass(&self, claim: u64, token: u64) -> Pass {
        self.pass_for("lease é", claim, token)
    }

    fn pass_for(&self, name: &str, claim: u64, token: u64) -> Pass {
        let client = ClientId::from_u128(self.client.as_u128() ^ u128::from(claim));
        Pass::new(
            Name::new(self.resource(name)).expect("a valid name"),
            Holder::new(client, claim),
            // As high as real tokens, so that a number kept as a double or in 32 bits is detected.
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
        answer.unwrap_or_else(|error| panic!("write of {pass:?} failed: {error:#}"));
        assert_eq!(self.guard.read(resource).await.as_deref(), Some(value));
        assert_eq!(self.guard.row(resource).await.as_ref(), Some(pass));
    }

    async fn raised(&self, resource: &str, pass: &Pass) {
        let answer = self.guard.raise(resource, Some(pass)).await;
        answer.unwrap_or_else(|error| panic!("raise of {pass:?} failed: {error:#}"));
        assert_eq!(self.guard.row(resource).await.as_ref(), Some(pass));
    }

    /// Asserts that both steps under this pass are refused as stale, because of the other one, and change neither the
    /// register nor the row.
    async fn refused(&self, resource: &str, pass: &Pass, newer: &Pass) {
        let before = self.seen(resource).await;
        let stored = newer.token;
        for step in [Step::Raise, Step::Write] {
            let answer = self.take(step, resource, pass, "refused").await;
            let error = answer.expect_err("a stale pass is refused");
            assert_eq!(error.kind(), ErrorKind::Stale, "{error:#}");
            let refusal = Refusal::of(&error);
            assert_eq!(refusal, Some(&Refusal::Stale { stored }), "{error:#}");
            let seen = self.seen(resource).await;
            assert_eq!(seen, before, "after a refused {step:?}");
        }
    }

    async fn seen(&self, resource: &str) -> (Option<String>, Option<Pass>) {
        let register = self.guard.read(resource).await;
        (register, self.guard.row(resource).await)
    }

    /// Runs the steps one by one; each answer, the register and the row must match the rule.
    async fn history(&self, resource: &str, steps: &[(Step, &Pass)]) {
        let (mut row, mut register) = (None::<Pass>, None::<String>);
        for (index, (step, pass)) in steps.iter().enumerate() {
            let value = index.to_string();
            let answer = self.take(*step, resource, pass, &value).await;
            let expected = judge(row.as_ref(), pass);
            let refusal = answer.as_ref().err().map(|error| {
                Refusal::of(error)
                    .unwrap_or_else(|| panic!("step {index} of {steps:?} failed: {error:#}"))
            });
            let expected_refusal = expected.as_ref().err();
            assert_eq!(refusal, expected_refusal, "step {index} of {steps:?}");
            if expected == Ok(Admission::Raise) {
                row = Some((*pass).clone());
            }
            if expected.is_ok() && *step == Step::Write {
                register = Some(value);
            }
            let seen = self.seen(resource).await;
            let expected = (register.clone(), row.clone());
            assert_eq!(seen, expected, "after {index} of {steps:?}");
        }
    }

    /// Returns a resource with a holder and its successor.
    fn succession(&self, rest: impl fmt::Display) -> (String, Pass, Pass) {
        (self.resource(rest), self.pass(1, 1), self.pass(2, 2))
    }

    /// Returns passes in every relation that the rule distinguishes.
    fn relations(&self) -> Vec<Pass> {
        let mut of_the_same_process = self.pass(2, 2);
        of_the_same_process.holder = Holder::new(of_the_same_process.holder.client(), 9);
        vec![
            self.pass(1, 1),
            self.pass(2, 2),
            self.pass(3, 2),
            of_the_same_process,
            // Not the next number: tokens rise, but are not dense.
            self.pass(2, 500),
            self.pass_for("another lease", 4, 2),
        ]
    }
}
