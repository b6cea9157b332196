//! Seeded schedules of KILL, STOP, CONT and TERM to the tool, its guardian, its warden and the job, with a rival that
//! looks.
//!
//! As long as one of the three runs, no process of the job lives when the rival begins.

use std::fmt;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::boundary::{LOOK, killed, program};
use super::{Sandbox, children, numbered, sleep, wait_until};

/// Its work is in the command's group, in a group of its own, and orphaned. What is in another session may outlive the
/// command, which a schedule can end.
const JOB: &str = "./work & timeout 60 ./work & (./work &); wait; sleep 20";

/// Ignores TERM, and works for 20 s.
const WORK: &str = "#!/bin/sh
trap '' TERM
echo $$ >> pids
for i in 1 2 3 4 5 6 7 8 9 10; do sleep 2; done
";

/// To whom a signal of a schedule goes: the first three are those that end the job.
const TARGETS: [&str; 4] = ["tool", "warden", "guardian", "job"];

/// What was found in some schedules.
#[derive(Debug, Default)]
struct Found {
    schedules: u64,
    /// Those that granted the name to the rival: in the others the job goes on, or is stopped.
    granted: u64,
    /// Those in which none of the three ran at some moment.
    all_out: u64,
    /// Processes that the rival found in these.
    alive_while_out: usize,
    /// What was found in the others, with their seeds.
    wrong: Vec<String>,
}

/// A signal, and the pause before it.
struct Step {
    after: Duration,
    target: usize,
    signal: Signal,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (after, target) = (self.after, TARGETS[self.target]);
        write!(f, "{after:?} {:?} {target}", self.signal)
    }
}

/// Draws a schedule.
fn schedule(random: &mut fastrand::Rng) -> Vec<Step> {
    let steps = (0..random.usize(1..=6)).map(|_| Step {
        after: Duration::from_millis(random.u64(0..300)),
        target: random.usize(0..TARGETS.len()),
        signal: match random.u32(0..10) {
            0..4 => Signal::KILL,
            4..7 => Signal::STOP,
            7..9 => Signal::CONT,
            _ => Signal::TERM,
        },
    });
    steps.collect()
}

/// Runs one schedule. Returns whether all three were out at once, how many processes lived when the rival began, if it
/// did, and the steps.
fn play(seed: u64) -> (bool, Option<usize>, String) {
    let mut random = fastrand::Rng::with_seed(seed);
    let sandbox = Sandbox::new();
    program(&sandbox, "work", WORK);
    let tool = sandbox.run(&["--ttl", "2s", "--kill-after", "300ms"], JOB);
    wait_until("three processes", || {
        fs::read_to_string(sandbox.path("pids")).is_ok_and(|pids| pids.lines().count() == 3)
    });
    let warden = tool.warden();
    let guardian = children(warden)[0];
    let targets = [
        Pid::from_child(&tool.child),
        warden,
        guardian,
        children(guardian)[0],
    ];
    let steps = schedule(&mut random);
    let mut is_stopped = [false; TARGETS.len()];
    let mut is_killed = [false; TARGETS.len()];
    let mut were_all_out = false;
    for Step {
        after,
        target,
        signal,
    } in &steps
    {
        sleep(*after);
        let _ = kill_process(targets[*target], *signal);
        match *signal {
            Signal::STOP => is_stopped[*target] = true,
            Signal::CONT => is_stopped[*target] = false,
            // Who was killed does not come back, though this test, its parent, has not reaped it.
            Signal::KILL => is_killed[*target] = true,
            _ => {}
        }
        were_all_out |= (0..3).all(|target| is_stopped[target] || is_killed[target]);
    }
    let ended = sandbox.run(&["-w", "5s"], LOOK).end();
    let rivals = fs::read_to_string(sandbox.path("rivals")).unwrap_or_default();
    killed(&targets);
    for pid in sandbox.numbers("pids") {
        killed(&[numbered(pid)]);
    }
    let steps: Vec<_> = steps.iter().map(Step::to_string).collect();
    let said = format!("{}; {ended:?}; {}", steps.join(", "), tool.said());
    // A tool that is stopped within a transaction keeps the file to itself, and the rival cannot open it.
    let is_kept = is_stopped[0]
        && !is_killed[0]
        && ended.code == Some(69)
        && ended.stderr.contains("another process keeps the file busy");
    assert!(
        is_kept || matches!(ended.code, Some(0 | 75)),
        "seed {seed}: {said}"
    );
    let rivals = sandbox.has("rivals").then_some(rivals);
    (
        were_all_out,
        rivals.map(|rivals| rivals.lines().count()),
        said,
    )
}

/// Runs so many schedules, some at a time.
pub(crate) fn play_at_random(count: u64) {
    const AT_ONCE: usize = 6;
    let first = std::env::var("LEASEHOLD_TEST_SEED").ok();
    let first = first.map_or_else(
        || fastrand::u64(..1 << 32),
        |seed| seed.parse().expect("a number"),
    );
    println!("LEASEHOLD_TEST_SEED={first}");
    let next = AtomicU64::new(first);
    let found = Mutex::new(Found::default());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let (were_all_out, alive, said) = play(seed);
                    let mut found = found.lock().expect("whole");
                    found.schedules += 1;
                    found.granted += u64::from(alive.is_some());
                    let alive = alive.unwrap_or_default();
                    if were_all_out {
                        found.all_out += 1;
                        found.alive_while_out += alive;
                    } else if alive > 0 {
                        found
                            .wrong
                            .push(format!("seed {seed}: {alive} alive: {said}"));
                    }
                }
            });
        }
    });
    let found = found.into_inner().expect("whole");
    println!("{found:#?}");
    assert_eq!(found.schedules, count);
    assert!(found.wrong.is_empty(), "{found:#?}");
}

#[test]
fn while_one_of_the_three_runs_no_rival_finds_a_process_of_the_job() {
    play_at_random(100);
}
