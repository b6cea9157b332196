//! `leasehold top` on a real terminal.

use std::time::Duration;

use rustix::process::{Signal, kill_process};

use super::terminal::Shell;
use super::{HOLDER, Sandbox};
use crate::harness::redis_server::RedisServer;
use crate::harness::wait::{at, now};

/// A holder of this name in this store, whose lease is short.
fn start_holder(sandbox: &Sandbox, store: &str, name: &str) -> super::Process {
    let arguments = [
        "run",
        "--store",
        store,
        "--ttl",
        "6s",
        "--label",
        "the first",
        name,
    ];
    let mut command = sandbox.tool(&arguments);
    command.args(["--", "sh", "-c", HOLDER]);
    sandbox.start(command)
}

/// Sees a holder in the live view of this store, filters, looks at it, evicts it, and gets the terminal back.
// A space where a space was is not drawn again, so one word is looked for at a time.
pub(super) fn see_and_evict(store: &str) {
    let sandbox = Sandbox::new();
    let mut first = start_holder(&sandbox, store, "nightly-report");
    sandbox.mark("first");
    let mut shell = Shell::on(&sandbox);
    shell.press(&format!(
        "stty rows 24 cols 120; $TOOL top --store '{store}'\n"
    ));
    shell.sees("\x1b[?1049h");
    shell.sees("nightly-report");
    shell.press("/zzz");
    shell.sees("filter:");
    shell.press("\x7f\x7f\x7fnight\r");
    shell.sees("clears");
    shell.press("\r");
    shell.sees("detail");
    shell.sees("since");
    shell.press("e");
    shell.sees("Evict");
    shell.press("y");
    // Only the cells that change are sent, so the text that was there hides most words: "evicting the holder".
    shell.sees("renewal");
    assert_eq!(first.end().code, Some(79));
    shell.press("q");
    shell.sees("\x1b[?1049l");
    shell.sees("ready> ");
    shell.press("echo code-$?\n");
    shell.sees("code-0");
}

#[test]
fn a_holder_is_seen_filtered_read_and_evicted_and_the_terminal_is_restored() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("leases.sqlite");
    see_and_evict(&format!("sqlite:{}", file.display()));
}

/// The live view of this store, once it is drawn.
fn view(sandbox: &Sandbox, store: &str) -> Shell {
    let mut shell = Shell::on(sandbox);
    let top = format!("exec $TOOL top --store \"{store}\"");
    shell.press(&format!(
        "stty rows 24 cols 120; sh -c 'echo $$ > pid; {top}'\n"
    ));
    shell.sees("NAME");
    shell
}

/// Ends the view by a signal, which restores the terminal.
fn end_top(sandbox: &Sandbox, shell: &mut Shell) {
    let pid = sandbox.numbers("pid")[0];
    kill_process(super::numbered(pid), Signal::TERM).expect("it lives");
    shell.sees("\x1b[?1049l");
    shell.sees("ready> ");
    shell.press("echo code-$?\n");
    shell.sees("code-143");
}

#[test]
fn a_signal_ends_it_and_the_terminal_is_restored() {
    let sandbox = Sandbox::new();
    let store = format!("sqlite:{}", sandbox.store().display());
    end_top(&sandbox, &mut view(&sandbox, &store));
}

#[tokio::test]
async fn a_signal_ends_it_while_its_store_is_silent() {
    let (sandbox, server) = (Sandbox::new(), RedisServer::start().await);
    let mut shell = view(&sandbox, &server.url());
    server.pause();
    // It asks the store once a second.
    at(now().after(Duration::from_millis(1_500))).await;
    let began = now();
    end_top(&sandbox, &mut shell);
    let took = now().since(began);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn why_an_eviction_failed_stays_on_the_screen_while_reads_succeed() {
    let (sandbox, server) = (Sandbox::new(), RedisServer::start().await);
    let user = "ACL SETUSER weak on >secret allchannels ~* +@all -zrem";
    let () = server.told(user).await;
    let _job = start_holder(&sandbox, &server.url(), "nightly");
    sandbox.mark("first");
    let mut shell = view(&sandbox, &format!("{}?user=weak&pass=secret", server.url()));
    shell.sees("nightly");
    shell.press("ey");
    shell.sees("permission");
    // Several looks and lists later the whole screen is drawn again.
    at(now().after(Duration::from_millis(2_500))).await;
    shell.resize(110);
    shell.sees("NAME");
    shell.resize(100);
    shell.sees("permission");
    end_top(&sandbox, &mut shell);
}

#[test]
fn without_a_terminal_it_is_a_bad_argument() {
    let sandbox = Sandbox::new();
    let ended = sandbox.start(sandbox.tool(&["top"])).end();
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(ended.stderr.contains("leasehold status"), "{ended:?}");
}

#[test]
fn a_store_that_cannot_be_reached_is_told_before_the_terminal_is_taken() {
    let sandbox = Sandbox::new();
    let mut shell = Shell::on(&sandbox);
    shell.press("$TOOL top --store sqlite:/no/such/folder/leases\n");
    shell.sees("/no/such/folder");
    shell.sees("ready> ");
    shell.press("echo code-$?\n");
    shell.sees("code-78");
}
