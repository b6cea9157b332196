//! The settings of a client, all checked in `build()`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Client;
use crate::error::Error;
use crate::group::Group;
use crate::store::{self, Info, Store};
use crate::telemetry::{self, Sink};
use crate::term::Timing;

/// Builds a [`Client`]. [`build`](Self::build) checks all settings.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), leasehold::Error> {
/// use std::time::Duration;
///
/// use leasehold::{Client, store::memory::Memory};
///
/// let client = Client::builder()
///     .store(Memory::new()) // or .store_url("redis://cache.internal")
///     .ttl(Duration::from_secs(10))
///     .label("report 7")
///     .group("reports")
///     .build()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
#[must_use = "a builder does nothing until it is built"]
pub struct ClientBuilder {
    source: Option<StoreSource>,
    ttl: Option<Duration>,
    margin: Option<Duration>,
    label: Option<String>,
    group: Option<String>,
    names_in_metrics: usize,
}

enum StoreSource {
    Url(String),
    Store(Arc<dyn Store>),
}

impl fmt::Debug for ClientBuilder {
    /// Without the store, whose URL can hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ClientBuilder");
        shown.field("ttl", &self.ttl).field("label", &self.label);
        shown.finish_non_exhaustive()
    }
}

impl ClientBuilder {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Sets the store by its URL, one of those that [`store::open`](crate::store::open) takes. Its password is used for
    /// every connection of the client; for a new one, make a new client.
    pub fn store_url(mut self, url: impl Into<String>) -> Self {
        self.source = Some(StoreSource::Url(url.into()));
        self
    }

    /// Sets the store to one that is already open.
    pub fn store(mut self, store: impl Store) -> Self {
        self.source = Some(StoreSource::Store(Arc::new(store)));
        self
    }

    /// Sets the store to one that is already open and that other clients use too.
    pub fn shared_store(mut self, store: Arc<dyn Store>) -> Self {
        self.source = Some(StoreSource::Store(store));
        self
    }

    /// Sets how long the store keeps a lease without a renewal (default: 30 s; 1 s to 24 h, and from 100 ms with a
    /// [`margin`](Self::margin) of your own).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets the safety margin: how much earlier than the store the client counts a lease as over (default: ttl/50 + 20
    /// ms; more than 0, and less than a third of the ttl).
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = Some(margin);
        self
    }

    /// Sets the text that other clients are shown about the holder; at most 200 bytes.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets the `group` label of this client's metrics (default: `default`), at most 64 bytes. A process has at most
    /// 50 groups; further ones are counted as `other`.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Sets how many lease names of this client's group have metrics of their own, `leasehold_lease_held` and
    /// `leasehold_lease_deadline_timestamp_seconds` (default: none). The first names that this group
    /// holds have these metrics, also after they are released.
    ///
    /// With these metrics an alert on `sum by (name) (leasehold_lease_held) > 1` finds two processes that both believe
    /// that they hold one lease. Each name is two series in each process, so choose the limit accordingly.
    pub fn names_in_metrics(mut self, limit: usize) -> Self {
        self.names_in_metrics = limit;
        self
    }

    /// Checks the settings and opens the store.
    ///
    /// # Errors
    /// `Invalid`, with the bad value and what was expected; otherwise the errors of opening the store.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn build(self) -> Result<Client, Error> {
        let ttl = self.ttl.unwrap_or(Timing::DEFAULT_TTL);
        let timing = Timing::new(ttl, self.margin)?;
        let info = Info::here(self.label.as_deref())?;
        let group = match &self.group {
            Some(word) => named_group(word)?,
            None => Group::DEFAULT,
        };
        let store = match self.source {
            Some(StoreSource::Store(store)) => store,
            Some(StoreSource::Url(url)) => store::open(&url).await?,
            None => {
                return Err(Error::invalid(
                    "client refused: no store given; expected store_url() or store()",
                ));
            }
        };
        Sink::of_group(group).allow_names(self.names_in_metrics);
        Ok(Client::new(store, timing, info, group))
    }
}

fn named_group(word: &str) -> Result<Group, Error> {
    let group = Group::named(word)?;
    if group == Group::OTHER && word != Group::OTHER.as_str() {
        telemetry::group_folded(word);
    }
    Ok(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_builder_shows_no_password() {
        for url in [
            "redis://user:s3cr3t@host/0",
            "s3cr3t",
            "redis+unix:///s?pass=s3cr3t",
        ] {
            let shown = format!("{:?}", ClientBuilder::new().store_url(url));
            assert!(!shown.contains("s3cr3t"), "{shown}");
        }
    }
}
