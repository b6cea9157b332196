//! One file. It has no server and no network.

use std::path::PathBuf;
use std::time::Duration;

use fastrand::Rng;
use tempfile::TempDir;

use super::{Ground, LocalBoxFuture, pause};
use crate::fault::Fault;

pub(super) struct SqliteGround {
    folder: TempDir,
}

impl SqliteGround {
    pub(super) fn start() -> Self {
        let folder = TempDir::new().expect("a folder");
        Self { folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("leases.sqlite")
    }
}

impl Ground for SqliteGround {
    fn url(&self) -> String {
        format!("sqlite:{}", self.file().display())
    }

    fn faults(&self) -> &'static [Fault] {
        &[Fault::Busy, Fault::Flushed]
    }

    fn strike<'a>(
        &'a mut self,
        fault: Fault,
        hold: Duration,
        _: &'a mut Rng,
    ) -> LocalBoxFuture<'a, ()> {
        Box::pin(async move {
            let stranger = rusqlite::Connection::open(self.file()).expect("a local file");
            stranger
                .busy_timeout(Duration::from_secs(10))
                .expect("a valid time");
            if fault == Fault::Flushed {
                stranger.execute("DELETE FROM lease", []).expect("deleted");
                return;
            }
            stranger.execute_batch("BEGIN IMMEDIATE").expect("begun");
            pause(hold).await;
            stranger.execute_batch("ROLLBACK").expect("ended");
        })
    }
}
