//! Two tools on one name: the first has a job that heeds nothing, the second waits while the first meets its fate.

use std::fs;
use std::time::Duration;

use leasehold::clock::Instant;
use serde_json::Value;

use super::super::{LOOK_FOR_RIVALS, Process, STUBBORN_FAMILY, wait_until};
use super::{Site, group_gone_at};

/// A job that is killed soon after it was asked to end. A killed group has 0.2 s to end and the margin is 0.1 s; a
/// shorter ttl leaves less than it takes to end and to see it where many more processes than processors want to run.
const OPTIONS: [&str; 4] = ["--ttl", "4s", "--kill-after", "300ms"];

/// The two, with the first one's job at work.
pub(super) struct Contest {
    pub(super) site: Site,
    pub(super) first: Process,
    second: Process,
    token: u64,
    leader: u64,
}

impl Contest {
    pub(super) fn begin(site: Site) -> Self {
        let url = site.server.url();
        Self::begin_on(site, &url)
    }

    /// The first tool reaches the server by this address.
    pub(super) fn begin_on(site: Site, url: &str) -> Self {
        let script = format!(
            "echo $LEASEHOLD_TOKEN > first; echo $LEASEHOLD_STATUS_FILE > path; {STUBBORN_FAMILY}"
        );
        let first = site.run_on(url, &OPTIONS, &script);
        let token = site.sandbox.numbers("first")[0];
        let leader = site.sandbox.numbers("pids")[0];
        let second = site.run(&OPTIONS, LOOK_FOR_RIVALS);
        second.wait_to_say("waiting for");
        Self {
            site,
            first,
            second,
            token,
            leader,
        }
    }

    /// As [`Site::next_renewal`], but returns when the first tool knows of it, and with that its guardian: the job then
    /// lives for as long as it ever may.
    pub(super) async fn next_renewal(&self) -> Instant {
        let grantable = self.site.next_renewal().await;
        // The renewal before is longer ago than that.
        let renewed = grantable.before(Duration::from_millis(300));
        let path = self.site.sandbox.mark("path");
        wait_until("the tool's knowledge of a renewal", || {
            let text = fs::read(&path).expect("there while the job runs");
            let status: Value = serde_json::from_slice(&text).expect("replaced as a whole");
            let deadline = status["deadline_ms"].as_u64().expect("a number");
            Instant::from_nanos(deadline * 1_000_000) > renewed
        });
        grantable
    }

    /// Waits for the first job's end.
    pub(super) fn first_job_gone(&self) -> Instant {
        group_gone_at(self.leader)
    }

    /// The first job was gone then, before the server could grant the name anew and before it did; the second job found
    /// nobody of the first, has a greater token, and nothing is left behind that does not run out.
    pub(super) async fn assert_handed_over(&mut self, gone: Instant, grantable: Instant) {
        let ended = self.second.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let rivals = self.site.sandbox.mark("rivals");
        assert_eq!(rivals.matches("gone").count(), 2, "{rivals}");
        assert!(!rivals.contains("alive"), "{rivals}");

        let token = self.site.sandbox.numbers("second")[0];
        assert!(token > self.token, "{token} after {}", self.token);
        let granted = self.site.granted_at(token).await;
        for (what, moment) in [("could be granted", grantable), ("was granted", granted)] {
            let (late, early) = (gone.since(moment), moment.since(gone));
            assert!(gone < moment, "alive {late:?} after its name {what}");
            eprintln!("the job was gone {early:?} before its name {what}");
        }
        self.site.server.assert_all_keys_run_out().await;
    }

    /// The first tool says that it lost its lease.
    pub(super) fn assert_first_lost(&mut self) {
        let ended = self.first.end();
        assert_eq!(ended.code, Some(79), "{ended:?}");
    }
}

/// What a busy machine may add.
pub(super) const SLACK: Duration = Duration::from_millis(500);
