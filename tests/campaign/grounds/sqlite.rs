//! One file. It has no server and no network.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;
use rusqlite::Connection;
use tempfile::TempDir;

use super::{Ground, eventually, pause};
use crate::fault::Fault;
use crate::harness::full_disk::{Full, FullDisk};

/// What a log has at least that began with a grant.
const FEW_BLOCKS: u64 = 8 * 4_096;

pub(super) struct SqliteGround {
    folder: TempDir,
    /// For the worker processes and the tool, which write the file themselves. The runner writes nothing meanwhile.
    disk: FullDisk,
}

impl SqliteGround {
    pub(super) fn start() -> Self {
        let folder = TempDir::new().expect("a folder");
        // With its log, its index, and what is made beside it.
        let disk = FullDisk::in_folder(folder.path(), &["/leases.sqlite"]);
        Self { folder, disk }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("leases.sqlite")
    }

    fn stranger(&self) -> Connection {
        let stranger = Connection::open(self.file()).expect("a local file");
        stranger
            .busy_timeout(Duration::from_secs(10))
            .expect("a valid time");
        stranger
    }

    /// Leaves the disk without room, soon after the log began anew: one that has grown for long has blocks for hundreds of
    /// grants, and no one would notice. It has a few blocks, which are written again and again, or none, as on a file system that
    /// needs room for each write.
    async fn fill_disk(&self, hold: Duration, random: &mut Rng) {
        let stranger = self.stranger();
        let emptied = stranger.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()));
        emptied.expect("a checkpoint");
        drop(stranger);
        if random.bool() {
            let log = self.folder.path().join("leases.sqlite-wal");
            eventually("the first blocks of the log", async || {
                let facts = log.metadata().ok()?;
                (facts.len() >= FEW_BLOCKS).then_some(())
            })
            .await;
        }
        self.disk.set(Full::Data);
        pause(hold).await;
        self.disk.set(Full::Nothing);
    }
}

#[async_trait(?Send)]
impl Ground for SqliteGround {
    fn url(&self) -> String {
        format!("sqlite:{}", self.file().display())
    }

    fn environment(&self) -> Vec<(String, String)> {
        let variables = self.disk.variables().into_iter();
        variables
            .map(|(name, value)| (name.into(), value.display().to_string()))
            .collect()
    }

    fn faults(&self) -> &'static [Fault] {
        &[Fault::Busy, Fault::Flushed, Fault::Full]
    }

    async fn strike(&mut self, fault: Fault, hold: Duration, random: &mut Rng) {
        match fault {
            Fault::Flushed => {
                let deleted = self.stranger().execute("DELETE FROM lease", []);
                deleted.expect("deleted");
            }
            Fault::Full => self.fill_disk(hold, random).await,
            _ => {
                let stranger = self.stranger();
                stranger.execute_batch("BEGIN IMMEDIATE").expect("begun");
                pause(hold).await;
                stranger.execute_batch("ROLLBACK").expect("ended");
            }
        }
    }
}
