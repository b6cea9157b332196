//! Removes the names that are no longer used, now and then.

use std::time::Duration;

use super::Zookeeper;
use super::connection::session::SessionCall;
use super::failure::Failure;
use super::protocol::wire::Change;
use crate::name::Name;
use crate::percent;
use crate::store::kit::budget::Budget;
use crate::token::Token;

/// One new name in four begins a sweep, so there are never many more old names than new ones.
const EVERY: u32 = 4;
/// Number of names that one sweep reads.
const NAMES: usize = 16;
/// Limit for a sweep.
const LIMIT: Duration = Duration::from_secs(10);

impl Zookeeper {
    /// Called when a new name was granted: sweeps its folder if it is time, without delaying the grant.
    pub(super) fn sweep_now_and_then(&self, name: &Name) {
        if fastrand::u32(..EVERY) > 0 {
            return;
        }
        // One at a time: sweeps must not double the load of a burst of new names.
        let Ok(sweeping) = self.shared.sweeping.clone().try_acquire_owned() else {
            return;
        };
        let (shared, role) = (self.shared.clone(), self.role.clone());
        let (store, folder) = (Self { shared, role }, self.shared.tree.folder(name));
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
    /// Removes some names of this folder that were freed long ago. Ends at the first name that another client changes
    /// meanwhile, and when another client sweeps this folder: a later sweep goes on.
    async fn sweep(&self, folder: &str) -> Result<(), Failure> {
        let (mut nodes, _) = self.children(folder, None).await?;
        let (data, mut stat) = self.data(folder).await?;
        let mut mark = read_mark(folder, &data)?;
        fastrand::shuffle(&mut nodes);
        for node in nodes.into_iter().take(NAMES) {
            let Some(name) = percent::decode(&node).and_then(|name| Name::new(name).ok()) else {
                continue;
            };
            let Some((last, mut steps)) = self.steps_to_sweep(&name).await? else {
                continue;
            };
            mark = mark.max(Some(last));
            let written = mark.map_or_else(String::new, |mark| format!("{:016x}", mark.get()));
            let written = written.into_bytes();
            steps.push(Change::Set(folder.to_owned(), written, Some(stat.version)));
            stat = self.write(&steps).await?;
        }
        Ok(())
    }

    /// Returns the highest token that was swept out of the folder of this name: its own last one may be among them.
    /// Makes the folder if it is not there.
    pub(super) async fn last_swept(&self, name: &Name) -> Result<Option<Token>, Failure> {
        let folder = self.shared.tree.folder(name);
        let (data, _) = match self.data(&folder).await {
            Err(Failure::NoNode) => {
                self.make_root().await?;
                self.ensure(&folder).await?;
                self.data(&folder).await?
            }
            found => found?,
        };
        read_mark(&folder, &data)
    }

    /// Returns the last token of a name and the steps that remove its nodes, if it was freed long enough ago.
    async fn steps_to_sweep(&self, name: &Name) -> Result<Option<(Token, Vec<Change>)>, Failure> {
        let mut reading = match self.read(name).await {
            Err(failure) if failure.is_of_one_name() => return Ok(None),
            reading => reading?,
        };
        let is_unused = reading.left.is_zero() && reading.children.queue.is_empty();
        let Some(token) = reading.children.token.filter(|_| is_unused) else {
            return Ok(None);
        };
        let last = self.read_token(name, token).await?;
        // What ran out a short time ago may have a holder that is only slow.
        let freed = (last.stat.stamp, Duration::ZERO);
        let (began, span) = reading.term().unwrap_or(freed);
        let is_old = self.left(began, span + self.shared.address.token_memory);
        let is_freed = last.is_freed && reading.taken.is_none();
        reading.last = Some(last);
        if is_old != Some(Duration::ZERO) {
            return Ok(None);
        }
        if !is_freed {
            // It ran out, or its session ended at an unknown time: its token is remembered from now on for the usual
            // time. One that was granted or renewed meanwhile stays as it is.
            let _ = self.pass_on(&reading, &[]).await;
            return Ok(None);
        }
        let mut steps: Vec<_> = reading.delete_token().into_iter().collect();
        steps.push(Change::Delete(reading.path, None));
        Ok(Some((token, steps)))
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
