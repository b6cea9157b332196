//! Judges an open store by what it reports, and by a trial with a scratch name.

use std::collections::HashSet;
use std::time::Duration;

use leasehold::clock::Timing;
use leasehold::store::{Hazard, Member, MemberState, Store};
use leasehold::{Error, Name};

use super::clock;
use super::finding::{Finding, Verdict};
use super::machine::quantile;
use super::trial::Trial;
use crate::exit::{Exit, Failure};
use crate::members::facts;
use crate::timeline::Distances;

/// Hazards that the states of the servers already show.
const KEEP_OUT_HAZARDS: [&str; 2] = ["redis-keep-out", "postgres-keep-out"];

/// The hazard of servers that are down. The finding about the servers says the same, with their addresses.
const DOWN_HAZARD: &str = "quorum-members-down";

/// Explains a store that grants nothing for a while, and says what to do.
const KEPT_OUT: (&str, &str) = (
    "nothing can be acquired until then; held leases are renewed",
    "Wait; if it is new, `leasehold init` ends the wait; if not, find out why it lost its data or was promoted",
);

/// Explains what the loss of one of several servers means while the others still grant leases.
const ONE_MORE: &str = "one more server that fails may stop all grants";

/// Examines an open store.
pub async fn examine(
    store: &dyn Store,
    limit: Duration,
    timing: &Timing,
) -> Result<Vec<Finding>, Failure> {
    let trial = Trial::new(store, limit)?;
    let servers = store.members(limit).await.map_err(Failure::from);
    let hazards = store.hazards(limit).await.map_err(Failure::from);
    let keeps_out = servers.iter().flatten().any(is_away);
    let most = store.facts().max_ttl;
    let mut findings = Vec::from_iter(most.map(|most| max_ttl(most, timing.ttl())));
    let tried = tried(&trial, timing, &mut findings).await;
    let is_down = |one: &Member| one.state == MemberState::Down;
    let are_down = servers.iter().flatten().any(is_down);
    let seen = match servers {
        Ok(servers) => members(servers, tried.is_ok(), is_spread(store)?),
        Err(failure) => judge(failure, "store"),
    };
    findings.insert(0, seen);
    match tried {
        Ok(()) => {
            let what = "a scratch name was acquired, renewed and released";
            findings.push(Finding::ok("trial", what));
            findings.extend(hazards.as_ref().err().map(unseen));
        }
        // The finding about the servers has it, with its remedy.
        Err(failure) if keeps_out && failure.is_conflict => {}
        Err(failure) => findings.push(judge(failure, "trial")),
    }
    let hazards = hazards.into_iter().flatten();
    let told = hazards.filter(|one| {
        !(keeps_out && KEEP_OUT_HAZARDS.contains(&one.id) || are_down && one.id == DOWN_HAZARD)
    });
    findings.extend(told.map(|hazard| of_hazard(hazard, timing.ttl())));
    Ok(findings)
}

/// Tries the store, and judges how fast it is, and its clock.
async fn tried(
    trial: &Trial<'_>,
    timing: &Timing,
    findings: &mut Vec<Finding>,
) -> Result<(), Failure> {
    let round_trips = trial.cycles().await?;
    findings.push(latency(&round_trips, timing));
    findings.push(trial.notice().await);
    findings.push(trial.turns().await);
    findings.extend(clock::examine(trial.store, trial.limit, timing).await?);
    Ok(())
}

/// Makes a finding with this name about a failed step: a conflict if the store only grants nothing for a while.
pub fn judge(failure: Failure, id: &'static str) -> Finding {
    let (verdict, (endangers, fix)) = match failure.is_conflict {
        true => (Verdict::Warning, KEPT_OUT),
        false => (Verdict::Failure, consequence(failure.exit)),
    };
    Finding::new(id, verdict, failure.message)
        .endangers(endangers)
        .fix(fix)
}

/// Returns what a failure with this exit means for leases, and how to fix it.
const fn consequence(exit: Exit) -> (&'static str, &'static str) {
    match exit {
        Exit::Unreachable | Exit::NotAcquired => (
            "nothing can be acquired, and held leases expire",
            "Start the store, or fix its address or the network",
        ),
        Exit::Denied => (
            "nothing can be acquired",
            "Correct the user and the password, or grant the permissions that the store's documentation lists",
        ),
        Exit::Misconfigured => (
            "nothing can be acquired",
            "Do what the message says, or change what it names in the store's set-up",
        ),
        _ => (
            "leases may not exclude each other",
            "Check whether another program writes there; if not, report a bug",
        ),
    }
}

fn of_hazard(hazard: Hazard, ttl: Duration) -> Finding {
    if hazard.concerns(ttl) {
        return hazard.into();
    }
    let what = format!("{}, which a lease of {ttl:?} outlasts", hazard.what);
    Finding::ok(hazard.id, what)
}

fn unseen(failure: &Failure) -> Finding {
    Finding::new("set-up", Verdict::Warning, &failure.message)
        .endangers("it is unknown what weakens the promises")
        .fix("Grant what the message names, or check it by hand")
}

const fn is_away(member: &Member) -> bool {
    matches!(member.state, MemberState::Away { .. })
}

/// Returns whether each server has names of its own, which no other one grants.
fn is_spread(store: &dyn Store) -> Result<bool, Error> {
    let shard = |number| Ok(store.shard(&Name::new(format!("leasehold-doctor/{number}"))?));
    let shards: HashSet<_> = (0..64).map(shard).collect::<Result<_, Error>>()?;
    Ok(shards.len() > 1)
}

/// Judges the servers by their state, by whether a name could be acquired, and by whether names are spread over them.
fn members(members: Vec<Member>, is_granting: bool, is_spread: bool) -> Finding {
    let of = |wanted: fn(&Member) -> bool| {
        let found = members.iter().filter(|member| wanted(member));
        found.map(facts).collect::<Vec<_>>().join(", ")
    };
    let down = of(|one| one.state == MemberState::Down);
    let away = of(is_away);
    let standbys = of(|one| one.state == MemberState::Standby);
    let (nothing, start) = consequence(Exit::Unreachable);
    let left = match (is_granting, is_spread) {
        (true, false) => ONE_MORE,
        (true, true) => "its names cannot be acquired until another server takes over",
        (false, _) => nothing,
    };
    let takes_writes = members.iter().any(|one| one.state == MemberState::Up);
    let finding = |verdict, what: String| Finding::new("store", verdict, what);
    if !down.is_empty() {
        let what = match away.is_empty() {
            true => format!("no answer from {down}"),
            false => format!("no answer from {down}, and {away} keeps out"),
        };
        let verdict = match left {
            ONE_MORE => Verdict::Warning,
            _ => Verdict::Failure,
        };
        finding(verdict, what).endangers(left).fix(start)
    } else if !standbys.is_empty() && !takes_writes {
        let what = format!("no server takes writes: {standbys}");
        finding(Verdict::Failure, what)
            .endangers(nothing)
            .fix("Name the server that takes writes, or all of them; or promote one")
    } else if !away.is_empty() {
        let what =
            format!("{away} keeps out: it is new to leasehold, or lost its data or was promoted");
        let grants = |one: &&Member| one.state != MemberState::Standby;
        let (endangers, fix) = match members.iter().filter(grants).count() {
            1 => KEPT_OUT,
            _ => (left, "Wait, and restart no other server meanwhile"),
        };
        finding(Verdict::Warning, what)
            .endangers(endangers)
            .fix(fix)
    } else {
        finding(Verdict::Ok, format!("answers: {}", of(|_| true)))
    }
}

fn max_ttl(most: Duration, ttl: Duration) -> Finding {
    let what = format!("the store grants a ttl of up to {most:?}");
    if ttl <= most {
        return Finding::ok("max-ttl", what);
    }
    let what = format!("{what}, and {ttl:?} is longer");
    Finding::new("max-ttl", Verdict::Failure, what)
        .endangers("every claim with this ttl is refused")
        .fix("Use a shorter --ttl, or change the limit of the store's set-up")
}

fn latency(round_trips: &[Duration], timing: &Timing) -> Finding {
    let (p50, p99) = (quantile(round_trips, 50), quantile(round_trips, 99));
    let (ttl, outage) = (timing.ttl(), Distances::usual(timing).outage(timing));
    // A renewal without an answer is sent again after this time, on another connection.
    let limit = (ttl / 6).min(Duration::from_secs(2));
    let good = limit / 4;
    let what = format!(
        "a round trip takes {p50:.1?} at p50 and {p99:.1?} at p99, and below {good:.0?} is good; with a ttl of {ttl:?} a job survives an outage of {outage:.1?}"
    );
    Finding::new("latency", Verdict::of(p99, good, limit), what)
        .endangers(format!(
            "a server that is silent for {limit:.1?} is asked again on another connection, and leases with a short ttl are lost"
        ))
        .fix("Move the store nearer, reduce its load, or raise the ttl")
}

#[cfg(test)]
mod tests {
    use leasehold::store::Severity;

    use super::*;
    use crate::doctor::trial;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn each_figure_has_a_verdict() {
        let timing = Timing::default();
        let figures = [latency(&[ms(1)], &timing), trial::came(ms(1))];
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
            let found = latency(&[ms(1), ms(worst)], &timing);
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
    fn a_standby_is_named_and_is_a_failure_only_where_no_server_takes_writes() {
        let standby = Member::new("b", MemberState::Standby);
        let found = members(
            vec![Member::new("a", MemberState::Up), standby.clone()],
            true,
            false,
        );
        assert_eq!(found.verdict, Verdict::Ok);
        assert_eq!(found.what, "answers: a, b, a standby that grants nothing");
        let found = members(vec![standby], false, false);
        assert_eq!(found.verdict, Verdict::Failure);
        assert!(found.what.contains("no server takes writes: b"), "{found}");
    }

    #[test]
    fn one_server_that_is_down_is_a_warning_while_others_grant_its_names() {
        let all = ["a", "b", "c"].map(|address| {
            let is_down = address == "b";
            let state = if is_down {
                MemberState::Down
            } else {
                MemberState::Up
            };
            Member::new(address, state)
        });
        for (is_granting, is_spread, verdict) in [
            (true, false, Verdict::Warning),
            (true, true, Verdict::Failure),
            (false, false, Verdict::Failure),
        ] {
            let found = members(all.to_vec(), is_granting, is_spread);
            assert_eq!((found.verdict, &*found.what), (verdict, "no answer from b"));
        }
    }
}
