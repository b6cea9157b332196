//! A lease that is lost while its job runs.

use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

use leasehold::Name;
use leasehold::clock::{Clock, Monotonic};
use leasehold::store::sqlite::Sqlite;
use leasehold::store::{Eviction, Store};

use super::{STUBBORN_FAMILY, Sandbox, is_alive, wait_until};

const SECOND: Duration = Duration::from_secs(1);

/// Keeps everybody else from writing to the store meanwhile, as a hung disk would.
pub(super) fn block_store<T>(sandbox: &Sandbox, meanwhile: impl FnOnce() -> T) -> T {
    let blocker = rusqlite::Connection::open(sandbox.store()).expect("opened");
    blocker.busy_timeout(5 * SECOND).expect("set");
    blocker.execute_batch("BEGIN IMMEDIATE").expect("begun");
    let result = meanwhile();
    blocker.execute_batch("ROLLBACK").expect("ended");
    result
}

/// Takes the name from its holder.
fn evict_job(sandbox: &Sandbox, how: Eviction) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let store = Sqlite::open(sandbox.store()).await.expect("opened");
        let name = Name::new("x").expect("a name");
        assert!(store.evict(&name, how, SECOND).await.expect("evicted"));
    });
}

#[test]
fn a_job_is_asked_first_by_term_and_the_exit_is_79() {
    let sandbox = Sandbox::new();
    let script = "trap 'echo asked > asked; exit 0' TERM; echo up > first
        for i in 1 2 3 4 5 6 7 8 9; do sleep 20 & wait; done";
    let mut run = sandbox.run(&["--ttl", "2s"], script);
    sandbox.mark("first");
    let ended = block_store(&sandbox, || run.end());
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(sandbox.has("asked"));
    assert!(ended.stderr.contains("renewals fail"), "{ended:?}");
}

#[test]
fn a_job_that_ignores_term_is_gone_before_the_deadline() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.run(&["--ttl", "2s"], STUBBORN_FAMILY);
    let pids = sandbox.numbers("pids");
    let began = Monotonic.now();
    block_store(&sandbox, || {
        wait_until("the job's end", || pids.iter().all(|pid| !is_alive(*pid)));
    });
    // The last renewal was confirmed before the store was blocked.
    assert!(Monotonic.now().since(began) < 2 * SECOND);
    assert_eq!(run.end().code, Some(79));
}

#[test]
fn a_short_outage_is_survived() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.run(&["--ttl", "3s"], "echo up > first; sleep 3; exit 4");
    sandbox.mark("first");
    block_store(&sandbox, || {
        let until = Monotonic.now().after(Duration::from_millis(500));
        super::wait_until("half a second", || Monotonic.now() >= until);
    });
    let ended = run.end();
    assert_eq!(ended.code, Some(4), "{ended:?}");
}

#[test]
fn a_refused_renewal_ends_the_job() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.run(&["--ttl", "2s"], STUBBORN_FAMILY);
    let pids = sandbox.numbers("pids");
    evict_job(&sandbox, Eviction::Now);
    let ended = run.end();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(ended.stderr.contains("reason=refused"), "{ended:?}");
    assert!(pids.into_iter().all(|pid| !is_alive(pid)));
}

#[test]
fn an_evicted_job_is_gone_before_its_name_is_free() {
    let sandbox = Sandbox::new();
    let mut first = sandbox.run(&["--ttl", "2s"], STUBBORN_FAMILY);
    sandbox.mark("pids");
    evict_job(&sandbox, Eviction::Marked);
    let ended = sandbox.run(&[], super::LOOK_FOR_RIVALS).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!sandbox.mark("rivals").contains("alive"));
    let ended = first.end();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(ended.stderr.contains("reason=evicted"), "{ended:?}");
}

#[test]
fn messages_that_are_not_read_do_not_save_the_job() {
    let sandbox = Sandbox::new();
    let (_reader, mut writer) = std::io::pipe().expect("a pipe");
    fill_pipe(&mut writer);
    let mut command = sandbox.tool(&["run", "--ttl", "2s", "x", "--", "sh", "-c", STUBBORN_FAMILY]);
    command.stderr(writer);
    let child = command.spawn().expect("the tool starts");
    let file = || tempfile::NamedTempFile::new_in(sandbox.path("")).expect("a file");
    let mut run = super::Process {
        child,
        stdout: file(),
        stderr: file(),
    };
    let pids = sandbox.numbers("pids");
    let began = Monotonic.now();
    block_store(&sandbox, || {
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
    let sandbox = Sandbox::new();
    let check = format!("{} check", env!("CARGO_BIN_EXE_leasehold"));
    let script = format!(
        "trap '' TERM; {check}; echo $? > held; while {check} 2>/dev/null; do sleep 0.02; done; {check}; echo $? > lost; sleep 20"
    );
    let mut run = sandbox.run(&["--ttl", "2s"], &script);
    assert_eq!(sandbox.mark("held"), "0");
    evict_job(&sandbox, Eviction::Marked);
    assert_eq!(sandbox.mark("lost"), "79");
    let ended = run.end();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(
        ended.stderr.contains("the lease is not held: it was lost"),
        "{ended:?}"
    );
}
