//! The answers and effects of steps that are taken one after the other.

use super::{Bench, Step};
use crate::fence::{Pass, Refusal};

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
    let steps = |step| passes.iter().map(move |pass| (step, pass));
    let steps: Vec<_> = steps(Step::Raise).chain(steps(Step::Write)).collect();
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
        let mut step = || {
            let step = [Step::Raise, Step::Write][random.usize(..2)];
            (step, &passes[random.usize(..passes.len())])
        };
        let steps: [(Step, &Pass); 8] = std::array::from_fn(|_| step());
        bench.history(&bench.resource(seed), &steps).await;
    }
}

pub(super) async fn odd_resources_are_kept_apart(bench: &Bench) {
    let odd = "x,X,x y,x',x\",x%,é,x\\,x;,x:y,x\u{2028}y".split(',');
    let odd: Vec<_> = (1..).zip(odd).collect();
    for (index, rest) in &odd {
        let pass = bench.pass(*index, *index);
        bench.written(&bench.resource(rest), &pass, rest).await;
    }
    for (index, rest) in odd {
        let expected = (Some(rest.to_owned()), Some(bench.pass(index, index)));
        assert_eq!(bench.seen(&bench.resource(rest)).await, expected);
    }
}
