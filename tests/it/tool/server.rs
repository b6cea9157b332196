//! The tool on a server: the same promises, with outages that one machine does not have.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::clock::{Boottime, Clock};
use rustix::process::{Pid, Signal, kill_process};

use super::{LOOK_FOR_RIVALS, Place, Process, STUBBORN_FAMILY, is_alive, until};

/// A Redis server on a socket in the test's folder, ended with the test.
struct Server(Child);

impl Server {
    fn on(place: &Place) -> Self {
        let socket = place.path("redis.sock");
        let server = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(&socket)
            .current_dir(place.path(""))
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is there; to install it: apt-get install redis-server");
        let server = Self(server);
        until("the server", || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
        server
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it lives");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts `leasehold run` of this script on the server.
fn run(place: &Place, options: &[&str], script: &str) -> Process {
    let url = format!("redis+unix://{}", place.path("redis.sock").display());
    let mut all = vec!["--store", &url, "--ttl", "2s"];
    all.extend(options);
    place.run(&all, script)
}

#[test]
fn runs_exclude_each_other_and_tokens_rise() {
    let place = Place::new();
    let _server = Server::on(&place);
    let script = "mkdir busy || echo overlap > overlap
        sleep 0.2; echo $LEASEHOLD_TOKEN >> tokens; rmdir busy";
    let mut runs: Vec<_> = (0..3).map(|_| run(&place, &[], script)).collect();
    for run in &mut runs {
        let ended = run.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    let tokens = place.numbers("tokens");
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    assert!(!place.has("overlap"));
}

#[test]
fn a_killed_tool_leaves_nobody_to_the_next() {
    let place = Place::new();
    let _server = Server::on(&place);
    let first = run(&place, &[], STUBBORN_FAMILY);
    place.mark("pids");
    first.signal(Signal::KILL);
    let ended = run(&place, &[], LOOK_FOR_RIVALS).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!place.mark("rivals").contains("alive"));
}

#[test]
fn a_job_is_gone_in_time_when_its_server_hangs() {
    let place = Place::new();
    let server = Server::on(&place);
    let mut first = run(&place, &[], STUBBORN_FAMILY);
    let pids = place.numbers("pids");
    let began = Boottime.now();
    server.signal(Signal::STOP);
    until("the job's end", || pids.iter().all(|pid| !is_alive(*pid)));
    assert!(Boottime.now().since(began) < Duration::from_secs(2));
    assert_eq!(first.end().code, Some(79));
    server.signal(Signal::CONT);
}

#[test]
fn a_short_outage_of_the_server_is_survived() {
    let place = Place::new();
    let server = Server::on(&place);
    let mut first = run(&place, &[], "echo up > first; sleep 2.5; exit 4");
    place.mark("first");
    server.signal(Signal::STOP);
    let end = Boottime.now().after(Duration::from_millis(200));
    until("a moment", || Boottime.now() >= end);
    server.signal(Signal::CONT);
    let ended = first.end();
    assert_eq!(ended.code, Some(4), "{ended:?}");
}

#[test]
fn a_wait_outlasts_a_server_that_is_gone_for_a_while() {
    let place = Place::new();
    let server = Server::on(&place);
    let first = run(&place, &[], "echo up > first; exec sleep 20");
    place.mark("first");
    let mut second = run(&place, &["-w", "15s"], "echo up > second");
    second.wait_to_say("waiting for");
    drop(server);
    drop(first);
    std::fs::remove_file(place.path("redis.sock")).expect("left behind");
    let _server = Server::on(&place);
    let ended = second.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(place.has("second"));
}

#[test]
fn a_wrong_password_is_77() {
    let place = Place::new();
    let _server = Server::on(&place);
    let url = format!(
        "redis+unix://{}?user=nobody&pass=hush",
        place.path("redis.sock").display()
    );
    let ended = place.run(&["--store", &url], "echo up > started").end();
    assert_eq!(ended.code, Some(77), "{ended:?}");
    assert!(!ended.stderr.contains("hush"), "{ended:?}");
    assert!(!place.has("started"));
}
