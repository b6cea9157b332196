//! A network of a test's own: hosts on one bridge, each of which can be cut off while its programs go on.
//!
//! The test runs in a process of its own, in a network and a mount namespace of its own. The kernel removes both with the
//! last process in them, so nothing stays behind, however the test ends. It needs root.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use super::alone::alone_under;

/// Runs the body of the test of this name in a network of its own.
pub fn in_own_network(test: &str, body: impl FnOnce(&Network)) {
    let mut command = Command::new("unshare");
    // With a folder of its own for the names of hosts.
    command.args(["--net", "--mount", "--", "sh", "-ec"]);
    command.arg("mount -t tmpfs tmpfs /run; exec \"$0\" \"$@\"");
    command.arg(std::env::current_exe().expect("the test binary"));
    alone_under(command, test, || body(&Network::new()));
}

/// Runs the body of the test of this name where names of hosts lead to the addresses that these lines name.
pub fn with_hosts(test: &str, lines: &str, body: impl FnOnce()) {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--", "sh", "-ec"]);
    command.arg(
        "mount -t tmpfs tmpfs /run; printf %s \"$0\" > /run/hosts; mount --bind /run/hosts /etc/hosts; exec \"$@\"",
    );
    command.arg(lines);
    command.arg(std::env::current_exe().expect("the test binary"));
    alone_under(command, test, body);
}

/// The bridge. The test itself is on it.
#[derive(Debug)]
pub struct Network(());

/// The address of the test itself on the bridge.
pub const OF_TEST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 254);

/// One host.
#[derive(Debug, Clone)]
pub struct Host(u8);

impl Network {
    fn new() -> Self {
        ip("link set lo up");
        ip("link add bridge type bridge");
        ip(&format!("addr add {OF_TEST}/24 dev bridge"));
        ip("link set bridge up");
        Self(())
    }

    /// Makes a host of this number, from 1 to 253.
    pub fn host(&self, number: u8) -> Host {
        let host = Host(number);
        ip(&format!("netns add host{number}"));
        ip(&format!(
            "link add link{number} type veth peer name eth0 netns host{number}"
        ));
        ip(&format!("link set link{number} master bridge up"));
        let inside = format!("-n host{number}");
        ip(&format!("{inside} addr add {}/24 dev eth0", host.address()));
        ip(&format!("{inside} link set eth0 up"));
        ip(&format!("{inside} link set lo up"));
        host
    }
}

impl Host {
    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, 0, self.0)
    }

    /// A program on this host.
    pub fn program(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("host{}", self.0)]);
        command.arg(program);
        command
    }

    /// From now on no packet passes to or from it, without notice to either side.
    pub fn cut_off(&self) {
        ip(&format!("link set link{} down", self.0));
    }

    /// Connects it again.
    pub fn reconnect(&self) {
        ip(&format!("link set link{} up", self.0));
    }
}

fn ip(arguments: &str) {
    let ended = Command::new("ip")
        .args(arguments.split(' '))
        .stdin(Stdio::null())
        .output()
        .expect("ip starts; to install it: apt-get install -y iproute2");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "ip {arguments}: {said}");
}
