//! What a run says and how it ends when its first words to the server fail: nothing is started.

use std::time::Duration;

use deadpool_redis::redis;

use super::super::{Ended, Process, Sandbox};
use super::{KEY, Site};
use crate::harness::proxy::Fault;
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::wait::{at, now};

/// For the process itself to start and end on a busy machine.
const SLACK: Duration = Duration::from_secs(1);

/// A run on this store that must fail with this code, before its command is started.
fn fails(url: &str, options: &[&str], code: i32) -> Ended {
    Sandbox::new().fails(&[&["--store", url], options].concat(), code)
}

#[tokio::test]
async fn a_port_without_a_listener_is_69() {
    let mut server = Setup::default().with_port().start().await;
    let port = server.port();
    server.kill();
    let began = now();
    let url = format!("redis://127.0.0.1:{port}");
    let ended = fails(&url, &["--connect-timeout", "5s"], 69);
    let took = now().since(began);
    assert!(took < Duration::from_secs(5) + SLACK, "{took:?}");
    assert!(ended.stderr.contains(&port.to_string()), "{ended:?}");
}

#[tokio::test]
async fn a_socket_that_is_not_there_is_69() {
    let mut server = RedisServer::start().await;
    server.kill();
    let ended = fails(&server.url(), &["--connect-timeout", "5s"], 69);
    let socket = server.socket();
    let socket = socket.to_string_lossy();
    assert!(ended.stderr.contains(&*socket), "{ended:?}");
}

#[tokio::test]
async fn a_server_that_says_nothing_is_69_within_the_limit() {
    let server = RedisServer::start().await;
    server.pause();
    let began = now();
    fails(&server.url(), &["--connect-timeout", "300ms"], 69);
    let took = now().since(began);
    server.resume();
    assert!(took >= Duration::from_millis(300), "{took:?}");
    assert!(took < Duration::from_millis(300) + SLACK, "{took:?}");
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn every_command_gives_up_on_a_silent_server_within_the_limit() {
    let server = RedisServer::start().await;
    server.pause();
    let sandbox = Sandbox::new();
    for command in ["status x", "wait x", "evict x"] {
        let mut arguments: Vec<_> = command.split(' ').collect();
        let url = server.url();
        arguments.extend(["--store", &url, "--connect-timeout", "300ms"]);
        let began = now();
        let ended = sandbox.start(sandbox.tool(&arguments)).end();
        let took = now().since(began);
        assert_eq!(ended.code, Some(69), "{command}: {ended:?}");
        let limit = Duration::from_millis(300) + SLACK;
        assert!(took < limit, "{command} gave up after {took:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_silent_for_less_than_the_limit_is_waited_for() {
    let server = RedisServer::start().await;
    server.pause();
    let sandbox = Sandbox::new();
    let url = server.url();
    let start = |arguments: &[&str]| {
        let mut command = sandbox.tool(arguments);
        command.env("LEASEHOLD_STORE", &url);
        sandbox.start(command)
    };
    let mut commands = [
        start(&["run", "x", "--", "sleep", "0"]),
        start(&["run", "-n", "y", "--", "sleep", "0"]),
        start(&["status"]),
        start(&["status", "x"]),
        start(&["wait", "z"]),
        start(&["evict", "z"]),
    ];
    // Longer than one attempt to connect may take.
    at(now().after(Duration::from_millis(2_500))).await;
    for command in &mut commands {
        let ended = command.child.try_wait().expect("our child");
        assert_eq!(ended, None, "{}", command.said());
    }
    server.resume();
    // The last one found no holder to evict.
    for (command, code) in commands.iter_mut().zip([0, 0, 0, 0, 0, 1]) {
        let ended = command.end();
        assert_eq!(ended.code, Some(code), "{ended:?}");
    }
    server.assert_all_keys_run_out().await;
}

/// The commands that ask a store once.
const COMMANDS: [&str; 7] = [
    "run -n x -- true",
    "run -q -n --skip-ok y -- touch ran",
    "run z -- true",
    "status",
    "status x",
    "wait x",
    "evict w",
];

/// Starts these commands on this store.
fn start_all<'a>(sandbox: &Sandbox, url: &str, lines: &[&'a str]) -> Vec<(&'a str, Process)> {
    let start = |line: &&'a str| {
        let arguments: Vec<_> = line.split(' ').collect();
        let mut command = sandbox.tool(&arguments);
        command.env("LEASEHOLD_STORE", url);
        (*line, sandbox.start(command))
    };
    lines.iter().map(start).collect()
}

fn all_are_well(sandbox: &Sandbox, commands: Vec<(&str, Process)>) {
    for (line, mut command) in commands {
        let ended = command.end();
        // Nobody has the name that is to be evicted.
        let code = u8::from(line.starts_with("evict")).into();
        assert_eq!(ended.code, Some(code), "{line}: {ended:?}");
    }
    assert!(sandbox.has("ran"), "a run that was skipped");
}

#[tokio::test]
async fn a_server_that_restarts_at_the_wrong_second_is_asked_again_by_every_command() {
    let mut server = RedisServer::start().await;
    let url = server.url();
    server.kill();
    let sandbox = Sandbox::new();
    let lines = [&COMMANDS[..], &["doctor"]].concat();
    let commands = start_all(&sandbox, &url, &lines);
    at(now().after(Duration::from_millis(1_200))).await;
    server.start_again().await;
    all_are_well(&sandbox, commands);
}

#[tokio::test]
async fn a_server_that_is_full_for_a_moment_is_asked_again_by_every_command() {
    let server = RedisServer::start().await;
    let () = server.told("CONFIG SET maxmemory 1").await;
    let sandbox = Sandbox::new();
    let commands = start_all(&sandbox, &server.url(), &COMMANDS);
    at(now().after(Duration::from_millis(1_200))).await;
    let () = server.told("CONFIG SET maxmemory 0").await;
    all_are_well(&sandbox, commands);
}

// The proxy works on while the test blocks.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_was_carried_out_unheard_is_not_another_holders() {
    for fault in [Fault::DropReply, Fault::HoldReply] {
        let site = Site::start().await;
        let proxy = site.server.proxy().await;
        let mut met = 0;
        proxy.set(move |request| {
            // What others see of a holder is in its claim only.
            let is_claim = request.words.iter().any(|word| word.contains("pid"));
            let next = match met {
                0 if is_claim => fault,
                // The release that gives the grant back.
                1 if request.is_script() && !is_claim => Fault::DropRequest,
                _ => return None,
            };
            met += 1;
            Some(next)
        });
        let run = ["run", "-n", "--ttl", "3s", "x", "--", "true"];
        let ended = site.sandbox.start(site.tool_on(&proxy.url(), &run)).end();
        assert_eq!(ended.code, Some(0), "{fault:?}: {ended:?}");
        assert_eq!(proxy.faults().len(), 2, "{fault:?}: {ended:?}");
    }
}

#[tokio::test]
async fn a_wrong_or_missing_password_is_77_and_is_not_shown() {
    let setup = Setup::default().with_port().with_password("right");
    let server = setup.start().await;
    let port = server.port();
    for url in [
        format!("redis://:hush@127.0.0.1:{port}"),
        format!("redis://somebody:hush@127.0.0.1:{port}/0"),
        format!("{}?pass=hush", server.url()),
        server.url(),
    ] {
        for options in [&[][..], &["--verbose"], &["--json"]] {
            let ended = fails(&url, options, 77);
            assert!(!ended.stderr.contains("hush"), "{ended:?}");
            assert!(!ended.stdout.contains("hush"), "{ended:?}");
        }
    }
}

#[test]
fn an_address_that_says_nothing_is_64_and_its_password_is_not_shown() {
    for url in [
        "redis://:hush@127.0.0.1/notanumber",
        "redis://:hush@127.0.0.1:notaport",
        "redis://:hush@",
        "gopher://:hush@127.0.0.1",
        "hush@127.0.0.1",
    ] {
        let ended = fails(url, &["--verbose"], 64);
        assert!(!ended.stderr.contains("hush"), "{ended:?}");
    }
}

#[tokio::test]
async fn a_user_without_the_rights_is_77() {
    let server = RedisServer::start().await;
    let () = server
        .told("ACL SETUSER narrow on >hush ~other:* &* +@all")
        .await;
    let url = format!("{}?user=narrow&pass=hush", server.url());
    let ended = fails(&url, &[], 77);
    assert!(!ended.stderr.contains("hush"), "{ended:?}");
    assert_eq!(server.keys().await, [""; 0]);
}

#[tokio::test]
async fn a_key_of_another_type_is_78_and_left_alone() {
    let server = RedisServer::start().await;
    let () = server.told(&format!("SET {KEY} theirs")).await;
    fails(&server.url(), &[], 78);
    let theirs: String = server.told(&format!("GET {KEY}")).await;
    assert_eq!(theirs, "theirs");
    assert_eq!(server.keys().await, [KEY]);
}

#[tokio::test]
async fn a_read_only_replica_is_78() {
    let master = Setup::default().with_port().start().await;
    let replica = RedisServer::start().await;
    replica.follow(&master).await;
    let ended = fails(&replica.url(), &[], 78);
    assert!(ended.stderr.to_lowercase().contains("read"), "{ended:?}");
}

#[tokio::test]
async fn a_full_server_is_69() {
    let server = RedisServer::start().await;
    let () = server.told("CONFIG SET maxmemory 1").await;
    fails(&server.url(), &[], 69);
    assert_eq!(server.keys().await, [""; 0]);
}

#[tokio::test]
async fn a_job_inherits_the_address_unless_it_has_a_password() {
    let setup = Setup::default().with_port().with_password("hush");
    let site = Site::on(setup).await;
    let secret = format!("redis://:hush@127.0.0.1:{}", site.server.port());
    let told = "env | grep -c hush > told; echo [$LEASEHOLD_STORE] >> told";
    let ended = site.run_on(&secret, &[], told).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(site.sandbox.mark("told"), "0\n[]");

    let site = Site::start().await;
    let ended = site.run(&[], told).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let url = site.server.url();
    assert_eq!(site.sandbox.mark("told"), format!("0\n[{url}]"));
}

#[tokio::test]
async fn init_spares_a_new_servers_first_run_the_wait_and_refuses_a_second_time() {
    let site = Site::start().await;
    let url = format!("{}?max_ttl=60s", site.server.url());
    let sandbox = &site.sandbox;
    let init = || sandbox.start(site.tool_on(&url, &["init"])).end();
    let done = init();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stderr.contains("longest ttl is 60s"), "{done:?}");
    let run = sandbox.run(&["--store", &url, "-n"], "true").end();
    assert_eq!(run.code, Some(0), "{run:?}");
    let refused = init();
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(refused.stderr.contains("not new"), "{refused:?}");
}

#[tokio::test]
async fn init_ends_the_wait_that_a_first_run_on_a_new_server_met() {
    let site = Site::start().await;
    let url = format!("{}?max_ttl=60s", site.server.url());
    let sandbox = &site.sandbox;
    let doctor = sandbox.start(site.tool_on(&url, &["doctor"])).end();
    assert_eq!(doctor.code, Some(0), "{doctor:?}");
    let first = fails(&url, &["-n"], 75);
    assert!(first.stderr.contains("`leasehold init` ends"), "{first:?}");
    let done = sandbox.start(site.tool_on(&url, &["init"])).end();
    assert_eq!(done.code, Some(0), "{done:?}");
    let run = sandbox.run(&["--store", &url, "-n"], "true").end();
    assert_eq!(run.code, Some(0), "{run:?}");
}

#[tokio::test]
async fn a_new_server_says_so_to_the_run_the_status_and_the_doctor() {
    let site = Site::start().await;
    let url = format!("{}?max_ttl=60s", site.server.url());
    let said = |arguments: &[&str]| {
        let ended = site.sandbox.start(site.tool_on(&url, arguments)).end();
        ended.stdout + &ended.stderr
    };
    let run = said(&["run", "-n", "x", "true"]);
    assert!(run.contains("new to leasehold"), "{run}");
    let status = said(&["status"]);
    assert!(
        status.contains("hazard: this server grants nothing for "),
        "{status}"
    );
    assert!(status.contains("server: away "), "{status}");
    let members = said(&["status", "--members", "--json"]);
    assert!(members.contains("\"away\""), "{members}");
    let doctor = said(&["doctor"]);
    assert_eq!(doctor.matches("new to leasehold").count(), 1, "{doctor}");
    assert_eq!(doctor.matches("`leasehold init`").count(), 1, "{doctor}");
    assert!(doctor.contains("0 failures"), "{doctor}");
}

#[tokio::test]
async fn a_ttl_beyond_the_longest_of_its_store_is_refused_with_both() {
    let site = Site::start().await;
    for (max_ttl, options, ttl) in [("20s", &[][..], "30s"), ("60s", &["--ttl", "61s"], "61s")] {
        let url = format!("{}?max_ttl={max_ttl}", site.server.url());
        let ended = fails(&url, options, 64);
        let said = format!("no ttl of {ttl}; expected at most {max_ttl}");
        assert!(ended.stderr.contains(&said), "{ended:?}");
    }
    assert_eq!(site.server.keys().await, [""; 0], "nothing was claimed");
}

#[tokio::test]
async fn the_printed_script_sets_a_new_server_up() {
    let site = Site::start().await;
    let url = format!("{}?max_ttl=60s", site.server.url());
    let print = site.tool_on(&url, &["init", "--print"]);
    let printed = site.sandbox.start(print).end();
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let call = "redis-cli --eval THIS_FILE 'leasehold:node' , 60000";
    assert!(printed.stdout.contains(call), "{printed:?}");
    let script = redis::Script::new(&printed.stdout);
    let mut connection = site.server.connect().await.expect("it is up");
    let mut invocation = script.key("leasehold:node");
    let reply: String = invocation
        .arg(60_000)
        .invoke_async(&mut connection)
        .await
        .expect("it is a script");
    assert_eq!(reply, "ready");
    let run = site.sandbox.run(&["--store", &url, "-n"], "true").end();
    assert_eq!(run.code, Some(0), "{run:?}");
}
