//! Finds what is wrong with a group that Sentinels watch: whether they can replace the master, and how long that takes.

use std::time::Duration;

use deadpool_redis::redis::Value;
use futures_util::future::join_all;

use super::super::failure::{Failure, FailureCause};
use super::super::fleet::{Sentinel, Sentinels};
use super::super::protocol::reply;
use super::{OUTLIVED, SLOW_FAILOVER, allowed, slow_failover};
use crate::store::Hazard;
use crate::store::Severity::{Unknown, Warning};
use crate::store::budget::Budget;
use crate::store::check::{Check, found, judge};
use crate::store::server_url::HostPort;

/// The facts that one Sentinel reports. `None` is what it refuses to report.
#[derive(Debug, Default)]
struct SentinelFacts {
    place: String,
    /// The reason for which it could not replace the master, in its words.
    objection: Option<String>,
    is_refusing: bool,
    /// After how long without an answer it takes the master for down.
    down_after: Option<Duration>,
    /// Says how many Sentinels must take it for down before this one replaces it.
    votes_needed: Option<usize>,
    replicas: Vec<HostPort>,
}

/// Asks the Sentinels about the group. Returns the hazards, and the replicas by the names that the Sentinels use.
pub(super) async fn look(sentinels: &Sentinels, budget: Budget) -> (Vec<Hazard>, Vec<HostPort>) {
    let all = sentinels.all.iter();
    let told = join_all(all.map(|one| look_at(one, sentinels, budget))).await;
    let only = match &*sentinels.all {
        [only] => Some(only.place.clone()),
        _ => None,
    };
    let mut group = GroupFacts {
        told: Vec::new(),
        only,
    };
    let mut hazards = Vec::new();
    for (sentinel, told) in sentinels.all.iter().zip(told) {
        match told {
            Ok(told) => group.told.push(told),
            Err(failure) => hazards.extend(SILENT.judge(&(sentinel.place.clone(), failure))),
        }
    }
    hazards.extend(judge(CHECKS, &group));
    let replicas = group.told.into_iter().flat_map(|facts| facts.replicas);
    (hazards, replicas.collect())
}

async fn look_at(
    sentinel: &Sentinel,
    group: &Sentinels,
    budget: Budget,
) -> Result<SentinelFacts, Failure> {
    let ask = async |what| {
        (sentinel.server)
            .ask(&["SENTINEL", what, &group.name], budget)
            .await
    };
    let mut facts = SentinelFacts {
        place: sentinel.place.to_string(),
        ..SentinelFacts::default()
    };
    let quorum = ask("CKQUORUM").await;
    match quorum.as_ref().map_err(|failure| &failure.cause) {
        Err(FailureCause::Refused { code, text }) if code == "NOQUORUM" => {
            facts.objection = Some(text.clone());
        }
        _ => facts.is_refusing = allowed(quorum)?.is_none(),
    }
    if let Some(master) = allowed(ask("MASTER").await)? {
        let fields = reply::fields(&master)?;
        let number = |field| fields.get(field).and_then(|value| value.parse().ok());
        facts.down_after = number("down-after-milliseconds").map(Duration::from_millis);
        facts.votes_needed = number("quorum").and_then(|count| usize::try_from(count).ok());
    }
    match allowed(ask("REPLICAS").await)? {
        Some(replicas) => facts.replicas = replicas_in(&replicas)?,
        None => facts.is_refusing = true,
    }
    Ok(facts)
}

/// Returns the replicas that are not down: what is down is the operators' business, and would keep the others waiting.
fn replicas_in(reply: &Value) -> Result<Vec<HostPort>, Failure> {
    let mut replicas = Vec::new();
    for replica in reply::items(reply)? {
        let fields = reply::fields(replica)?;
        let field = |name| fields.get(name).map_or("", String::as_str);
        if let Ok(port) = field("port").parse()
            && !field("flags").contains("down")
        {
            replicas.push(HostPort::new(field("ip"), port));
        }
    }
    Ok(replicas)
}

/// The facts that the group's servers report.
struct GroupFacts {
    told: Vec<SentinelFacts>,
    /// The only one that the URL names.
    only: Option<HostPort>,
}

/// A Sentinel that did not answer, and why.
const SILENT: Check<(HostPort, Failure)> = Check::new(
    Warning,
    "redis-sentinel-down",
    |(place, failure)| {
        let what = format!("the Sentinel at {place} does not answer: {failure}");
        found(true, what)
    },
    "without most of the Sentinels no server takes over when the master fails",
    "Start it, or take it out of the URL",
);

/// The faults in the set-up of a group that weaken the promises.
const CHECKS: &[Check<GroupFacts>] = &[
    Check::new(
        Warning,
        "redis-no-quorum",
        |group| {
            let objects = |one: &SentinelFacts| Some((one.place.clone(), one.objection.clone()?));
            let (place, objection) = group.told.iter().find_map(objects)?;
            found(true, format!("the Sentinel at {place} says: {objection}"))
        },
        "no server takes over when the master fails",
        "Start the missing Sentinels, or correct their quorum",
    ),
    Check::new(
        Unknown,
        "redis-sentinel-refused",
        |group| {
            let is_refusing = group.told.iter().any(|one| one.is_refusing);
            found(is_refusing, "a Sentinel refuses CKQUORUM or REPLICAS")
        },
        "the quorum and the clocks of the replicas cannot be checked",
        "Grant `+sentinel|ckquorum` and `+sentinel|replicas`, or check them by hand",
    ),
    Check::new(
        Warning,
        SLOW_FAILOVER,
        |group| {
            let after = begins_after(&group.told)?;
            Some(slow_failover(after, "this down-after-milliseconds"))
        },
        OUTLIVED,
        "Lower down-after-milliseconds, or lease for longer",
    ),
    Check::new(
        Warning,
        "redis-one-sentinel",
        |group| {
            let only = group.only.as_ref()?;
            found(true, format!("the URL names one Sentinel, {only}"))
        },
        "if it is down or has missed a failover, no other one says who the master is; if its name stands for all \
         Sentinels, clients that run do not follow them after they were set up anew",
        "Name each Sentinel by an address of its own",
    ),
];

/// Returns after how long without an answer of the master a Sentinel begins to replace it: it must take it for down
/// itself, and as many Sentinels as its quorum must.
fn begins_after(facts: &[SentinelFacts]) -> Option<Duration> {
    let mut down_after: Vec<_> = facts.iter().filter_map(|one| one.down_after).collect();
    down_after.sort_unstable();
    let begins = facts.iter().filter_map(|one| {
        let with_others = down_after.get(one.votes_needed?.checked_sub(1)?)?;
        Some(one.down_after?.max(*with_others))
    });
    begins.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentinel(votes_needed: usize, down_after_ms: u64) -> SentinelFacts {
        SentinelFacts {
            place: "db:26379".into(),
            down_after: Some(Duration::from_millis(down_after_ms)),
            votes_needed: Some(votes_needed),
            ..SentinelFacts::default()
        }
    }

    fn judged(told: Vec<SentinelFacts>) -> Vec<Hazard> {
        judge(CHECKS, &GroupFacts { told, only: None })
    }

    fn told(facts: Vec<SentinelFacts>) -> String {
        let hazards = judged(facts).into_iter();
        hazards.map(|hazard| hazard.to_string()).collect()
    }

    #[test]
    fn a_failover_begins_once_a_quorum_takes_the_master_for_down() {
        let begins = |facts: &[(usize, u64)]| {
            let facts: Vec<_> = facts.iter().map(|one| sentinel(one.0, one.1)).collect();
            begins_after(&facts).map(|after| after.as_millis())
        };
        assert_eq!(begins(&[(2, 500), (2, 3_000), (2, 30_000)]), Some(3_000));
        assert_eq!(begins(&[(1, 500), (3, 60_000), (3, 60_000)]), Some(500));
        assert_eq!(begins(&[(3, 500), (3, 500)]), None, "too few are known");
    }

    #[test]
    fn a_failover_is_told_with_the_ttl_that_outlives_it() {
        let brief = judged(vec![sentinel(1, 5_000)]);
        assert_eq!(brief[0].below_ttl, Some(Duration::from_secs(11)));
        let told = told(vec![sentinel(2, 30_000), sentinel(2, 30_000)]);
        assert!(told.contains("down-after-milliseconds"), "{told}");
        assert!(told.contains("ttl below 48 s"), "{told}");
    }

    #[test]
    fn what_a_sentinel_objects_to_or_refuses_is_told() {
        let objecting = SentinelFacts {
            objection: Some("1 usable Sentinels".into()),
            is_refusing: true,
            ..sentinel(2, 500)
        };
        let told = told(vec![sentinel(2, 500), objecting]);
        assert!(told.contains("1 usable Sentinels"), "{told}");
        assert!(told.contains("sentinel|ckquorum"), "{told}");
    }
}
