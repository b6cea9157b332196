//! Judges what the probes found: facts in, findings out. Pure: it does no I/O.

mod clock;
mod machine;
mod place;

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::clock::Timing;
use leasehold::store::{Hazard, Member, MemberState};

use super::facts::{NoticeOutcome, Reached, Trouble, TurnOutcome};
use super::finding::{Finding, Verdict};
use crate::members::facts;

use clock::clock;
pub use machine::machine;
pub use place::place;

/// A hand-over that takes longer than this did not come by notice.
const SLOW_NOTICE: Duration = Duration::from_secs(1);

/// Judges a store that could not be opened.
pub fn unreached(trouble: &Trouble) -> Finding {
    let (endangers, fix) = consequence(trouble.kind);
    Finding::bad(
        "store",
        Verdict::Failure,
        trouble.message.clone(),
        endangers,
        fix,
    )
}

/// Judges a store that was opened.
pub fn reached(facts: Reached, timing: &Timing, outage: Duration) -> Vec<Finding> {
    let is_away = |member: &Member| matches!(member.state, MemberState::Away { .. });
    let keeps_out = facts.members.iter().flatten().any(is_away);
    let mut findings = vec![members(&facts.members)];
    findings.extend(facts.max_ttl.map(|most| max_ttl(most, timing.ttl())));
    let is_kept_out = facts
        .trial
        .as_ref()
        .is_err_and(|trouble| trouble.is_kept_out);
    // The servers have told it, with its remedy.
    if !(keeps_out && is_kept_out) {
        findings.extend(trial(&facts.trial, timing, outage));
    }
    findings.extend(facts.notice.as_ref().map(notice));
    findings.extend(facts.turns.as_ref().map(turns));
    let hazards = facts.hazards.unwrap_or_else(|trouble| {
        // A store that cannot be reached is reported once.
        if facts.trial.is_ok() {
            findings.push(unseen(&trouble));
        }
        Vec::new()
    });
    findings.extend(
        facts
            .clock
            .iter()
            .flat_map(|found| clock(found, timing, &hazards)),
    );
    findings.extend(
        hazards
            .into_iter()
            .filter(|hazard| !(keeps_out && KEEP_OUT_HAZARDS.contains(&hazard.id)))
            .map(|hazard| of_hazard(hazard, timing.ttl())),
    );
    findings
}

fn of_hazard(hazard: Hazard, ttl: Duration) -> Finding {
    match hazard.concerns(ttl) {
        true => Finding::from(hazard),
        false => Finding::ok(
            hazard.id,
            format!("{}, which a lease of {ttl:?} outlasts", hazard.what),
        ),
    }
}

fn unseen(trouble: &Trouble) -> Finding {
    Finding::bad(
        "set-up",
        Verdict::Warning,
        trouble.message.clone(),
        "it is unknown what weakens the promises",
        "Grant what the message names, or check it by hand",
    )
}

/// Hazards that the servers themselves tell, by their state.
const KEEP_OUT_HAZARDS: [&str; 2] = ["redis-keep-out", "postgres-keep-out"];

/// What it means that a store grants nothing for a while, and what to do.
const KEPT_OUT: (&str, &str) = (
    "nothing can be acquired until then; held leases are renewed",
    "Wait; if it is new, `leasehold init` ends the wait; if not, find out why it lost its data or was promoted",
);

/// Returns what an error of this kind means for leases, and how to fix it.
const fn consequence(kind: Option<ErrorKind>) -> (&'static str, &'static str) {
    match kind {
        Some(ErrorKind::Unavailable | ErrorKind::TimedOut) => (
            "nothing can be acquired, and held leases expire",
            "Start the store, or fix its address or the network",
        ),
        Some(ErrorKind::Denied) => (
            "nothing can be acquired",
            "Correct the user and the password, or grant the permissions that the store's documentation lists",
        ),
        Some(ErrorKind::Misconfigured) => (
            "nothing can be acquired",
            "Do what the message says, or change what it names in the store's set-up",
        ),
        _ => (
            "leases may not exclude each other",
            "Check whether another program writes there; if not, report a bug",
        ),
    }
}

fn members(members: &Result<Vec<Member>, Trouble>) -> Finding {
    let members = match members {
        Ok(members) => members,
        Err(trouble) => return unreached(trouble),
    };
    let of = |wanted: fn(MemberState) -> bool| {
        let found = members.iter().filter(|member| wanted(member.state));
        found.map(facts).collect::<Vec<_>>().join(", ")
    };
    let down = of(|state| state == MemberState::Down);
    let away = of(|state| matches!(state, MemberState::Away { .. }));
    if !down.is_empty() {
        let is_all = members.iter().all(|one| one.state == MemberState::Down);
        let (nothing, fix) = consequence(Some(ErrorKind::Unavailable));
        let endangers = match is_all {
            true => nothing,
            false => "one more server that fails may stop all grants",
        };
        let what = format!("no answer from {down}");
        return Finding::bad("store", Verdict::Failure, what, endangers, fix);
    }
    let standbys = of(|state| state == MemberState::Standby);
    if !standbys.is_empty() && !members.iter().any(|one| one.state == MemberState::Up) {
        let (nothing, _) = consequence(Some(ErrorKind::Unavailable));
        let fix = "Name the server that takes writes, or all of them; or promote one";
        let what = format!("no server takes writes: {standbys}");
        return Finding::bad("store", Verdict::Failure, what, nothing, fix);
    }
    if !away.is_empty() {
        return Finding::bad(
            "store",
            Verdict::Warning,
            format!("{away} keeps out: it is new to leasehold, or lost its data or was promoted"),
            KEPT_OUT.0,
            KEPT_OUT.1,
        );
    }
    Finding::ok("store", format!("answers: {}", of(|_| true)))
}

fn max_ttl(most: Duration, ttl: Duration) -> Finding {
    if ttl <= most {
        return Finding::ok(
            "max-ttl",
            format!("the store grants a ttl of up to {most:?}"),
        );
    }
    Finding::bad(
        "max-ttl",
        Verdict::Failure,
        format!("the store grants a ttl of up to {most:?}, and {ttl:?} is longer"),
        "every claim with this ttl is refused",
        "Use a shorter --ttl, or change the limit of the store's set-up",
    )
}

fn trial(
    trial: &Result<Vec<Duration>, Trouble>,
    timing: &Timing,
    outage: Duration,
) -> Vec<Finding> {
    match trial {
        Ok(round_trips) => vec![
            Finding::ok("trial", "a scratch name was acquired, renewed and released"),
            latency(round_trips, timing, outage),
        ],
        Err(trouble) => {
            let (endangers, fix) = match trouble.is_kept_out {
                true => KEPT_OUT,
                false => consequence(trouble.kind),
            };
            let verdict = match trouble.is_kept_out {
                true => Verdict::Warning,
                false => Verdict::Failure,
            };
            let what = trouble.message.clone();
            vec![Finding::bad("trial", verdict, what, endangers, fix)]
        }
    }
}

/// The value that this share of the sorted values does not exceed.
fn quantile(sorted: &[Duration], percent: usize) -> Duration {
    let place = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(place).copied().unwrap_or_default()
}

fn latency(round_trips: &[Duration], timing: &Timing, outage: Duration) -> Finding {
    let mut sorted = round_trips.to_vec();
    sorted.sort_unstable();
    let (p50, p99) = (quantile(&sorted, 50), quantile(&sorted, 99));
    let ttl = timing.ttl();
    // The limit of a request is min(2 s, ttl/6) by default.
    let limit = (ttl / 6).min(Duration::from_secs(2));
    let good = limit / 4;
    let what = format!(
        "a round trip takes {p50:.1?} at p50 and {p99:.1?} at p99, and below {good:.0?} is good; with a ttl of {ttl:?} a job survives an outage of {outage:.1?}"
    );
    let verdict = match p99 {
        p99 if p99 >= limit => Verdict::Failure,
        p99 if p99 >= good => Verdict::Warning,
        _ => return Finding::ok("latency", what),
    };
    Finding::bad(
        "latency",
        verdict,
        what,
        format!("a request is given up after {limit:.1?}, so renewals fail and jobs are ended"),
        "Move the store nearer, reduce its load, or raise the ttl",
    )
}

fn notice(outcome: &NoticeOutcome) -> Finding {
    let by_time = "waiting clients only check again after up to five seconds";
    let fix =
        "Let this user publish and subscribe to the store's channels, and check its output limits";
    match outcome {
        NoticeOutcome::Absent => {
            Finding::ok("notice", format!("the store gives no notices: {by_time}"))
        }
        NoticeOutcome::Heard(after) if *after < SLOW_NOTICE => Finding::ok(
            "notice",
            format!(
                "the notice of a freed name came after {after:.1?}, and below {SLOW_NOTICE:?} is good"
            ),
        ),
        NoticeOutcome::Heard(after) => Finding::bad(
            "notice",
            Verdict::Warning,
            format!("the notice of a freed name came only after {after:.1?}"),
            "names stay free although clients wait",
            "Reduce the load of the store or of this machine",
        ),
        NoticeOutcome::Silent(limit) => Finding::bad(
            "notice",
            Verdict::Failure,
            format!("no notice of a freed name came within {limit:?}"),
            by_time,
            fix,
        ),
        NoticeOutcome::Failed(trouble) => Finding::bad(
            "notice",
            Verdict::Failure,
            trouble.message.clone(),
            by_time,
            fix,
        ),
    }
}

fn turns(outcome: &TurnOutcome) -> Finding {
    let fix = "Look for clients of another version or another program on these keys; if there are none, report a bug";
    let endangers = "clients that wait in turn may wait long, or be overtaken";
    match outcome {
        TurnOutcome::Absent => Finding::ok("turns", "the store keeps no queue"),
        TurnOutcome::InOrder => {
            Finding::ok("turns", "two waiting clients had their turns in order")
        }
        TurnOutcome::OutOfOrder => Finding::bad(
            "turns",
            Verdict::Failure,
            "of two waiting clients the first did not have its turn first",
            endangers,
            fix,
        ),
        TurnOutcome::Failed(trouble) => {
            let what = trouble.message.clone();
            Finding::bad("turns", Verdict::Failure, what, endangers, fix)
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold::store::Severity;

    use super::*;
    use crate::doctor::facts::{ClockReading, FileSystem, Machine, Place, ServerClock, Throttling};

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn each_figure_has_a_verdict() {
        let timing = Timing::default();
        let reading = |at| ClockReading {
            server: ms(at),
            ours: ms(at),
            steady: ms(at),
            round_trip: ms(1),
        };
        let server_clock = ServerClock {
            first: reading(1_000),
            second: reading(3_000),
        };
        let found_place = Place {
            path: "/a/leases".into(),
            folder: "/a".into(),
            has_folder: true,
            file_system: FileSystem::Other,
            is_folder_writable: true,
            is_file_writable: true,
            is_open_to_others: false,
            free_bytes: 1 << 40,
            has_boot_id: true,
        };
        let found_machine = Machine {
            throttling: Some(Throttling {
                periods: 1_000,
                throttled: 1,
                throttled_for: ms(1),
            }),
            lateness: vec![ms(1)],
            clock_source: None,
        };
        let findings = [
            vec![latency(&[ms(1)], &timing, ms(1))],
            vec![notice(&NoticeOutcome::Heard(ms(1)))],
            clock(&server_clock, &timing, &[]),
            place(&found_place),
            machine(&found_machine),
        ];
        let figures: Vec<_> = findings
            .concat()
            .into_iter()
            .filter(|finding| finding.what.chars().any(|c| c.is_ascii_digit()))
            .collect();
        assert_eq!(figures.len(), 7, "{figures:?}");
        for finding in figures {
            assert!(finding.what.contains(" is good"), "{finding}");
        }
    }

    #[test]
    fn latency_is_judged_by_the_limit_of_a_request_at_this_ttl() {
        for (ttl, worst, verdict) in [
            (30, 100, Verdict::Ok),
            (30, 600, Verdict::Warning),
            (30, 2_000, Verdict::Failure),
            (3, 100, Verdict::Ok),
            (3, 130, Verdict::Warning),
            (3, 500, Verdict::Failure),
        ] {
            let timing = Timing::new(Duration::from_secs(ttl), None).expect("within the limits");
            let found = latency(&[ms(1), ms(worst)], &timing, ms(1));
            assert_eq!(found.verdict, verdict, "{ttl} {found}");
        }
    }

    #[test]
    fn a_ttl_that_the_store_does_not_grant_is_a_failure() {
        let most = Duration::from_secs(60);
        assert_eq!(max_ttl(most, most).verdict, Verdict::Ok);
        let found = max_ttl(most, Duration::from_secs(61));
        assert_eq!(found.verdict, Verdict::Failure);
        assert!(found.what.contains("up to 60s, and 61s"), "{found}");
    }

    #[test]
    fn a_hazard_of_short_leases_is_judged_by_the_ttl() {
        let below = Duration::from_secs(48);
        let hazard = Hazard::new("id", Severity::Warning, "a failover takes 32 s", "b", "C");
        let hazard = hazard.below_ttl(below);
        let found = of_hazard(hazard.clone(), below);
        assert_eq!(found.verdict, Verdict::Ok);
        assert!(found.what.contains("32 s, which a lease of 48s"), "{found}");
        let found = of_hazard(hazard, below - ms(1));
        assert_eq!(found.verdict, Verdict::Warning);
    }

    #[test]
    fn quantiles_are_taken_of_few_values_and_of_none() {
        let values: Vec<_> = (1..=100).map(ms).collect();
        assert_eq!(quantile(&values, 50), ms(50));
        assert_eq!(quantile(&values, 99), ms(99));
        assert_eq!(quantile(&values[..1], 50), ms(1));
        assert_eq!(quantile(&[], 99), Duration::ZERO);
    }

    #[test]
    fn a_standby_is_named_and_is_a_failure_only_where_no_server_takes_writes() {
        let standby = Member::new("b", MemberState::Standby);
        let found = members(&Ok(vec![
            Member::new("a", MemberState::Up),
            standby.clone(),
        ]));
        assert_eq!(found.verdict, Verdict::Ok);
        assert_eq!(found.what, "answers: a, b, a standby that grants nothing");
        let found = members(&Ok(vec![standby]));
        assert_eq!(found.verdict, Verdict::Failure);
        assert!(found.what.contains("no server takes writes: b"), "{found}");
    }

    #[test]
    fn one_server_of_three_that_is_down_is_named() {
        let all = ["a", "b", "c"].map(|place| {
            let is_down = place == "b";
            let state = if is_down {
                MemberState::Down
            } else {
                MemberState::Up
            };
            Member::new(place, state)
        });
        let found = members(&Ok(all.to_vec()));
        assert_eq!(found.verdict, Verdict::Failure);
        assert_eq!(found.what, "no answer from b");
    }
}
