//! The store as its clients see it, and as a whole.

use super::board::{Board, Choice};
use super::panel::Panel;

pub(super) fn board() -> Board {
    Board {
        uid: "leasehold-store",
        title: "Leasehold / Store",
        description: "The store as the fleet sees it: connections, calls, failures and notices. \
                      The last row needs `leasehold export`.",
        choices: vec![
            Choice::new("job", "Job", "leasehold_build_info"),
            Choice::new(
                "instance",
                "Instance",
                r#"leasehold_build_info{job=~"$job"}"#,
            ),
            Choice::new(
                "store",
                "Store",
                r#"leasehold_store_errors_total{job=~"$job"}"#,
            ),
        ],
        rows: vec![
            ("Is it there?", presence()),
            ("Calls", calls()),
            ("Connections and notices", connections()),
            ("A quorum of servers", quorum()),
            ("The whole store (from `leasehold export`)", whole()),
        ],
    }
}

fn presence() -> Vec<Panel> {
    vec![
        Panel::stat(
            "Connected",
            "percentunit",
            "The share of processes whose connection for requests is up. Good: 100 %. \
             If not: a process is cut off; at 0 % the store is away.",
        )
        .query(
            "connected",
            r#"avg(leasehold_store_connected{<store>, lane="requests"})"#,
        )
        .from("red")
        .steps(&[(0.5, "orange"), (1.0, "green")]),
        Panel::stat(
            "Calls that fail",
            "percentunit",
            "The share of calls to the store that fail. Good: 0 %. \
             If not: the kinds of the errors are below.",
        )
        .query(
            "failing",
            "sum(rate(leasehold_store_errors_total{<store>}[$__rate_interval])) \
             / sum(rate(leasehold_store_request_duration_seconds_count{<store>}[$__rate_interval]))",
        )
        .steps(&[(0.01, "orange"), (0.5, "red")]),
        Panel::stat(
            "Calls",
            "reqps",
            "Calls to the store. Good: steady, and about three a ttl for each held lease plus the acquiring. \
             If not: with 0 no process uses the store.",
        )
        .query(
            "calls",
            "sum(rate(leasehold_store_request_duration_seconds_count{<store>}[$__rate_interval]))",
        ),
        Panel::stat(
            "Call p99",
            "s",
            "How long the slowest hundredth of calls takes. Good: a few round trips. \
             If not: the server or the network is slow; leases need an answer within two thirds of their ttl.",
        )
        .quantiles(
            &[("p99", 0.99)],
            "leasehold_store_request_duration_seconds{<store>}",
            "",
        )
        .steps(&[(0.1, "orange"), (1.0, "red")]),
        Panel::stat(
            "Hazards",
            "short",
            "What in the set-up of the store weakens the promises, as `leasehold export` counts it. Good: 0. \
             If not: `leasehold doctor` names each hazard, what it endangers, and how to fix it.",
        )
        .query("hazards", "max(leasehold_store_hazards{<store>})")
        .steps(&[(1.0, "orange")]),
        Panel::stat(
            "Clock offset",
            "s",
            "How far the clock of the store's server is ahead of the exporter's machine. Good: below 100 ms. \
             If not: run a time daemon on both; tokens follow this clock where the store lost its record.",
        )
        .query(
            "ahead",
            "max(leasehold_store_clock_offset_seconds{<store>})",
        ),
    ]
}

fn calls() -> Vec<Panel> {
    vec![
        Panel::lines(
            "Calls by operation",
            "reqps",
            "Calls to the store by operation. Good: `renew` follows the number of held leases. \
             If not: many `acquire` calls without grants are callers that look again by time, without notices.",
        )
        .query(
            "{{op}}",
            "sum by (op) (rate(leasehold_store_request_duration_seconds_count{<store>}[$__rate_interval]))",
        ),
        Panel::lines(
            "Duration of a call",
            "s",
            "One call to the store by operation, from its begin to its answer or failure. Good: about a round trip. \
             If not: at the request time-out (2 s, or a sixth of the ttl) the connection is given up and made anew.",
        )
        .quantiles(
            &[("{{op}} p50", 0.5), ("{{op}} p99", 0.99)],
            "leasehold_store_request_duration_seconds{<store>}",
            "op",
        ),
        Panel::lines(
            "Failed calls",
            "reqps",
            "Calls to the store that failed, by operation and kind. Good: none. \
             If not: `unavailable` and `timed_out` are the server or the network, `denied` a permission, `misconfigured` \
             the set-up: ask `leasehold doctor`.",
        )
        .query(
            "all",
            "sum(rate(leasehold_store_errors_total{<store>}[$__rate_interval]))",
        )
        .query(
            "{{op}} {{kind}}",
            "sum by (op, kind) (rate(leasehold_store_errors_total{<store>}[$__rate_interval])) > 0",
        ),
    ]
}

fn connections() -> Vec<Panel> {
    vec![
        Panel::lines(
            "Connections up",
            "percentunit",
            "The share of processes whose connections are up, by what they are for. Good: 100 %. \
             If not: without `requests` nothing is granted, without `notices` waiting calls look again by time only. \
             A `watchdog` connection that was lost is made anew when the next renewal is due.",
        )
        .query(
            "{{lane}}",
            "avg by (lane) (leasehold_store_connected{<store>})",
        ),
        Panel::bars(
            "Reconnects",
            "short",
            "Connections that were made anew, by what they are for. Good: none, but for a restart of the server. \
             If not: a firewall or proxy cuts connections, or the server ends them.",
        )
        .query(
            "{{lane}}",
            "sum by (lane) (increase(leasehold_store_reconnects_total{<store>}[$__rate_interval]))",
        ),
        Panel::lines(
            "Replica acknowledgements",
            "ops",
            "Grants and batches of renewals that waited for replicas (`acknowledged_by` of Redis), by whether enough of them \
             had it in time. Good: `acknowledged` only; without that setting both are 0. \
             If not: with `missing` a replica is gone or slow, and without it nothing is granted.",
        )
        .query(
            "{{outcome}}",
            "sum by (outcome) (rate(leasehold_replica_acks_total{<store>}[$__rate_interval]))",
        ),
        Panel::lines(
            "Notices",
            "ops",
            "Notices of freed names and of turns, by what became of them. Good: `delivered`; `unwanted` came when no call \
             waited. \
             If not: `missed` counts times without a subscription, after which all waiting calls look again.",
        )
        .query(
            "{{outcome}}",
            "sum by (outcome) (rate(leasehold_notices_total{<store>}[$__rate_interval]))",
        ),
    ]
}

fn quorum() -> Vec<Panel> {
    vec![
        Panel::lines(
            "Rounds per claim",
            "short",
            "Rounds of requests to all members of a quorum that a claim takes on average; 0 without a quorum. \
             Good: near 1. \
             If not: many clients claim the same name at once, or a member has just come back without its data.",
        )
        .query(
            "rounds",
            "(sum(rate(leasehold_quorum_rounds_sum{<store>}[$__rate_interval])) \
             / sum(rate(leasehold_quorum_rounds_count{<store>}[$__rate_interval]))) or vector(0)",
        ),
        Panel::lines(
            "Claims taken back, leases repaired",
            "ops",
            "Tokens that brought no grant and were taken back, and leases that were put back at a member that lacked them; \
             0 without a quorum. Good: 0 but for names that several clients want, and after a member came back. \
             If not: with steady repairs a member loses its keys; `leasehold doctor` examines each.",
        )
        .query(
            "taken back",
            "sum(rate(leasehold_quorum_taken_back_total{<store>}[$__rate_interval])) or vector(0)",
        )
        .query(
            "repaired",
            "sum(rate(leasehold_quorum_repairs_total{<store>}[$__rate_interval])) or vector(0)",
        ),
    ]
}

fn whole() -> Vec<Panel> {
    vec![
        Panel::lines(
            "Servers",
            "short",
            "The servers of the store as they were last looked at: up, away (it keeps out, or only follows) or down. \
             Good: all `up`, but for standbys, which are `away`. \
             If not: `leasehold status --members` names them. A quorum grants as long as more than half are `up`.",
        )
        .query(
            "{{store}} {{state}}",
            "max by (store, state) (leasehold_store_members{<store>})",
        ),
        Panel::lines(
            "Keep-out",
            "s",
            "How long until the last server that keeps out takes claims again. Good: 0. \
             If not: a server came back without its data, or was promoted; it is back by itself after this time.",
        )
        .query(
            "{{store}}",
            "max by (store) (leasehold_store_keep_out_seconds{<store>})",
        ),
        Panel::lines(
            "Leases and waiting clients",
            "short",
            "Leases in the store, and clients in its queues, of all clients whether they are scraped or not. \
             Good: the leases of the overview and those of jobs. \
             If not: more leases than known belong to processes that are not scraped; `leasehold status` lists them.",
        )
        .query(
            "{{store}} leases",
            "max by (store) (leasehold_store_leases{<store>})",
        )
        .query(
            "{{store}} waiting",
            "max by (store) (leasehold_store_waiters{<store>})",
        ),
        Panel::lines(
            "Age of the oldest lease",
            "s",
            "How long the lease that is held for longest has been held. Good: as long as your longest work runs. \
             If not: its holder hangs and renews; `leasehold top` sorts by age, and `leasehold evict` ends it.",
        )
        .query(
            "{{store}}",
            "time() - min by (store) (leasehold_store_oldest_lease_timestamp_seconds{<store>})",
        ),
        Panel::lines(
            "Clock and hazards",
            "short",
            "The server's clock against the exporter's in seconds, and the number of hazards. Good: both near 0. \
             If not: `leasehold doctor` names what is wrong and how to fix it.",
        )
        .query(
            "{{store}} clock ahead by",
            "max by (store) (leasehold_store_clock_offset_seconds{<store>})",
        )
        .query(
            "{{store}} hazards",
            "max by (store) (leasehold_store_hazards{<store>})",
        ),
    ]
}
