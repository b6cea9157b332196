//! The network between the processes and the store, and what a request does once it has arrived.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use leasehold::internals::schedule::Leaving;
use leasehold::store::{Ask, Claim, HeldState, Place, Release, Renewal, ServerTime};
use leasehold::{Error, ErrorKind, Holder, Name, Token};

use super::ledger::Promise;
use super::stage::{Event, Happening, Stage};
use super::store::{Taken, Verdict};
use super::time::{Real, nanos};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outage {
    /// Requests or replies vanish.
    BlackHole,
    /// Everything fails at once.
    Failing,
    /// The server stands still, and does then what it was asked.
    Hanging,
}

#[derive(Debug)]
pub(super) struct Request {
    from: (usize, u32),
    call: usize,
    body: Body,
    /// How long the reply travels; nothing if it is lost.
    reply_after: Option<u64>,
    is_failing: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Body {
    Acquire(Claim, Ask),
    Renew(Rc<Vec<Renewal>>),
    Release {
        name: Name,
        holder: Holder,
        keep_for: Option<Duration>,
    },
}

impl Body {
    pub(super) fn release(leaving: &Leaving) -> Self {
        Self::Release {
            name: leaving.name.clone(),
            holder: leaving.holder,
            keep_for: leaving.keep_for,
        }
    }
}

#[derive(Debug)]
pub(super) enum Reply {
    Granted(Token),
    Held(Duration, HeldState, Option<Place>),
    /// The verdicts, what the clock of the server showed if one of them answered all, and when it really was.
    Renewed(Vec<Verdict>, Option<ServerTime>, Real),
    Released,
    Failed,
}

/// What the core is told of the reply to a release.
pub(super) fn release_in(reply: &Reply) -> Result<Release, Error> {
    match reply {
        Reply::Released => Ok(Release::Released),
        _ => Err(Error::new(ErrorKind::TimedOut, "no answer")),
    }
}

impl Stage {
    /// Puts a request on its way, or loses it.
    pub(super) fn send(&mut self, from: (usize, u32), call: usize, body: &Body) {
        let travel = |stage: &mut Self| stage.rng.u64(50_000..1_500_000);
        let (mut there, mut back) = (Some(travel(self)), Some(travel(self)));
        let mut is_failing = false;
        match self.outage_of(body) {
            Some((Outage::BlackHole, _)) if self.rng.bool() => there = None,
            Some((Outage::BlackHole, _)) => back = None,
            Some((Outage::Failing, _)) => is_failing = true,
            Some((Outage::Hanging, until)) => {
                there = there.map(|there| there + until - self.now);
            }
            None => {}
        }
        let slow_line = nanos(self.plan.slow_line);
        if slow_line > 0 {
            self.ledger.fault("slow line");
            back = back.map(|back| back + slow_line);
        }
        let odds = self.plan.odds;
        if self.chance(odds.lost) {
            self.ledger.fault("lost");
            *(if self.rng.bool() {
                &mut there
            } else {
                &mut back
            }) = None;
        }
        if self.chance(odds.failed) {
            self.ledger.fault("failed batch or call");
            is_failing = true;
        }
        for leg in [&mut there, &mut back] {
            if self.chance(odds.late) {
                self.ledger.fault("late and out of order");
                let by = self.within(self.plan.longer.ttl() * 3 / 2);
                *leg = leg.map(|leg| leg + by);
            }
        }
        let request = Rc::new(Request {
            from,
            call,
            body: body.clone(),
            reply_after: back,
            is_failing,
        });
        if let Some(there) = there {
            if self.chance(odds.duplicated) {
                self.ledger.fault("duplicated");
                let by = self.within(self.plan.timing.ttl());
                self.in_nanos(there + by, Event::Arrive(request.clone()));
            }
            self.in_nanos(there, Event::Arrive(request));
        }
    }

    /// What is wrong with the servers of this request. One that is for several of them is answered when each has answered,
    /// and so meets what lasts longest.
    fn outage_of(&self, body: &Body) -> Option<(Outage, Real)> {
        let outage = |name: &Name| self.outages[self.server_of(name)];
        let outages: Vec<_> = match body {
            Body::Acquire(Claim { name, .. }, _) | Body::Release { name, .. } => vec![outage(name)],
            Body::Renew(renewals) => {
                let names = renewals.iter().map(|renewal| &renewal.name);
                names.map(outage).collect()
            }
        };
        let outages = outages.into_iter().flatten();
        let lasting = outages.filter(|(_, until)| self.now < *until);
        lasting.max_by_key(|(_, until)| *until)
    }

    /// Carries a request out.
    pub(super) fn arrive(&mut self, request: &Rc<Request>) {
        // A call that fails may have been carried out all the same.
        let is_done = !request.is_failing || self.rng.bool();
        let reply = if is_done {
            self.carry_out(&request.body)
        } else {
            Reply::Failed
        };
        self.note(|| {
            format!(
                "store: {:?} -> {reply:?} failing={}",
                request.body, request.is_failing
            )
        });
        let reply = if request.is_failing {
            Reply::Failed
        } else {
            reply
        };
        if let Some(after) = request.reply_after {
            let (process, life) = request.from;
            let reply = Happening::Reply(request.call, Rc::new(reply));
            self.in_nanos(after, Event::To(process, life, reply));
        }
    }

    fn carry_out(&mut self, body: &Body) -> Reply {
        match body {
            Body::Acquire(claim, ask) => self.acquire(claim, *ask),
            Body::Renew(renewals) => {
                let verdicts = renewals.iter().map(|renewal| self.renew(renewal)).collect();
                let servers = renewals.iter().map(|renewal| self.server_of(&renewal.name));
                let servers: BTreeSet<_> = servers.collect();
                let only = (servers.len() == 1).then(|| servers.first()).flatten();
                let time = only.map(|server| ServerTime {
                    shard: u32::try_from(*server).expect("servers are few"),
                    time: Duration::from_nanos(self.stores[*server].clock.at(self.now).as_nanos()),
                });
                Reply::Renewed(verdicts, time, self.now)
            }
            Body::Release {
                name,
                holder,
                keep_for,
            } => self.release(name, *holder, *keep_for),
        }
    }

    fn acquire(&mut self, claim: &Claim, ask: Ask) -> Reply {
        let (now, name, holder) = (self.now, &claim.name, claim.holder);
        if self.store(name).row(name, now).is_none() {
            self.stay(claim, ask);
            self.pass_on(name, ask.queued.map(|_| holder));
        }
        let store = self.store_mut(name);
        let (remaining, state) = match store.acquire(name, holder, claim.ttl, ask.floor, now) {
            Taken::Again(token) => return Reply::Granted(token),
            Taken::Fresh(token) => {
                self.was_granted(name, holder, token);
                return Reply::Granted(token);
            }
            Taken::Held(remaining) => (remaining, HeldState::Leased),
            Taken::KeptOut(remaining) => {
                self.ledger.fault("claim kept out");
                (remaining, HeldState::KeepOut)
            }
        };
        let ahead = self.queue_up(claim, ask);
        let height = self.store(name).height(name, now);
        let place = ahead.map(|ahead| Place::new(height, ahead));
        Reply::Held(remaining, state, place)
    }

    fn renew(&mut self, renewal: &Renewal) -> Verdict {
        let now = self.now;
        let store = self.store_mut(&renewal.name);
        let was_live = store.is_live(&renewal.name, renewal.holder, now);
        let is_keeping_out = store.is_keeping_out(now);
        let is_renewable = store.row(&renewal.name, now).is_some_and(|row| {
            let ours = (renewal.holder, renewal.token, HeldState::Leased);
            (row.holder, row.token, row.state) == ours
        });
        let verdict = store.renew(renewal, now);
        let extended = store.row(&renewal.name, now).map(|row| row.token);
        if is_keeping_out && is_renewable {
            let is_kept = matches!(verdict, Verdict::Renewed | Verdict::Unknown);
            let promise = Promise::KeepOutEndsNoLease;
            self.ledger.check(promise, self.now, is_kept, || {
                format!("a renewal of {} got {verdict:?}", renewal.holder)
            });
        }
        match verdict {
            Verdict::Renewed => {
                self.ledger.check(
                    Promise::NoRenewalOfALaterGrant,
                    self.now,
                    extended == Some(renewal.token),
                    || format!("a renewal of {} extended {extended:?}", renewal.token),
                );
                self.ledger.excused.remove(&renewal.holder);
                self.ledger.forgotten.remove(&renewal.holder);
                self.ledger.stepped.remove(&renewal.holder);
                self.ledger.check(
                    Promise::NothingIsCreatedByARenewal,
                    self.now,
                    was_live,
                    || {
                        format!(
                            "a renewal of {} created the lease of {}",
                            renewal.holder, renewal.name
                        )
                    },
                );
            }
            Verdict::Refused | Verdict::Evicted => {
                self.ledger.refused.insert((renewal.holder, verdict));
            }
            Verdict::Unknown => {}
        }
        verdict
    }

    fn release(&mut self, name: &Name, holder: Holder, keep_for: Option<Duration>) -> Reply {
        let has_guard = self.ledger.guards.contains_key(&holder);
        self.ledger.check(
            Promise::NoReleaseWhileTheGuardIsThere,
            self.now,
            !has_guard,
            || format!("{name} was released under the guard of {holder}"),
        );
        let now = self.now;
        self.vacate(name, holder);
        if self.store_mut(name).release(name, holder, keep_for, now) {
            self.watch_expiry(name);
            self.check_freed(name, holder);
            match self.store(name).row(name, now) {
                Some(_) => self.tell_first(name),
                None => self.pass_on(name, None),
            }
        }
        Reply::Released
    }
}
