//! A disk that is full for one server, as long as the test says so.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::preload;

/// Which files of a Postgres server cannot grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// None: there is room.
    Nothing = 0,
    /// The files of tables and indexes.
    Tables = 1,
    /// The files of the log as well.
    TablesAndLog = 3,
}

/// A switch in a file that a preloaded library reads.
#[derive(Debug)]
pub(crate) struct FullDisk {
    switch: PathBuf,
    shim: PathBuf,
}

impl FullDisk {
    /// Makes the switch for a server in this folder, with room at first.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
        let source = include_bytes!("full_disk.c");
        let library = LIBRARY.get_or_init(|| preload::compiled("full_disk", source));
        let disk = Self {
            switch: folder.join("disk"),
            shim: preload::copied(library, folder),
        };
        disk.set(Full::Nothing);
        disk
    }

    pub(crate) fn set(&self, full: Full) {
        // In place, because the server has this file mapped.
        let mut file = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&self.switch)
            .expect("the folder can be written");
        file.write_all(&[full as u8]).expect("a byte fits");
    }

    /// Returns the values of `LD_PRELOAD` and `LEASEHOLD_TEST_DISK` for a program that uses the switch.
    pub(crate) fn variables(&self) -> [&Path; 2] {
        [&self.shim, &self.switch]
    }
}
