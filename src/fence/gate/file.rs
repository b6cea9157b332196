//! The journal of a gate as a file: one line for each raise, flushed to the disk before it counts.
//!
//! ```text
//! leasehold gate 1
//! {"resource":"device/7","pass":{"name":"nightly","holder":"...","token":41}}
//! ```
//!
//! A last line without its end was being written when the power failed; it was never acknowledged, and is removed. Any
//! other broken line is damage, and the file is refused: if a row were forgotten, a stale holder could write.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::Journal;
use crate::error::{Error, ErrorKind};
use crate::fence::Pass;
use crate::future::BoxFuture;
use crate::telemetry;

const HEAD: &str = "leasehold gate 1\n";

/// The number of outdated lines, beyond one for each row, after which the file is rewritten: so it is rewritten rarely,
/// and never holds much more than its rows.
const OVERTAKEN: usize = 1_024;

/// A file in which a gate keeps its rows.
#[derive(Clone)]
pub struct File {
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

struct State {
    path: PathBuf,
    file: fs::File,
    rows: HashMap<String, Pass>,
    lines: usize,
    rewrite_at: usize,
    /// After a failed write the contents of the disk are unknown; only reading the file again shows them.
    has_failed: bool,
    /// Locked while the gate is open. It is next to the file, because the file itself is replaced.
    lock: fs::File,
}

impl Drop for State {
    /// An explicit unlock, because a process that is being started has a copy of the descriptor until its exec.
    fn drop(&mut self) {
        // If this fails, closing the file still unlocks it.
        let _ = self.lock.unlock();
    }
}

#[derive(Serialize, Deserialize)]
struct Record {
    resource: String,
    pass: Pass,
}

impl File {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// `Misconfigured` for a file that is damaged, or that another process has open; `Unavailable` if it cannot be
    /// read.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        let opened = path.clone();
        let state = blocking(move || State::open(opened)).await?;
        Ok(Self {
            path,
            state: Arc::new(Mutex::new(state)),
        })
    }
}

impl Journal for File {
    fn load(&self) -> BoxFuture<'_, Result<Vec<(String, Pass)>, Error>> {
        let state = self.state.lock();
        let rows = state.rows.clone().into_iter().collect();
        Box::pin(async { Ok(rows) })
    }

    fn keep<'a>(&'a self, resource: &'a str, pass: &'a Pass) -> BoxFuture<'a, Result<(), Error>> {
        let (state, resource, pass) = (self.state.clone(), resource.to_owned(), pass.clone());
        Box::pin(blocking(move || {
            let mut state = state.lock();
            state.keep(resource, pass)
        }))
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.path, f)
    }
}

impl State {
    fn open(path: PathBuf) -> Result<Self, Error> {
        let lock = lock(&path)?;
        let unavailable = |error| failed("open", &path, error);
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(&path)
            .map_err(unavailable)?;
        let text = fs::read(&path).map_err(unavailable)?;
        let (rows, lines, end) = read(&path, &text)?;
        // An unfinished line is removed, and a new file gets its first line.
        file.set_len(end as u64).map_err(unavailable)?;
        if end == 0 {
            file.write_all(HEAD.as_bytes()).map_err(unavailable)?;
        }
        file.sync_all().map_err(unavailable)?;
        sync_folder(&path).map_err(unavailable)?;
        let mut state = Self {
            file,
            lines,
            rewrite_at: 0,
            has_failed: false,
            lock,
            rows,
            path,
        };
        state.plan_rewrite();
        Ok(state)
    }

    fn keep(&mut self, resource: String, pass: Pass) -> Result<(), Error> {
        if self.has_failed {
            let text = format!(
                "raise failed: the gate's file failed before, open it again path={:?}",
                self.path
            );
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        let record = Record { resource, pass };
        self.append(&record).map_err(|error| {
            self.has_failed = true;
            failed("raise", &self.path, error)
        })?;
        self.rows.insert(record.resource, record.pass);
        if self.lines >= self.rewrite_at {
            self.rewrite().unwrap_or_else(|error| {
                // The raise itself is safe in the longer file.
                telemetry::gate_not_shortened(&self.path, &error);
            });
            self.plan_rewrite();
        }
        Ok(())
    }

    fn append(&mut self, record: &Record) -> io::Result<()> {
        self.file.write_all(&written(record))?;
        self.file.sync_data()?;
        self.lines += 1;
        Ok(())
    }

    /// Writes the rows, and nothing else, to a new file that replaces the old one.
    fn rewrite(&mut self) -> io::Result<()> {
        let new = beside(&self.path, "new");
        let mut text = HEAD.as_bytes().to_vec();
        for (resource, pass) in &self.rows {
            let (resource, pass) = (resource.clone(), pass.clone());
            text.extend(written(&Record { resource, pass }));
        }
        fs::write(&new, text)?;
        let file = OpenOptions::new().append(true).open(&new)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        let synced = sync_folder(&self.path);
        self.go_on_in(file, synced)
    }

    /// Uses the new file, which has the name. Both files have every row. Where the folder was not synced, either may
    /// have the name after a loss of power, so neither can keep another row.
    fn go_on_in(&mut self, file: fs::File, synced: io::Result<()>) -> io::Result<()> {
        self.file = file;
        self.lines = self.rows.len();
        self.has_failed = synced.is_err();
        synced
    }

    fn plan_rewrite(&mut self) {
        self.rewrite_at = self.lines.max(self.rows.len() * 2) + OVERTAKEN;
    }
}

/// Returns the rows, how many lines they take, and where the last finished line ends.
fn read(path: &Path, text: &[u8]) -> Result<(HashMap<String, Pass>, usize, usize), Error> {
    let end = text.iter().rposition(|byte| *byte == b'\n');
    let end = end.map_or(0, |last| last + 1);
    let mut lines = text[..end].split_inclusive(|byte| *byte == b'\n');
    let is_ours = match lines.next() {
        Some(head) => head == HEAD.as_bytes(),
        // The head itself is unfinished.
        None => HEAD.as_bytes().starts_with(text),
    };
    if !is_ours {
        return Err(damaged(path, 1, "this is another program's file"));
    }
    let records = lines.zip(2..).map(|(line, number)| {
        serde_json::from_slice(line).map_err(|error| damaged(path, number, error))
    });
    let records = records.collect::<Result<Vec<Record>, _>>()?;
    let count = records.len();
    let rows = records.into_iter();
    let rows = rows.map(|record| (record.resource, record.pass));
    Ok((rows.collect(), count, end))
}

fn written(record: &Record) -> Vec<u8> {
    let mut text = serde_json::to_vec(record).expect("text and numbers become JSON");
    text.push(b'\n');
    text
}

fn lock(path: &Path) -> Result<fs::File, Error> {
    let beside = beside(path, "lock");
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&beside)
        .map_err(|error| failed("open", &beside, error))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(fs::TryLockError::WouldBlock) => Err(Error::new(
            ErrorKind::Misconfigured,
            format!("open failed: another gate has opened this file path={path:?}"),
        )),
        Err(fs::TryLockError::Error(error)) => Err(failed("open", &beside, error)),
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// A new file name is durable only after its folder is synced.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn failed(action: &str, path: &Path, error: io::Error) -> Error {
    let text = format!("{action} failed: the gate's file cannot be used path={path:?}");
    Error::new(ErrorKind::Unavailable, text).with_source(error)
}

fn damaged(
    path: &Path,
    line: usize,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    let text = format!("open failed: the gate's file is damaged path={path:?} line={line}");
    Error::new(ErrorKind::Misconfigured, text).with_source(source)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        let text = "the gate's file was not used: the runtime is being shut down";
        Err(Error::new(ErrorKind::Unavailable, text).with_source(error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder::{ClientId, Holder};
    use crate::{Name, Token};

    #[test]
    fn a_file_whose_new_name_may_not_be_durable_keeps_no_further_raise() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut state = State::open(folder.path().join("fences")).expect("opened");
        let name = Name::new("nightly").expect("valid");
        let holder = Holder::new(ClientId::from_u128(7), 1);
        let pass = Pass::new(name, holder, Token::MAX);
        state.keep("a".into(), pass.clone()).expect("kept");
        let file = state.file.try_clone().expect("a copy");
        let unsynced = Err(io::ErrorKind::StorageFull.into());
        state.go_on_in(file, unsynced).expect_err("reported");
        let error = state.keep("b".into(), pass).expect_err("not durable");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("open it again"), "{error}");
    }
}
