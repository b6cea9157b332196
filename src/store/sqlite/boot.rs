//! Identifies this boot of this kernel, with its clock as every process of the machine reads it.
//!
//! A time namespace shifts `CLOCK_MONOTONIC` for the processes within, while the boot id stays the same. So moments are
//! stored in the clock of the initial namespace: this process's reading minus its offset. Both facts are read once,
//! when the file is opened; a process cannot change them while it has threads.

use std::io::ErrorKind::NotFound;
use std::{fs, io};

use super::failure::Failure;
use crate::clock::{Clock, Instant, Monotonic};

const OFFSETS: &str = "/proc/self/timens_offsets";

/// The boot that this process runs in.
#[derive(Debug, Clone)]
pub(super) struct Boot {
    id: String,
    offset_ns: i64,
}

impl Boot {
    /// Reads it from the kernel.
    pub(super) fn read() -> Result<Self, Failure> {
        let id = boot_id().map_err(|source| Failure::io("read the boot id", source))?;
        let id = id.trim().to_owned();
        if id.is_empty() {
            return Err(Failure::unfit("the boot id is empty"));
        }
        Ok(Self::new(id, own_offset_ns()?))
    }

    /// The boot of this id, seen from a time namespace with this offset.
    pub(super) const fn new(id: String, offset_ns: i64) -> Self {
        Self { id, offset_ns }
    }

    /// The same boot under an id of another container.
    pub(super) fn under(self, id: String) -> Self {
        Self { id, ..self }
    }

    /// Its id.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Now, in the initial time namespace.
    pub(super) fn now(&self) -> Instant {
        let own = Monotonic.now().as_nanos();
        // An offset that would lead before the machine's start cannot be set, so nothing is cut off.
        Instant::from_nanos(own.saturating_add_signed(self.offset_ns.saturating_neg()))
    }
}

#[cfg(not(target_os = "macos"))]
fn boot_id() -> io::Result<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
}

/// macOS has no file for it, and the call would need `unsafe`.
#[cfg(target_os = "macos")]
fn boot_id() -> io::Result<String> {
    let mut sysctl = std::process::Command::new("/usr/sbin/sysctl");
    let output = sysctl.args(["-n", "kern.bootsessionuuid"]).output()?;
    String::from_utf8(output.stdout).map_err(io::Error::other)
}

fn own_offset_ns() -> Result<i64, Failure> {
    let text = match fs::read_to_string(OFFSETS) {
        Ok(text) => text,
        // A kernel without time namespaces, such as that of macOS.
        Err(source) if source.kind() == NotFound => return Ok(0),
        Err(source) => {
            return Err(Failure::io(
                "read the offsets of the time namespace",
                source,
            ));
        }
    };
    // The file tells the offsets that children get. Between unshare and fork they are not this process's own.
    let (own, of_children) = (
        fs::read_link("/proc/self/ns/time").ok(),
        fs::read_link("/proc/self/ns/time_for_children").ok(),
    );
    if own != of_children {
        return Err(Failure::unfit(
            "this process has left its time namespace for its children only",
        ));
    }
    monotonic_offset_ns(&text)
        .ok_or_else(|| Failure::unfit("the offsets of the time namespace are not readable"))
}

/// The offset in lines such as `monotonic  100  0`: seconds, which may be negative, and nanoseconds.
fn monotonic_offset_ns(text: &str) -> Option<i64> {
    let line = text.lines().find(|line| line.starts_with("monotonic"))?;
    let mut words = line.split_whitespace().skip(1);
    let seconds: i64 = words.next()?.parse().ok()?;
    let nanos: i64 = words.next()?.parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read_with_their_sign() {
        for (text, offset) in [
            (
                "monotonic           0         0\nboottime            0         0\n",
                Some(0),
            ),
            (
                "monotonic      100000         5\nboottime 7 0",
                Some(100_000_000_000_005),
            ),
            ("boottime 7 0\nmonotonic -2 500000000", Some(-1_500_000_000)),
            ("boottime 7 0", None),
            ("monotonic x 0", None),
            ("monotonic 9223372036854775807 0", None),
        ] {
            assert_eq!(monotonic_offset_ns(text), offset, "{text:?}");
        }
    }

    #[test]
    fn an_offset_is_taken_off_again() {
        let plain = Boot::new("b".into(), 0);
        let ahead = Boot {
            offset_ns: -3_600_000_000_000,
            ..plain.clone()
        };
        let before = plain.now();
        let apart = ahead.now().since(before);
        assert!((3_600..3_660).contains(&apart.as_secs()), "{apart:?}");
    }
}
