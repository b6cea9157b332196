//! The model store behind the trait of all stores, so that the same conformance suite holds it to the contract.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use leasehold::clock::{Clock, Instant, Monotonic};
use leasehold::store::{
    Answer, Ask, Claim, Eviction, Facts, Failed, Grant, Hazard, Held, HeldState, Info, Member,
    MemberState, Notices, Outcome, Purpose, Release, Renewal, Renewed, Store, conformance,
};
use leasehold::{BoxFuture, Error, ErrorKind, Holder, Name};

use super::store::{ModelStore, Taken, Verdict};
use super::time::{Drifting, Real, nanos};

/// The model in real time.
#[derive(Debug)]
struct RealTime {
    model: Arc<Mutex<Modelled>>,
    began: Instant,
    is_closed: AtomicBool,
}

/// The model knows no words of its holders, so they are beside it.
#[derive(Debug)]
struct Modelled {
    store: ModelStore,
    infos: BTreeMap<Name, Arc<Info>>,
}

impl RealTime {
    fn new() -> Self {
        let clock = Drifting::new(nanos(Duration::from_secs(1_000)), 1.0);
        Self {
            model: Arc::new(Mutex::new(Modelled {
                store: ModelStore::new(clock, None),
                infos: BTreeMap::new(),
            })),
            began: Monotonic.now(),
            is_closed: AtomicBool::new(false),
        }
    }

    fn another(&self) -> Self {
        Self {
            model: self.model.clone(),
            began: self.began,
            is_closed: AtomicBool::new(false),
        }
    }

    /// The model, and the real time by which it is asked.
    fn model(&self) -> Result<(MutexGuard<'_, Modelled>, Real), Error> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "the model is closed"));
        }
        let model = self.model.lock().expect("no check panics in here");
        Ok((model, nanos(Monotonic.now().since(self.began))))
    }

    fn acquire_now(&self, claim: &Claim, ask: Ask) -> Result<Answer, Failed> {
        let (mut model, now) = self.model().map_err(Failed::never)?;
        let Claim { name, holder, .. } = claim;
        if model.store.row(name, now).is_none() {
            let minted = model.store.mint(name, ask.floor, now);
            minted.map_err(Failed::answered)?;
        }
        let taken = model
            .store
            .acquire(name, *holder, claim.ttl, ask.floor, now);
        Ok(match taken {
            Taken::Held(_) => {
                let held = model.held(name, now).expect("it was found a moment ago");
                Answer::Held(Box::new(held))
            }
            Taken::KeptOut(remaining) => {
                let mut held = Held::new(name.clone());
                held.remaining = Some(remaining);
                held.state = HeldState::KeepOut;
                Answer::Held(Box::new(held))
            }
            Taken::Fresh(token) | Taken::Again(token) => {
                model.infos.insert(name.clone(), claim.info.clone());
                Answer::Granted(Grant::new(token))
            }
        })
    }

    fn renew_now(&self, renewal: &Renewal) -> Outcome {
        match self.model() {
            Err(error) => Outcome::Unknown(error),
            Ok((mut model, now)) => match model.store.renew(renewal, now) {
                Verdict::Renewed => Outcome::Renewed,
                Verdict::Refused => Outcome::Refused,
                Verdict::Evicted => Outcome::Evicted,
                Verdict::Unknown => unreachable!("no key is poisoned here"),
            },
        }
    }

    fn list_now(&self, prefix: &str) -> Result<Vec<Held>, Error> {
        let (model, now) = self.model()?;
        let names = model.store.rows.keys();
        let names = names.filter(|name| name.as_str().starts_with(prefix));
        Ok(names.filter_map(|name| model.held(name, now)).collect())
    }

    fn evict_now(&self, name: &Name, how: Eviction) -> Result<bool, Error> {
        let (mut model, now) = self.model()?;
        let is_taken = model.store.row(name, now).is_some();
        match how {
            _ if !is_taken => {}
            Eviction::Marked => model.store.mark_evicted(name),
            _ => drop(model.store.rows.remove(name)),
        }
        Ok(is_taken)
    }
}

impl Modelled {
    #[expect(
        clippy::disallowed_methods,
        reason = "for people to read; the model itself knows no wall clock"
    )]
    fn held(&self, name: &Name, now: Real) -> Option<Held> {
        let row = self.store.row(name, now)?;
        let mut held = Held::new(name.clone());
        held.by = Some(row.holder);
        held.token = Some(row.token);
        held.info = Info::clone(&self.infos[name]);
        held.since = SystemTime::now().checked_sub(Duration::from_nanos(now - row.since));
        held.remaining = Some(row.ends_at.since(self.store.clock.at(now)));
        held.state = row.state;
        Some(held)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for RealTime {
    fn facts(&self) -> Facts {
        Facts::new("model")
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(Monotonic)
    }

    fn location(&self) -> String {
        "the simulator's model".into()
    }

    fn shard(&self, _: &Name) -> u32 {
        0
    }

    fn acquire<'a>(
        &'a self,
        claim: &'a Claim,
        ask: Ask,
        _: Duration,
    ) -> BoxFuture<'a, Result<Answer, Failed>> {
        Box::pin(async move { self.acquire_now(claim, ask) })
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], _: Duration) -> BoxFuture<'a, Renewed> {
        Box::pin(async { Renewed::new(batch.iter().map(|each| self.renew_now(each)).collect()) })
    }

    fn release<'a>(
        &'a self,
        name: &'a Name,
        holder: Holder,
        keep_for: Option<Duration>,
        _: Duration,
    ) -> BoxFuture<'a, Result<Release, Error>> {
        Box::pin(async move {
            let (mut model, now) = self.model()?;
            Ok(match model.store.release(name, holder, keep_for, now) {
                true => Release::Released,
                false => Release::NotHeld,
            })
        })
    }

    fn notices(&self) -> BoxFuture<'_, Result<Option<Box<dyn Notices>>, Error>> {
        Box::pin(async { Ok(None) })
    }

    fn inspect<'a>(
        &'a self,
        name: &'a Name,
        _: Duration,
    ) -> BoxFuture<'a, Result<Option<Held>, Error>> {
        Box::pin(async {
            let (model, now) = self.model()?;
            Ok(model.held(name, now))
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, _: Duration) -> BoxFuture<'a, Result<Vec<Held>, Error>> {
        Box::pin(async { self.list_now(prefix) })
    }

    fn evict<'a>(
        &'a self,
        name: &'a Name,
        how: Eviction,
        _: Duration,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move { self.evict_now(name, how) })
    }

    fn hazards(&self, _: Duration) -> BoxFuture<'_, Result<Vec<Hazard>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn members(&self, _: Duration) -> BoxFuture<'_, Result<Vec<Member>, Error>> {
        Box::pin(async { Ok(vec![Member::new(self.location(), MemberState::Up)]) })
    }

    fn on_own_connection(&self, _: Purpose) -> BoxFuture<'_, Result<Arc<dyn Store>, Error>> {
        Box::pin(async { Ok(Arc::new(self.another()) as Arc<dyn Store>) })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.is_closed.store(true, Ordering::Relaxed) })
    }
}

#[tokio::test]
async fn the_model_keeps_the_contract() {
    let store = RealTime::new();
    conformance::check(move || ready(Arc::new(store.another()) as _)).await;
}
