//! Which store the tool talks to, and what of its address others may see.

use std::path::Path;
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};
use leasehold::store::Store;
use leasehold::store::sqlite::Sqlite;
use leasehold::{Builder, Client, Error, ErrorKind, Name};

use crate::args::StoreOptions;
use crate::config::StoreSetting;
use crate::exit::{Exit, Failure};

/// The variable that names the store where `--store` does not.
pub const VARIABLE: &str = "LEASEHOLD_STORE";

/// The variable that names a file with the store's URL in it.
const FILE_VARIABLE: &str = "LEASEHOLD_STORE_FILE";

/// Before a store that was silent is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// The store as it was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// By flag, variable or configuration file.
    Url(String),
    /// Nobody named one: the embedded file at its usual place.
    Default,
}

impl Choice {
    /// By option, else by variable, else by configuration file, else the embedded file. Not left to the parser, for which
    /// a variable and an option would contradict each other.
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

    /// A store in the memory of one process would exclude nobody.
    fn shared(url: String) -> Result<Self, Failure> {
        if url.starts_with("memory:") {
            return Err(Failure::usage(format!(
                "store URL {url:?} refused: no other process would see its leases; expected redis://, rediss://, redis+unix: or sqlite:PATH"
            )));
        }
        Ok(Self::Url(url))
    }

    /// A client of this store, for a command about this name, or about all, that was given a little time to reach it.
    pub async fn connect(
        &self,
        name: Option<&Name>,
        limit: Duration,
        settings: impl FnOnce(Builder) -> Builder,
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

    /// Whether a job must not inherit the address.
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

/// What has to be answered soon, because nothing has begun yet and whoever started us waits.
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

/// Asks until the store has answered, if only with an error: one that is silent now may speak in a moment. The question
/// changes nothing, so it may be asked again, and what comes after it need not be. It is about what the command is about:
/// the rights of a user may end there.
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

/// The address for people, without its secrets.
fn shown(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    // The last one: an unescaped @ may stand in a password. Where the scheme was forgotten, a password may stand there too.
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
