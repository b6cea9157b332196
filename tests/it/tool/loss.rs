//! A lease that is lost while its job runs.

use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

use leasehold::Name;
use leasehold::clock::{Clock, Monotonic};
use leasehold::store::sqlite::Sqlite;
use leasehold::store::{Eviction, Store};

use super::{Bench, STUBBORN_FAMILY, is_alive, wait_until};

const SECOND: Duration = Duration::from_secs(1);

/// Keeps everybody else from writing to the store meanwhile, as a hung disk would.
pub(super) fn block_store<T>(bench: &Bench, meanwhile: impl FnOnce() -> T) -> T {
    let blocker = rusqlite::Connection::open(bench.store()).expect("opened");
    blocker.busy_timeout(5 * SECOND).expect("set");
    blocker.execute_batch("BEGIN IMMEDIATE").expect("begun");
    let result = meanwhile();
    blocker.execute_batch("ROLLBACK").expect("ended");
    result
}

/// Takes the name from its holder.
fn evict_job(bench: &Bench, how: Eviction) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let store = Sqlite::open(bench.store()).await.expect("opened");
        let name = Name::new("x").expect("a name");
        assert!(store.evict(&name, how, SECOND).await.expect("evicted"));
    });
}

#[test]
fn a_job_is_asked_first_by_term_and_the_exit_is_79() {
    let bench = Bench::new();
    let script = "trap 'echo asked > asked; exit 0' TERM; echo up > first
        for i in 1 2 3 4 5 6 7 8 9; do sleep 20 & wait; done";
    let mut run = bench.run(&["--ttl", "2s"], script);
    bench.mark("first");
    let ended = block_store(&bench, || run.end());
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(bench.has("asked"));
    assert!(ended.stderr.contains("renewals fail"), "{ended:?}");
}

#[test]
fn a_job_that_ignores_term_is_gone_before_the_deadline() {
    let bench = Bench::new();
    let mut run = bench.run(&["--ttl", "2s"], STUBBORN_FAMILY);
    let pids = bench.numbers("pids");
    let began = Monotonic.now();
    block_store(&bench, || {
        wait_until("the job's end", || pids.iter().all(|pid| !is_alive(*pid)));
    });
    // The last renewal was confirmed before the store was blocked.
    assert!(Monotonic.now().since(began) < 2 * SECOND);
    assert_eq!(run.end().code, Some(79));
}

#[test]
fn a_short_outage_is_survived() {
    let bench = Bench::new();
    let mut run = bench.run(&["--ttl", "3s"], "echo up > first; sleep 3; exit 4");
    bench.mark("first");
    block_store(&bench, || {
        let until = Monotonic.now().after(Duration::from_millis(500));
        super::wait_until("half a second", || Monotonic.now() >= until);
    });
    let ended = run.end();
    assert_eq!(ended.code, Some(4), "{ended:?}");
}

#[test]
fn a_refused_renewal_ends_the_job() {
    let bench = Bench::new();
    let mut run = bench.run(&["--ttl", "2s"], STUBBORN_FAMILY);
    let pids = bench.numbers("pids");
    evict_job(&bench, Eviction::Now);
    let ended = run.end();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(ended.stderr.contains("reason=refused"), "{ended:?}");
    assert!(pids.into_iter().all(|pid| !is_alive(pid)));
}

#[test]
fn an_evicted_job_is_gone_before_its_name_is_free() {
    let bench = Bench::new();
    let mut first = bench.run(&["--ttl", "2s"], STUBBORN_FAMILY);
    bench.mark("pids");
    evict_job(&bench, Eviction::Marked);
    let ended = bench.run(&[], super::LOOK_FOR_RIVALS).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!bench.mark("rivals").contains("alive"));
    let ended = first.end();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(ended.stderr.contains("reason=evicted"), "{ended:?}");
}

#[test]
fn messages_that_are_not_read_do_not_save_the_job() {
    let bench = Bench::new();
    let (_reader, mut writer) = std::io::pipe().expect("a pipe");
    fill_pipe(&mut writer);
    let mut command = bench.tool(&["run", "--ttl", "2s", "x", "--", "sh", "-c", STUBBORN_FAMILY]);
    command.stderr(writer);
    let child = command.spawn().expect("the tool starts");
    let file = || tempfile::NamedTempFile::new_in(bench.path("")).expect("a file");
    let mut run = super::Process {
        child,
        stdout: file(),
        stderr: file(),
    };
    let pids = bench.numbers("pids");
    let began = Monotonic.now();
    block_store(&bench, || {
        wait_until("the job's end", || pids.iter().all(|pid| !is_alive(*pid)));
    });
    assert!(Monotonic.now().since(began) < 2 * SECOND);
    assert_eq!(run.end().code, Some(79));
}

/// Writes until there is no room for a single byte.
fn fill_pipe(pipe: &mut (impl Write + AsFd)) {
    use rustix::fs::OFlags;
    let flags = rustix::fs::fcntl_getfl(&pipe).expect("flags");
    rustix::fs::fcntl_setfl(&pipe, flags | OFlags::NONBLOCK).expect("set");
    while pipe.write(&[b'x'; 4096]).is_ok() {}
    while pipe.write(b"x").is_ok() {}
    rustix::fs::fcntl_setfl(&pipe, flags).expect("set");
}

#[test]
fn the_job_can_ask_whether_its_lease_holds() {
    let bench = Bench::new();
    let check = format!("{} check", env!("CARGO_BIN_EXE_leasehold"));
    let script = format!(
        "trap '' TERM; {check}; echo $? > held; while {check} 2>/dev/null; do sleep 0.02; done; {check}; echo $? > lost; sleep 20"
    );
    let mut run = bench.run(&["--ttl", "2s"], &script);
    assert_eq!(bench.mark("held"), "0");
    evict_job(&bench, Eviction::Marked);
    assert_eq!(bench.mark("lost"), "79");
    let ended = run.end();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(
        ended.stderr.contains("the lease is not held: it was lost"),
        "{ended:?}"
    );
}
