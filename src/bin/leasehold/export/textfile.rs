//! The file for node_exporter's textfile collector: written at the start, once a minute, and at the end.
//!
//! On a thread of its own, so that a slow disk never holds up the job's supervision. The file is replaced as a whole.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use super::recorder::Recorder;
use crate::exit::Failure;
use crate::file;
use crate::say;

/// Interval at which the file is written while the job runs.
const EVERY: Duration = Duration::from_secs(60);

/// Time that the end of a run waits for the last write.
const LAST: Duration = Duration::from_secs(2);

/// The writer of the file.
pub struct TextFile {
    last: SyncSender<SyncSender<()>>,
}

impl TextFile {
    /// Writes the file for the first time, so that a place that cannot be written to is known before the job runs.
    pub fn start(path: PathBuf, recorder: Recorder) -> Result<Self, Failure> {
        if path.extension() != Some("prom".as_ref()) {
            return Err(Failure::usage(format!(
                "metrics file {} refused: the textfile collector reads only files with the ending .prom",
                path.display()
            )));
        }
        write(&path, &recorder.text()).map_err(|error| {
            let path = path.display();
            Failure::usage(format!(
                "metrics file {path} refused: {error}; expected a place to write to"
            ))
        })?;
        let (last, is_last) = sync_channel(1);
        std::thread::Builder::new()
            .name("textfile".into())
            .spawn(move || write_on(&path, &recorder, &is_last))
            .map_err(|error| Failure::internal("cannot start a thread", &error))?;
        Ok(Self { last })
    }

    /// Writes it once more. A disk that hangs does not keep the tool from ending.
    pub fn finish(self) {
        let (written, is_written) = sync_channel(1);
        if self.last.send(written).is_ok() {
            let _ = is_written.recv_timeout(LAST);
        }
    }
}

fn write_on(path: &Path, recorder: &Recorder, is_last: &Receiver<SyncSender<()>>) {
    let mut is_told = false;
    loop {
        let last = is_last.recv_timeout(EVERY);
        if matches!(last, Err(RecvTimeoutError::Disconnected)) {
            return;
        }
        match write(path, &recorder.text()) {
            Ok(()) => is_told = false,
            Err(error) if !std::mem::replace(&mut is_told, true) => {
                let path = path.display();
                say::note(
                    "metrics_file",
                    format_args!("the metrics file was not written: {error} file={path}"),
                );
            }
            Err(_) => {}
        }
        if let Ok(written) = last {
            let _ = written.send(());
            return;
        }
    }
}

/// A collector passes over the new file until it is whole, because its name does not end in `.prom`.
fn write(path: &Path, text: &str) -> io::Result<()> {
    file::replace(path, text.as_bytes(), 0o666)
}
