//! Tries a real store with a scratch name: acquire, renew, release, the notice of a freed name, and turns in the queue.
//!
//! The name begins with `leasehold-doctor/` and is released, so it leaves no more than any released name. If a step
//! fails or the process is killed, its lease expires by itself.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};
use leasehold::store::spi::{
    Answer, Ask, Claim, Notice, Notices, Outcome, Queued, Release, Renewal, Topic,
};
use leasehold::store::{HeldState, Info, Store};
use leasehold::{ClientId, Error, Holder, Name, Token};
use tokio::time::timeout;

use super::finding::{Finding, Verdict};
use crate::exit::{Exit, Failure};
use crate::row::in_words;

/// The ttl of a scratch lease.
const TTL: Duration = Duration::from_secs(10);

/// The number of round trips: enough for a p99 that is not the worst of them.
const ROUNDS: usize = 40;

/// After this time a slow store gets no more rounds.
const ENOUGH: Duration = Duration::from_secs(3);

/// A hand-over that takes longer than this was not caused by a notice.
const SLOW_NOTICE: Duration = Duration::from_secs(1);

/// Explains why no notice comes.
const BY_TIME: &str = "waiting clients only check again after up to five seconds";

/// The store, and the scratch name.
pub struct Trial<'a> {
    pub store: &'a dyn Store,
    /// The limit of each request.
    pub limit: Duration,
    /// Drawn for this run, so that two doctors do not meet. All probes use one name, because a released name may leave
    /// a mark of its last token.
    name: Name,
    info: Arc<Info>,
}

impl<'a> Trial<'a> {
    pub fn new(store: &'a dyn Store, limit: Duration) -> Result<Self, Error> {
        Ok(Self {
            store,
            limit,
            name: Name::new(format!("leasehold-doctor/{}", ClientId::draw()))?,
            info: Arc::new(Info::here(Some("leasehold doctor"))?),
        })
    }

    /// Makes a claim for the scratch name, with a client of its own.
    fn claim(&self) -> Result<Claim, Error> {
        let holder = Holder::draw(ClientId::draw())?;
        Ok(Claim::new(
            self.name.clone(),
            holder,
            TTL,
            self.info.clone(),
        ))
    }

    async fn ask(&self, claim: &Claim, ask: Ask) -> Result<Answer, Failure> {
        let answer = self.store.acquire(claim, ask, self.limit).await;
        answer.map_err(|failed| failed.error.into())
    }

    /// Acquires a name that must be free. Returns the token of the grant.
    async fn acquire(&self, claim: &Claim) -> Result<Token, Failure> {
        match self.ask(claim, Ask::default()).await? {
            Answer::Granted(grant) => Ok(grant.token),
            Answer::Held(held) if held.state == HeldState::KeepOut => Err(Failure {
                is_conflict: true,
                ..Failure::new(Exit::NotAcquired, in_words(&held))
            }),
            Answer::Held(held) => Err(wrong(format!(
                "a name that no client ever had was refused state={:?} {held}",
                held.state
            ))),
        }
    }

    async fn renew(&self, claim: &Claim, token: Token) -> Result<(), Failure> {
        let renewal = Renewal::new(claim.name.clone(), claim.holder, token, claim.ttl);
        let mut renewed = self.store.renew(&[renewal], self.limit).await;
        match renewed.outcomes.pop() {
            Some(Outcome::Renewed) => Ok(()),
            Some(Outcome::Unknown(error)) => Err(error.into()),
            other => Err(wrong(format!(
                "a held lease was not renewed outcome={other:?}"
            ))),
        }
    }

    async fn release(&self, claim: &Claim) -> Result<(), Failure> {
        let releasing = self
            .store
            .release(&claim.name, claim.holder, None, self.limit);
        match releasing.await? {
            Release::Released => Ok(()),
            other => Err(wrong(format!(
                "a held lease was not released outcome={other:?}"
            ))),
        }
    }

    /// Acquires, renews and releases a name repeatedly. Returns how long each round trip took.
    pub async fn cycles(&self) -> Result<Vec<Duration>, Failure> {
        let claim = self.claim()?;
        let mut round_trips = Vec::new();
        let began = Monotonic.now();
        while round_trips.len() < 3 * ROUNDS && Monotonic.now().since(began) < ENOUGH {
            let token = timed(&mut round_trips, self.acquire(&claim)).await?;
            timed(&mut round_trips, self.renew(&claim, token)).await?;
            timed(&mut round_trips, self.release(&claim)).await?;
        }
        Ok(round_trips)
    }

    /// Judges the notice of a name that is freed.
    pub async fn notice(&self) -> Finding {
        match self.heard().await {
            Ok(Some(after)) => came(after),
            Ok(None) => Finding::ok("notice", format!("the store gives no notices: {BY_TIME}")),
            Err(failure) => Finding::new("notice", Verdict::Failure, failure.message)
                .endangers(BY_TIME)
                .fix("Let this user publish and subscribe to the store's channels, and check its output limits"),
        }
    }

    /// Returns how long after the release of a name its notice came, if the store gives notices.
    async fn heard(&self) -> Result<Option<Duration>, Failure> {
        let Some(notices) = self.store.notices().await? else {
            return Ok(None);
        };
        let claim = self.claim()?;
        self.acquire(&claim).await?;
        notices.follow(&Topic::Freed(claim.name.clone()));
        let heard = async || {
            let heard = timeout(self.limit, freed(&*notices, &claim.name)).await;
            let limit = self.limit;
            heard.map_err(|_| wrong(format!("no notice of a freed name came within {limit:?}")))
        };
        // The first notice says that the store listens.
        let listening = heard().await;
        let released_at = Monotonic.now();
        self.release(&claim).await?;
        listening?;
        heard().await?;
        Ok(Some(Monotonic.now().since(released_at)))
    }

    /// Makes two clients wait for a name in turn, and checks which gets it first.
    pub async fn turns(&self) -> Finding {
        if !self.store.facts().has_queue {
            return Finding::ok("turns", "the store keeps no queue");
        }
        match self.have_turns().await {
            Ok(()) => Finding::ok("turns", "two waiting clients had their turns in order"),
            Err(failure) => Finding::new("turns", Verdict::Failure, failure.message)
                .endangers("clients that wait in turn may wait long, or be overtaken")
                .fix("Look for clients of another version or another program on these keys; if there are none, report a bug"),
        }
    }

    async fn have_turns(&self) -> Result<(), Failure> {
        let [holder, first, second] = [self.claim()?, self.claim()?, self.claim()?];
        let ask = async |claim: &Claim, has_turn| match self.ask(claim, queued(claim)).await? {
            Answer::Granted(_) if has_turn => self.release(claim).await,
            Answer::Held(_) if !has_turn => Ok(()),
            answer => Err(wrong(format!(
                "two waiting clients did not have their turns in order answer={answer:?}"
            ))),
        };
        self.acquire(&holder).await?;
        for waiting in [&first, &second] {
            if let Answer::Granted(_) = self.ask(waiting, queued(waiting)).await? {
                return Err(wrong("a held name was granted to a second holder"));
            }
        }
        self.release(&holder).await?;
        // The later client asks first, and has to be refused.
        ask(&second, false).await?;
        ask(&first, true).await?;
        ask(&second, true).await
    }
}

/// Judges a notice that came this long after the release was sent.
pub fn came(after: Duration) -> Finding {
    let what = format!(
        "the notice of a freed name came after {after:.1?}, and below {SLOW_NOTICE:?} is good"
    );
    Finding::new("notice", Verdict::warn_unless(after < SLOW_NOTICE), what)
        .endangers("names stay free although clients wait")
        .fix("Reduce the load of the store or of this machine")
}

/// Makes the failure of a store that broke the contract with its answer. A claim that waits in turn.
fn queued(claim: &Claim) -> Ask {
    Ask::default().with_queued(Some(Queued::new(claim.ttl)))
}

fn wrong(message: impl Into<String>) -> Failure {
    Failure::new(Exit::Internal, message)
}

/// Notes how long the step took.
async fn timed<T>(
    round_trips: &mut Vec<Duration>,
    step: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let began = Monotonic.now();
    let outcome = step.await?;
    round_trips.push(Monotonic.now().since(began));
    Ok(outcome)
}

/// Waits until a notice says that this name is free.
async fn freed(notices: &dyn Notices, name: &Name) {
    loop {
        if matches!(notices.next().await, Notice::Freed(freed) if freed == *name) {
            return;
        }
    }
}
