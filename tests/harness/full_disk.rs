//! A disk that is full for some programs, as long as the test says so.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::preload;

/// The files that cannot grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// None: there is room.
    Nothing = 0,
    /// Those of the data.
    Data = 1,
    /// Those of the log as well.
    DataAndLog = 3,
}

/// A switch in a file that a preloaded library reads.
#[derive(Debug)]
pub struct FullDisk {
    switch: PathBuf,
    shim: PathBuf,
    parts: String,
}

impl FullDisk {
    /// Makes the switch in this folder, with room at first. `parts` is what the paths of the files of the data have in common,
    /// and then those of the log if it can be full on its own.
    pub fn in_folder(folder: &Path, parts: &[&str]) -> Self {
        static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
        let source = include_bytes!("full_disk.c");
        let library = LIBRARY.get_or_init(|| preload::compiled("full_disk", source));
        let disk = Self {
            switch: folder.join("disk"),
            shim: preload::copied(library, folder),
            parts: parts.join(":"),
        };
        disk.set(Full::Nothing);
        disk
    }

    pub fn set(&self, full: Full) {
        // In place, because the programs have this file mapped.
        let mut file = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&self.switch)
            .expect("the folder can be written");
        file.write_all(&[full as u8]).expect("a byte fits");
    }

    /// Makes this program, and those that it starts, use the disk.
    pub fn rule(&self, command: &mut Command) {
        let [(_, shim), others @ ..] = self.variables();
        preload::load(command, shim);
        command.envs(others);
    }

    /// Returns the variables that make a program use the disk and nothing else that is preloaded.
    pub fn variables(&self) -> [(&'static str, &Path); 3] {
        [
            ("LD_PRELOAD", &self.shim),
            ("TEST_DISK", &self.switch),
            ("TEST_DISK_PARTS", Path::new(&self.parts)),
        ]
    }
}
