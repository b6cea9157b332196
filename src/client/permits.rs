//! Permits of a pool, and names that are shared or held alone: sends the requests that [`taking::take`] decides on.
//!
//! The tasks of a client that wait for one pool queue at its door as one client. The task that holds the door also
//! takes free permits for the others, and hands them over.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use parking_lot::Mutex;

use super::acquire::{Acquiring, Attempt};
use super::pools::WaitingTaker;
use super::taking::{self, Access, DoorAnswer, Pool};
use crate::clock::half_random;
use crate::error::{Error, ErrorKind};
use crate::fence::Pass;
use crate::future::BoxFuture;
use crate::lease::Lease;
use crate::name::Name;
use crate::store::{Held, Info};
use crate::term::Instant;
use crate::waiting::{OutagePolicy, WaitFor, no_grant};

/// Pause before the next attempt of a caller that waits for the end of outages; half of it is random.
const AFTER_FAILURE: Duration = Duration::from_millis(200);

/// Minimum time for the requests of a caller that waits: a name is held alone only after two round trips, and a wait of
/// zero is granted what is free.
const LEAST_WAIT: Duration = Duration::from_millis(300);

/// One acquisition in a pool.
pub(super) struct Taker<'a> {
    access: Access,
    /// When its wait ends; `None` if it does not wait.
    ends_at: Option<Instant>,
    asks: Asks<'a>,
    door: Option<Lease>,
    permit: Option<Lease>,
    /// Polls, valid for the current grant of the door, that finish when their permit becomes free.
    polls: FuturesUnordered<BoxFuture<'static, Result<u16, Error>>>,
}

/// The requests of one acquisition, and their limit.
struct Asks<'a> {
    /// The request for the name of the pool.
    request: &'a Acquiring,
    /// When the last of them ends: at the end of the caller's wait, or after [`LEAST_WAIT`].
    ends_at: Option<Instant>,
    /// The last holder that was seen.
    held: LastHeld,
}

type LastHeld = Arc<Mutex<Option<Arc<Held>>>>;

impl<'a> Taker<'a> {
    pub(super) fn new(request: &'a Acquiring, access: Access, ends_at: Option<Instant>) -> Self {
        let least = request.clock.now().after(LEAST_WAIT);
        Self {
            access,
            ends_at,
            asks: Asks {
                request,
                ends_at: ends_at.map(|ends_at| ends_at.max(least)),
                held: LastHeld::default(),
            },
            door: None,
            permit: None,
            polls: FuturesUnordered::new(),
        }
    }

    /// Acquires what was requested, or returns the holder if the caller does not wait.
    pub(super) async fn take(mut self) -> Result<Attempt, Error> {
        let clock = self.asks.request.clock.clone();
        loop {
            let error = match self.take_once().await {
                Err(error) if error.is_transient() => error,
                taken => return taken,
            };
            (self.door, self.permit) = (None, None);
            // No one polls them before the next grant of the door, and they would keep this client's other tasks from
            // it.
            self.polls.clear();
            let again_at = clock.now().after(half_random(AFTER_FAILURE));
            let is_patient = self.asks.request.options.outage == OutagePolicy::WaitOut;
            match self.ends_at {
                Some(ends_at) if is_patient && again_at < ends_at => {
                    clock.nap_until(again_at).await;
                }
                _ if error.kind() == ErrorKind::TimedOut => return Err(self.asks.timed_out()),
                _ => return Err(error),
            }
        }
    }

    async fn take_once(&mut self) -> Result<Attempt, Error> {
        let (access, waits) = (self.access, self.ends_at.is_some());
        let guesses = fastrand::choose_multiple(1..=access.permits(), access.guesses().into());
        if taking::take(self, access, waits, guesses).await? {
            let taken = self.permit.take().or_else(|| self.door.take());
            return Ok(Attempt::Acquired(taken.expect("it was granted")));
        }
        match self.asks.held.lock().take() {
            Some(held) => Ok(Attempt::Held(Box::new(Held::clone(&held)))),
            None => Err(self.asks.request.too_late()),
        }
    }

    /// Decides whether these free permits count: not if the door was lost meanwhile. A store that forgot its leases
    /// shows all permits free, and has forgotten the door with them.
    async fn seen(&mut self, free: Vec<u16>) -> Result<Option<Vec<u16>>, Error> {
        let is_lost = match &self.door {
            None => false,
            Some(door) if door.check().is_err() => true,
            Some(door) if self.access == Access::Exclusive => {
                let held = self.asks.inspect(door.name()).await?;
                held.is_none_or(|held| held.token != Some(door.token()))
            }
            Some(_) => false,
        };
        if is_lost {
            self.door = None;
            return Ok(None);
        }
        Ok(Some(free))
    }

    /// Begins to poll a permit until it is free.
    fn watch(&self, permit: u16) -> Result<(), Error> {
        let (request, held) = (
            self.asks.request.for_permit(permit)?,
            self.asks.held.clone(),
        );
        let ends_at = self.asks.ends_at;
        self.polls.push(Box::pin(async move {
            request.until_free(&held, ends_at).await?;
            Ok(permit)
        }));
        Ok(())
    }
}

impl Asks<'_> {
    /// Inspects a name, unless the caller's limit has run out.
    async fn inspect(&self, name: &Name) -> Result<Option<Held>, Error> {
        self.check_time()?;
        self.request.inspect(name, self.ends_at).await
    }

    /// Fails once the caller's limit has run out: each of a pool's many requests may be in time, and all of them
    /// together too late.
    fn check_time(&self) -> Result<(), Error> {
        match self.ends_at {
            Some(ends_at) if self.request.clock.now() >= ends_at => Err(self.timed_out()),
            _ => Ok(()),
        }
    }

    /// Claims these permits for tasks of this client that wait at the same door.
    async fn take_for_others(&self, access: Access, free: &[u16]) -> Vec<(WaitingTaker, Lease)> {
        let pools = &self.request.client.pools;
        let waiting = pools.waiting(access, &self.request.name, free.len());
        let claims = waiting
            .into_iter()
            .zip(free)
            .map(async |(waiting, permit)| {
                let request = waiting.request.for_permit(*permit);
                let attempt = async { request?.try_once(self.ends_at).await };
                (attempt.await, waiting)
            });
        let mut taken = Vec::new();
        for (attempt, waiting) in join_all(claims).await.into_iter().rev() {
            match attempt {
                Ok(Attempt::Acquired(lease)) => taken.push((waiting, lease)),
                // The task's own request for the door reports an error to it.
                Ok(Attempt::Held(_)) | Err(_) => pools.put_back(waiting),
            }
        }
        taken
    }

    fn timed_out(&self) -> Error {
        match self.held.lock().take() {
            Some(held) => no_grant(&self.request.name, Ok(held)),
            None => self.request.no_answer(),
        }
    }
}

impl Pool for Taker<'_> {
    fn is_door_taken(&self) -> bool {
        self.asks
            .request
            .client
            .pools
            .is_door_taken(&self.asks.request.name)
    }

    fn is_permit_held(&self) -> bool {
        let permit = self.permit.as_ref();
        permit.is_some_and(|permit| permit.check().is_ok())
    }

    async fn is_door_free(&mut self) -> Result<bool, Error> {
        let held = self.asks.inspect(&self.asks.request.name).await?;
        let is_free = held.is_none();
        let pools = &self.asks.request.client.pools;
        pools.note_door(&self.asks.request.name, is_free);
        if let Some(held) = held {
            *self.asks.held.lock() = Some(Arc::new(held));
        }
        Ok(is_free)
    }

    async fn claim(&mut self, permit: u16) -> Result<bool, Error> {
        self.asks.check_time()?;
        let request = self.asks.request.for_permit(permit)?;
        match request.try_once(self.asks.ends_at).await? {
            Attempt::Acquired(lease) => {
                self.permit = Some(lease);
                Ok(true)
            }
            Attempt::Held(held) => {
                *self.asks.held.lock() = Some(Arc::from(held));
                if self.door.is_some() {
                    self.watch(permit)?;
                }
                Ok(false)
            }
        }
    }

    async fn give_back(&mut self) {
        let ends_at = self.asks.ends_at.unwrap_or(Instant::FAR_FUTURE);
        if let Some(permit) = self.permit.take() {
            tokio::select! {
                biased;
                _ = permit.release() => {}
                // The watchdog goes on with it.
                () = self.asks.request.clock.nap_until(ends_at) => {}
            }
        }
    }

    async fn take_door(&mut self) -> Result<DoorAnswer, Error> {
        self.polls.clear();
        let door = self.asks.request.of(self.asks.request.name.clone());
        let attempt = match self.ends_at {
            None => door.try_once(None).await?,
            Some(ends_at) => {
                let request = self.asks.request.of(self.asks.request.name.clone());
                let place = self.asks.request.client.pools.join(self.access, request);
                match door.wait_or(ends_at, pin!(place.permit())).await? {
                    Ok(lease) => Attempt::Acquired(lease),
                    Err(permit) => {
                        self.permit = Some(permit);
                        return Ok(DoorAnswer::Given);
                    }
                }
            }
        };
        Ok(match attempt {
            Attempt::Acquired(lease) => {
                self.door = Some(lease);
                DoorAnswer::Granted
            }
            Attempt::Held(held) => {
                *self.asks.held.lock() = Some(Arc::from(held));
                DoorAnswer::Taken
            }
        })
    }

    /// The free ones come in random order.
    async fn survey(&mut self) -> Result<Option<Vec<u16>>, Error> {
        let polls = (1..=self.access.permits()).map(async |permit| {
            let name = permit_name(&self.asks.request.name, permit)?;
            let held = self.asks.inspect(&name).await?;
            Ok::<_, Error>((permit, held))
        });
        let mut free = Vec::new();
        for seen in join_all(polls).await {
            match seen? {
                (permit, None) => free.push(permit),
                (_, Some(held)) => *self.asks.held.lock() = Some(Arc::new(held)),
            }
        }
        fastrand::shuffle(&mut free);
        self.seen(free).await
    }

    async fn await_free(&mut self) -> Result<Option<Vec<u16>>, Error> {
        if self.polls.is_empty() {
            (1..=self.access.permits()).try_for_each(|permit| self.watch(permit))?;
        }
        let (door, clock) = (self.door.as_ref(), &self.asks.request.clock);
        let door = door.expect("it was granted");
        let mut free = Vec::new();
        tokio::select! {
            biased;
            _ = door.lost() => {}
            Some(permit) = self.polls.next() => free.push(permit?),
            () = clock.nap_until(self.asks.ends_at.unwrap_or(Instant::FAR_FUTURE)) => {
                return Err(self.asks.timed_out());
            }
        }
        while let Some(Some(permit)) = self.polls.next().now_or_never() {
            free.push(permit?);
        }
        self.seen(free).await
    }

    /// Releases the door, first taking some of these permits for other tasks of this client. One answer decides for
    /// all.
    async fn leave_door(&mut self, others: &[u16]) -> bool {
        let taken = match self.permit {
            Some(_) => self.asks.take_for_others(self.access, others).await,
            None => Vec::new(),
        };
        self.polls.clear();
        let door = self.door.take().expect("it was granted");
        let shown = (self.access == Access::SharedFenced)
            .then(|| Pass::new(door.name().clone(), door.holder(), door.token()));
        let was_held = match self.access {
            // The answer is not needed: the watchdog sends the release.
            Access::Permit(_) => {
                drop(door);
                true
            }
            _ => door.release_held().await,
        };
        if let Some(permit) = &mut self.permit {
            permit.handle.shown = shown.clone().map(Box::new);
        }
        for (waiting, mut lease) in taken {
            lease.handle.shown = shown.clone().map(Box::new);
            match was_held && lease.check().is_ok() {
                true => drop(waiting.permit.send(lease)),
                false => self.asks.request.client.pools.put_back(waiting),
            }
        }
        was_held
    }
}

impl Acquiring {
    /// The same request for another name.
    fn of(&self, name: Name) -> Self {
        Self {
            known: self.client.floors.keep(name.clone()),
            name,
            ..self.clone()
        }
    }

    fn for_permit(&self, permit: u16) -> Result<Self, Error> {
        let info = Info {
            permit: Some(permit),
            ..Info::clone(&self.info)
        };
        Ok(Self {
            info: Arc::new(info),
            ..self.of(permit_name(&self.name, permit)?)
        })
    }

    async fn inspect(&self, name: &Name, ends_at: Option<Instant>) -> Result<Option<Held>, Error> {
        let limit = self.limit(ends_at);
        self.client.store.inspect(name, limit).await
    }

    /// Polls the name, without a claim, until it is free.
    async fn until_free(&self, last: &LastHeld, ends_at: Option<Instant>) -> Result<(), Error> {
        let (outage, reports) = (self.options.outage, self.options.reports.clone());
        let place = (self.client.hub).join(&self.name, WaitFor::Freedom, outage, reports);
        loop {
            let turn = place.turn(Instant::FAR_FUTURE).await?;
            let found = match self.inspect(&self.name, ends_at).await {
                Ok(None) => return Ok(()),
                Ok(Some(held)) => Ok(Arc::new(held)),
                Err(error) => Err(error),
            };
            turn.found(found.clone());
            match found {
                Ok(held) => *last.lock() = Some(held),
                Err(error)
                    if error.is_transient() && self.options.outage == OutagePolicy::WaitOut => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The name of a permit.
pub(super) fn permit_name(pool: &Name, permit: u16) -> Result<Name, Error> {
    Name::new(format!("{pool}#{permit}"))
}
