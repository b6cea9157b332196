//! Chooses the store that the tool uses, connects to it, and hides the secrets of its URL.

use std::path::Path;
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};
use leasehold::store::Store;
use leasehold::store::sqlite::Sqlite;
use leasehold::{Client, ClientBuilder, Error, ErrorKind, Name};

use crate::args::StoreOptions;
use crate::config::StoreSetting;
use crate::exit::{Exit, Failure};

/// The variable that names the store if `--store` does not.
pub const VARIABLE: &str = "LEASEHOLD_STORE";

/// The variable that names a file with the store's URL in it.
const FILE_VARIABLE: &str = "LEASEHOLD_STORE_FILE";

/// The pause before a store that did not answer is tried again.
const PAUSE: Duration = Duration::from_millis(50);

/// The chosen store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// Named by an option, a variable or a configuration file.
    Url(String),
    /// No store was named: the embedded file at its default path.
    Default,
}

impl Choice {
    /// Chooses by option, else by variable, else by configuration file, else the embedded file. This is not left to
    /// clap, which would report a variable and an option as a conflict.
    pub fn of(arguments: &StoreOptions, configured: Option<StoreSetting>) -> Result<Self, Failure> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(url) = &arguments.url {
            return Self::shared(url.clone());
        }
        if let Some(path) = &arguments.file {
            return read(path);
        }
        if let Some(url) = set(VARIABLE) {
            let url = url.into_string().map_err(|_| {
                Failure::usage(format!("{VARIABLE} refused: expected a URL in UTF-8"))
            })?;
            return Self::shared(url);
        }
        if let Some(path) = set(FILE_VARIABLE) {
            return read(path.as_ref());
        }
        match configured {
            Some(StoreSetting::Url(url)) => Self::shared(url),
            Some(StoreSetting::File(path)) => read(&path),
            None => Ok(Self::Default),
        }
    }

    /// Checks a URL: a store in memory is refused, because it excludes no other process.
    fn shared(url: String) -> Result<Self, Failure> {
        if url.starts_with("memory:") {
            return Err(Failure::usage(format!(
                "store URL {url:?} refused: no other process would see its leases; expected redis://, rediss://, redis+unix:, postgres://, zookeeper:// or sqlite:PATH"
            )));
        }
        Ok(Self::Url(url))
    }

    /// Returns a client that has reached this store within `limit`, for a command about `name`, or about all names.
    pub async fn connect(
        &self,
        name: Option<&Name>,
        limit: Duration,
        settings: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Result<Client, Failure> {
        let connecting = first_contact(limit, async {
            let builder = match self {
                Self::Url(url) => Client::builder().store_url(url),
                Self::Default => Client::builder().store(Sqlite::open_default().await?),
            };
            let client = settings(builder).build().await?;
            reach(&**client.store(), name, limit).await;
            Ok(client)
        });
        connecting.await.map_err(|failure| match self {
            Self::Url(url) => failure.about(format_args!("store={}", shown(url))),
            Self::Default => failure,
        })
    }

    /// Returns the store for messages, without secrets.
    pub fn shown(&self) -> String {
        match self {
            Self::Url(url) => shown(url),
            Self::Default => "the embedded file of this user".into(),
        }
    }

    /// Returns whether the URL has a password, so that a job must not inherit it.
    pub fn is_secret(url: &str) -> bool {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let query = url.split_once('?').map_or("", |(_, query)| query);
        authority.contains('@') || query.contains("pass")
    }
}

fn read(path: &Path) -> Result<Choice, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let path = path.display();
        Failure::usage(format!(
            "store file {path} refused: {error}; expected a file with a URL"
        ))
    })?;
    Choice::shared(text.trim().into())
}

/// Limits the time of the first answer: nothing has begun, and the user waits.
pub async fn first_contact<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(limit, answer).await {
        Ok(Err(error)) if error.kind() == ErrorKind::TimedOut => {
            Err(Failure::new(Exit::Unreachable, format!("{error:#}")))
        }
        Ok(answer) => answer.map_err(Failure::from),
        Err(_) => Err(Failure::new(
            Exit::Unreachable,
            format!("no answer from the store within {limit:?}"),
        )),
    }
}

/// Asks until the store has answered, if only with an error: a store that is silent now may answer in a moment. The
/// request changes nothing, so it can be retried, and the command's own requests need no retry. It asks about the
/// command's own name, because the user may lack the permission for other names.
async fn reach(store: &dyn Store, name: Option<&Name>, limit: Duration) {
    let ask = async || match name {
        Some(name) => store.inspect(name, limit).await.map(drop),
        None => store.hazards(limit).await.map(drop),
    };
    while let Err(error) = ask().await
        && error.kind() == ErrorKind::TimedOut
    {
        Monotonic.sleep_until(Monotonic.now().after(PAUSE)).await;
    }
}

/// Returns the URL without its secrets, for messages.
fn shown(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    // At the last one: a password may contain an unescaped @. If the scheme was forgotten, this part may have a
    // password too.
    let place = match place.rsplit_once('@') {
        Some((_, host)) if !url.starts_with("sqlite:") => format!("***@{host}"),
        _ => place.into(),
    };
    let query = if query.is_empty() { "" } else { "?***" };
    format!("{:?}", scheme + &place + query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        for (url, text) in [
            ("redis://user:se@cret@host/0", "\"redis://***@host/0\""),
            (
                "redis+unix:///a.sock?pass=x",
                "\"redis+unix:///a.sock?***\"",
            ),
            ("sqlite:/a@b", "\"sqlite:/a@b\""),
            ("user:secret@host", "\"***@host\""),
            ("redis:user:secret@host", "\"***@host\""),
            ("", "\"\""),
        ] {
            assert_eq!(shown(url), text);
        }
    }

    #[test]
    fn an_address_with_a_password_is_secret() {
        for url in [
            "redis://:secret@host/0",
            "redis://user:secret@host:1/0",
            "rediss://user@host",
            "redis+unix:///run/redis.sock?pass=secret",
        ] {
            assert!(Choice::is_secret(url), "{url}");
        }
        for url in ["redis://host:1/0", "sqlite:/home/passat/a@b.db"] {
            assert!(!Choice::is_secret(url), "{url}");
        }
    }
}
