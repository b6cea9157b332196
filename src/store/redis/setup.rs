//! Marks a new server as having lost no data, so that keep-out does not delay its first grant.

use std::time::Duration;

use super::failure::Failure;
use super::protocol::scripts::SCRIPTS;
use super::{Redis, reply};
use crate::error::{Error, ErrorKind};
use crate::store::TableSettings;
use crate::store::kit::backend::Backend;
use crate::store::kit::budget::{Budget, millis};

impl Redis {
    /// Sets a new server up to keep out, with the longest ttl of this store: it records that nothing can have been
    /// forgotten, so its first grant is not delayed. The caller guarantees this: the server must never have granted
    /// leases, or none within the longest ttl. A server that was flushed or lost its data seems new, too. If a first
    /// claim was sent to the new server before, and it keeps out since, this ends the wait.
    ///
    /// # Errors
    /// `Invalid` without a longest ttl. `Misconfigured` if the server has leases or marks of this prefix, or was set up
    /// before, with the reason; nothing was changed then. Otherwise the errors of a request; after one of these run it
    /// again.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown: run it again.
    pub async fn init(&self, limit: Duration) -> Result<(), Error> {
        let max_ttl = self.longest_ttl()?;
        let set_up = self.try_init(max_ttl, Budget::new(limit)).await;
        let refusal = set_up.map_err(|failure| self.error_of_all(failure, "init"))?;
        refusal.map_or(Ok(()), |why| {
            let message = format!("init refused: {why} store={}", self.location);
            Err(Error::new(ErrorKind::Misconfigured, message))
        })
    }

    /// Returns why the server is not new, if it is not.
    async fn try_init(&self, max_ttl: Duration, budget: Budget) -> Result<Option<String>, Failure> {
        if let Some(key) = self.any_key(budget).await? {
            return Ok(Some(format!(
                "the server is not new, it has leases or marks key={key:?}"
            )));
        }
        // A cluster does not keep out, so there is one server.
        for server in self.fleet.servers(budget).await? {
            let mut call = SCRIPTS.init.call([self.keys.node()]);
            call.arg(millis(max_ttl));
            let reply = server.ask(call, Some(|_| true), budget).await?;
            match reply::tagged(&reply)? {
                ("ready", []) => {}
                ("known", [theirs]) => {
                    let known = reply::number(theirs).map(Duration::from_millis);
                    let known = known.map(|known| format!("max_ttl={known:?}"));
                    let known = known.unwrap_or_else(|_| "of another form".into());
                    let key = self.keys.node().to_string();
                    let why = format!("the server is set up already key={key:?} {known}");
                    return Ok(Some(why));
                }
                _ => return Err(reply::refusal(&reply)),
            }
        }
        Ok(None)
    }

    fn longest_ttl(&self) -> Result<Duration, Error> {
        self.max_ttl.ok_or_else(|| {
            Error::invalid(
                "init refused: without a longest ttl a server does not keep out and needs no set-up; expected max_ttl=60s \
                 or the like in the URL",
            )
        })
    }
}

/// Sets up the server of the store at a URL whose scheme is ours.
pub(crate) async fn init(url: &str, settings: TableSettings, limit: Duration) -> Result<(), Error> {
    let redis = store(url, settings)?;
    let done = redis.init(limit).await;
    redis.fleet.close();
    done
}

/// Returns the script for that.
pub(crate) fn init_script(url: &str, settings: TableSettings) -> Result<String, Error> {
    let redis = store(url, settings)?;
    let (max_ttl, keys) = (millis(redis.longest_ttl()?), redis.keys.of_any_name());
    let (node, source) = (redis.keys.node(), SCRIPTS.init.source);
    Ok(format!(
        "-- On a server without a key like '{keys}': redis-cli --eval THIS_FILE '{node}' , {max_ttl}\n{source}"
    ))
}

fn store(url: &str, settings: TableSettings) -> Result<Redis, Error> {
    if settings.max_ttl.is_some() {
        return Err(Error::invalid(
            "init refused: a store in Redis has no tables; expected the longest ttl in its URL, where all clients have it, as \
             max_ttl=60s",
        ));
    }
    let redis = Redis::open(url)?;
    match redis.fleet.is_cluster() {
        true => Err(Error::invalid(
            "init refused: a cluster does not keep out, so its servers need no set-up",
        )),
        false => Ok(redis),
    }
}
