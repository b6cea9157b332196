//! The tool on a real server, under all that servers, networks and operators do to it.
//!
//! That a job has ended before its lease could be another's is measured on both sides and on one clock: when the last
//! process of the job's group was gone, never seen too early, against when the server could grant the name anew, never
//! taken for later than it was.

mod commands;
mod contest;
mod exclusion;
mod first_contact;
mod outages;
mod rivals;
mod turns;

use std::process::Command;
use std::time::Duration;

use deadpool_redis::redis;
use leasehold::clock::Instant;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process_group};

use super::{Process, Sandbox};
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::wait::{now, until};

/// The lease of the name `x`.
const KEY: &str = "leasehold:{x}";

/// A folder for the marks of jobs, and the server that their leases are kept on.
struct Site {
    sandbox: Sandbox,
    server: RedisServer,
}

impl Site {
    async fn start() -> Self {
        Self::on(Setup::default()).await
    }

    async fn on(setup: Setup) -> Self {
        Self {
            sandbox: Sandbox::new(),
            server: setup.start().await,
        }
    }

    /// The tool with these arguments, on this store.
    fn tool_on(&self, url: &str, arguments: &[&str]) -> Command {
        let mut command = self.sandbox.tool(arguments);
        command.env("LEASEHOLD_STORE", url);
        command
    }

    fn tool(&self, arguments: &[&str]) -> Command {
        self.tool_on(&self.server.url(), arguments)
    }

    /// Starts `leasehold run` of this script under the name `x`, on this store.
    fn run_on(&self, url: &str, options: &[&str], script: &str) -> Process {
        let mut arguments = vec!["run"];
        arguments.extend(options);
        arguments.extend(["x", "--", "sh", "-c", script]);
        self.sandbox.start(self.tool_on(url, &arguments))
    }

    fn run(&self, options: &[&str], script: &str) -> Process {
        self.run_on(&self.server.url(), options, script)
    }

    /// Waits for the server to carry out the next renewal. Gives back the moment before which the server, unless it is
    /// asked to renew once more, cannot grant the name to anybody.
    async fn next_renewal(&self) -> Instant {
        let mut connection = self.server.connect().await.expect("it is up");
        let mut last = i64::MAX;
        until("a renewal", async || {
            let asked = now();
            let left: Result<i64, _> = redis::cmd("PTTL")
                .arg(KEY)
                .query_async(&mut connection)
                .await;
            let left = match left {
                Ok(left) => left,
                // A server with a short limit for scripts is busy with ours when the machine is slow.
                Err(error) if error.code() == Some("BUSY") => return None,
                Err(error) => panic!("PTTL is not answered: {error}"),
            };
            let is_renewed = left > last;
            last = left;
            // Less the millisecond that is cut off from the server's time.
            let left = Duration::from_millis(u64::try_from(left - 1).unwrap_or(0));
            is_renewed.then(|| asked.after(left))
        })
        .await
    }

    /// When the server granted this token, or a little earlier. A token is the server's own clock in microseconds where
    /// no floor and no counter ahead of that clock lifted it.
    async fn granted_at(&self, token: u64) -> Instant {
        let mut connection = self.server.connect().await.expect("it is up");
        let mut latest = Instant::ZERO;
        // The best of a few, since each is too early by as long as its request was under way.
        for _ in 0..20 {
            let asked = now();
            let (seconds, micros): (u64, u64) = redis::cmd("TIME")
                .query_async(&mut connection)
                .await
                .expect("TIME is answered");
            let since = seconds * 1_000_000 + micros - token;
            latest = latest.max(asked.before(Duration::from_micros(since)));
        }
        latest
    }
}

/// Waits until nothing is left of a job, whose command has this pid, and returns the last moment at which something of
/// it was there. A busy machine may be late to find that it has gone, but not early.
fn group_gone_at(leader: u64) -> Instant {
    let leader = i32::try_from(leader).ok().and_then(Pid::from_raw);
    let leader = leader.expect("a pid");
    let mut last = Instant::ZERO;
    super::wait_until("the job's end", || {
        let moment = now();
        let is_gone = test_kill_process_group(leader) == Err(Errno::SRCH);
        if !is_gone {
            last = moment;
        }
        is_gone
    });
    last
}
