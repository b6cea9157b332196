//! The store on a quorum of servers.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::KIND;
use super::builder::Builder;
use super::care::Care;
use super::claims::Rounds;
use super::known::KnownQuorum;
use super::members::{Members, MergedNotices};
use super::protocol::{TokenMemory, majority};
use crate::clock::{Boottime, Clock};
use crate::error::{Error, ErrorKind};
use crate::future::BoxFuture;
use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::store::release::kept_for;
use crate::store::{
    Answer, Ask, Claim, Eviction, Facts, Failed, Hazard, Held, Member, Notices, Purpose, Release,
    Renewal, Renewed, Store, TableSettings,
};
use crate::telemetry::StoreCounts;

/// A store on a quorum of independent Redis or Valkey servers.
///
/// It is made without I/O: the first request connects.
pub struct Quorum {
    pub(super) members: Members,
    pub(super) shared: Arc<Shared>,
}

/// What the connections of one store have in common.
pub(super) struct Shared {
    memory: Mutex<TokenMemory>,
    /// The highest mark and token that members told.
    seen: AtomicU64,
    known: Mutex<Option<KnownQuorum>>,
    pub(super) care: Vec<Arc<Care>>,
    /// As the settings have it.
    pub(super) max_ttl: Option<Duration>,
    pub(super) connect_timeout: Duration,
    /// Where the members are, without secrets.
    pub(super) place: String,
    pub(super) counts: &'static StoreCounts,
}

impl Quorum {
    /// Makes the store at this URL, `redis+quorum://HOST,HOST,HOST`, with the default settings.
    ///
    /// # Errors
    /// `Invalid` for a URL that cannot be used. The message contains no secrets.
    pub fn open(url: &str) -> Result<Self, Error> {
        Builder::from_url(url)?.build()
    }

    /// Returns a builder for the store on the servers at these URLs, each of which is that of a Redis server alone.
    pub fn builder<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Builder {
        Builder::of_members(urls.into_iter().map(Into::into).collect())
    }

    pub(super) fn of(
        members: Members,
        max_ttl: Option<Duration>,
        connect_timeout: Duration,
    ) -> Self {
        let counts = StoreCounts::of(KIND);
        counts.has_quorums();
        let shared = Shared {
            memory: Mutex::default(),
            seen: AtomicU64::new(0),
            known: Mutex::default(),
            care: members.iter().map(|_| Arc::default()).collect(),
            max_ttl,
            connect_timeout,
            place: format!("quorum of {}", members.places()),
            counts,
        };
        Self {
            shared: Arc::new(shared),
            members,
        }
    }

    /// Returns the same store on the same connections, for a task.
    pub(super) fn share(&self) -> Self {
        Self {
            members: self.members.clone(),
            shared: self.shared.clone(),
        }
    }

    /// Makes the error of a call that brought no majority of answers.
    ///
    /// Its kind is that of what keeps the quorum from a majority: an outage if those that are down are too many,
    /// otherwise what has to be changed at a member.
    pub(super) fn error(
        &self,
        operation: &str,
        answered: usize,
        failures: &[(usize, Failed)],
        facts: impl fmt::Display,
    ) -> Error {
        let members = self.members.len();
        let kinds = failures.iter().map(|(_, failed)| failed.error.kind());
        let is_transient =
            |kind: &ErrorKind| matches!(kind, ErrorKind::Unavailable | ErrorKind::TimedOut);
        let lasting = kinds.clone().find(|kind| !is_transient(kind));
        let transient: Vec<_> = kinds.filter(is_transient).collect();
        let is_outage = members - transient.len() < majority(members);
        let kind = match lasting {
            Some(ErrorKind::Closed) => ErrorKind::Closed,
            Some(kind) if !is_outage => kind,
            _ if transient.contains(&ErrorKind::Unavailable) => ErrorKind::Unavailable,
            _ => ErrorKind::TimedOut,
        };
        let told: Vec<_> = failures
            .iter()
            .map(|(member, failed)| {
                let place = self.members.place(*member);
                format!("{place}: {}", root(&failed.error))
            })
            .collect();
        let told = if told.is_empty() {
            "the others did not answer in time".into()
        } else {
            told.join("; ")
        };
        let error = Error::new(
            kind,
            format!(
                "{operation} failed: {answered} of {members} members answered ({told}) {facts}"
            ),
        );
        match failures.first() {
            Some((_, failed)) => error.with_source(failed.error.clone()),
            None => error,
        }
    }

    pub(super) fn error_of(
        &self,
        operation: &str,
        answered: usize,
        failures: &[(usize, Failed)],
        name: &Name,
    ) -> Error {
        let facts = format_args!("name={name} store={}", self.shared.place);
        self.error(operation, answered, failures, facts)
    }
}

impl Shared {
    pub(super) fn memory(&self) -> MutexGuard<'_, TokenMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Option<KnownQuorum>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    pub(super) fn note_seen(&self, token: u64) {
        self.seen.fetch_max(token, Ordering::Relaxed);
    }
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quorum")
            .field("location", &self.shared.place)
            .field("max_ttl", &self.shared.max_ttl)
            .finish_non_exhaustive()
    }
}

impl Store for Quorum {
    fn facts(&self) -> Facts {
        let facts = Facts::new(KIND).with_notices();
        let told = self.shared.known().as_ref().map(|known| known.max_ttl);
        match self.shared.max_ttl.or(told) {
            Some(max_ttl) => facts.with_max_ttl(max_ttl),
            None => facts,
        }
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(Boottime)
    }

    fn location(&self) -> String {
        self.shared.place.clone()
    }

    fn shard(&self, _: &Name) -> u32 {
        0
    }

    fn acquire<'a>(
        &'a self,
        claim: &'a Claim,
        ask: Ask,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Answer, Failed>> {
        Box::pin(Rounds::run(self, claim, ask, limit))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], limit: Duration) -> BoxFuture<'a, Renewed> {
        Box::pin(self.renew_all(batch, limit))
    }

    fn release<'a>(
        &'a self,
        name: &'a Name,
        holder: Holder,
        keep_for: Option<Duration>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Release, Error>> {
        Box::pin(self.release_everywhere(name, holder, kept_for(keep_for), limit))
    }

    /// There is no queue to leave.
    fn leave<'a>(
        &'a self,
        _: &'a Name,
        _: ClientId,
        _: Duration,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    fn notices(&self) -> BoxFuture<'_, Result<Option<Box<dyn Notices>>, Error>> {
        Box::pin(async {
            let notices = MergedNotices::of(&self.members).await?;
            Ok(Some(Box::new(notices) as Box<dyn Notices>))
        })
    }

    fn inspect<'a>(
        &'a self,
        name: &'a Name,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Option<Held>, Error>> {
        Box::pin(self.look_at(name, limit))
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Vec<Held>, Error>> {
        Box::pin(self.list_all(prefix, limit))
    }

    fn evict<'a>(
        &'a self,
        name: &'a Name,
        how: Eviction,
        limit: Duration,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(self.evict_everywhere(name, how, limit))
    }

    fn hazards(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Hazard>, Error>> {
        Box::pin(self.find_hazards(limit))
    }

    fn members(&self, limit: Duration) -> BoxFuture<'_, Result<Vec<Member>, Error>> {
        Box::pin(self.see_members(limit))
    }

    fn on_own_connection(&self, purpose: Purpose) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move {
            let beside = self.beside(purpose).await?;
            Ok(Arc::new(beside) as Arc<dyn Store>)
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            for member in self.members.iter() {
                member.close().await;
            }
        })
    }
}

impl Quorum {
    /// Returns the same store on connections of its own. A majority of them has to be made.
    async fn beside(&self, purpose: Purpose) -> Result<Self, Error> {
        let facts = format!("store={}", self.shared.place);
        if self.members.is_closed() {
            let message = format!("connect failed: store is closed {facts}");
            return Err(Error::new(ErrorKind::Closed, message));
        }
        let members = self.members.beside(purpose);
        let mut asked = members.ask(self.shared.connect_timeout, |_, member| async move {
            member.connect().await.map_err(Failed::never)
        });
        let (mut made, mut failures) = (0, Vec::new());
        while made < majority(members.len())
            && let Some((member, outcome)) = asked.next().await
        {
            match outcome {
                Ok(()) => made += 1,
                Err(failed) => failures.push((member, failed)),
            }
        }
        asked.go_on(|_, _| ());
        if made < majority(members.len()) {
            return Err(self.error("connect", made, &failures, facts));
        }
        Ok(Self {
            members,
            shared: self.shared.clone(),
        })
    }
}

/// Returns the text of the source behind all others.
fn root(error: &Error) -> String {
    let mut root: &dyn std::error::Error = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}

/// Opens the store at a URL whose scheme is one of ours.
pub(crate) fn open_url(url: &str) -> Result<Arc<dyn Store>, Error> {
    Ok(Arc::new(Quorum::open(url)?))
}

fn set_up(url: &str, settings: TableSettings) -> Result<Quorum, Error> {
    match settings.max_ttl {
        Some(_) => Err(Error::invalid(
            "init refused: a quorum has no tables; expected the longest ttl in its URL, as max_ttl=60s",
        )),
        None => Quorum::open(url),
    }
}

/// Sets up the quorum at a URL whose scheme is ours.
pub(in crate::store) async fn init_quorum(
    url: &str,
    settings: TableSettings,
    limit: Duration,
) -> Result<(), Error> {
    let quorum = set_up(url, settings)?;
    let done = quorum.init(limit).await;
    quorum.close().await;
    done
}

/// Puts it in the place of another one.
pub(in crate::store) async fn replace_quorum(
    url: &str,
    old: &str,
    from_clock: bool,
    limit: Duration,
) -> Result<(), Error> {
    let (quorum, old) = (Quorum::open(url)?, Quorum::open(old)?);
    let done = quorum.replace(&old, from_clock, limit).await;
    quorum.close().await;
    old.close().await;
    done
}

/// Returns what would be done, in place of an old quorum if there is one.
pub(in crate::store) fn quorum_plan(
    url: &str,
    old: Option<&str>,
    settings: TableSettings,
) -> Result<String, Error> {
    let old = old.map(Quorum::open).transpose()?;
    Ok(set_up(url, settings)?.plan(old.as_ref()))
}
