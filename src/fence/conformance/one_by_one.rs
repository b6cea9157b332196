//! The answers and effects of steps that are taken one after the other.

use super::{Bench, Step};
use crate::fence::Refusal;
use crate::holder::Holder;

pub(super) async fn the_first_write_is_accepted_and_its_pass_kept(bench: &Bench) {
    let resource = bench.resource("a");
    assert_eq!(bench.seen(&resource).await, (None, None));
    bench.written(&resource, &bench.pass(1, 1), "first").await;
}

pub(super) async fn a_holder_writes_many_times(bench: &Bench) {
    let (resource, pass) = (bench.resource("a"), bench.pass(1, 1));
    for value in ["one", "two", "three"] {
        bench.written(&resource, &pass, value).await;
    }
    bench.raised(&resource, &pass).await;
}

pub(super) async fn a_successor_writes(bench: &Bench) {
    let resource = bench.resource("a");
    bench.written(&resource, &bench.pass(1, 1), "first").await;
    // Not the next number: tokens rise, but are not dense.
    bench
        .written(&resource, &bench.pass(2, 500), "second")
        .await;
}

pub(super) async fn a_raise_bars_the_older_before_any_write(bench: &Bench) {
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

pub(super) async fn two_leases_of_one_process_have_passes_of_their_own(bench: &Bench) {
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

pub(super) async fn an_equal_token_of_another_holder_is_a_conflict(bench: &Bench) {
    let resource = bench.resource("a");
    let (known, twin) = (bench.pass(1, 1), bench.pass(2, 1));
    bench.written(&resource, &known, "known").await;
    let conflict = Refusal::conflict(&known);
    bench.refused(&resource, &twin, &conflict).await;
    bench.written(&resource, &known, "known again").await;
}

pub(super) async fn another_lease_name_is_a_conflict(bench: &Bench) {
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

pub(super) async fn a_missing_pass_is_refused_and_changes_nothing(bench: &Bench) {
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
            assert_eq!(Refusal::of(&error), Some(&Refusal::Missing), "{error:#}");
        }
        assert_eq!(bench.seen(&resource).await, before);
    }
}

pub(super) async fn every_pair_of_steps_is_judged_by_the_rule(bench: &Bench) {
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

pub(super) async fn long_histories_are_judged_by_the_rule(bench: &Bench) {
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

pub(super) async fn odd_resources_are_kept_apart(bench: &Bench) {
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
