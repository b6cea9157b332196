//! The jobs of `leasehold run`.

use super::board::{Board, Choice};
use super::panel::Panel;

pub(super) fn board() -> Board {
    Board {
        uid: "leasehold-jobs",
        title: "Leasehold / Jobs",
        description: "Jobs of `leasehold run`: from `--metrics-file` by way of the textfile collector, or from `--metrics`.",
        choices: vec![
            Choice::new("job", "Job", "leasehold_run_exits_total"),
            Choice::new(
                "instance",
                "Instance",
                r#"leasehold_run_exits_total{job=~"$job"}"#,
            ),
            Choice::new(
                "group",
                "Group",
                r#"leasehold_run_exits_total{job=~"$job"}"#,
            ),
            Choice::new(
                "name",
                "Name",
                r#"leasehold_run_exits_total{job=~"$job", group=~"$group"}"#,
            ),
        ],
        rows: vec![("Do the jobs succeed?", success()), ("Runs", runs())],
    }
}

fn success() -> Vec<Panel> {
    vec![
        Panel::stat(
            "Running",
            "short",
            "Jobs that run now. Good: what should run at this hour. \
             If not: `leasehold status NAME` tells who holds the name, and since when.",
        )
        .query("running", "sum(leasehold_run_in_progress{<name>})"),
        Panel::stat(
            "Succeeded",
            "short",
            "Runs in this time range that ended well. Good: as many as were planned. \
             If not: a run that found its name held is counted as `held`, below.",
        )
        .query(
            "succeeded",
            r#"sum(increase(leasehold_run_exits_total{<name>, reason="success"}[$__range]))"#,
        ),
        Panel::stat(
            "Failed",
            "short",
            "Runs in this time range that ended by a failure, a signal or a time limit. Good: 0. \
             If not: the job's own output tells why; leasehold only passes its exit code on.",
        )
        .query(
            "failed",
            r#"sum(increase(leasehold_run_exits_total{<name>, reason=~"failure|signal|time_limit"}[$__range]))"#,
        )
        .steps(&[(0.5, "red")]),
        Panel::stat(
            "Lease lost",
            "short",
            "Runs in this time range that lost their lease, or could not use the store. Good: 0. \
             If not: look at the store board at that time; the job was ended before another could begin.",
        )
        .query(
            "stopped",
            r#"sum(increase(leasehold_run_exits_total{<name>, reason=~"lost|store"}[$__range]))"#,
        )
        .steps(&[(0.5, "red")]),
        Panel::stat(
            "Skipped",
            "short",
            "Runs in this time range that found their name held, and did not run. Good: one for each machine but one. \
             If not: with none at all, the machines may use different stores.",
        )
        .query(
            "held",
            r#"sum(increase(leasehold_run_exits_total{<name>, reason="held"}[$__range]))"#,
        ),
        Panel::stat(
            "Oldest success",
            "s",
            "How long ago the last success of the job was that has waited longest for one. Good: less than two periods. \
             If not: see LeaseholdJobOverdue in the runbook.",
        )
        .query(
            "ago",
            "max(time() - max by (group, name) (leasehold_run_last_success_timestamp_seconds{<name>}))",
        ),
    ]
}

fn runs() -> Vec<Panel> {
    vec![
        Panel::bars(
            "Ends by reason",
            "short",
            "Runs that ended, by why. Good: `success`, and `held` on the machines that came second. \
             If not: the runbook has an entry for failed jobs, with a line for each reason.",
        )
        .query(
            "{{reason}}",
            "sum by (reason) (increase(leasehold_run_exits_total{<name>}[$__rate_interval]))",
        ),
        Panel::lines(
            "Duration of the last run",
            "s",
            "How long the last run of each job took, from the grant of the lease. \
             Good: steady, and shorter than the period of the job. \
             If not: the next run is skipped or waits; `--max-runtime` ends a run that hangs.",
        )
        .query(
            // The histogram is that of one process, which runs the job once.
            "{{name}}",
            "max by (name) (leasehold_run_duration_seconds_sum{<name>} / leasehold_run_duration_seconds_count{<name>})",
        ),
        Panel::lines(
            "Running now",
            "short",
            "Jobs that run, by name. Good: never more than one of a name. \
             If not: `--metrics-file` shows it once a minute only, so look at `leasehold status NAME`.",
        )
        .query(
            "{{name}}",
            "sum by (name) (leasehold_run_in_progress{<name>})",
        ),
        Panel::lines(
            "Time since the last success",
            "s",
            "By job, on whichever machine it succeeded. Good: a saw-tooth that is as high as the period of the job. \
             If not: the tooth that goes on rising is a job that fails or does not start.",
        )
        .query(
            "{{name}}",
            "time() - max by (group, name) (leasehold_run_last_success_timestamp_seconds{<name>})",
        ),
        Panel::table(
            "Last success",
            "s",
            "Each job with the time since its last success. Good: less than two periods. \
             If not: see LeaseholdJobOverdue in the runbook.",
            &[("name", "Name"), ("group", "Group"), ("Value", "Succeeded ago")],
        )
        .query(
            "",
            "time() - max by (group, name) (leasehold_run_last_success_timestamp_seconds{<name>})",
        ),
    ]
}
