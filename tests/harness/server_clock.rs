//! The wall clock of one server, moved by the test while the server runs.

use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use super::preload;

/// An offset that a preloaded library adds to each reading of the wall clock. (libfaketime cannot be used: servers
/// built with jemalloc do not start under it.)
#[derive(Debug)]
pub struct ServerClock {
    file: PathBuf,
    shim: PathBuf,
    ahead_us: AtomicI64,
}

impl ServerClock {
    /// Makes a clock without an offset, kept in this folder.
    pub fn in_folder(folder: &Path) -> Self {
        static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
        let source = include_bytes!("server_clock.c");
        let library = LIBRARY.get_or_init(|| preload::compiled("server_clock", source));
        let clock = Self {
            file: folder.join("clock"),
            shim: preload::copied(library, folder),
            ahead_us: AtomicI64::new(0),
        };
        clock.write_us(0, 0);
        clock.write_us(1, 0);
        clock
    }

    /// Moves the clock forward, or back.
    pub fn step(&self, by_ms: i64) {
        let by_us = by_ms * 1_000;
        let ahead = self.ahead_us.fetch_add(by_us, Ordering::SeqCst) + by_us;
        self.write_us(0, ahead);
    }

    /// Lets the clock stand still at this moment, in microseconds since 1970.
    pub fn stand_still_at(&self, us: u64) {
        self.write_us(1, us.try_into().expect("the present"));
    }

    fn write_us(&self, index: u64, us: i64) {
        // In place, because the server has this file mapped.
        let mut file = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&self.file)
            .expect("the folder can be written");
        file.seek(SeekFrom::Start(8 * index)).expect("a file");
        file.write_all(&us.to_ne_bytes()).expect("eight bytes fit");
    }

    /// Makes this program use the clock.
    pub fn rule(&self, command: &mut Command) {
        preload::load(command, &self.shim);
        command.env("TEST_SERVER_CLOCK", &self.file);
    }

    /// Returns the values of `LD_PRELOAD` and `TEST_SERVER_CLOCK` for a program that uses the clock.
    pub fn variables(&self) -> [&Path; 2] {
        [&self.shim, &self.file]
    }
}
