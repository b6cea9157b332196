//! Chooses the store that the tool uses, connects to it, and hides the secrets of its URL.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use clap::Args;
use leasehold::clock::{Clock, Instant, Monotonic};
use leasehold::store::sqlite::Sqlite;
use leasehold::store::{self, Store};
use leasehold::{Client, ClientBuilder, Error, ErrorKind, Name};

use crate::exit::{Exit, Failure};
use crate::say;
use crate::span::Span;
use crate::store_file::FromFile;

/// The variable that names the store if `--store` does not.
pub const VARIABLE: &str = "LEASEHOLD_STORE";

/// The variable that names a file with the store's URL in it.
const FILE_VARIABLE: &str = "LEASEHOLD_STORE_FILE";

/// Pause before a request is repeated that got no answer or failed for a passing reason.
const PAUSE: Duration = Duration::from_millis(100);

/// Minimum time for the first contact: a wait of zero makes one attempt, too.
const LEAST_CONTACT: Duration = Duration::from_millis(300);

/// Minimum time for an answer, even if the first request took the whole limit.
const LEAST_LIMIT: Duration = Duration::from_millis(100);

/// A reachable store, and the rest of the time limit for the first request.
pub struct Contact {
    pub client: Client,
    limit: Duration,
    ends_at: Instant,
    /// Why the store has not been reached yet.
    doubt: Option<Error>,
}

/// The chosen store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// Named by an option, a variable or a configuration file; and the file that has the URL.
    Url(String, Option<PathBuf>),
    /// No store was named: the embedded file at its default path.
    Default,
}

impl Choice {
    /// Returns the store that the options name, or else the embedded file.
    pub fn of(arguments: &StoreOptions) -> Result<Self, Failure> {
        if arguments.connect_timeout.time.is_zero() {
            let typed = &arguments.connect_timeout.typed;
            return Err(Failure::usage(format!(
                "connect-timeout {typed} refused: expected more than 0s"
            )));
        }
        match (&arguments.url, &arguments.file) {
            (Some(url), _) => Self::shared(url, None),
            (None, Some(path)) => read(path),
            (None, None) if arguments.is_required => Err(Failure::usage(
                "no store named, and the configuration has require-store = true; expected --store, LEASEHOLD_STORE or a key store",
            )),
            (None, None) => Ok(Self::Default),
        }
    }

    /// Reads a store's text: a store in memory is refused, because it excludes no other process.
    fn shared(url: &str, file: Option<&Path>) -> Result<Self, Failure> {
        let refused =
            |error: Error| about_store(Failure::usage(format!("{error}")), &store::shown(url));
        let url = store::shared_url(url).map_err(refused)?;
        Ok(Self::Url(url.into(), file.map(Into::into)))
    }

    /// Returns a client that has reached this store within `limit`, for a command about `name`, or about all names.
    pub async fn connect(
        &self,
        name: Option<&Name>,
        limit: Duration,
        settings: impl Fn(ClientBuilder) -> ClientBuilder,
    ) -> Result<Contact, Failure> {
        let ends_at = Monotonic.now().after(limit);
        let mut doubt = None;
        // An open store reports its own location.
        let location = OnceLock::new();
        let connecting = tokio::time::timeout(limit, async {
            let client = asked(ends_at, &mut doubt, async |_| {
                let builder = match self {
                    Self::Url(url, None) => Client::builder().store_url(url),
                    Self::Url(url, Some(file)) => {
                        Client::builder().store(FromFile::open(file, url).await?)
                    }
                    Self::Default => Client::builder().store(Sqlite::open_default().await?),
                };
                settings(builder).build().await
            });
            let client = client.await?;
            let _ = location.set(client.store().location());
            reach(&**client.store(), name, limit, &mut doubt).await?;
            Ok(client)
        });
        let mut failure = match connecting.await {
            Ok(Ok(client)) => {
                return Ok(Contact {
                    client,
                    limit,
                    ends_at,
                    doubt,
                });
            }
            Ok(Err(error)) => refused(error),
            Err(_) => silent(limit, doubt.as_ref()),
        };
        failure.message.push_str(self.hint(failure.exit));
        Err(match self {
            Self::Url(url, _) => about_store(failure, location.get().unwrap_or(&store::shown(url))),
            Self::Default => failure,
        })
    }

    /// Returns what to try when this store fails in this way.
    fn hint(&self, exit: Exit) -> &'static str {
        match (self, exit) {
            (Self::Default, Exit::Denied | Exit::Misconfigured) => {
                "; choose another file with --store sqlite:PATH"
            }
            (Self::Url(url, _), Exit::Misconfigured)
                if url.starts_with("sqlite://") && !url.starts_with("sqlite:///") =>
            {
                "; an absolute path has three slashes: sqlite:///PATH"
            }
            (Self::Url(url, _), Exit::Unreachable) if url.starts_with("rediss") => {
                "; a server without TLS has redis://"
            }
            (Self::Url(url, _), Exit::Unreachable) if url.starts_with("postgres") => {
                "; a server of another kind has another scheme, such as redis://"
            }
            _ => "",
        }
    }

    /// Returns the location to show, without secrets, of a store that is not open.
    pub fn shown(&self) -> String {
        match self {
            Self::Url(url, _) => store::shown(url),
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

/// The options of every command that uses a store.
#[derive(Debug, Args)]
pub struct StoreOptions {
    /// The store; see `leasehold --help`
    ///
    /// [env: LEASEHOLD_STORE] [default: a file of this user]
    #[arg(long = "store", value_name = "URL")]
    pub url: Option<String>,

    /// Read the store's URL from a file, which keeps its password out of the list of processes [env:
    /// LEASEHOLD_STORE_FILE]
    #[arg(long = "store-file", value_name = "FILE", conflicts_with = "url")]
    #[arg(hide_short_help = true)]
    pub file: Option<PathBuf>,

    /// Exit 69 if the store gives no first answer within this time
    ///
    /// More than 0.
    #[arg(long, default_value = "5s", env = "LEASEHOLD_CONNECT_TIMEOUT")]
    pub connect_timeout: Span,

    /// Read settings from this file only [default: ~/.config/leasehold/config.toml over /etc/leasehold.toml]
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_CONFIG")]
    pub config: Option<PathBuf>,

    /// A configuration file asks that a store is named.
    #[arg(skip)]
    pub is_required: bool,
}

impl StoreOptions {
    /// Takes the store of the environment, unless an option names one. This is not left to clap, which would report a
    /// variable and an option as a conflict.
    pub fn take_variables(&mut self) -> Result<(), Failure> {
        let url = std::env::var_os(VARIABLE)
            .map(OsString::into_string)
            .transpose();
        let url = url
            .map_err(|_| Failure::usage(format!("{VARIABLE} refused: expected a URL in UTF-8")))?;
        self.name(url, std::env::var_os(FILE_VARIABLE).map(PathBuf::from));
        Ok(())
    }

    /// Names the store by its URL, or by a file that has it, unless it is already named.
    pub fn name(&mut self, url: Option<String>, file: Option<PathBuf>) {
        if self.url.is_none() && self.file.is_none() {
            (self.url, self.file) = (url, file);
        }
    }

    /// Connects for a command about `name`, or about all names, which waits at most this long.
    pub async fn connect(
        &self,
        name: Option<&Name>,
        wait: Option<&Span>,
    ) -> Result<Contact, Failure> {
        let limit = self.contact(wait);
        Choice::of(self)?
            .connect(name, limit, |builder| builder)
            .await
    }

    /// Returns the limit of the first contact of a command that waits at most this long.
    pub fn contact(&self, wait: Option<&Span>) -> Duration {
        let wait = wait.map_or(Duration::MAX, |wait| wait.time.max(LEAST_CONTACT));
        self.connect_timeout.time.min(wait)
    }
}

impl Contact {
    /// Returns what is left of the limit.
    pub fn left(&self) -> Duration {
        self.ends_at.since(Monotonic.now()).max(LEAST_LIMIT)
    }

    /// Restarts the limit for the next answer.
    pub fn begin_again(&mut self) {
        self.ends_at = Monotonic.now().after(self.limit);
    }

    /// Runs the command's first request of its own, with this time limit. Repeats it within the limit while the failure
    /// may pass, as during a restart of the store: nothing has begun.
    pub async fn answer<T>(
        &self,
        ask: impl AsyncFn(Duration) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        self.within(self.left(), self.limit, ask).await
    }

    /// Like [`answer`](Self::answer), for requests that take longer, such as a long list. A store that was not reached
    /// before gets no extra time.
    pub async fn long_answer<T>(
        &self,
        limit: Duration,
        ask: impl AsyncFn(Duration) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        if self.doubt.is_some() {
            return self.answer(ask).await;
        }
        let limit = limit.max(self.limit);
        self.within(limit, limit, ask).await
    }

    /// Repeats the request to a store that was not reached until it answers or the limit ends, so that a restart is not
    /// reported as an outage.
    pub async fn settle(&self) {
        if self.doubt.is_some() {
            let store = self.client.store();
            let _ = self.answer(async |left| store.hazards(left).await).await;
        }
    }

    /// Like that, within the rest of a limit that the message names.
    async fn within<T>(
        &self,
        left: Duration,
        limit: Duration,
        ask: impl AsyncFn(Duration) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        let answer = within(left, limit, self.doubt.as_ref(), ask).await;
        answer.map_err(|failure| about_store(failure, &self.client.store().location()))
    }
}

/// Returns the first answer. Repeats the request within the limit while the failure may pass: nothing has begun, and
/// the user waits.
pub async fn first_contact<T>(
    limit: Duration,
    ask: impl AsyncFn(Duration) -> Result<T, Error>,
) -> Result<T, Failure> {
    within(limit, limit, None, ask).await
}

async fn within<T>(
    left: Duration,
    limit: Duration,
    doubt: Option<&Error>,
    ask: impl AsyncFn(Duration) -> Result<T, Error>,
) -> Result<T, Failure> {
    let mut last = None;
    let asking = asked(Monotonic.now().after(left), &mut last, ask);
    match tokio::time::timeout(left, asking).await {
        Ok(answer) => answer.map_err(refused),
        Err(_) => Err(silent(limit, last.as_ref().or(doubt))),
    }
}

/// Repeats the request until this moment while the failure may pass. Remembers the last failure.
async fn asked<T>(
    ends_at: Instant,
    last: &mut Option<Error>,
    ask: impl AsyncFn(Duration) -> Result<T, Error>,
) -> Result<T, Error> {
    loop {
        let left = ends_at.since(Monotonic.now()).max(LEAST_LIMIT);
        let next = match ask(left).await {
            Err(error) if error.is_transient() => {
                let next = Monotonic.now().after(PAUSE);
                if next >= ends_at {
                    return Err(error);
                }
                *last = Some(error);
                next
            }
            answer => return answer,
        };
        Monotonic.sleep_until(next).await;
    }
}

/// A silent store counts as unreachable, whatever the request was.
fn refused(error: Error) -> Failure {
    let message = in_words(&error);
    let failure = match error.kind() {
        ErrorKind::TimedOut => Failure::new(Exit::Unreachable, ""),
        _ => Failure::from(error),
    };
    Failure { message, ..failure }
}

/// Removes the name of the tool's first request from an error: the user did not ask for it.
fn in_words(error: &Error) -> String {
    let words = format!("{error:#}");
    let mut requests = ["inspect failed: ", "inspect the store failed: "].iter();
    match requests.find_map(|request| words.strip_prefix(request)) {
        Some(why) => format!("cannot use the store: {why}"),
        None => words,
    }
}

fn silent(limit: Duration, doubt: Option<&Error>) -> Failure {
    let why = doubt.map(|error| format!(": {}", in_words(error)));
    let message = format!(
        "no answer from the store within {limit:?}{}",
        why.unwrap_or_default()
    );
    Failure::new(Exit::Unreachable, message)
}

/// Names the store, unless the message does.
fn about_store(failure: Failure, store: &str) -> Failure {
    match failure.message.contains("store=") {
        true => failure,
        false => failure.about(format_args!("store={store}")),
    }
}

fn read(path: &Path) -> Result<Choice, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let path = path.display();
        Failure::usage(format!(
            "store file {path} refused: {error}; expected a file with a URL"
        ))
    })?;
    if Choice::is_secret(&text) {
        warn_if_others_read(path);
    }
    Choice::shared(&text, Some(path))
}

/// Warns of a file with a password that other users can read.
pub fn warn_if_others_read(path: &Path) {
    let mode = std::fs::metadata(path).map_or(0, |file| file.mode());
    if mode & 0o044 != 0 {
        let path = path.display();
        let message = format_args!("other users can read the password in {path}: chmod 600 {path}");
        say::fault("store_file", message);
    }
}

/// Asks until the store has answered, and remembers why it has not: a store that is silent now may answer in a moment.
/// A request has nine tenths of the limit, so that its own reason is known when the limit ends. The request changes
/// nothing, so it can be retried, and nothing is to be taken back where it is refused. It asks about the command's own
/// name, because the user may lack the permission for other names.
async fn reach(
    store: &dyn Store,
    name: Option<&Name>,
    limit: Duration,
    doubt: &mut Option<Error>,
) -> Result<(), Error> {
    let limit = limit * 9 / 10;
    let ask = async || match name {
        Some(name) => store.inspect(name, limit).await.map(drop),
        None => store.hazards(limit).await.map(drop),
    };
    loop {
        match ask().await {
            Ok(()) => *doubt = None,
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                *doubt = Some(error);
                Monotonic.sleep_until(Monotonic.now().after(PAUSE)).await;
                continue;
            }
            // Enough servers of a store may be away; it can still say which.
            Err(error) if error.is_transient() => *doubt = Some(error),
            Err(error) => return Err(error),
        }
        return Ok(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
