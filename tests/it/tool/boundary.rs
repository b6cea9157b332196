//! What lives of a job when the next holder begins: each way to leave the command's group, times each way in which a
//! lease ends.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{Process, Sandbox, is_dead, loss, numbered, sleep, wait_until};
use crate::harness::child::stop;

/// Ignores what asks it to end, notes its number, and works for half a minute.
const WORK: &str = "#!/bin/sh
trap '' TERM INT HUP
echo $$ >> pids
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do sleep 2; done
";

/// A job that writes which of the processes in `pids` are alive into `rivals`.
pub(super) const LOOK: &str = r#"for pid in $(cat pids); do
    case $(sed 's/.*) //; s/ .*//' /proc/$pid/stat 2>/dev/null) in ''|Z|X) ;; *) echo alive $pid ;; esac
done > found; mv found rivals"#;

/// A way for the work of a job to leave the command's group, or to stay.
#[derive(Debug)]
struct Way {
    name: &'static str,
    script: &'static str,
    /// Whether the work is in another session, where it stays when the command ends by itself.
    is_away: bool,
}

const WAYS: [Way; 16] = [
    stays("child", "./work & wait"),
    stays("timeout", "timeout 60 ./work; true"),
    stays(
        "timeout --foreground",
        "timeout --foreground 60 ./work; true",
    ),
    stays("set -m", "bash -c 'set -m; ./work & wait'; true"),
    leaves("setsid -w", "setsid -w ./work; true"),
    leaves("setsid", "setsid ./work & sleep 30; true"),
    stays("nohup", "nohup ./work >/dev/null 2>&1 & wait"),
    stays("sudo", "sudo -n ./work; true"),
    // In a session of its own, which it ends itself when it is told to.
    stays("su", "su root -c ./work; true"),
    stays("runuser", "runuser -u nobody -- ./work; true"),
    leaves(
        "script",
        "script -qec ./work /dev/null </dev/null >/dev/null; true",
    ),
    stays("xargs -P", "printf '1\\n2\\n' | xargs -n1 -P2 ./work; true"),
    stays("make", "printf 'all:\\n\\t./work\\n' | make -sf -; true"),
    stays("double fork", "(./work &); sleep 30; true"),
    leaves(
        "daemon",
        "(setsid ./work </dev/null >/dev/null 2>&1 &); sleep 30; true",
    ),
    stays(
        "run in a run",
        concat!(env!("CARGO_BIN_EXE_leasehold"), " run y -- ./work; true"),
    ),
];

const fn stays(name: &'static str, script: &'static str) -> Way {
    Way {
        name,
        script,
        is_away: false,
    }
}

const fn leaves(name: &'static str, script: &'static str) -> Way {
    Way {
        name,
        script,
        is_away: true,
    }
}

/// A way a lease, or a run, ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Eviction,
    StoreSilent,
    ToolKilled,
    GuardianKilled,
    WardenKilled,
    ToolAndGuardianKilled,
    ToolAndWardenKilled,
    GuardianAndWardenKilled,
    ToolAndGuardianStopped,
    GuardianAndWardenStopped,
    Term,
    MaxRuntime,
}

/// The ends of a lease that one test of each run examines.
const USUAL: [Ending; 3] = [
    Ending::Eviction,
    Ending::ToolKilled,
    Ending::ToolAndGuardianKilled,
];

pub(crate) const ALL: [Ending; 12] = [
    Ending::Eviction,
    Ending::StoreSilent,
    Ending::ToolKilled,
    Ending::GuardianKilled,
    Ending::WardenKilled,
    Ending::ToolAndGuardianKilled,
    Ending::ToolAndWardenKilled,
    Ending::GuardianAndWardenKilled,
    Ending::ToolAndGuardianStopped,
    Ending::GuardianAndWardenStopped,
    Ending::Term,
    Ending::MaxRuntime,
];

impl Ending {
    /// Whether what is in another session stays: the lease was held when the job ended.
    const fn spares_sessions(self) -> bool {
        matches!(self, Self::Term | Self::MaxRuntime)
    }

    /// Ends the lease of this run.
    fn happen(self, sandbox: &Sandbox, run: &mut Process) {
        let (tool, warden) = (Pid::from_child(&run.child), run.warden());
        let guardian = run.guardian();
        match self {
            Self::Eviction => {
                let ended = sandbox.start(sandbox.tool(&["evict", "x"])).end();
                assert_eq!(ended.code, Some(0), "{ended:?}");
            }
            // Longer than its ttl.
            Self::StoreSilent => loss::block_store(sandbox, || sleep(Duration::from_millis(2_500))),
            Self::ToolKilled => killed(&[tool]),
            Self::GuardianKilled => killed(&[guardian]),
            // Then nothing ends; the tool does.
            Self::WardenKilled => {
                killed(&[warden]);
                sleep(Duration::from_millis(200));
                killed(&[tool]);
            }
            Self::ToolAndGuardianKilled => killed(&[tool, guardian]),
            Self::ToolAndWardenKilled => killed(&[tool, warden]),
            Self::GuardianAndWardenKilled => killed(&[warden, guardian]),
            Self::ToolAndGuardianStopped => [tool, guardian].into_iter().for_each(stop),
            Self::GuardianAndWardenStopped => {
                [guardian, warden].into_iter().for_each(stop);
                // While the lease is held a guardian that stands still is no fault.
                loss::block_store(sandbox, || sleep(Duration::from_millis(2_500)));
            }
            Self::Term => run.signal(Signal::TERM),
            Self::MaxRuntime => {}
        }
    }
}

pub(super) fn killed(pids: &[Pid]) {
    for pid in pids {
        // One may have ended by the end of another.
        let _ = kill_process(*pid, Signal::KILL);
    }
}

/// Makes a program of this script, and the file for its process number. Other users may run and write them.
pub(super) fn program(sandbox: &Sandbox, name: &str, script: &str) {
    fs::write(sandbox.path("script"), script).expect("written");
    // By another process, as a descriptor of ours that is open for writing would keep it from being run.
    let install = ["-m", "755", "script", name];
    assert!(
        sandbox
            .program("install", &install)
            .status()
            .expect("run")
            .success()
    );
    fs::write(sandbox.path("pids"), "").expect("written");
    for (file, mode) in [("", 0o755), ("pids", 0o666)] {
        fs::set_permissions(sandbox.path(file), fs::Permissions::from_mode(mode)).expect("set");
    }
}

/// Runs one case. Returns what lives of the work when the next holder begins, and what was said.
fn lives(way: &Way, ending: Ending) -> (usize, String) {
    let sandbox = Sandbox::new();
    program(&sandbox, "work", WORK);
    let mut options = vec!["--ttl", "2s", "--kill-after", "300ms"];
    if ending == Ending::MaxRuntime {
        options.extend(["--max-runtime", "3s"]);
    }
    let mut first = sandbox.run(&options, way.script);
    wait_until(&format!("the work of {way:?}"), || {
        let is_there =
            fs::read_to_string(sandbox.path("pids")).is_ok_and(|pids| pids.ends_with('\n'));
        let ended = first.child.try_wait().expect("our child");
        assert!(ended.is_none(), "{way:?}: {ended:?} {}", first.said());
        is_there
    });
    ending.happen(&sandbox, &mut first);
    let ended = sandbox.run(&["-w", "15s"], LOOK).end();
    assert_eq!(ended.code, Some(0), "{way:?} {ending:?}: {ended:?}");
    let rivals = fs::read_to_string(sandbox.path("rivals")).expect("written");
    for pid in sandbox.numbers("pids") {
        killed(&[numbered(pid)]);
    }
    (rivals.lines().count(), first.said())
}

/// Runs all cases, some at a time, and returns those in which something lives that must not, or the other way round.
pub(crate) fn end_each_way(endings: &[Ending]) {
    const AT_ONCE: usize = 6;
    let cases: Vec<_> = WAYS
        .iter()
        .flat_map(|way| endings.iter().map(move |ending| (way, *ending)))
        .collect();
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((way, ending)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (count, said) = lives(way, *ending);
                    let may_live = way.is_away && ending.spares_sessions();
                    let is_reported = said.contains("outside the session of the job");
                    println!("{:20} {ending:?}: {count} alive", way.name);
                    if (count > 0) != may_live || is_reported != may_live {
                        let line = format!("{} {ending:?}: {count} alive; {said}", way.name);
                        wrong.lock().expect("whole").push(line);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("whole");
    assert!(wrong.is_empty(), "of {}: {wrong:#?}", cases.len());
}

#[test]
fn nothing_of_the_job_lives_when_the_next_holder_begins_however_it_left_its_group() {
    if !crate::sqlite::surroundings::are_allowed() {
        return;
    }
    end_each_way(&USUAL);
}

/// Each link of this chain ignores TERM, lives for some milliseconds, starts the next one, and ends.
const CHAIN: &str = "#!/bin/sh
trap '' TERM
echo link >> links
sleep 0.003
test -e stop || \"$0\" &
";

#[test]
fn a_chain_that_forks_and_exits_every_few_milliseconds_is_ended() {
    let sandbox = Sandbox::new();
    program(&sandbox, "chain", CHAIN);
    for leave in ["", "setsid "] {
        let mut run = sandbox.run(&["--ttl", "3s"], &format!("{leave}./chain; sleep 20"));
        sandbox.mark("links");
        let ended = sandbox.start(sandbox.tool(&["evict", "x"])).end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(run.end().code, Some(79), "{}", run.said());
        let links = || fs::read(sandbox.path("links")).expect("there").len();
        let before = links();
        sleep(Duration::from_millis(100));
        let after = links();
        fs::write(sandbox.path("stop"), "").expect("written");
        assert_eq!(before, after, "{leave}: the chain goes on");
        fs::remove_file(sandbox.path("stop")).expect("removed");
        fs::remove_file(sandbox.path("links")).expect("removed");
        sandbox.start(sandbox.tool(&["wait", "x"])).end();
    }
}

/// Counts the times that it is told to end, until half a second after the first, for five seconds at most.
const COUNTING: &str = "#!/bin/sh
trap 'echo told >> told' TERM
echo up > up
i=0; left=10
while [ $i -lt 100 ] && [ $left -gt 0 ]; do
    sleep 0.05; i=$((i+1)); test ! -e told || left=$((left-1))
done
";

#[test]
fn a_process_of_the_job_is_told_once_to_end() {
    for script in [
        "./work & wait",
        // Its end comes after the work has counted: two signals at once would be one.
        "trap 'sleep 0.3; exit' TERM; ./work & wait",
        "timeout 60 ./work; true",
        "bash -c 'set -m; ./work & wait'; true",
        "setsid -w ./work; true",
        "(./work &); sleep 30; true",
        concat!(env!("CARGO_BIN_EXE_leasehold"), " run y -- ./work; true"),
    ] {
        for by_signal in [false, true] {
            let sandbox = Sandbox::new();
            program(&sandbox, "work", COUNTING);
            let mut run = sandbox.run(&["--ttl", "6s"], script);
            sandbox.mark("up");
            if by_signal {
                run.signal(Signal::TERM);
            } else {
                sandbox.start(sandbox.tool(&["evict", "x"])).end();
            }
            run.end();
            let told = fs::read_to_string(sandbox.path("told")).unwrap_or_default();
            // What left the session is not told of the command's own end.
            let times = usize::from(!(by_signal && script.starts_with("setsid")));
            assert_eq!(
                told.lines().count(),
                times,
                "{script} by_signal={by_signal}"
            );
        }
    }
}

#[test]
fn without_warden_and_guardian_the_tool_ends_the_job_and_spares_its_other_children() {
    let sandbox = Sandbox::new();
    program(&sandbox, "work", WORK);
    let script = "sleep 20 & echo $! > helper; exec $TOOL run x -- sh -c 'setsid -w ./work; true'";
    let mut run = sandbox.start(sandbox.program("sh", &["-c", script]));
    let work = sandbox.numbers("pids")[0];
    let helper = sandbox.numbers("helper")[0];
    let warden = super::children(Pid::from_child(&run.child))[1];
    let guardian = super::children(warden)[0];
    // Otherwise it could end the job in the moment between the two.
    stop(guardian);
    killed(&[warden, guardian]);
    assert_eq!(run.end().code, Some(79), "{}", run.said());
    assert!(is_dead(work), "{}", run.said());
    assert!(!is_dead(helper), "{}", run.said());
    killed(&[numbered(helper)]);
}

#[test]
fn a_run_whose_warden_was_killed_goes_on_and_its_end_is_passed_on() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.run(&["--ttl", "2s"], "echo up > up; sleep 2.5; exit 4");
    sandbox.mark("up");
    killed(&[run.warden()]);
    assert_eq!(run.end().code, Some(4), "{}", run.said());
}

#[test]
fn killall_by_the_tools_name_ends_the_job() {
    let sandbox = Sandbox::new();
    let run = sandbox.run(&["--ttl", "2s"], super::STUBBORN_FAMILY);
    sandbox.mark("pids");
    let name = |pid: Pid| fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_pid()));
    let names = [Pid::from_child(&run.child), run.warden(), run.guardian()];
    let names = names.map(|pid| name(pid).expect("it lives"));
    assert_eq!(
        names.each_ref().map(|name| name == "leasehold\n"),
        [true, false, false]
    );
    assert_ne!(names[1], names[2]);
}

/// Loaded into each process of a run: the first guardian is killed before its command begins.
const KILLED_GUARDIAN: &[u8] = br#"
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void be_killed(int argc, char **argv) {
    if (argc < 2 || strcmp(argv[1], "__guardian")) return;
    int first = open("killed", O_CREAT | O_EXCL, 0600);
    if (first < 0) return;
    kill(getpid(), SIGKILL);
}
"#;

#[test]
fn a_guardian_that_is_killed_before_the_command_begins_is_a_loss_which_again_repeats() {
    let sandbox = Sandbox::new();
    let library = crate::harness::preload::compiled("killed_guardian", KILLED_GUARDIAN);
    let run = |options: &[&str]| {
        let arguments = [
            &["run"],
            options,
            &["x", "--", "sh", "-c", "echo up > started"],
        ];
        let mut command = sandbox.tool(&arguments.concat());
        crate::harness::preload::load(&mut command, &library);
        sandbox.start(command).end()
    };
    let ended = run(&[]);
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(sandbox.has("killed") && !sandbox.has("started"));
    fs::remove_file(sandbox.path("killed")).expect("removed");
    let ended = run(&["--again"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(sandbox.has("killed") && sandbox.has("started"));
}

#[test]
fn a_job_that_the_tool_may_not_signal_is_named_early_and_at_the_end() {
    if !crate::sqlite::surroundings::are_allowed() {
        return;
    }
    let sandbox = Sandbox::new();
    program(&sandbox, "work", WORK);
    // As in an image whose capabilities were dropped but for those to change the user.
    let script = "exec setpriv --bounding-set -kill --inh-caps -kill $TOOL run --ttl 2s --report report.json x -- \
        sh -c 'echo $LEASEHOLD_STATUS_FILE > path; exec setpriv --reuid=nobody ./work'";
    let mut run = sandbox.start(sandbox.program("sh", &["-c", script]));
    let pid = sandbox.numbers("pids")[0];
    let named = format!("{pid} of nobody");
    run.wait_to_say(&named);
    let named_in_file = serde_json::json!([{"pid": pid, "user": "nobody"}]);
    let path = sandbox.mark("path");
    wait_until("the process in the status file", || {
        let status = fs::read(&path).expect("there");
        let status: serde_json::Value = serde_json::from_slice(&status).expect("JSON");
        let denied = status["denied"].as_array().into_iter().flatten();
        denied.into_iter().any(|denied| *denied == named_in_file[0])
    });
    sandbox.start(sandbox.tool(&["evict", "x"])).end();
    let ended = run.end();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(!is_dead(pid));
    killed(&[numbered(pid)]);
    let report: serde_json::Value =
        serde_json::from_slice(&fs::read(sandbox.path("report.json")).expect("there"))
            .expect("JSON");
    let left = report["unended_pids"].as_array().expect("a list");
    assert!(left.contains(&pid.into()), "{report}");
    let last = ended
        .stderr
        .lines()
        .find(|line| line.contains("could not be ended"));
    assert!(last.is_some_and(|line| line.contains(&named)), "{ended:?}");
}

#[test]
fn a_job_that_stays_stopped_without_a_terminal_is_reported() {
    let sandbox = Sandbox::new();
    let script = "trap 'exit 5' TERM; echo $$ > pids; kill -STOP $$; while :; do sleep 0.05; done";
    let mut run = sandbox.run(&["--ttl", "1s"], script);
    run.wait_to_say("the job is stopped");
    let pid = sandbox.numbers("pids")[0];
    let line = format!("pids=[{pid}]");
    assert!(run.said().contains(&line), "{}", run.said());
    kill_process(numbered(pid), Signal::CONT).expect("it lives");
    run.signal(Signal::TERM);
    assert_eq!(run.end().code, Some(5));
}

#[test]
fn a_daemon_that_was_put_away_outlives_the_command_but_not_the_lease() {
    for is_evicted in [false, true] {
        let sandbox = Sandbox::new();
        let script = "setsid sleep 20 & echo $! > pids; until test -e go; do sleep 0.02; done";
        let mut run = sandbox.run(&["--ttl", "2s"], script);
        let pid = sandbox.numbers("pids")[0];
        if is_evicted {
            sandbox.start(sandbox.tool(&["evict", "x"])).end();
        } else {
            sandbox.let_go();
        }
        let ended = run.end();
        assert_eq!(
            ended.code,
            Some(if is_evicted { 79 } else { 0 }),
            "{ended:?}"
        );
        assert_eq!(!is_dead(pid), !is_evicted, "{ended:?}");
        killed(&[numbered(pid)]);
    }
}
