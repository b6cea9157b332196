//! What a service manager hears of a run: the test binds the socket instead.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use super::{Sandbox, wait_until};

/// The manager's end of the socket.
struct Manager {
    socket: UnixDatagram,
    heard: String,
}

impl Manager {
    fn new(sandbox: &Sandbox) -> Self {
        let socket = UnixDatagram::bind(sandbox.path("notify")).expect("bound");
        socket.set_nonblocking(true).expect("set");
        Self {
            socket,
            heard: String::new(),
        }
    }

    /// Reads what has come until now.
    fn listen(&mut self) -> &str {
        let mut bytes = [0; 4096];
        while let Ok(length) = self.socket.recv(&mut bytes) {
            self.heard += &String::from_utf8_lossy(&bytes[..length]);
        }
        &self.heard
    }

    fn wait_for(&mut self, text: &str) {
        wait_until(text, || self.listen().contains(text));
    }
}

/// A run as a service, with a watchdog of this many microseconds.
fn service(sandbox: &Sandbox, watchdog_usec: u32, options: &[&str], script: &str) -> Command {
    let mut arguments = vec!["run"];
    arguments.extend(options);
    arguments.extend(["x", "--", "sh", "-c", script]);
    let mut command = sandbox.tool(&arguments);
    command
        .env("NOTIFY_SOCKET", sandbox.path("notify"))
        .env("WATCHDOG_USEC", watchdog_usec.to_string());
    command
}

#[test]
fn the_service_is_ready_when_the_lease_is_held_and_stops_with_its_job() {
    let sandbox = Sandbox::new();
    let mut manager = Manager::new(&sandbox);
    let _first = sandbox.run(
        &[],
        "echo up > first; while ! test -e go; do sleep 0.02; done",
    );
    sandbox.mark("first");
    let script = "echo $LEASEHOLD_TOKEN > token; while ! test -e end; do sleep 0.02; done; exit 4";
    let mut second = sandbox.start(service(&sandbox, 60_000_000, &[], script));
    second.wait_to_say("waiting for");
    manager.wait_for("STATUS=waiting for name=x\n");
    assert!(!manager.listen().contains("READY"), "{}", manager.heard);

    std::fs::write(sandbox.path("go"), "").expect("written");
    let token = sandbox.mark("token");
    manager.wait_for(&format!("STATUS=name=x token={token} state=held\n"));
    assert!(manager.heard.contains("READY=1\n"), "{}", manager.heard);
    assert!(!manager.heard.contains("STOPPING"), "{}", manager.heard);

    std::fs::write(sandbox.path("end"), "").expect("written");
    let ended = second.end();
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(manager.listen().contains("STOPPING=1\n"), "{ended:?}");
}

#[test]
fn the_watchdog_is_fed_only_while_renewals_are_confirmed() {
    let sandbox = Sandbox::new();
    let mut manager = Manager::new(&sandbox);
    let command = service(
        &sandbox,
        50_000,
        &["--ttl", "3s"],
        "echo up > up; exec sleep 20",
    );
    let mut run = sandbox.start(command);
    sandbox.mark("up");
    manager.wait_for("WATCHDOG=1\nWATCHDOG=1\n");
    let ended = super::loss::block_store(&sandbox, || {
        manager.wait_for("STOPPING=1\n");
        run.end()
    });
    assert_eq!(ended.code, Some(79), "{ended:?}");
    let (_, after) = manager
        .listen()
        .split_once("state=at_risk\n")
        .expect("told of the risk");
    assert!(!after.contains("WATCHDOG"), "{after}");
}

#[test]
fn the_job_does_not_speak_to_the_service_manager() {
    let sandbox = Sandbox::new();
    let _manager = Manager::new(&sandbox);
    let script = "echo [$NOTIFY_SOCKET$WATCHDOG_USEC$WATCHDOG_PID] > told";
    let mut command = service(&sandbox, 60_000_000, &[], script);
    command.env("WATCHDOG_PID", "1");
    assert_eq!(sandbox.start(command).end().code, Some(0));
    assert_eq!(sandbox.mark("told"), "[]");
}

#[test]
fn a_service_manager_that_does_not_read_holds_nothing_up() {
    let sandbox = Sandbox::new();
    let manager = Manager::new(&sandbox);
    let filler = UnixDatagram::unbound().expect("a socket");
    filler.set_nonblocking(true).expect("set");
    let full = loop {
        match filler.send_to(b"X=1\n", sandbox.path("notify")) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    let options = ["--ttl", "2s", "--max-runtime", "1s"];
    let ended = sandbox
        .start(service(&sandbox, 1, &options, "exec sleep 20"))
        .end();
    assert_eq!(ended.code, Some(124), "{ended:?}");
    drop(manager);
}
