//! The fence in Redis: a script checks the pass and carries out the user's own commands in one step.
//!
//! ```no_run
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let lease = leasehold::Client::open("redis://localhost").await?.acquire("nightly").await?;
//! use leasehold::fence::redis::Fence;
//!
//! let client = redis::Client::open("redis://localhost")?;
//! let mut connection = client.get_multiplexed_async_connection().await?;
//! let fence = Fence::new("ledger")?;
//! fence.raise(&mut connection, &lease).await?; // before the first read
//! let total: u64 = redis::cmd("GET").arg("total:{ledger}").query_async(&mut connection).await?;
//!
//! let mut commands = redis::pipe();
//! commands.set("total:{ledger}", total + 1).incr("writes:{ledger}", 1);
//! let (_, writes): (String, u64) = fence.write(&mut connection, &lease, &commands).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//! 1. The server compares the pass, raises the fence and carries out the commands in one step.
//! 2. The fence does not expire under a holder that writes: each admitted pass removes an expiry that its key, or a
//!    field of it, was given.
//! 3. A refused write changes nothing.
//!
//! # Assumptions
//! The server keeps what it acknowledged: no eviction (`maxmemory-policy noeviction`), a log that is flushed
//! (`appendfsync always`, or a second of it can be lost), and no failover to a replica that missed the raise
//! (`min-replicas-to-write`, `WAIT`). Reads after a raise go to the master. In a cluster, the commands' keys must be in
//! the slot of the fence: write the resource in braces into each of them, `total:{ledger}`.
//!
//! As in a transaction of Redis, nothing is rolled back: if the server refuses the second command, the first one stays.
//! Whole numbers above 2^53 in a reply lose their last digits in Lua.
//!
//! # Errors
//! `Stale` with the [`Refusal`](super::Refusal); `Invalid` for commands that the server refuses; `Misconfigured` for a
//! fence's key of another type; `Unavailable` for a full server. After `TimedOut` and `Unavailable` the outcome is
//! unknown: read [`row`](Fence::row) and what was to be written, or repeat the write if it is idempotent.
//!
//! # Cancel safety
//! Dropping a future leaves the outcome unknown, as a lost reply does.

use std::error::Error as StdError;

use deadpool_redis::redis::aio::ConnectionLike;
use deadpool_redis::redis::{
    Arg, Cmd, ErrorKind as RedisKind, FromRedisValue, Pipeline, RedisError, Script,
    ScriptInvocation, Value, cmd, from_redis_value,
};

use super::{Bearer, Pass, Shown, checked_resource};
use crate::codes;
use crate::codes::redis::Meaning;
use crate::error::{Error, ErrorKind};
use crate::telemetry::FenceKind;

/// The driver whose types this module takes, in the version with which leasehold was built.
#[doc(no_inline)]
pub use deadpool_redis::redis;

/// The greatest number of words in one command: Lua passes them on its stack, which is limited to 8,000.
const MAX_WORDS: usize = 4_000;

/// The fence for one resource on a Redis server. The [module](self) has its guarantees.
#[derive(Debug, Clone)]
pub struct Fence {
    resource: String,
    key: String,
    script: Script,
}

impl Fence {
    /// Makes the fence for this resource, under the key `leasehold:fence:{resource}`.
    ///
    /// # Errors
    /// `Invalid` for a resource that breaks the rule of names.
    pub fn new(resource: impl Into<String>) -> Result<Self, Error> {
        let resource = resource.into();
        checked_resource(&resource)?;
        Ok(Self {
            key: format!("leasehold:fence:{{{resource}}}"),
            resource,
            script: Script::new(include_str!("fence.lua")),
        })
    }

    /// Returns the key of the row: a hash of `token`, `holder` and `name`.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Raises the fence, so that no older holder can write from then on. Call it before the first read.
    ///
    /// # Errors
    /// See the [module](self). `Lost` if the lease's own deadline has passed.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown. The call is idempotent: repeat it.
    pub async fn raise(
        &self,
        connection: &mut (impl ConnectionLike + Send),
        bearer: &dyn Bearer,
    ) -> Result<(), Error> {
        self.step(connection, bearer, None).await.map(drop)
    }

    /// Carries out these commands if the fence admits the bearer's pass, and raises the fence to it. Returns the
    /// replies of all commands, in their order.
    ///
    /// # Errors
    /// See the [module](self). `Lost` if the lease's own deadline has passed.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the outcome unknown.
    pub async fn write<T: FromRedisValue>(
        &self,
        connection: &mut (impl ConnectionLike + Send),
        bearer: &dyn Bearer,
        commands: &Pipeline,
    ) -> Result<T, Error> {
        let replies = self.step(connection, bearer, Some(commands)).await?;
        from_redis_value(Value::Array(replies)).map_err(|error| {
            let text = "the write was done, but its replies have other types";
            Error::invalid(format!("{text} resource={:?}", self.resource)).with_source(error)
        })
    }

    /// Returns the pass that storage has, if any. Read it when the reply to a raise was lost.
    ///
    /// # Errors
    /// See the [module](self).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn row(
        &self,
        connection: &mut (impl ConnectionLike + Send),
    ) -> Result<Option<Pass>, Error> {
        let row = cmd("HMGET")
            .arg(&self.key)
            .arg(&["token", "holder", "name"])
            .query_async(connection)
            .await;
        let row: [Option<String>; 3] = row.map_err(|error| self.failed("read", error))?;
        if row.iter().all(Option::is_none) {
            return Ok(None);
        }
        let [token, holder, name] = row.map(Option::unwrap_or_default);
        self.pass(&token, &holder, name).map(Some)
    }

    async fn step(
        &self,
        connection: &mut (impl ConnectionLike + Send),
        bearer: &dyn Bearer,
        commands: Option<&Pipeline>,
    ) -> Result<Vec<Value>, Error> {
        let shown = Shown::of(bearer)?;
        let pass = &shown.pass;
        let mut invocation = self.script.key(&self.key);
        invocation
            .arg(pass.token.get())
            .arg(pass.holder.to_string())
            .arg(pass.name.as_str());
        let step = async {
            for command in commands.into_iter().flat_map(Pipeline::cmd_iter) {
                self.append(&mut invocation, command)?;
            }
            let replies = invocation.invoke_async(connection).await;
            self.outcome(
                &shown,
                replies.map_err(|error| self.failed("write", error))?,
            )
        };
        shown.checked(FenceKind::Redis, step).await
    }

    fn append(&self, invocation: &mut ScriptInvocation<'_>, command: &Cmd) -> Result<(), Error> {
        let words = command.args_iter();
        if words.len() == 0 || words.len() > MAX_WORDS {
            return Err(Error::invalid(format!(
                "write refused: a command must have 1 to {MAX_WORDS} words resource={:?} words={}",
                self.resource,
                words.len()
            )));
        }
        invocation.arg(words.len());
        for word in words {
            match word {
                Arg::Simple(word) => invocation.arg(word),
                // A script cannot continue with a cursor, only start one.
                _ => invocation.arg(0),
            };
        }
        Ok(())
    }

    fn outcome(&self, shown: &Shown<'_>, mut replies: Vec<Value>) -> Result<Vec<Value>, Error> {
        if replies.is_empty() {
            return Err(self.damaged("an empty reply"));
        }
        let facts = replies.split_off(1);
        let tag: String = self.read(replies.remove(0))?;
        match tag.as_str() {
            "done" => Ok(facts),
            "refused" => {
                let row: (String, String, String) = self.read(Value::Array(facts))?;
                let stored = self.pass(&row.0, &row.1, row.2)?;
                shown.judge(&self.resource, Some(&stored))?;
                Err(self.damaged("the script refused what the rule admits"))
            }
            "failed" => {
                let (index, message): (u64, String) = self.read(Value::Array(facts))?;
                Err(self.command_failed(index, message))
            }
            _ => {
                let (what,): (String,) = self.read(Value::Array(facts))?;
                Err(self.damaged(format!("{tag}: {what}")))
            }
        }
    }

    fn pass(&self, token: &str, holder: &str, name: String) -> Result<Pass, Error> {
        Pass::parse(token, holder, name).map_err(|error| self.damaged(error))
    }

    fn read<T: FromRedisValue>(&self, value: Value) -> Result<T, Error> {
        from_redis_value(value).map_err(|error| self.damaged(error))
    }

    fn damaged(&self, what: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        let (resource, key) = (&self.resource, &self.key);
        let text =
            format!("write failed: the fence's key is damaged resource={resource:?} key={key:?}");
        Error::new(ErrorKind::Misconfigured, text).with_source(what)
    }

    fn command_failed(&self, index: u64, message: String) -> Error {
        let mut words = message.split_ascii_whitespace();
        // Redis 6.2 first names the line of the script, then its code after a dash.
        let dashed = words.clone().find_map(|word| word.strip_prefix('-'));
        let code = dashed.or_else(|| words.next());
        let kind = kind_of(code.unwrap_or_default(), &message).unwrap_or(ErrorKind::Invalid);
        let why = "the server refused a command, those before it were carried out";
        let resource = &self.resource;
        let text = format!("write failed: {why} resource={resource:?} command={index}");
        Error::new(kind, text).with_source(message)
    }

    fn failed(&self, action: &str, error: RedisError) -> Error {
        let text = error.detail().unwrap_or_default();
        let kind = match error.code().map(|code| kind_of(code, text)) {
            Some(kind) => kind.unwrap_or(ErrorKind::Misconfigured),
            None if error.is_timeout() => ErrorKind::TimedOut,
            None if error.kind() == RedisKind::AuthenticationFailed => ErrorKind::Denied,
            None => ErrorKind::Unavailable,
        };
        let text = format!("{action} failed resource={:?}", self.resource);
        Error::new(kind, text).with_source(error)
    }
}

/// Returns what the caller should do about an error of the server, if that does not depend on the command.
fn kind_of(code: &str, text: &str) -> Option<ErrorKind> {
    Some(match codes::redis::meaning(code, text)? {
        // The connection belongs to the caller, and only the caller can know whether it leads to the right server.
        Meaning::Passing | Meaning::Replica | Meaning::Elsewhere => ErrorKind::Unavailable,
        Meaning::Denied => ErrorKind::Denied,
        Meaning::Unusable => ErrorKind::Misconfigured,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_carries_the_resource_as_its_slot() {
        let fence = Fence::new("ledger").expect("valid");
        assert_eq!(fence.key(), "leasehold:fence:{ledger}");
    }

    #[test]
    fn a_resource_with_braces_is_refused() {
        assert!(Fence::new("a{b}").is_err());
        assert!(Fence::new("").is_err());
    }
}
