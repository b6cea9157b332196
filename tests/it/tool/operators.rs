//! `evict`, `wait`, and settings that do not come from the command line.

use super::Sandbox;

#[test]
fn an_evicted_holder_is_told_and_its_name_is_free_after_its_job() {
    let sandbox = Sandbox::new();
    let mut first = sandbox.run(&["--ttl", "2s"], super::STUBBORN_FAMILY);
    sandbox.mark("pids");
    let ended = sandbox.start(sandbox.tool(&["evict", "x"])).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("evicted"), "{ended:?}");
    assert_eq!(sandbox.run(&["-n"], "true").end().code, Some(75));
    assert_eq!(sandbox.run(&[], super::LOOK_FOR_RIVALS).end().code, Some(0));
    assert!(!sandbox.mark("rivals").contains("alive"));
    assert_eq!(first.end().code, Some(79));
}

/// Evicts the holder of a name in this store, whose next renewal is far away, and asks for the status of the name.
pub(super) fn evict_and_ask(store: &str) {
    let sandbox = Sandbox::new();
    let store = ["--store", store];
    let tell = |command: &[&str]| {
        let arguments = [command, &store[..], &["x"]].concat();
        let ended = sandbox.start(sandbox.tool(&arguments)).end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout
    };
    let options = [&store[..], &["--ttl", "10min"]].concat();
    let _job = sandbox.run(&options, super::HOLDER);
    sandbox.mark("first");
    let held = tell(&["status"]);
    assert!(!held.contains("evicted"), "{held}");
    assert!(tell(&["status", "--json"]).contains("\"state\": \"held\""));
    tell(&["evict"]);
    let text = tell(&["status"]);
    assert!(text.contains("x state=evicted host="), "{text}");
    let json = tell(&["status", "--json"]);
    assert!(json.contains("\"state\": \"evicted\""), "{json}");
}

#[test]
fn the_status_of_an_evicted_name_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("leases.sqlite");
    evict_and_ask(&format!("sqlite:{}", file.display()));
}

#[test]
fn the_status_of_a_name_that_is_kept_after_its_job_says_so() {
    let sandbox = Sandbox::new();
    let options = ["--hold-at-least", "10min"];
    assert_eq!(sandbox.run(&options, "true").end().code, Some(0));
    let ended = sandbox.start(sandbox.tool(&["status"])).end();
    assert!(ended.stdout.contains("x state=kept "), "{ended:?}");
}

#[test]
fn an_eviction_now_frees_the_name_at_once() {
    let sandbox = Sandbox::new();
    let mut first = sandbox.run(&[], "echo up > first; exec sleep 20");
    sandbox.mark("first");
    let ended = sandbox.start(sandbox.tool(&["evict", "--now", "x"])).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(sandbox.run(&["-n"], "true").end().code, Some(0));
    drop(sandbox.start(sandbox.tool(&["status"])));
    first.signal(rustix::process::Signal::TERM);
    first.end();
}

#[test]
fn a_run_with_a_least_hold_does_not_undo_its_eviction() {
    let sandbox = Sandbox::new();
    let options = ["--ttl", "2s", "--hold-at-least", "1h"];
    let mut evicted = sandbox.run(&options, "echo up > first; exec sleep 20");
    sandbox.mark("first");
    let ended = sandbox.start(sandbox.tool(&["evict", "x"])).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(evicted.end().code, Some(79));
    let next = sandbox.run(&["-n"], "true").end();
    assert_eq!(next.code, Some(0), "{next:?}");
}

#[test]
fn a_name_without_a_holder_cannot_be_evicted_and_a_script_hears_it() {
    let sandbox = Sandbox::new();
    let ended = sandbox.start(sandbox.tool(&["evict", "x"])).end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("no holder to evict"), "{ended:?}");
    let done = sandbox.run(&["--hold-at-least", "1h"], "true").end();
    assert_eq!(done.code, Some(0), "{done:?}");
    let kept = sandbox.start(sandbox.tool(&["evict", "x"])).end();
    assert_eq!(kept.code, Some(1), "{kept:?}");
    assert!(kept.stderr.contains("--now frees it"), "{kept:?}");
    let freed = sandbox.start(sandbox.tool(&["evict", "--now", "x"])).end();
    assert_eq!(freed.code, Some(0), "{freed:?}");
    assert!(
        !freed.stderr.contains("the holder may"),
        "it has none: {freed:?}"
    );
    assert_eq!(sandbox.run(&["-n"], "true").end().code, Some(0));
}

#[test]
fn waiting_ends_when_the_name_is_free_and_takes_nothing() {
    let sandbox = Sandbox::new();
    let ended = sandbox.start(sandbox.tool(&["wait", "x"])).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");

    let _first = sandbox.run(
        &[],
        "echo up > first; while ! test -s go; do sleep 0.05; done; echo over > over",
    );
    sandbox.mark("first");
    let ended = sandbox
        .start(sandbox.tool(&["wait", "-w", "200ms", "x"]))
        .end();
    assert_eq!(ended.code, Some(75), "{ended:?}");
    let mut waiting = sandbox.start(sandbox.tool(&["wait", "x"]));
    waiting.wait_to_say("waiting for");
    std::fs::write(sandbox.path("go"), "now").expect("written");
    assert_eq!(waiting.end().code, Some(0));
    assert!(sandbox.has("over"));
    assert_eq!(sandbox.run(&["-n"], "true").end().code, Some(0));
}

#[test]
fn settings_come_from_the_environment_too_and_options_win() {
    let sandbox = Sandbox::new();
    let told = "echo $LEASEHOLD_TTL_MS > ttl";
    let mut command = sandbox.tool(&["run", "x", "--", "sh", "-c", told]);
    command.env("LEASEHOLD_TTL", "7s");
    assert_eq!(sandbox.start(command).end().code, Some(0));
    assert_eq!(sandbox.mark("ttl"), "7000");
    let mut command = sandbox.tool(&["run", "--ttl", "8s", "x", "--", "sh", "-c", told]);
    command.env("LEASEHOLD_TTL", "7s");
    assert_eq!(sandbox.start(command).end().code, Some(0));
    assert_eq!(sandbox.mark("ttl"), "8000");
}

#[test]
fn the_store_can_be_named_by_a_file() {
    let sandbox = Sandbox::new();
    let url = format!("sqlite:{}\n", sandbox.path("other.sqlite").display());
    std::fs::write(sandbox.path("url"), url).expect("written");
    let command = sandbox.tool(&["run", "--store-file", "url", "x", "--", "true"]);
    let ended = sandbox.start(command).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(sandbox.has("other.sqlite"));
    assert!(!sandbox.store().exists(), "an option wins over a variable");
}

#[test]
fn the_library_logs_where_it_is_asked_to() {
    let sandbox = Sandbox::new();
    let run = |format: &str| {
        let mut command = sandbox.tool(&["run", "--group", "nights", "x", "--", "sleep", "0.2"]);
        command
            .env("LEASEHOLD_LOG", "leasehold=trace")
            .env("LEASEHOLD_LOG_FORMAT", format);
        sandbox.start(command).end()
    };
    let text = run("text");
    assert!(text.stderr.contains("leasehold"), "{text:?}");
    assert!(text.stderr.contains("nights"), "{text:?}");
    let json = run("json").stderr;
    let line = json.lines().next().expect("a line");
    assert!(
        serde_json::from_str::<serde_json::Value>(line).is_ok(),
        "{json}"
    );
    assert_eq!(run("xml").code, Some(64));
}

#[test]
fn a_log_filter_by_span_or_field_is_refused() {
    let sandbox = Sandbox::new();
    for filter in [
        "leasehold[acquire]=debug",
        "[{name=x}]=trace",
        "leasehold=loud",
    ] {
        let mut command = sandbox.tool(&["status"]);
        command.env("LEASEHOLD_LOG", filter);
        let ended = sandbox.start(command).end();
        assert_eq!(ended.code, Some(64), "{ended:?}");
        for part in [filter, "expected levels such as debug"] {
            assert!(ended.stderr.contains(part), "{ended:?}");
        }
    }
}

#[test]
fn rust_log_counts_where_our_own_variable_says_nothing() {
    let sandbox = Sandbox::new();
    let logged = |own: Option<&str>, common: &str| {
        let mut command = sandbox.tool(&["run", "x", "--", "sleep", "0.2"]);
        if let Some(own) = own {
            command.env("LEASEHOLD_LOG", own);
        }
        command.env("RUST_LOG", common);
        let ended = sandbox.start(command).end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        !ended.stderr.is_empty()
    };
    assert!(logged(None, "leasehold=trace"));
    assert!(logged(Some("leasehold=trace"), "off"));
    assert!(!logged(Some("off"), "leasehold=trace"));
    assert!(!logged(None, "other=trace"));
}
