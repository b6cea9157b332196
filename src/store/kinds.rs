//! The kinds of stores, one row each: what a kind does with its URL. No other file names them all, but for their words,
//! which the stores read themselves and which stand below them.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "bucket")]
use super::bucket;
#[cfg(feature = "etcd")]
use super::etcd;
#[cfg(feature = "kubernetes")]
use super::kubernetes;
use super::memory::Memory;
#[cfg(feature = "mysql")]
use super::mysql;
#[cfg(feature = "postgres")]
use super::postgres::{self, Postgres};
#[cfg(feature = "quorum")]
use super::quorum::{self, Quorum};
#[cfg(feature = "redis")]
use super::redis::{self, Redis};
#[cfg(feature = "sqlite")]
use super::sqlite::Sqlite;
#[cfg(feature = "zookeeper")]
use super::zookeeper::Zookeeper;
use super::{Store, TableSettings};
use crate::error::Error;
use crate::future::BoxFuture;
use crate::kinds::{self, StoreHome, StoreKind};

type UrlCall<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// A kind of store that is compiled in.
struct Row {
    word: &'static str,
    open: for<'a> fn(&'a str) -> UrlCall<'a, Arc<dyn Store>>,
    set_up: Option<Initializer>,
    replacement: Option<Replacement>,
}

/// How a store is set up, and the script for it.
struct Initializer {
    run: for<'a> fn(&'a str, TableSettings, Duration) -> UrlCall<'a, ()>,
    script: fn(&str, TableSettings) -> Result<String, Error>,
}

/// How the servers of a store are replaced by others.
struct Replacement {
    run: for<'a> fn(&'a str, &'a str, bool, Duration) -> UrlCall<'a, ()>,
    script: fn(&str, &str) -> Result<String, Error>,
}

static ROWS: &[Row] = &[
    Row {
        word: "memory",
        open: |_| Box::pin(async { shared(Ok(Memory::new())) }),
        set_up: None,
        replacement: None,
    },
    #[cfg(feature = "sqlite")]
    Row {
        word: "sqlite",
        open: |url| Box::pin(async move { shared(Sqlite::open(kinds::path_of(url)?).await) }),
        set_up: None,
        replacement: None,
    },
    #[cfg(feature = "redis")]
    Row {
        word: "redis",
        open: |url| Box::pin(async move { shared(Redis::open(url)) }),
        set_up: Some(Initializer {
            run: |url, settings, limit| Box::pin(redis::init(url, settings, limit)),
            script: redis::init_script,
        }),
        replacement: None,
    },
    #[cfg(feature = "quorum")]
    Row {
        word: "quorum",
        open: |url| Box::pin(async move { shared(Quorum::open(url)) }),
        set_up: Some(Initializer {
            run: |url, settings, limit| {
                Box::pin(async move { quorum::to_set_up(url, settings)?.init(limit).await })
            },
            script: |url, settings| Ok(quorum::to_set_up(url, settings)?.plan(None)),
        }),
        replacement: Some(Replacement {
            run: |url, old, from_clock, limit| {
                Box::pin(async move {
                    let (new, old) = (Quorum::open(url)?, Quorum::open(old)?);
                    new.replace(&old, from_clock, limit).await
                })
            },
            script: |url, old| Ok(Quorum::open(url)?.plan(Some(&Quorum::open(old)?))),
        }),
    },
    #[cfg(feature = "postgres")]
    Row {
        word: "postgres",
        open: |url| Box::pin(async move { shared(Postgres::open(url)) }),
        set_up: Some(Initializer {
            run: |url, settings, limit| {
                Box::pin(async move { Postgres::open(url)?.init(settings, limit).await })
            },
            script: postgres::init_script,
        }),
        replacement: None,
    },
    #[cfg(feature = "mysql")]
    Row {
        word: "mysql",
        open: |url| Box::pin(async move { shared(mysql::open(url).await) }),
        set_up: Some(Initializer {
            run: |url, settings, limit| Box::pin(mysql::init(url, settings, limit)),
            script: mysql::init_script,
        }),
        replacement: None,
    },
    #[cfg(feature = "bucket")]
    Row {
        word: "bucket",
        open: |url| Box::pin(async move { shared(bucket::open(url).await) }),
        set_up: Some(Initializer {
            run: |url, settings, limit| Box::pin(bucket::init(url, settings, limit)),
            script: bucket::init_script,
        }),
        replacement: None,
    },
    #[cfg(feature = "etcd")]
    Row {
        word: "etcd",
        open: |url| Box::pin(async move { shared(etcd::open(url).await) }),
        set_up: None,
        replacement: None,
    },
    #[cfg(feature = "kubernetes")]
    Row {
        word: "kubernetes",
        open: |url| Box::pin(async move { shared(kubernetes::open(url).await) }),
        set_up: None,
        replacement: None,
    },
    #[cfg(feature = "zookeeper")]
    Row {
        word: "zookeeper",
        open: |url| Box::pin(async move { shared(Zookeeper::open(url)) }),
        set_up: None,
        replacement: None,
    },
];

impl Row {
    /// Returns the row of the store at this URL, and the URL without white space around it.
    fn of(text: &str) -> Result<(&'static Self, &str), Error> {
        let (kind, url) = StoreKind::of(text)?;
        let row = ROWS.iter().find(|row| row.word == kind.word);
        Ok((row.ok_or_else(|| kind.absent())?, url))
    }

    fn set_up(&self) -> Result<&Initializer, Error> {
        self.set_up.as_ref().ok_or_else(|| {
            let forms = kinds::forms(|kind| kind.has_set_up);
            Error::invalid(format!(
                "init refused: this store needs no set-up; expected {forms}"
            ))
        })
    }

    fn replacement(&self) -> Result<&Replacement, Error> {
        let refused = "replace refused: expected the URL of a quorum, redis+quorum://";
        self.replacement
            .as_ref()
            .ok_or_else(|| Error::invalid(refused))
    }
}

fn shared<S: Store>(opened: Result<S, Error>) -> Result<Arc<dyn Store>, Error> {
    Ok(Arc::new(opened?))
}

/// Opens the store at this URL. The page of each store lists the parameters of its URLs.
///
/// | URL | store |
/// |---|---|
/// | `sqlite:PATH` | [`sqlite`](sqlite/index.html), without parameters |
/// | `redis://`, `rediss://`, `redis+unix:` | [`redis`](redis/index.html#urls) |
/// | `redis+sentinel://`, `redis+cluster://` | [`redis`](redis/index.html#sentinel-and-cluster) |
/// | `redis+quorum://` | [`quorum`](quorum/index.html#urls) |
/// | `postgres://` | [`postgres`](postgres/index.html#urls) |
/// | `mysql://`, `mariadb://` | [`mysql`](mysql/index.html#urls) |
/// | `zookeeper://` | [`zookeeper`](zookeeper/index.html#urls) |
/// | `etcd://`, `etcds://` | [`etcd`](etcd/index.html#urls) |
/// | `s3://` | [`bucket`](bucket/index.html#urls) |
/// | `kubernetes:` | [`kubernetes`](kubernetes/index.html#urls) |
/// | `memory:` | [`memory`](memory/index.html), without parameters |
///
/// White space around it is dropped. In the path and the parameters of a store on servers all but ASCII letters, digits
/// and `-._~/:` is written as `%XX`.
///
/// # Errors
/// `Invalid` for a URL of another scheme, or of a store that was not compiled in; otherwise the errors of opening the
/// store. The URL's secrets are not in the message.
///
/// # Cancel safety
/// Dropping the future leaves nothing behind.
pub async fn open(url: &str) -> Result<Arc<dyn Store>, Error> {
    let (row, url) = Row::of(url)?;
    (row.open)(url).await
}

/// Sets up the store at this URL, if its kind needs it.
///
/// For `mysql://` this makes the table if it is missing, for `postgres://` the tables and functions. When it is run again, it repairs what is missing and changes
/// only what the settings name. For `redis://` and `redis+sentinel://` with `max_ttl` it notes that the server is new,
/// as `Redis::init` does, and refuses one that is not. For `redis+quorum://` it makes the servers members, as
/// `Quorum::init` does.
///
/// # Errors
/// `Invalid` for a URL of a store that needs no set-up, or that was not compiled in; `Misconfigured` if a server in
/// Redis is not new; otherwise the errors of the store's requests.
///
/// # Cancel safety
/// Dropping the future leaves the outcome unknown: run it again.
pub async fn init(url: &str, settings: TableSettings, limit: Duration) -> Result<(), Error> {
    let (row, url) = Row::of(url)?;
    (row.set_up()?.run)(url, settings, limit).await
}

/// Returns the SQL, or the Lua script for a server in Redis, that [`init`] would run, for an administrator to run. For
/// a quorum, it says what `init` would do.
///
/// # Errors
/// `Invalid`, as for [`init`].
pub fn init_script(url: &str, settings: TableSettings) -> Result<String, Error> {
    let (row, url) = Row::of(url)?;
    (row.set_up()?.script)(url, settings)
}

/// Makes the servers of the quorum at this URL its members instead of those at the URL `old`, as `Quorum::replace`
/// does.
///
/// # Errors
/// `Invalid` unless both are quorums; otherwise as for [`init`].
///
/// # Cancel safety
/// Dropping the future leaves the outcome unknown: run it again.
pub async fn replace(url: &str, old: &str, from_clock: bool, limit: Duration) -> Result<(), Error> {
    let (row, url) = Row::of(url)?;
    (row.replacement()?.run)(url, old, from_clock, limit).await
}

/// Returns what [`replace`] would do: which members it closes, how long it waits, and which it writes. It asks no
/// server.
///
/// # Errors
/// `Invalid`, as for [`replace`].
pub fn replace_script(url: &str, old: &str) -> Result<String, Error> {
    let (row, url) = Row::of(url)?;
    (row.replacement()?.script)(url, old)
}

/// Returns a store's URL without white space around it, if other processes can reach the same store. It asks no server
/// and opens no file; what follows the scheme of a store on servers is read by [`open`].
///
/// # Errors
/// `Invalid` for `memory:`, and for a text that [`open`] refuses by its scheme or as that of another program. The
/// message shows nothing of the text.
pub fn shared_url(text: &str) -> Result<&str, Error> {
    let (kind, url) = StoreKind::of(text)?;
    match kind.home {
        StoreHome::OnServers => {}
        StoreHome::InFile => {
            kinds::path_of(url)?;
        }
        StoreHome::InProcess => {
            let forms = kinds::forms(|kind| kind.home != StoreHome::InProcess);
            return Err(Error::invalid(format!(
                "store URL {url:?} refused: no other process would see its leases; expected {forms}"
            )));
        }
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::KINDS;

    #[test]
    fn each_kind_that_is_compiled_in_has_one_row() {
        for kind in &KINDS {
            let rows: Vec<_> = ROWS.iter().filter(|row| row.word == kind.word).collect();
            assert_eq!(rows.len(), usize::from(kind.is_compiled), "{}", kind.word);
            for row in rows {
                assert_eq!(row.set_up.is_some(), kind.has_set_up, "{}", kind.word);
            }
        }
    }
}
