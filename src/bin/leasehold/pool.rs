//! The part of a name that a command takes or waits for: the whole name, one of its permits, or a share; and the
//! permits of it that are held.

use std::time::Duration;

use clap::{Args, value_parser};
use futures_util::future::join_all;
use leasehold::store::{Held, Store};
use leasehold::{Error, LeaseRequest, Name};

use crate::row::permit;

/// The permits of a name that is shared: a constant of the library, and of all clients.
const SHARES: u16 = 64;

/// The limit of a list of permits.
const LIMIT: Duration = Duration::from_secs(5);

/// Returns the permits of this name that are held, in the order of their numbers.
pub async fn permits_of(store: &dyn Store, name: &Name) -> Vec<Held> {
    let listed = store.list(&format!("{name}#"), LIMIT).await;
    // A user who may not list the store sees the name alone.
    let mut permits = listed.unwrap_or_default();
    permits.retain(|held| permit(held).is_some_and(|(pool, _)| pool == name.as_str()));
    permits.sort_by_key(|held| held.info.permit);
    permits
}

/// The part of a name to take: by default the whole name.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct PoolOptions {
    /// Take one of N permits of the name
    ///
    /// N is 1 to 256, and at most N jobs run at once. The job finds the number of its permit in LEASEHOLD_PERMIT. Use
    /// the same N everywhere.
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=256))]
    pub permits: Option<u16>,

    /// Share the name: up to 64 holders at once, but never together with one that uses --exclusive
    ///
    /// Every run on the name must use one of the two: a run with neither takes the name while others share it.
    #[arg(long, hide_short_help = true)]
    pub shared: bool,

    /// Hold the name alone, where others use --shared
    #[arg(long, hide_short_help = true)]
    pub exclusive: bool,
}

impl PoolOptions {
    /// Returns a request for this part of the name.
    pub fn of(&self, request: LeaseRequest) -> LeaseRequest {
        match (self.permits, self.shared, self.exclusive) {
            (Some(count), ..) => request.permits(count),
            (_, true, _) => request.shared(),
            (_, _, true) => request.exclusive(),
            _ => request,
        }
    }

    /// Returns the holder that keeps this part of the name taken, if there is one.
    pub async fn taken(
        &self,
        store: &dyn Store,
        name: &Name,
        limit: Duration,
    ) -> Result<Option<Held>, Error> {
        let door = store.inspect(name, limit).await?;
        let count = match self.permits {
            Some(count) => count,
            None if self.exclusive => SHARES,
            None => return Ok(door),
        };
        let reads = (1..=count).map(async |number| {
            let permit = Name::new(format!("{name}#{number}"))?;
            store.inspect(&permit, limit).await
        });
        let permits = join_all(reads).await.into_iter();
        let permits: Vec<_> = permits.collect::<Result<_, _>>()?;
        let is_free = self.permits.is_some() && permits.iter().any(Option::is_none);
        Ok(door.or_else(|| permits.into_iter().flatten().next().filter(|_| !is_free)))
    }
}
