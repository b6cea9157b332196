//! The store on a quorum of servers.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::builder::Builder;
use super::claims::Rounds;
use super::members::Members;
use super::merged::MergedNotices;
use super::planted::Planted;
use super::{KIND, NextProposal, Proposals, Proposer, TooFarAhead, Wish, majority};
use crate::clock::{Boottime, Clock, Instant};
use crate::error::{Error, ErrorKind};
use crate::future::BoxFuture;
use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::store::redis::MemberClock;
use crate::store::{
    Answer, Ask, Claim, Eviction, Facts, Failed, Hazard, Held, Lane, Member, Notices, Release,
    Renewal, Renewed, Store,
};
use crate::telemetry::StoreCounts;
use crate::token::Token;

/// A store on a quorum of independent Redis or Valkey servers.
///
/// It is made without I/O: the first request connects.
pub struct Quorum {
    pub(super) members: Members,
    pub(super) shared: Arc<Shared>,
}

/// What the connections of one store have in common.
pub(super) struct Shared {
    proposer: Mutex<Proposer>,
    proposals: Mutex<Proposals>,
    pub(super) max_ttl: Duration,
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

    pub(super) fn of(members: Members, max_ttl: Duration, connect_timeout: Duration) -> Self {
        let places: Vec<_> = members.iter().map(|member| member.place()).collect();
        let counts = StoreCounts::of(KIND);
        counts.has_quorums();
        let shared = Shared {
            proposer: Mutex::new(Proposer::new(members.len(), Planted::default())),
            proposals: Mutex::default(),
            max_ttl,
            connect_timeout,
            place: format!("quorum of {}", places.join(", ")),
            counts,
        };
        Self {
            shared: Arc::new(shared),
            members,
        }
    }

    /// Connects, if no clock is known so far: a member tells its clock then, and the first proposal can be right. If no
    /// majority is met within half of the time that is left, the proposal itself reports what is wrong.
    pub(super) async fn learn_the_clocks(&self, deadline: Instant) {
        if self.shared.proposer().knows_a_clock() {
            return;
        }
        let limit = deadline.since(Boottime.now()) / 2;
        let _ = self.meet(&self.members, limit).await;
    }

    /// Connects to a majority of these members, and learns the clock of each. Those that are late are waited for beside.
    ///
    /// # Errors
    /// How many were met, and why others were not.
    async fn meet(
        &self,
        members: &Members,
        limit: Duration,
    ) -> Result<(), (usize, Vec<(usize, Failed)>)> {
        let mut asked = members.ask(limit, |member| async move {
            member.meet().await.map_err(Failed::never)
        });
        let (mut met, mut failures) = (0, Vec::new());
        while met < majority(members.len())
            && let Some((member, outcome)) = asked.next().await
        {
            match outcome {
                Ok(clock) => {
                    met += 1;
                    self.shared.note_met(member, clock);
                }
                Err(failed) => failures.push((member, failed)),
            }
        }
        let shared = self.shared.clone();
        asked.go_on(move |member, clock| shared.note_met(member, clock.ok().flatten()));
        match met < majority(members.len()) {
            true => Err((met, failures)),
            false => Ok(()),
        }
    }

    /// Makes the error of a call that brought no majority of answers.
    ///
    /// Its kind is that of what keeps the quorum from a majority: an outage if those that are down are too many, otherwise
    /// what has to be changed at a member.
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
    pub(super) fn proposals(&self) -> MutexGuard<'_, Proposals> {
        self.proposals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn proposer(&self) -> MutexGuard<'_, Proposer> {
        self.proposer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a member told of its clock when the connection was made.
    pub(super) fn note_met(&self, member: usize, met: Option<MemberClock>) {
        if let Some(clock) = met {
            let mut proposer = self.proposer();
            proposer.note_clock(member, clock.us, clock.at);
            proposer.note_floor(clock.floor, clock.us, clock.at);
        }
    }

    /// Returns the token to propose. As long as no clock is known it is one that every member refuses, because the refusals
    /// tell the clocks.
    pub(super) fn propose(
        &self,
        wish: Wish,
        next: NextProposal,
        now: Instant,
    ) -> Result<Token, TooFarAhead> {
        match self.proposer().propose(wish, next, now)? {
            Some(token) => Ok(token),
            None => Ok(Token::new(1).expect("the least token")),
        }
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
        Facts::new(KIND)
            .with_notices()
            .with_max_ttl(self.shared.max_ttl)
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
        Box::pin(Rounds::new(self, claim, ask, limit).run())
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
        Box::pin(self.release_everywhere(name, holder, keep_for, limit))
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

    fn on_own_connection(&self, lane: Lane) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async move {
            let beside = self.beside(lane).await?;
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
    async fn beside(&self, lane: Lane) -> Result<Self, Error> {
        let facts = format!("store={}", self.shared.place);
        if self.members.is_closed() {
            let message = format!("connect failed: store is closed {facts}");
            return Err(Error::new(ErrorKind::Closed, message));
        }
        let members = self.members.beside(lane);
        if let Err((met, failures)) = self.meet(&members, self.shared.connect_timeout).await {
            return Err(self.error("connect", met, &failures, facts));
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
