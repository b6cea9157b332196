//! The overview: are we safe, and if not, why.

use super::board::{Board, Choice};
use super::panel::Panel;

pub(super) fn board() -> Board {
    Board {
        uid: "leasehold-overview",
        title: "Leasehold / Overview",
        description: "Leases of a fleet: are they safe, and if not, why. The top row is green while all is well.",
        choices: vec![
            Choice::new("job", "Job", "leasehold_build_info"),
            Choice::new(
                "instance",
                "Instance",
                r#"leasehold_build_info{job=~"$job"}"#,
            ),
            Choice::new("group", "Group", r#"leasehold_held_leases{job=~"$job"}"#),
        ],
        rows: vec![
            ("Are we safe?", safety()),
            ("Renewals", renewals()),
            ("Acquiring and holding", acquiring()),
            ("Losses and fences", losses()),
            ("Watchdog and processes", watchdog()),
            (
                "Single leases (only with `names_in_metrics`)",
                single_leases(),
            ),
        ],
    }
}

fn safety() -> Vec<Panel> {
    vec![
        Panel::stat(
            "Leases held",
            "short",
            "Leases that the chosen processes hold now. Good: as many as your services and jobs should hold. \
             If not: with too few, look at the losses, and at who waits; the store may refuse or be away.",
        )
        .query("held", "sum(leasehold_held_leases{<group>})"),
        Panel::stat(
            "Leases lost",
            "short",
            "Leases lost in this time range because a renewal was refused or not confirmed in time. Good: 0. \
             If not: the losses by reason are below, and the runbook has an entry for each.",
        )
        .query(
            "lost",
            r#"sum(increase(leasehold_leases_lost_total{<group>, reason=~"refused|deadline|watchdog_died"}[$__range]))"#,
        )
        .steps(&[(0.5, "red")]),
        Panel::stat(
            "Margin p05",
            "percentunit",
            "The share of the ttl that was left when the slowest twentieth of renewals was confirmed. Good: 60 % to 66 %. \
             If not: the store answers late, or processes are starved of CPU; at 0 % leases are lost.",
        )
        .quantiles(&[("p05", 0.05)], "leasehold_renewal_margin_ratio{<group>}", "")
        .from("red")
        .steps(&[(0.33, "orange"), (0.5, "green")]),
        Panel::stat(
            "Leases at risk",
            "short",
            "Held leases that were not renewed for two thirds of their ttl. Good: 0. \
             If not: they are lost within the last third unless the store answers; look at the store board.",
        )
        .query("at risk", "sum(leasehold_at_risk_leases{<group>})")
        .steps(&[(1.0, "orange")]),
        Panel::stat(
            "Writes refused",
            "short",
            "Writes in this time range that came with the pass of an overtaken holder, or of another name. Good: 0. \
             If not: the storage is safe, but a writer was paused and did not know that it had lost its lease.",
        )
        .query(
            "refused",
            r#"sum(increase(leasehold_fence_checks_total{<process>, outcome=~"stale|conflict"}[$__range]))"#,
        )
        .steps(&[(0.5, "orange")]),
        Panel::stat(
            "Watchdog overdue",
            "s",
            "How long ago the most delayed watchdog should have woken. Good: 0. \
             If not: that process is stopped or starved, and loses its leases at their deadlines.",
        )
        .query(
            "overdue",
            "max(leasehold_watchdog_overdue_seconds{<process>})",
        )
        .steps(&[(1.0, "orange"), (5.0, "red")]),
    ]
}

fn renewals() -> Vec<Panel> {
    vec![
        Panel::lines(
            "Renewals",
            "ops",
            "Renewals of leases by outcome. Good: all are renewed, at three a ttl for each held lease. \
             If not: `unknown` got no answer and is tried again until the deadline; `refused` is a loss.",
        )
        .query(
            "{{outcome}}",
            "sum by (outcome) (rate(leasehold_renewals_total{<group>}[$__rate_interval]))",
        ),
        Panel::lines(
            "Renewal duration",
            "s",
            "From the send of a batch of renewals to its answer. Good: far below a third of the ttl. \
             If not: the store is slow or far away; compare with the store board.",
        )
        .quantiles(
            &[("p50", 0.5), ("p95", 0.95), ("p99", 0.99)],
            "leasehold_renewal_duration_seconds{<group>}",
            "",
        ),
        Panel::heatmap(
            "Renewal margin",
            "percentunit",
            "The least share of the ttl that was left in each batch when it was renewed. Good: one band at 60 % to 66 %. \
             If not: what is below the band was renewed late; what is near 0 % was nearly lost.",
        )
        .query(
            "{{le}}",
            "sum by (le) (increase(leasehold_renewal_margin_ratio_bucket{<group>}[$__rate_interval]))",
        ),
        Panel::lines(
            "Failed renewals in a row",
            "short",
            "Renewals in a row without an answer, of the worst held lease of each instance. Good: 0. \
             If not: one instance is cut off from the store; all of them: the store is away.",
        )
        .query(
            "{{instance}}",
            "max by (instance) (leasehold_consecutive_renewal_failures{<group>})",
        ),
        Panel::lines(
            "Time to the soonest deadline",
            "s",
            "Until the first held lease of each group ends if no further renewal succeeds. Good: never below a half of the ttl. \
             If not: renewals fail; at 0 the holder is told and its work is stopped.",
        )
        .query(
            "{{group}}",
            "min by (group) (leasehold_soonest_deadline_timestamp_seconds{<group>}) - time()",
        ),
        Panel::lines(
            "Leases held and at risk",
            "short",
            "Held leases by group, and those of them at risk. Good: held is steady or follows the work; none is at risk. \
             If not: look for the losses of the same moment, and for their reasons.",
        )
        .query("{{group}}", "sum by (group) (leasehold_held_leases{<group>})")
        .query(
            "{{group}} at risk",
            "sum by (group) (leasehold_at_risk_leases{<group>})",
        ),
    ]
}

fn acquiring() -> Vec<Panel> {
    vec![
        Panel::lines(
            "Calls to acquire",
            "ops",
            "Calls to acquire that ended, by outcome. Good: `acquired`, and `held` where a try is enough. \
             If not: `failed` means no answer of the store, `refused` a missing permission or a wrong setting.",
        )
        .query(
            "{{outcome}}",
            "sum by (outcome) (rate(leasehold_acquisitions_total{<group>}[$__rate_interval]))",
        ),
        Panel::lines(
            "Requests behind them",
            "ops",
            "Requests to the store by what caused them. Good: waiting calls are woken by a `notice`. \
             If not: with mostly `timer` notices do not arrive (see the store board); `retry` follows a failure.",
        )
        .query(
            "{{trigger}}",
            "sum by (trigger) (rate(leasehold_acquire_attempts_total{<group>}[$__rate_interval]))",
        ),
        Panel::lines(
            "Wait for a lease",
            "s",
            "From the call to acquire to its success, waiting for other holders included. \
             Good: about as long as the holders before it hold. \
             If not: holders hold for longer than planned, or the lease of one that died has to run out first.",
        )
        .quantiles(
            &[("p50", 0.5), ("p99", 0.99)],
            r#"leasehold_acquire_wait_seconds{<group>, outcome="acquired"}"#,
            "",
        ),
        Panel::lines(
            "Callers that wait",
            "short",
            "Calls to acquire that wait now, by group. Good: it falls again. \
             If not: a holder does not let go; `leasehold top` and `leasehold status NAME` tell which.",
        )
        .query("{{group}}", "sum by (group) (leasehold_waiters{<group>})"),
        Panel::lines(
            "How long leases are held",
            "s",
            "From the grant of a lease to the end of its guard, by how the hold ended. Good: as long as the work takes. \
             If not: work that hangs can be ended by `max_hold` and `progress_within`.",
        )
        .quantiles(
            &[("{{end}} p50", 0.5), ("{{end}} p99", 0.99)],
            "leasehold_hold_duration_seconds{<group>}",
            "end",
        ),
        Panel::lines(
            "Releases",
            "ops",
            "Guards that ended, by outcome. Good: `released`. \
             If not: `already_lost` had lost its lease before; after `unknown` and `dropped` the name may stay taken for \
             one ttl.",
        )
        .query(
            "{{outcome}}",
            "sum by (outcome) (rate(leasehold_releases_total{<group>}[$__rate_interval]))",
        ),
    ]
}

fn losses() -> Vec<Panel> {
    vec![
        Panel::bars(
            "Losses by reason",
            "short",
            "Leases lost while held. Good: none, but for `shutdown` at a deployment. \
             If not: the runbook has an entry for each reason; `refused` is the one that two holders can overlap in.",
        )
        .query(
            "{{reason}}",
            "sum by (reason) (increase(leasehold_leases_lost_total{<group>}[$__rate_interval]))",
        ),
        Panel::lines(
            "Told late",
            "s",
            "How late after its deadline a holder was told, of all losses of the processes that live. \
             Good: below 10 ms, or no loss at all. \
             If not: the process stood still, and only a fence refuses what it did meanwhile.",
        )
        // Not as a rate: of a process's first loss, which is often its only one, a rate shows nothing.
        .query(
            "p50",
            "histogram_quantile(0.5, sum by (le) (leasehold_loss_overrun_seconds_bucket{<group>}))",
        )
        .query(
            "p99",
            "histogram_quantile(0.99, sum by (le) (leasehold_loss_overrun_seconds_bucket{<group>}))",
        )
        .steps(&[(1.0, "red")]),
        Panel::lines(
            "Checks by fences",
            "ops",
            "Passes that guarded storage checked, by outcome. Good: all are admitted. \
             If not: `stale` is a writer that was overtaken, `conflict` one with the pass of another name, `failed` a \
             storage that did not answer.",
        )
        .query(
            "{{fence}} {{outcome}}",
            "sum by (fence, outcome) (rate(leasehold_fence_checks_total{<process>}[$__rate_interval]))",
        ),
        Panel::lines(
            "What a check costs",
            "s",
            "How long the check of a pass takes the writer. Good: about one round trip to the storage. \
             If not: the storage is slow, or a raise waits for a lock there.",
        )
        .quantiles(
            &[("{{fence}} p50", 0.5), ("{{fence}} p99", 0.99)],
            "leasehold_fence_check_duration_seconds{<process>}",
            "fence",
        ),
        Panel::bars(
            "Clock steps and fallen tokens",
            "short",
            "Steps of the clock of the store's server, and grants refused because their token fell. Good: none. \
             If not: run a time daemon on the server; a token that fell means that the store lost its record of tokens.",
        )
        .query(
            "clock {{kind}}",
            "sum by (kind) (increase(leasehold_clock_jumps_total{<process>}[$__rate_interval]))",
        )
        .query(
            "token fell",
            "sum(increase(leasehold_tokens_fallen_total{<process>}[$__rate_interval]))",
        ),
    ]
}

fn watchdog() -> Vec<Panel> {
    vec![
        Panel::lines(
            "Watchdog late",
            "s",
            "How much later than planned watchdogs woke. Good: a few milliseconds. \
             If not: the machine has too little CPU for its processes, or was suspended.",
        )
        .quantiles(
            &[("p50", 0.5), ("p99", 0.99)],
            "leasehold_watchdog_lag_seconds{<process>}",
            "",
        )
        .query(
            "overdue now",
            "max(leasehold_watchdog_overdue_seconds{<process>})",
        ),
        Panel::lines(
            "Leases in a batch",
            "short",
            "Leases that one round trip renews. Good: it grows with the number of held leases, up to 256. \
             If not: nothing is wrong; small batches cost more round trips.",
        )
        .quantiles(
            &[("p50", 0.5), ("p95", 0.95)],
            "leasehold_watchdog_batch_size{<process>}",
            "",
        ),
        Panel::lines(
            "Renewals due and not sent",
            "short",
            "The backlog of the watchdogs. Good: near 0. \
             If not: batches wait for slow answers of the store; look at the renewal duration.",
        )
        .query(
            "{{instance}}",
            "max by (instance) (leasehold_watchdog_backlog{<process>})",
        ),
        Panel::bars(
            "What could not be shown",
            "short",
            "Log lines and samples that were dropped, and groups and names beyond their limit. Good: none. \
             If not: the log or the recorder is slow, or there are more than 50 groups. Counters stay exact.",
        )
        .query(
            "dropped events",
            "sum(increase(leasehold_events_dropped_total{<process>}[$__rate_interval]))",
        )
        .query(
            "labels beyond the limit",
            "sum(increase(leasehold_label_overflow_total{<process>}[$__rate_interval]))",
        ),
        Panel::lines(
            "Processes by version",
            "short",
            "Processes that can be scraped, by version and compiled-in stores. Good: as many as you run, of one version. \
             If not: a process that is missing has ended, hangs or is cut off; its leases end with their ttl.",
        )
        .query(
            "{{version}} {{features}}",
            "count by (version, features) (leasehold_build_info{<process>})",
        ),
    ]
}

fn single_leases() -> Vec<Panel> {
    vec![
        Panel::table(
            "Held now",
            "s",
            "The leases with series of their own, their holders, and the time left if no further renewal succeeds. \
             Good: each name once. \
             If not: see LeaseholdTwoHolders in the runbook.",
            &[
                ("name", "Name"),
                ("group", "Group"),
                ("instance", "Holder"),
                ("Value", "Time left"),
            ],
        )
        .query(
            "",
            "(leasehold_lease_deadline_timestamp_seconds{<group>} - time()) and leasehold_lease_held{<group>} == 1",
        ),
        Panel::lines(
            "Holders of each name",
            "short",
            "How many processes report that they hold the name. Good: 0 or 1; 2 for one scrape at a hand-over. \
             If not: see LeaseholdTwoHolders in the runbook.",
        )
        .query("{{name}}", "sum by (name) (leasehold_lease_held{<group>})")
        .steps(&[(1.5, "red")]),
    ]
}
