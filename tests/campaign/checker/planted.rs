//! A history for each rule that it must refuse, beside the sound one that it was made from.

use super::{Rule, Verdict, judge};
use crate::history::{Event, Facts, Operation, Phase, Promise};

const TTL_US: u64 = 1_000_000;
const DEADLINE_US: u64 = 960_000;

/// A history that is written by hand.
#[derive(Default)]
struct Draft {
    events: Vec<Event>,
    calls: u64,
}

impl Draft {
    fn at(&mut self, at_us: u64, process: &str, operation: Operation, phase: Phase, facts: Facts) {
        self.events.push(Event {
            at_us,
            process: process.into(),
            operation,
            phase,
            call: self.calls,
            facts,
        });
    }

    fn call(&mut self, (from_us, to_us): (u64, u64), who: &str, what: Operation, facts: Facts) {
        self.calls += 1;
        let begun = Facts {
            token: facts.token.filter(|_| what != Operation::Claim),
            ..facts.clone()
        };
        self.at(from_us, who, what, Phase::Invoke, begun);
        self.at(to_us, who, what, Phase::Answer, facts);
    }

    /// A grant of the name `a` that its caller has at once.
    fn grant(&mut self, times: (u64, u64), who: &str, token: u64) {
        self.grant_of("a", times, who, token);
    }

    fn grant_of(&mut self, name: &str, (from_us, to_us): (u64, u64), who: &str, token: u64) {
        let held = Facts::held(name, holder_text(who, token), token);
        let claim = Facts {
            ttl_us: Some(TTL_US),
            ..held.clone()
        };
        self.call((from_us, to_us), who, Operation::Claim, claim);
        self.call((from_us, to_us), who, Operation::Acquire, held);
    }

    fn note(&mut self, at_us: u64, who: &str, token: u64, operation: Operation) {
        self.calls += 1;
        let phase = match operation {
            Operation::Release => Phase::Invoke,
            _ => Phase::Answer,
        };
        let facts = Facts::held("a", holder_text(who, token), token);
        self.at(at_us, who, operation, phase, facts);
    }

    fn write(&mut self, times: (u64, u64), who: &str, token: u64, from: Option<&str>, to: &str) {
        let facts = Facts {
            value: Some(to.into()),
            previous: from.map(Into::into),
            ..Facts::held("a", holder_text(who, token), token)
        };
        self.call(times, who, Operation::Write, facts);
    }

    fn ends_with(&mut self, value: &str) {
        let facts = Facts {
            value: Some(value.into()),
            ..Facts::named("a")
        };
        self.at(u64::MAX, "runner", Operation::Final, Phase::Answer, facts);
    }

    fn fault(&mut self, times: (u64, u64), suspends: &[Promise]) {
        let facts = Facts {
            suspends: suspends.to_vec(),
            ..Facts::default()
        };
        self.call(times, "nemesis", Operation::Fault, facts);
    }

    fn verdict(&mut self) -> Verdict {
        self.events.sort_by_key(|event| event.at_us);
        judge(&self.events)
    }

    /// The one rule that it breaks; none: it is sound.
    fn broken(&mut self) -> Option<Rule> {
        let broken = self.verdict().broken;
        assert!(broken.len() <= 1, "{broken:?}");
        broken.first().map(|broken| broken.rule)
    }
}

fn holder_text(who: &str, token: u64) -> String {
    format!("{who}-{token}")
}

/// Two holders in turn, each with a write.
fn sound() -> Draft {
    let mut draft = Draft::default();
    draft.grant((0, 1_000), "w1", 5);
    draft.write((2_000, 3_000), "w1", 5, None, "v1");
    draft.note(4_000, "w1", 5, Operation::Release);
    draft.grant((5_000, 6_000), "w2", 6);
    draft.write((7_000, 8_000), "w2", 6, Some("v1"), "v2");
    draft.ends_with("v2");
    draft
}

#[test]
fn a_sound_history_is_admitted_with_its_figures() {
    let verdict = sound().verdict();
    assert_eq!(verdict.broken, []);
    let figures = verdict.figures;
    assert_eq!(
        (figures.grants, figures.acknowledged, figures.lost_us.len()),
        (2, 2, 0)
    );
}

#[test]
fn a_write_that_was_acknowledged_and_is_gone_is_refused() {
    let mut draft = sound();
    draft.write((7_100, 9_000), "w3", 6, Some("v1"), "v3");
    assert_eq!(draft.broken(), Some(Rule::WritesAreKept));
}

#[test]
fn a_write_of_unknown_outcome_may_be_gone_or_kept() {
    for end in ["v2", "v3"] {
        let mut draft = sound();
        draft
            .events
            .retain(|event| event.operation != Operation::Final);
        draft.write((8_100, 9_000), "w2", 6, Some("v2"), "v3");
        draft.events.last_mut().expect("an event").phase = Phase::Unknown;
        draft.ends_with(end);
        assert_eq!(draft.broken(), None, "{end}");
    }
}

#[test]
fn a_value_that_was_never_written_is_refused() {
    let mut draft = sound();
    draft.write((9_000, 9_100), "w2", 6, Some("v9"), "v3");
    draft
        .events
        .retain(|event| event.operation != Operation::Final);
    draft.ends_with("v3");
    let verdict = draft.verdict();
    assert!(verdict.breaks(Rule::WritesAreKept));
    assert_eq!(verdict.figures.lost_us.len(), 2);
}

#[test]
fn a_write_under_a_lower_token_is_refused() {
    let mut draft = sound();
    draft
        .events
        .retain(|event| event.operation != Operation::Final);
    draft.write((9_000, 9_100), "w1", 5, Some("v2"), "v3");
    draft.ends_with("v3");
    assert_eq!(draft.broken(), Some(Rule::WritesAreInOrder));
}

#[test]
fn a_write_before_one_that_was_over_when_it_began_is_refused() {
    let mut draft = Draft::default();
    draft.write((0, 1_000), "w1", 5, Some("v2"), "v1");
    draft.write((2_000, 3_000), "w1", 5, None, "v2");
    draft.ends_with("v1");
    assert_eq!(draft.broken(), Some(Rule::WritesAreInOrder));
}

#[test]
fn a_token_that_falls_is_refused_unless_a_fault_suspends_the_promise() {
    for (suspends, broken) in [
        (&[][..], Some(Rule::TokensRise)),
        (&[Promise::Exclusion][..], Some(Rule::TokensRise)),
        (&[Promise::Tokens][..], None),
    ] {
        let mut draft = sound();
        draft.note(9_000, "w2", 6, Operation::Release);
        draft.fault((9_100, 9_200), suspends);
        draft.grant((10_000, 11_000), "w3", 4);
        assert_eq!(draft.broken(), broken, "{suspends:?}");
    }
}

#[test]
fn a_token_that_two_holders_have_is_refused() {
    let mut draft = sound();
    draft.note(9_000, "w2", 6, Operation::Release);
    // Its claim was sent before the other was answered, so the order of time alone does not refuse it.
    draft.grant((5_500, 11_000), "w3", 6);
    assert_eq!(draft.broken(), Some(Rule::TokensRise));
}

#[test]
fn two_holders_at_a_time_are_refused_unless_a_fault_suspends_the_promise() {
    for (suspends, broken) in [
        (&[][..], Some(Rule::OneHolder)),
        (&[Promise::Exclusion][..], None),
    ] {
        let mut draft = sound();
        draft.fault((8_500, 8_600), suspends);
        draft.grant((9_000, 10_000), "w3", 7);
        assert_eq!(draft.broken(), broken, "{suspends:?}");
    }
}

#[test]
fn more_holders_of_a_pool_than_permits_are_refused_unless_a_fault_suspends_the_promise() {
    for (first_ends, suspends, broken) in [
        (true, &[][..], None),
        (false, &[][..], Some(Rule::PermitsAreCounted)),
        (false, &[Promise::Exclusion][..], None),
    ] {
        let mut draft = sound();
        draft.grant_of("pool#1", (10_000, 11_000), "w1", 7);
        draft.grant_of("pool#2", (10_100, 11_100), "w2", 7);
        if first_ends {
            draft.note(12_000, "w1", 7, Operation::Release);
        }
        draft.fault((12_500, 12_600), suspends);
        // As by a client that knows of three permits.
        draft.grant_of("pool#3", (13_000, 14_000), "w3", 7);
        assert_eq!(draft.broken(), broken, "{first_ends} {suspends:?}");
    }
}

#[test]
fn a_reader_beside_a_writer_is_refused_unless_a_fault_suspends_the_promise() {
    for names in [["shared#4", "shared"], ["shared", "shared#4"]] {
        for (first_ends, suspends, broken) in [
            (true, &[][..], None),
            (false, &[][..], Some(Rule::NoReaderBesideWriter)),
            (false, &[Promise::Exclusion][..], None),
        ] {
            let mut draft = sound();
            draft.grant_of(names[0], (10_000, 11_000), "w1", 7);
            if first_ends {
                draft.note(12_000, "w1", 7, Operation::Release);
            }
            draft.fault((12_500, 12_600), suspends);
            draft.grant_of(names[1], (13_000, 14_000), "w3", 7);
            assert_eq!(
                draft.broken(),
                broken,
                "{names:?} {first_ends} {suspends:?}"
            );
        }
    }
}

#[test]
fn readers_beside_readers_and_a_door_that_is_only_passed_are_admitted() {
    let mut draft = sound();
    draft.grant_of("shared#4", (10_000, 11_000), "w1", 7);
    draft.grant_of("shared#5", (10_000, 11_000), "w2", 7);
    let door = Facts {
        ttl_us: Some(TTL_US),
        ..Facts::held("shared", holder_text("w3", 8), 8)
    };
    draft.call((12_000, 13_000), "w3", Operation::Claim, door);
    assert_eq!(draft.broken(), None);
}

#[test]
fn a_fault_that_was_over_before_the_grant_excuses_nothing() {
    let mut draft = sound();
    draft.fault((4_100, 4_200), &[Promise::Exclusion]);
    draft.grant((9_000, 10_000), "w3", 7);
    assert_eq!(draft.broken(), Some(Rule::OneHolder));
}

#[test]
fn a_fault_that_freed_a_lease_before_its_grant_was_answered_excuses_the_overlap() {
    for (over_us, broken) in [(8_500, Some(Rule::OneHolder)), (9_500, None)] {
        let mut draft = sound();
        draft.note(8_300, "w2", 6, Operation::Release);
        draft.fault((8_400, over_us), &[Promise::Exclusion]);
        draft.grant((9_000, 10_000), "w3", 7);
        draft.grant((9_600, 11_000), "w1", 8);
        assert_eq!(draft.broken(), broken, "{over_us}");
    }
}

#[test]
fn a_fault_whose_effect_outlasts_it_excuses_for_as_long() {
    for (echo_us, broken) in [(0, Some(Rule::TokensRise)), (9_000, None)] {
        let mut draft = sound();
        draft.fault((100, 200), &[Promise::Tokens]);
        draft.events.last_mut().expect("an event").facts.ttl_us = Some(echo_us);
        draft.note(9_000, "w2", 6, Operation::Release);
        draft.grant((10_000, 11_000), "w3", 4);
        assert_eq!(draft.broken(), broken);
    }
}

#[test]
fn a_rival_after_the_deadline_the_loss_or_the_death_is_admitted() {
    let mut past_deadline = sound();
    past_deadline.grant((900_000, 5_000 + DEADLINE_US), "w3", 7);
    assert_eq!(past_deadline.broken(), None);
    for operation in [Operation::Told, Operation::Death] {
        let mut draft = sound();
        draft.note(9_000, "w2", 6, operation);
        draft.grant((10_000, 11_000), "w3", 7);
        assert_eq!(draft.broken(), None, "{operation:?}");
    }
}

#[test]
fn a_yes_past_the_deadline_is_refused() {
    for (at_us, broken) in [
        (5_000 + DEADLINE_US, None),
        (5_001 + DEADLINE_US, Some(Rule::NoLateYes)),
    ] {
        let mut draft = sound();
        draft.note(at_us, "w2", 6, Operation::Check);
        assert_eq!(draft.broken(), broken);
    }
}

#[test]
fn only_a_confirmation_in_time_moves_the_deadline() {
    for (confirmed_us, broken) in [(400_000, None), (1_100_000, Some(Rule::NoLateYes))] {
        let mut draft = sound();
        let renewal = Facts {
            ttl_us: Some(TTL_US),
            ..Facts::held("a", holder_text("w2", 6), 6)
        };
        draft.call((300_000, confirmed_us), "w2", Operation::Renew, renewal);
        draft.note(1_200_000, "w2", 6, Operation::Check);
        assert_eq!(draft.broken(), broken);
    }
}

#[test]
fn a_claim_that_was_answered_too_late_counts_from_when_it_was_asked_again() {
    let mut draft = Draft::default();
    let claim = Facts {
        ttl_us: Some(TTL_US),
        ..Facts::held("a", holder_text("w1", 5), 5)
    };
    draft.call((0, 1_200_000), "w1", Operation::Claim, claim);
    draft.grant((1_300_000, 1_310_000), "w1", 5);
    draft.note(1_300_000 + DEADLINE_US, "w1", 5, Operation::Check);
    assert_eq!(draft.broken(), None);
    draft.note(1_300_001 + DEADLINE_US, "w1", 5, Operation::Check);
    assert_eq!(draft.broken(), Some(Rule::NoLateYes));
}

#[test]
fn a_renewal_without_an_answer_moves_no_deadline() {
    let mut draft = sound();
    let renewal = Facts {
        ttl_us: Some(TTL_US),
        ..Facts::held("a", holder_text("w2", 6), 6)
    };
    draft.call((300_000, 400_000), "w2", Operation::Renew, renewal);
    draft.events.last_mut().expect("an event").phase = Phase::Unknown;
    draft.note(1_200_000, "w2", 6, Operation::Check);
    assert_eq!(draft.broken(), Some(Rule::NoLateYes));
}

#[test]
fn a_holder_that_runs_and_is_not_told_of_its_deadline_is_refused() {
    let deadline_us = 5_000 + DEADLINE_US;
    for (told_us, broken) in [
        (Some(deadline_us + 900_000), None),
        (Some(deadline_us + 1_000_001), Some(Rule::LossIsTold)),
        (None, Some(Rule::LossIsTold)),
    ] {
        let mut draft = sound();
        if let Some(told_us) = told_us {
            draft.note(told_us, "w2", 6, Operation::Told);
        }
        draft.grant((3_000_000, 3_100_000), "w2", 7);
        draft.note(3_200_000, "w2", 7, Operation::Release);
        assert_eq!(draft.broken(), broken, "{told_us:?}");
    }
}

#[test]
fn a_worker_that_stands_still_after_the_end_of_its_fault_is_not_told_late() {
    let deadline_us = 5_000 + DEADLINE_US;
    for (who, broken, figures) in [
        ("w2", None, (0, 1)),
        ("nemesis", None, (0, 1)),
        ("w1", Some(Rule::LossIsTold), (1, 0)),
    ] {
        let mut draft = sound();
        let stop = Facts::named("w2");
        draft.call((8_000, 8_100), "nemesis", Operation::Fault, stop);
        let woke_us = deadline_us + 2_000_000;
        let stood_still = Facts {
            ttl_us: Some(2_500_000),
            ..Facts::default()
        };
        draft.note(woke_us, "w2", 6, Operation::Told);
        let (stall, is) = (Operation::Stall, Phase::Answer);
        draft.at(woke_us + 100, who, stall, is, stood_still);
        let leads = draft.verdict().figures.leads;
        let seen = (leads.after_deadline_us.len(), leads.stalled);
        assert_eq!((draft.broken(), seen), (broken, figures), "{who}");
    }
}

#[test]
fn a_job_that_works_on_beside_a_rival_is_refused() {
    for (last_us, broken) in [(1_000_000, None), (2_500_000, Some(Rule::JobsEnd))] {
        let mut draft = sound();
        draft.note(9_000, "w2", 6, Operation::Release);
        draft.note(20_000, "job", 7, Operation::Beat);
        draft.note(last_us, "job", 7, Operation::Beat);
        draft.grant((999_000, 1_000_000), "w3", 8);
        draft.call(
            (1_100_000, 1_100_001),
            "w3",
            Operation::Renew,
            Facts {
                ttl_us: Some(3 * TTL_US),
                ..Facts::held("a", holder_text("w3", 8), 8)
            },
        );
        assert_eq!(draft.broken(), broken);
    }
}

#[test]
fn a_waiter_without_an_end_is_refused_unless_it_was_killed() {
    for (is_killed, broken) in [(false, Some(Rule::WaitersAreServed)), (true, None)] {
        let mut draft = sound();
        draft.calls += 1;
        let facts = Facts::named("a");
        draft.at(9_000, "w3", Operation::Acquire, Phase::Invoke, facts);
        if is_killed {
            draft.at(
                9_500,
                "w3",
                Operation::Death,
                Phase::Answer,
                Facts::default(),
            );
        }
        assert_eq!(draft.broken(), broken);
    }
}

#[test]
fn a_key_that_is_left_is_refused() {
    let mut draft = sound();
    let facts = Facts::named("leasehold:{a}:queue");
    draft.at(9_000, "runner", Operation::Left, Phase::Answer, facts);
    assert_eq!(draft.broken(), Some(Rule::NothingIsLeft));
}
