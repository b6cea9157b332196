//! `status`: who holds what.

use serde_json::Value;

use super::Sandbox;

fn status(sandbox: &Sandbox, arguments: &[&str]) -> Value {
    let mut all = vec!["status", "--json"];
    all.extend(arguments);
    let ended = sandbox.start(sandbox.tool(&all)).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let answer: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(answer["version"], 1);
    answer["leases"].clone()
}

#[test]
fn a_holder_is_shown_with_all_that_is_known() {
    let sandbox = Sandbox::new();
    let run = sandbox.run(
        &["--label", "a label"],
        "echo $LEASEHOLD_TOKEN $LEASEHOLD_HOLDER > told; sleep 20",
    );
    let told = sandbox.mark("told");
    let list = status(&sandbox, &[]);
    let row = &list[0];
    assert_eq!(row["name"], "x");
    assert_eq!(row["label"], "a label");
    assert_eq!(row["pid"], run.child.id());
    assert_eq!(
        format!("{} {}", row["token"], row["holder"].as_str().expect("text")),
        told
    );
    assert!(row["host"].is_string());
    let since = row["since"].as_str().expect("text");
    assert!(since.ends_with('Z') && since.contains('T'), "{since}");
    let remaining = row["remaining_ms"].as_u64().expect("a number");
    assert!((1..=30_000).contains(&remaining), "{remaining}");
    assert_eq!(status(&sandbox, &["x"])[0]["token"], row["token"]);
    assert_eq!(status(&sandbox, &["y"]), Value::Array(Vec::new()));
}

#[test]
fn an_empty_store_is_an_empty_list() {
    let sandbox = Sandbox::new();
    assert_eq!(status(&sandbox, &[]), Value::Array(Vec::new()));
}

#[test]
fn people_are_told_where_the_leases_are_kept() {
    let sandbox = Sandbox::new();
    let _run = sandbox.run(&[], "echo up > up; sleep 20");
    sandbox.mark("up");
    let ended = sandbox.start(sandbox.tool(&["status"])).end();
    assert!(ended.stderr.contains("leases.sqlite"), "{ended:?}");
    assert!(ended.stdout.contains("x host="), "{ended:?}");
}

#[test]
fn a_reader_who_left_is_no_fault() {
    let sandbox = Sandbox::new();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = sandbox.tool(&["status"]);
    let status = command.stdout(writer).status().expect("run");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn output_that_is_lost_is_1() {
    let sandbox = Sandbox::new();
    let _run = sandbox.run(&[], "echo up > up; sleep 20");
    sandbox.mark("up");
    for arguments in [
        &["status"][..],
        &["status", "--json"],
        &["man"],
        &["completions", "bash"],
        &["--help"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let mut command = sandbox.tool(arguments);
        let ended = command.stdout(full.expect("opened")).output().expect("run");
        assert_eq!(ended.status.code(), Some(1), "{arguments:?} {ended:?}");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains("cannot write the output"), "{said}");
    }
}

#[test]
fn a_script_can_ask_whether_a_name_is_held() {
    let sandbox = Sandbox::new();
    let is_held = || {
        sandbox
            .start(sandbox.tool(&["status", "--quiet", "x"]))
            .end()
    };
    let free = is_held();
    assert_eq!((free.code, &*free.stdout), (Some(1), ""), "{free:?}");
    let _run = sandbox.run(&[], "echo up > up; sleep 20");
    sandbox.mark("up");
    let held = is_held();
    assert_eq!((held.code, &*held.stdout), (Some(0), ""), "{held:?}");
}
