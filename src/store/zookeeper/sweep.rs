//! Removes the names that are no longer used, now and then.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::connection::session::Change;
use super::connection::sessions::SessionCall;
use super::failure::Failure;
use super::protocol::stamp::{Left, Stamp};
use super::{Shared, Zookeeper};
use crate::clock::{Boottime, Clock};
use crate::name::Name;
use crate::percent;
use crate::store::budget::Budget;
use crate::token::Token;

/// Each fourth new name begins a sweep, so there are never many more old names than new ones.
const EVERY: u32 = 4;
/// Most names that one sweep removes.
const AT_MOST: usize = 8;
/// Number of names that one sweep looks at.
const LOOKS: usize = 16;
/// Limit for a sweep.
const LIMIT: Duration = Duration::from_secs(10);

/// A sweep under way. It ends with its task, even if the runtime of that task ends first.
struct Sweeping(Arc<Shared>);

impl Drop for Sweeping {
    fn drop(&mut self) {
        self.0.is_sweeping.store(false, Ordering::Relaxed);
    }
}

impl Zookeeper {
    /// Called when a new name was granted: sweeps its folder if it is time, without delaying the grant.
    pub(super) fn sweep_now_and_then(&self, name: &Name) {
        let count = self.shared.new_names.fetch_add(1, Ordering::Relaxed);
        // One at a time: sweeps must not double the load of a burst of new names.
        let is_sweeping = &self.shared.is_sweeping;
        if !count.is_multiple_of(EVERY) || is_sweeping.swap(true, Ordering::Relaxed) {
            return;
        }
        let (shared, role) = (self.shared.clone(), self.role.clone());
        let (store, folder) = (Self { shared, role }, self.shared.tree.folder(name));
        let sweeping = Sweeping(self.shared.clone());
        tokio::spawn(async move {
            let _sweeping = sweeping;
            let swept = async { store.call(Budget::new(LIMIT)).await?.sweep(&folder).await };
            if let Err(failure) = swept.await {
                tracing::debug!(%failure, "old names not swept away");
            }
        });
    }
}

impl SessionCall<'_> {
    /// Removes some names of this folder that were freed long ago, and returns how many.
    async fn sweep(&self, folder: &str) -> Result<usize, Failure> {
        let (mut nodes, _) = self.children(folder).await?;
        let (data, mut stat) = self.data(folder).await?;
        let mut mark = read_mark(folder, &data)?;
        fastrand::shuffle(&mut nodes);
        let mut removed = 0;
        for node in nodes.into_iter().take(LOOKS) {
            let Some(name) = percent::decode(&node).and_then(|name| Name::new(name).ok()) else {
                continue;
            };
            let Some((last, mut steps)) = self.steps_to_sweep(&name).await? else {
                continue;
            };
            mark = mark.max(Some(last));
            steps.push(Change::Delete(self.shared.tree.name(&name), None));
            let written = write_mark(mark);
            steps.push(Change::Set(folder.to_owned(), written, Some(stat.version)));
            match self.transact(&steps).await {
                Ok(stats) => {
                    stat = stats.into_iter().flatten().next().unwrap_or(stat);
                    removed += 1;
                }
                // A name that changed meanwhile stays.
                Err(aborted) if aborted.step.is_some_and(|step| step < steps.len() - 1) => {}
                // Another client sweeps this folder.
                Err(_) => break,
            }
            if removed == AT_MOST {
                break;
            }
        }
        Ok(removed)
    }

    /// Returns the highest token that was swept out of the folder of this name: its own last one may be among them.
    pub(super) async fn last_swept(&self, name: &Name) -> Result<Option<Token>, Failure> {
        let folder = self.shared.tree.folder(name);
        let (data, _) = self.data(&folder).await?;
        read_mark(&folder, &data)
    }

    /// Returns the last token of a name and the steps that remove its nodes, if all of it is old enough.
    async fn steps_to_sweep(&self, name: &Name) -> Result<Option<(Token, Vec<Change>)>, Failure> {
        let reading = match self.look(name, 0).await {
            Err(failure) if failure.is_of_one_name() => None,
            reading => reading?,
        };
        let Some(reading) = reading.filter(|reading| reading.children.queue.is_empty()) else {
            return Ok(None);
        };
        let Some(last) = &reading.last else {
            return Ok(None);
        };
        let (tree, memory) = (&self.shared.tree, self.shared.address.token_memory);
        let path = tree.token(name, last.token);
        if let Some(taken) = &reading.taken {
            let is_old = self.left(name, taken.stamp, taken.span + memory) == Left::Over;
            let kept = tree.taken(name, taken.kind, taken.holder);
            let steps = vec![
                Change::Delete(kept, Some(taken.version)),
                Change::Delete(path, Some(last.version)),
            ];
            return Ok(is_old.then_some((last.token, steps)));
        }
        let (data, stat) = match self.data(&path).await {
            Err(Failure::NoNode) => return Ok(None),
            found => found?,
        };
        let is_old = self.left(name, stat.stamp, memory) == Left::Over;
        if is_old && !data.is_empty() {
            // Its session ended at an unknown time: the time for which its token is remembered begins now. One that
            // was granted meanwhile stays as it is.
            let begin = Change::Set(path, Vec::new(), Some(stat.version));
            let _ = self.transact(&[begin]).await;
            return Ok(None);
        }
        Ok(is_old.then(|| (last.token, vec![Change::Delete(path, Some(stat.version))])))
    }

    fn left(&self, name: &Name, stamp: Stamp, span: Duration) -> Left {
        let mut remembered = self.shared.remembered();
        remembered.left(name, stamp, span, Boottime.now())
    }
}

/// Reads the data of a folder.
fn read_mark(folder: &str, data: &[u8]) -> Result<Option<Token>, Failure> {
    let mark = std::str::from_utf8(data).ok();
    let mark = mark.map(|mark| u64::from_str_radix(mark, 16).map(Token::new));
    match mark {
        _ if data.is_empty() => Ok(None),
        Some(Ok(Ok(mark))) => Ok(Some(mark)),
        _ => Err(Failure::UnknownForm(folder.to_owned())),
    }
}

fn write_mark(mark: Option<Token>) -> Vec<u8> {
    mark.map(|mark| format!("{:016x}", mark.get()).into_bytes())
        .unwrap_or_default()
}
