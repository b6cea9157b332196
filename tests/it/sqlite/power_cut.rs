//! A power cut takes back what was not synced, and no token comes twice.
//!
//! The cut is a kill, and what it leaves at the least: each file as it was when it was synced last. A preloaded library
//! keeps that.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, UNIX_EPOCH};

use super::boots::told_token;
use super::child::Child;
use super::surroundings;
use crate::harness::preload;
use crate::harness::server_clock::ServerClock;

/// A machine of its own: a disk, a boot id and a clock.
struct Machine {
    folder: tempfile::TempDir,
    clock: ServerClock,
}

impl Machine {
    /// Its clock shows this long after 1970.
    fn new(shows_ms: i64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = ServerClock::in_folder(folder.path());
        let now = UNIX_EPOCH.elapsed();
        let now = i64::try_from(now.expect("past 1970").as_millis()).expect("milliseconds");
        clock.step(shows_ms - now);
        let id = format!("{:08x}-1111-4222-8333-444444444444\n", fastrand::u32(..));
        fs::write(folder.path().join("boot"), id).expect("a file");
        for part in ["disk", "synced"] {
            fs::create_dir(folder.path().join(part)).expect("a folder");
        }
        Self { folder, clock }
    }

    fn path(&self, part: &str) -> PathBuf {
        self.folder.path().join(part)
    }

    /// A process on it that has the file open.
    fn process(&self) -> Child {
        static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
        let source = include_bytes!("power_cut.c");
        let library = LIBRARY.get_or_init(|| preload::compiled("power_cut", source));
        let [clock_library, clock] = self.clock.variables();
        let variables = [
            format!(
                "LD_PRELOAD={}:{}",
                library.display(),
                clock_library.display()
            ),
            format!("TEST_SERVER_CLOCK={}", clock.display()),
            format!("LEASEHOLD_TEST_SYNCED={}", self.path("synced").display()),
        ];
        let boot = self.path("boot");
        let mut surroundings = surroundings::boot(&boot).to_vec();
        surroundings.push("env");
        surroundings.extend(variables.iter().map(String::as_str));
        Child::start_under(&surroundings, &self.path("disk").join("leases.sqlite"))
    }

    /// The machine after a power cut, with its clock at the beginning of 1970 again.
    fn after_a_cut(&self) -> Self {
        let next = Self::new(0);
        for entry in fs::read_dir(self.path("synced")).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name");
            for part in ["disk", "synced"] {
                fs::copy(&path, next.path(part).join(name)).expect("a copy");
            }
        }
        next
    }

    /// How often a file was synced.
    fn syncs(&self) -> usize {
        fs::read(self.path("synced").join("syncs")).map_or(0, |syncs| syncs.len())
    }
}

fn granted_token(process: &mut Child, name: &str) -> u64 {
    told_token(&process.ask(&format!("acquire {name} 60000")))
}

#[test]
fn tokens_rise_through_power_cuts_of_a_machine_whose_clock_begins_in_1970() {
    let mut machine = Machine::new(3_600_000);
    let mut last = 0;
    for boot in 0..3 {
        let mut process = machine.process();
        for index in 0..50 {
            let next = granted_token(&mut process, &format!("{boot}/{index}"));
            assert!(next > last, "boot {boot}: {next} after {last}");
            last = next;
        }
        process.kill();
        machine = machine.after_a_cut();
    }
}

#[test]
fn grants_are_not_synced_one_by_one() {
    let machine = Machine::new(3_600_000);
    let mut process = machine.process();
    granted_token(&mut process, "first");
    let before = machine.syncs();
    assert!(before > 0, "the first grant is synced");
    for index in 0..50 {
        granted_token(&mut process, &index.to_string());
    }
    let after = machine.syncs();
    // One more every ten seconds, however slow this machine is, and a checkpoint.
    assert!(after - before < 10, "{before} syncs, then {after}");
}

#[test]
fn a_kill_alone_takes_no_token_back_and_lifts_none() {
    let machine = Machine::new(3_600_000);
    let mut process = machine.process();
    let first = granted_token(&mut process, "first");
    process.kill();
    let second = granted_token(&mut machine.process(), "second");
    assert!(second > first, "{second} after {first}");
    let apart = Duration::from_micros(second - first);
    assert!(apart < Duration::from_secs(9), "{apart:?}");
}

/// The library copies what it is asked to sync, and leaves the file's locks alone.
#[test]
fn what_is_synced_is_kept_aside() {
    let machine = Machine::new(0);
    let mut process = machine.process();
    granted_token(&mut process, "first");
    assert!(is_file(&machine.path("synced").join("leases.sqlite")));
    let rival = machine.process().ask("acquire first 60000");
    assert!(rival.starts_with("held "), "{rival}");
}

fn is_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file())
}
