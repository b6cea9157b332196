//! The journal of a gate as a file: one line for each raise, flushed to the disk before it counts.
//!
//! ```text
//! leasehold gate 2
//! {"resource":"device/7","pass":{"name":"nightly","holder":"...","token":41}} 5d1c7a8f03be6942
//! ```
//!
//! A line ends with a checksum of its record. Format 1 had none, and is written anew when it is opened.
//!
//! A last line without its end was being written when the power failed; it was never acknowledged, and is removed. Any
//! other broken line is damage, and the file is refused: if a row were forgotten, a stale holder could write.
//!
//! The file itself is locked, and so is one next to it that stays when the file is replaced. A raise counts only if the
//! file that took it is still the one at its path.
//!
//! The file is read and rewritten, without outdated lines, when it is opened, when many of its lines are outdated, and
//! after a failed write, because the content of the disk is unknown then. A raise waits for that.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::Journal;
use crate::error::{Error, ErrorKind};
use crate::fence::Pass;
use crate::future::BoxFuture;

const HEAD: &str = "leasehold gate 2\n";
const HEAD_WITHOUT_CHECKSUMS: &str = "leasehold gate 1\n";

/// Number of outdated lines, beyond one for each row, that causes a rewrite: so rewrites are rare, and the file never
/// holds much more than its rows.
const OVERTAKEN: usize = 1_024;

/// A file with the rows of a gate.
#[derive(Debug, Clone)]
pub struct File(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    path: PathBuf,
    /// The file to which the next row is appended, locked.
    file: fs::File,
    /// Number of lines that the file takes before it is rewritten.
    left: usize,
    /// Locked while the gate is open. A file next to the journal, because the journal itself is replaced.
    lock: fs::File,
}

impl Drop for State {
    /// An explicit unlock, because a process that is being started has a copy of the descriptor until its exec.
    fn drop(&mut self) {
        // If this fails, closing the file still unlocks it.
        let _ = self.file.unlock();
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
        let state = blocking(|| State::open(path)).await?;
        Ok(Self(Arc::new(Mutex::new(state))))
    }
}

impl Journal for File {
    fn load(&self) -> BoxFuture<'_, Result<Vec<(String, Pass)>, Error>> {
        let state = self.0.clone();
        Box::pin(blocking(move || {
            let rows = read(&state.lock().path)?;
            Ok(rows.into_iter().collect())
        }))
    }

    fn keep<'a>(&'a self, resource: &'a str, pass: &'a Pass) -> BoxFuture<'a, Result<(), Error>> {
        let (state, resource, pass) = (self.0.clone(), resource.to_owned(), pass.clone());
        Box::pin(blocking(move || state.lock().keep(resource, pass)))
    }
}

impl State {
    fn open(path: PathBuf) -> Result<Self, Error> {
        let made = OpenOptions::new().append(true).create(true).open(&path);
        let file = made.map_err(|error| failed("open", &path, error))?;
        // A new file replaces the old one, and not a link to it.
        let path = fs::canonicalize(&path).map_err(|error| failed("open", &path, error))?;
        let beside = beside(&path, "lock");
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&beside)
            .map_err(|error| failed("open", &beside, error))?;
        for file in [&lock, &file] {
            take(file, &path)?;
        }
        check_is_at(&path, &file, "open")?;
        let text = fs::read(&path).map_err(|error| failed("read", &path, error))?;
        let rows = rows_of(&text, &path)?;
        let mut state = Self {
            path,
            file,
            left: rows.len() + OVERTAKEN,
            lock,
        };
        // Otherwise it is new, its last line is unfinished, or it has the previous format.
        if text.starts_with(HEAD.as_bytes()) && text.ends_with(b"\n") {
            let kept = state.file.sync_all();
            kept.map_err(|error| failed("open", &state.path, error))?;
        } else {
            state.renew(sync_folder)?;
        }
        Ok(state)
    }

    fn keep(&mut self, resource: String, pass: Pass) -> Result<(), Error> {
        if self.left == 0 {
            self.renew(sync_folder)?;
        }
        // After a failure the file is written anew first.
        let left = std::mem::take(&mut self.left);
        let line = written(resource, pass);
        let mut file = &self.file;
        let kept = file.write_all(&line).and_then(|()| file.sync_data());
        kept.map_err(|error| failed("raise", &self.path, error))?;
        check_is_at(&self.path, &self.file, "raise")?;
        self.left = left - 1;
        Ok(())
    }

    /// Writes the rows, and nothing else, to a new file that replaces the old one.
    fn renew(&mut self, sync_folder: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), Error> {
        check_is_at(&self.path, &self.file, "raise")?;
        let rows = read(&self.path)?;
        let left = rows.len() + OVERTAKEN;
        let mut text = HEAD.as_bytes().to_vec();
        for (resource, pass) in rows {
            text.extend(written(resource, pass));
        }
        let write = || -> io::Result<fs::File> {
            let new = beside(&self.path, "new");
            fs::write(&new, text)?;
            fs::set_permissions(&new, fs::metadata(&self.path)?.permissions())?;
            let file = OpenOptions::new().append(true).open(&new)?;
            file.sync_all()?;
            file.try_lock()?;
            fs::rename(&new, &self.path)?;
            Ok(file)
        };
        self.file = write().map_err(|error| failed("write", &self.path, error))?;
        // Otherwise either file may have the name after a loss of power, so neither could keep another row.
        sync_folder(&self.path).map_err(|error| failed("write", &self.path, error))?;
        self.left = left;
        Ok(())
    }
}

/// Returns the rows in the file.
fn read(path: &Path) -> Result<HashMap<String, Pass>, Error> {
    let text = fs::read(path).map_err(|error| failed("read", path, error))?;
    rows_of(&text, path)
}

/// Returns the rows in this text of the file.
fn rows_of(text: &[u8], path: &Path) -> Result<HashMap<String, Pass>, Error> {
    let end = text.iter().rposition(|byte| *byte == b'\n');
    let end = end.map_or(0, |last| last + 1);
    let mut lines = text[..end].split_inclusive(|byte| *byte == b'\n');
    let head = lines.next();
    let has_checksums = head != Some(HEAD_WITHOUT_CHECKSUMS.as_bytes());
    let is_ours = match head {
        Some(head) => head == HEAD.as_bytes() || !has_checksums,
        // The head itself is unfinished.
        None => HEAD.as_bytes().starts_with(text),
    };
    if !is_ours {
        return Err(damaged(path, 1, "this is another program's file"));
    }
    let rows = lines.zip(2..).map(|(line, number)| {
        let record = match has_checksums {
            true => checked(line).ok_or_else(|| damaged(path, number, "its checksum is wrong"))?,
            false => line,
        };
        let record = serde_json::from_slice(record);
        let Record { resource, pass } = record.map_err(|error| damaged(path, number, error))?;
        Ok((resource, pass))
    });
    rows.collect()
}

fn written(resource: String, pass: Pass) -> Vec<u8> {
    let record = Record { resource, pass };
    let record = serde_json::to_vec(&record).expect("text and numbers become JSON");
    let end = ending(&record);
    [record, end.into_bytes()].concat()
}

/// Returns the record of a line whose end fits it.
fn checked(line: &[u8]) -> Option<&[u8]> {
    let (record, end) = line.split_at_checked(line.len().checked_sub(ENDING)?)?;
    (ending(record).as_bytes() == end).then_some(record)
}

/// Length of the end of a line.
const ENDING: usize = " 0123456789abcdef\n".len();

/// Returns the end of the line of this record: its checksum, FNV-1a of 64 bits, which differs for any one changed byte.
fn ending(record: &[u8]) -> String {
    let sum = record.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!(" {sum:016x}\n")
}

/// Locks one of the two files of the gate at this path.
fn take(file: &fs::File, path: &Path) -> Result<(), Error> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(fs::TryLockError::WouldBlock) => Err(Error::new(
            ErrorKind::Misconfigured,
            format!("open failed: another gate has opened this file path={path:?}"),
        )),
        Err(fs::TryLockError::Error(error)) => Err(failed("lock", path, error)),
    }
}

/// Checks that this file is the one at the path. A row in another one would be gone after a restart.
fn check_is_at(path: &Path, file: &fs::File, action: &str) -> Result<(), Error> {
    let identity = |facts: fs::Metadata| (facts.dev(), facts.ino());
    let own = file.metadata().map(identity);
    let own = own.map_err(|error| failed(action, path, error))?;
    match fs::metadata(path).map(identity) {
        Ok(there) if there == own => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(action, path, error)),
        _ => {
            let why =
                "the gate's file was removed or replaced; put it back, and open the gate again";
            let text = format!("{action} failed: {why} path={path:?}");
            Err(Error::new(ErrorKind::Misconfigured, text))
        }
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
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::holder::{ClientId, Holder};
    use crate::{Name, Token};

    /// A file, in a folder of its own, that keeps this pass for `a`.
    fn with_a_raise() -> (tempfile::TempDir, State, Pass) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut state = State::open(folder.path().join("fences")).expect("opened");
        let name = Name::new("nightly").expect("valid");
        let holder = Holder::new(ClientId::from_u128(7), 1);
        let pass = Pass::new(name, holder, Token::MAX);
        state.keep("a".into(), pass.clone()).expect("kept");
        (folder, state, pass)
    }

    #[test]
    fn a_file_whose_new_name_may_not_be_durable_keeps_no_further_raise() {
        let (_folder, mut state, pass) = with_a_raise();
        state.left = 0;
        let unsynced = state.renew(|_| Err(io::ErrorKind::StorageFull.into()));
        let error = unsynced.expect_err("not durable");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let rows = read(&state.path).expect("both files have every row");
        assert_eq!((state.left, rows.get("a")), (0, Some(&pass)));
    }

    #[test]
    fn a_file_that_is_opened_by_a_link_keeps_its_path_and_rights() {
        let folder = tempfile::tempdir().expect("a folder");
        let (kept, link) = (folder.path().join("kept"), folder.path().join("link"));
        fs::write(&kept, "").expect("written");
        let own = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&kept, own).expect("it is there");
        std::os::unix::fs::symlink(&kept, &link).expect("linked");
        drop(State::open(link.clone()).expect("opened"));
        assert!(link.is_symlink());
        let facts = fs::metadata(&kept).expect("it is there");
        assert_eq!(facts.permissions().mode() & 0o777, 0o600);
        assert!(fs::read(&kept).expect("whole").ends_with(b"\n"));
    }

    /// As after a full disk: what a failed write left is read again.
    #[test]
    fn a_raise_after_a_failed_write_is_kept_in_a_new_file() {
        let (_folder, mut state, pass) = with_a_raise();
        let read_only = fs::File::open(&state.path).expect("it is there");
        state.file = read_only;
        let error = state.keep("b".into(), pass.clone()).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let mut torn = OpenOptions::new().append(true).open(&state.path);
        let torn = torn.as_mut().expect("it is there");
        torn.write_all(b"{\"resource\":\"b").expect("written");
        state.keep("c".into(), pass.clone()).expect("kept");
        let rows = read(&state.path).expect("whole");
        assert_eq!((rows.len(), rows.contains_key("b")), (2, false));
    }
}
