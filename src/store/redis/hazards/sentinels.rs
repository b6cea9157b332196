//! Finds the hazards of a group that Sentinels watch: whether they can replace the master, and how long that takes.

use std::time::Duration;

use futures_util::future::join_all;

use super::super::failure::{Failure, FailureCause};
use super::super::fleet::Fleet;
use super::super::protocol::reply;
use super::super::target::{SentinelGroup, UrlServers};
use super::{Fields, Judged, OUTLIVED, SLOW_FAILOVER, slow_failover};
use crate::store::Severity::{Unknown, Warning};
use crate::store::kit::budget::Budget;
use crate::store::kit::check::{Check, found, judge};
use crate::store::kit::server_url::HostPort;

/// The facts that one Sentinel reports. `None` is what it refuses to report.
#[derive(Debug, Default)]
struct SentinelFacts {
    /// Why it could not replace the master, in its words.
    objection: Option<String>,
    is_refusing: bool,
    /// Silence after which it takes the master for down.
    down_after: Option<Duration>,
    /// The URL names no other one.
    is_only: bool,
}

/// Asks the Sentinels about the group and judges the answers, where there are Sentinels.
pub(super) async fn find(fleet: &Fleet, budget: Budget) -> Vec<Judged> {
    let UrlServers::Sentinels(group) = &fleet.named else {
        return Vec::new();
    };
    let found = group.endpoints.iter().map(async |endpoint| {
        let hazards = match find_at(fleet, group, endpoint, budget).await {
            Ok(facts) => judge(CHECKS, &facts),
            Err(failure) => judge(&[SILENT], &failure),
        };
        (endpoint.to_string(), hazards)
    });
    join_all(found).await
}

async fn find_at(
    fleet: &Fleet,
    group: &SentinelGroup,
    endpoint: &HostPort,
    budget: Budget,
) -> Result<SentinelFacts, Failure> {
    let (sentinel, name) = (fleet.sentinel(group, endpoint)?, group.name.as_str());
    let commands: [&[&str]; 2] = [
        &["SENTINEL", "CKQUORUM", name],
        &["SENTINEL", "MASTER", name],
    ];
    let [vote, master] = sentinel.ask_each(commands, budget).await?;
    let mut facts = SentinelFacts {
        is_only: group.endpoints.iter().all(|other| other == endpoint),
        ..SentinelFacts::default()
    };
    match vote.map_err(|failure| failure.cause) {
        Ok(_) => {}
        Err(FailureCause::Refused { code, text }) if code == "NOQUORUM" => {
            facts.objection = Some(text);
        }
        Err(_) => facts.is_refusing = true,
    }
    if let Ok(master) = master {
        let fields: Fields = reply::parsed(&master)?;
        let ms = fields.get("down-after-milliseconds");
        let ms = ms.and_then(|ms| ms.parse().ok());
        facts.down_after = ms.map(Duration::from_millis);
    }
    Ok(facts)
}

/// A Sentinel that did not answer, and why.
const SILENT: Check<Failure> = Check::new(
    Warning,
    "redis-sentinel-down",
    |failure| {
        found(
            true,
            format!("a Sentinel does not answer: {}", failure.cause),
        )
    },
    "without most of the Sentinels no server takes over when the master fails",
    "Start it, or take it out of the URL",
);

/// The faults in the set-up of a group that weaken the promises.
const CHECKS: &[Check<SentinelFacts>] = &[
    Check::new(
        Warning,
        "redis-no-failover",
        |sentinel| {
            let objection = sentinel.objection.as_ref()?;
            found(true, format!("a Sentinel says: {objection}"))
        },
        "no server takes over when the master fails",
        "Start the missing Sentinels, or correct the last number of `sentinel monitor`",
    ),
    Check::new(
        Unknown,
        "redis-sentinel-refused",
        |sentinel| found(sentinel.is_refusing, "a Sentinel refuses CKQUORUM"),
        "whether the Sentinels are enough to replace the master cannot be checked",
        "Grant `+sentinel|ckquorum`, or check by hand",
    ),
    Check::new(
        Warning,
        SLOW_FAILOVER,
        // The number of Sentinels that must agree that the master is down is a setting, and may be all of them.
        |sentinel| {
            Some(slow_failover(
                sentinel.down_after?,
                "this down-after-milliseconds",
            ))
        },
        OUTLIVED,
        "Lower down-after-milliseconds, or lease for longer",
    ),
    Check::new(
        Warning,
        "redis-one-sentinel",
        |sentinel| found(sentinel.is_only, "the URL names one Sentinel"),
        "if it is down or has missed a failover, no other one says who the master is; if its name stands for all \
         Sentinels, clients that run do not follow them after they were set up anew",
        "Name each Sentinel by an address of its own",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failover_is_told_with_the_ttl_that_outlives_it() {
        for (down_after, least) in [(5, 11), (30, 48)] {
            let facts = SentinelFacts {
                down_after: Some(Duration::from_secs(down_after)),
                ..SentinelFacts::default()
            };
            let [slow] = &judge(CHECKS, &facts)[..] else {
                panic!("of {down_after} s");
            };
            assert_eq!(slow.below_ttl, Some(Duration::from_secs(least)));
            let told = slow.to_string();
            assert!(told.contains("down-after-milliseconds"), "{told}");
            assert!(told.contains(&format!("ttl below {least} s")), "{told}");
        }
    }

    #[test]
    fn what_a_sentinel_objects_to_or_refuses_is_told() {
        let objecting = SentinelFacts {
            objection: Some("1 usable Sentinels".into()),
            is_refusing: true,
            ..SentinelFacts::default()
        };
        let told = judge(CHECKS, &objecting).into_iter();
        let told: String = told.map(|hazard| hazard.to_string()).collect();
        assert!(told.contains("1 usable Sentinels"), "{told}");
        assert!(told.contains("sentinel|ckquorum"), "{told}");
    }
}
