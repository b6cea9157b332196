//! The file for node_exporter's textfile collector: written at the start, once a minute, and at the end.
//!
//! Runs on threads for blocking work, so that a slow disk never holds up the supervision of the job. The file is
//! replaced as a whole.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::oneshot::{Receiver, Sender, channel};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use super::recorder::Recorder;
use crate::exit::Failure;
use crate::file;
use crate::say;

/// Interval at which the file is written while the job runs.
const EVERY: Duration = Duration::from_secs(60);

/// Limit for one write.
const LIMIT: Duration = Duration::from_secs(5);

/// Time that the start of a run waits for the earlier content, and its end for the last write.
const LAST: Duration = Duration::from_secs(2);

/// The writer of the file.
pub struct TextFile {
    /// Dropped when the file is to be written for the last time.
    run: Sender<Infallible>,
    writer: JoinHandle<()>,
}

impl TextFile {
    /// Writes the file for the first time, so that a path that cannot be written is refused before the job runs.
    pub async fn start(path: PathBuf, recorder: Recorder) -> Result<Self, Failure> {
        if path.extension() != Some("prom".as_ref()) {
            return Err(Failure::usage(format!(
                "metrics file {} refused: the textfile collector reads only files with the ending .prom",
                path.display()
            )));
        }
        write(path.clone(), &recorder).await.map_err(|error| {
            let path = path.display();
            Failure::usage(format!(
                "metrics file {path} refused: {error}; expected a path that can be written"
            ))
        })?;
        let (run, is_over) = channel();
        let writer = tokio::spawn(write_on(path, recorder, is_over));
        Ok(Self { run, writer })
    }

    /// Writes it once more. A disk that hangs does not keep the tool from ending.
    pub async fn finish(self) {
        drop(self.run);
        let _ = timeout(LAST, self.writer).await;
    }
}

async fn write_on(path: PathBuf, recorder: Recorder, mut is_over: Receiver<Infallible>) {
    let (mut is_last, mut is_told) = (false, false);
    while !is_last {
        is_last = timeout(EVERY, &mut is_over).await.is_ok();
        let written = write(path.clone(), &recorder).await;
        if let Err(error) = &written
            && !is_told
        {
            let path = path.display();
            say::note(
                "metrics_file",
                format_args!("the metrics file was not written: {error} file={path}"),
            );
        }
        is_told = written.is_err();
    }
}

/// Returns the content of the file of an earlier run, or nothing if it cannot be read in time.
pub async fn read(path: PathBuf) -> String {
    let reading = timeout(LAST, spawn_blocking(move || file::read(&path)));
    let read = reading.await.ok().and_then(Result::ok);
    read.and_then(Result::ok).unwrap_or_default()
}

/// A collector passes over the new file until it is whole, because its name does not end in `.prom`.
async fn write(path: PathBuf, recorder: &Recorder) -> io::Result<()> {
    let text = recorder.text();
    let writing = spawn_blocking(move || file::replace(&path, text.as_bytes(), None));
    let written = timeout(LIMIT, writing).await;
    written.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??
}
