//! Removes the names that are no longer used, now and then.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::connection::session::Change;
use super::connection::sessions::within;
use super::failure::Failure;
use super::protocol::reading::NameReading;
use super::protocol::stamp::{Left, Stamp};
use super::{Shared, Zookeeper};
use crate::clock::{Boottime, Clock};
use crate::name::Name;
use crate::percent;
use crate::store::budget::Budget;
use crate::token::Token;

/// Each fourth new name begins a sweep, so there are never many more old names than new ones.
const EVERY: u32 = 4;
/// How many names one sweep removes at most.
const AT_MOST: usize = 8;
/// How many names one sweep looks at.
const LOOKS: usize = 16;
/// How long a sweep may take.
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
        let (store, folder) = (self.beside(), self.shared.tree.folder(name));
        let sweeping = Sweeping(self.shared.clone());
        tokio::spawn(async move {
            let _sweeping = sweeping;
            if let Err(failure) = store.sweep(&folder).await {
                tracing::debug!(%failure, "old names not swept away");
            }
        });
    }

    /// Removes some names of this folder that were freed long ago, and returns how many.
    async fn sweep(&self, folder: &str) -> Result<usize, Failure> {
        let memory = self.shared.address.token_memory();
        let budget = Budget::new(LIMIT);
        let session = self.session(budget).await?;
        let (mut nodes, _) = within(budget, session.children(folder)).await?;
        let (data, mut stat) = within(budget, session.data(folder)).await?;
        let mut mark = read_mark(folder, &data)?;
        fastrand::shuffle(&mut nodes);
        let mut removed = 0;
        for node in nodes.into_iter().take(LOOKS) {
            let Some(name) = percent::decode(&node).and_then(|name| Name::new(name).ok()) else {
                continue;
            };
            let Some(reading) = self.look(&name, 0, budget).await? else {
                continue;
            };
            let mut steps = self.steps_to_sweep(&name, &reading, memory).await?;
            let Some(last) = reading.last.filter(|_| !steps.is_empty()) else {
                continue;
            };
            steps.push(Change::Delete(self.shared.tree.name(&name), None));
            mark = mark.max(Some(last.token));
            steps.push(Change::Set(
                folder.to_owned(),
                write_mark(mark),
                Some(stat.version),
            ));
            let sent = async { Ok(session.transact(&steps).await) };
            match within(budget, sent).await? {
                Ok(stats) => {
                    stat = stats.into_iter().flatten().next().unwrap_or(stat);
                    removed += 1;
                }
                // A name that changed meanwhile stays.
                Err(aborted) if aborted.step != Some(steps.len() - 1) => {}
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
    pub(super) async fn last_swept(
        &self,
        name: &Name,
        budget: Budget,
    ) -> Result<Option<Token>, Failure> {
        let session = self.session(budget).await?;
        let folder = self.shared.tree.folder(name);
        let (data, _) = within(budget, session.data(&folder)).await?;
        read_mark(&folder, &data)
    }

    /// Returns the steps that remove a name; none, unless all of it is old enough.
    async fn steps_to_sweep(
        &self,
        name: &Name,
        reading: &NameReading,
        memory: Duration,
    ) -> Result<Vec<Change>, Failure> {
        let tree = &self.shared.tree;
        let Some(last) = &reading.last else {
            return Ok(Vec::new());
        };
        if !reading.children.queue.is_empty() {
            return Ok(Vec::new());
        }
        let token = tree.token(name, last.token);
        let budget = Budget::new(LIMIT);
        if let Some(taken) = &reading.taken {
            if self.left(name, taken.stamp, taken.span + memory) != Left::Over {
                return Ok(Vec::new());
            }
            let path = tree.taken(name, taken.kind, taken.holder);
            return Ok(vec![
                Change::Delete(path, Some(taken.version)),
                Change::Delete(token, Some(last.version)),
            ]);
        }
        let session = self.session(budget).await?;
        let (data, stat) = match within(budget, session.data(&token)).await {
            Err(Failure::NoNode) => return Ok(Vec::new()),
            found => found?,
        };
        let is_old = self.left(name, stat.stamp, memory) == Left::Over;
        if is_old && !data.is_empty() {
            // Its session ended at an unknown time: the time for which its token is remembered begins now.
            let begin = [Change::Set(token, Vec::new(), Some(stat.version))];
            let sent = async { Ok(session.transact(&begin).await) };
            // One that was granted meanwhile stays as it is.
            let _ = within(budget, sent).await?;
            return Ok(Vec::new());
        }
        let sweeps = is_old.then_some(Change::Delete(token, Some(stat.version)));
        Ok(sweeps.into_iter().collect())
    }

    fn left(&self, name: &Name, stamp: Stamp, span: Duration) -> Left {
        let mut remembered = self.remembered();
        remembered.left(name, stamp, span, Boottime.now())
    }

    /// Returns the same store, for a task of its own.
    fn beside(&self) -> Self {
        Self {
            shared: Arc::<Shared>::clone(&self.shared),
            role: self.role.clone(),
        }
    }
}

/// Reads the data of a folder.
fn read_mark(folder: &str, data: &[u8]) -> Result<Option<Token>, Failure> {
    let mark = std::str::from_utf8(data).ok();
    let mark = mark.map(|mark| u64::from_str_radix(mark, 16).map(Token::new));
    match mark {
        _ if data.is_empty() => Ok(None),
        Some(Ok(Ok(mark))) => Ok(Some(mark)),
        _ => Err(Failure::Odd(format!("node={folder}"))),
    }
}

fn write_mark(mark: Option<Token>) -> Vec<u8> {
    mark.map(|mark| format!("{:016x}", mark.get()).into_bytes())
        .unwrap_or_default()
}
