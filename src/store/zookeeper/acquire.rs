//! The way from a claim to a grant: look, judge, and one transaction that holds only if nothing changed meanwhile.

use std::time::Duration;

use super::connection::session::{Change, Mode, Session, Stat};
use super::connection::sessions::within;
use super::failure::Failure;
use super::protocol::judge::{Claimant, Drops, Judgement, judge};
use super::protocol::reading::{NameReading, Signature};
use super::protocol::stamp;
use super::queue::delete_places;
use super::{Zookeeper, millis};
use crate::clock::{Boottime, Clock};
use crate::name::Name;
use crate::store::budget::Budget;
use crate::store::{Answer, Ask, Claim, Grant};
use crate::token::Token;

/// What is known of a name that is to be granted.
struct Ground {
    /// The version of the name; `None` if it was never granted.
    name: Option<i32>,
    /// Whether the grant holds only at that version. A client that takes its turn deletes its place and the last
    /// token's node, so that joins behind it need not make it look again.
    compares_version: bool,
    last: Option<(Token, i32)>,
    taken: Option<Change>,
    places: Vec<String>,
    /// Whether other clients are in the queue.
    has_queue: bool,
    /// Whether the name's node is deleted and made anew in the same step: that fails unless all of its children are
    /// among those that the step deletes.
    remakes: bool,
}

impl Zookeeper {
    pub(super) async fn take(
        &self,
        claim: &Claim,
        ask: Ask,
        budget: Budget,
    ) -> Result<Answer, Failure> {
        let kept = self.kept()?;
        let _permit = kept.permit(budget).await?;
        let free = self.remembered().take_free(&claim.name);
        if let Some(free) = free {
            let ground = Ground {
                name: Some(free.version),
                compares_version: true,
                last: Some((free.token, -1)),
                taken: None,
                places: Vec::new(),
                has_queue: false,
                remakes: false,
            };
            match self.grant(claim, ask, &ground, budget).await {
                Err(failure) if failure.is_stale() => {}
                answer => return answer,
            }
        }
        self.look_and_acquire(claim, ask, budget).await
    }

    async fn look_and_acquire(
        &self,
        claim: &Claim,
        ask: Ask,
        budget: Budget,
    ) -> Result<Answer, Failure> {
        let mut has_stamp = false;
        let mut at_least = 0;
        loop {
            let step = match self.look(&claim.name, at_least, budget).await? {
                None => self.grant_new(claim, ask, budget).await,
                Some(reading) => {
                    let step = self.step(claim, ask, &reading, has_stamp, budget);
                    step.await
                }
            };
            match step {
                Ok(Next::Answer(answer)) => return Ok(answer),
                Ok(Next::Stamp) => {
                    self.freshen(budget).await?;
                    has_stamp = true;
                }
                Ok(Next::Look(zxid)) => at_least = zxid,
                Err(failure) if failure.is_stale() => {}
                Err(failure) => return Err(failure),
            }
            if budget.left().is_zero() {
                return Err(Failure::Contended);
            }
        }
    }

    /// Does what is to be done after one look.
    async fn step(
        &self,
        claim: &Claim,
        ask: Ask,
        reading: &NameReading,
        has_stamp: bool,
        budget: Budget,
    ) -> Result<Next, Failure> {
        let claimant = Claimant {
            holder: claim.holder,
            is_queued: ask.queued.is_some(),
        };
        let times = self.times(&claim.name, reading);
        match judge(reading, claimant, times) {
            Judgement::Unclear => Ok(Next::Stamp),
            Judgement::Grant(drops) | Judgement::PassOn(drops) if drops.by_time && !has_stamp => {
                Ok(Next::Stamp)
            }
            Judgement::Extend => {
                let last = reading.last.as_ref();
                let own = last.filter(|last| last.by == Some(claim.holder));
                let answer = match own {
                    Some(last) => self.extend(claim, reading, last.token, budget).await?,
                    // An operator removed its token: it is granted anew.
                    None => {
                        let drops = Drops {
                            taken: true,
                            ..Drops::default()
                        };
                        let ground = self.ground(&claim.name, reading, claimant, drops);
                        self.grant(claim, ask, &ground, budget).await?
                    }
                };
                Ok(Next::Answer(answer))
            }
            Judgement::PassOn(drops) if let Some(last) = &reading.last => {
                let passed_on = self.pass_on(&claim.name, reading, last, &drops, budget);
                Ok(Next::Look(passed_on.await?))
            }
            // Without a token no stamp says when an offer begins: the name goes to the client that claims it.
            Judgement::Grant(drops) | Judgement::PassOn(drops) => {
                let ground = self.ground(&claim.name, reading, claimant, drops);
                let answer = self.grant(claim, ask, &ground, budget).await?;
                Ok(Next::Answer(answer))
            }
            Judgement::Held { joins: true, .. } => {
                let client = claim.holder.client();
                let zxid = self.join(&claim.name, client, budget).await?;
                Ok(Next::Look(zxid))
            }
            Judgement::Held {
                state,
                remaining,
                ahead,
                ..
            } => {
                let mut held = reading.held(&claim.name, state, Some(remaining));
                held.ahead = ahead;
                Ok(Next::Answer(Answer::Held(held)))
            }
        }
    }

    fn ground(
        &self,
        name: &Name,
        reading: &NameReading,
        claimant: Claimant,
        drops: Drops,
    ) -> Ground {
        let last = reading.last.as_ref();
        let own_place = reading.children.place(claimant.holder.client());
        let takes_turn = claimant.is_queued && own_place.is_some();
        let remakes = reading.is_to_be_remade();
        let taken = self.drop_taken(name, reading, &drops);
        let places = if remakes {
            // Those who wait join again.
            let queue = reading.children.queue.iter();
            queue.flat_map(|place| place.nodes.clone()).collect()
        } else {
            drops.places
        };
        Ground {
            name: Some(reading.version),
            compares_version: !takes_turn,
            last: last.map(|last| (last.token, last.version)),
            taken,
            has_queue: reading.children.has_others(&places),
            places,
            remakes,
        }
    }

    /// Returns the step that deletes what ran out, at the version that was judged: a renewal in between changes it.
    pub(super) fn drop_taken(
        &self,
        name: &Name,
        reading: &NameReading,
        drops: &Drops,
    ) -> Option<Change> {
        let taken = reading.taken.as_ref().filter(|_| drops.taken)?;
        let path = self.shared.tree.taken(name, taken.kind, taken.holder);
        Some(Change::Delete(path, Some(taken.version)))
    }

    /// Grants a name for the first time.
    async fn grant_new(&self, claim: &Claim, ask: Ask, budget: Budget) -> Result<Next, Failure> {
        let ground = Ground {
            name: None,
            compares_version: true,
            last: None,
            taken: None,
            places: Vec::new(),
            has_queue: false,
            remakes: false,
        };
        match self.grant(claim, ask, &ground, budget).await {
            Err(Failure::NoNode) => {
                self.make_folder(&claim.name, budget).await?;
                Ok(Next::Look(0))
            }
            answer => {
                let answer = answer?;
                self.sweep_now_and_then(&claim.name);
                Ok(Next::Answer(answer))
            }
        }
    }

    /// Grants the name if it did not change since it was read.
    ///
    /// Deletes the old token's node by its path and creates another: a comparison of the version alone would succeed
    /// again once the name was removed and made anew.
    async fn grant(
        &self,
        claim: &Claim,
        ask: Ask,
        ground: &Ground,
        budget: Budget,
    ) -> Result<Answer, Failure> {
        let session = self.session(budget).await?;
        let last = match ground.last {
            Some((token, _)) => Some(token),
            None => self.last_swept(&claim.name, budget).await?,
        };
        let token = self.mint(last, ask.floor, budget).await?;
        let steps = self.steps_of_grant(&session, claim, ground, token);
        let stats = within(budget, async {
            let done = session.transact(&steps).await;
            done.map_err(|aborted| aborted.failure)
        });
        let stat = stats.await?.into_iter().flatten().next();
        let stat = stat.ok_or_else(|| Failure::Odd("grant without a stamp".into()))?;
        // Others have joined since the name was read, if its version was raised by more than this grant.
        let has_newcomers = ground
            .name
            .is_some_and(|version| !ground.remakes && stat.version != version.wrapping_add(1));
        self.note_grant(claim, token, stat, ground.has_queue || has_newcomers);
        if let Some(queued) = ask.queued
            && queued.more > 0
        {
            // If this fails, the next claim joins the queue.
            let _ = self.join(&claim.name, claim.holder.client(), budget).await;
        }
        Ok(Answer::Granted(Grant::new(token)))
    }

    fn steps_of_grant(
        &self,
        session: &Session,
        claim: &Claim,
        ground: &Ground,
        token: Token,
    ) -> Vec<Change> {
        let tree = &self.shared.tree;
        let name = tree.name(&claim.name);
        let last = ground.last;
        let last = last.map(|(last, at)| Change::Delete(tree.token(&claim.name, last), Some(at)));
        let drops = last.into_iter().chain(ground.taken.clone());
        let drops = drops.chain(delete_places(&name, &ground.places));
        let made = Change::Create(name.clone(), Vec::new(), Mode::Container);
        let written = |version| Change::Set(name.clone(), Vec::new(), version);
        let mut steps = Vec::with_capacity(6);
        match ground.name {
            None => steps.extend([made, written(None)]),
            Some(_) if ground.remakes => {
                steps.extend(drops);
                steps.extend([Change::Delete(name.clone(), None), made, written(None)]);
            }
            Some(version) => {
                steps.push(written(Some(version).filter(|_| ground.compares_version)));
                steps.extend(drops);
            }
        }
        let signature = Signature {
            by: claim.holder,
            info: claim.info.as_ref().clone(),
        };
        let signature = serde_json::to_vec(&signature).expect("text and numbers become JSON");
        let path = tree.token(&claim.name, token);
        steps.push(Change::Create(path, signature, Mode::Persistent));
        steps.push(Change::Create(
            tree.lease(&claim.name, claim.holder),
            millis(claim.ttl).into_bytes(),
            mode(session, claim.ttl),
        ));
        steps
    }

    fn note_grant(&self, claim: &Claim, token: Token, stat: Stat, has_queue: bool) {
        let now = Boottime.now();
        let version = (!has_queue).then_some(stat.version);
        let mut remembered = self.remembered();
        remembered.hear(stat.stamp, now);
        let granted = (token, version);
        remembered.granted(&claim.name, claim.holder, claim.ttl, granted, now);
    }

    /// Sets the full ttl of a lease again, for its own holder.
    async fn extend(
        &self,
        claim: &Claim,
        reading: &NameReading,
        token: Token,
        budget: Budget,
    ) -> Result<Answer, Failure> {
        let session = self.session(budget).await?;
        let path = self.shared.tree.lease(&claim.name, claim.holder);
        let data = millis(claim.ttl);
        let mut stat = within(budget, session.set(&path, data.as_bytes())).await?;
        if is_strange(&session, stat) {
            stat = within(budget, take_over(&session, &path, claim.ttl)).await?;
        }
        let version = Some(reading.version).filter(|_| reading.children.queue.is_empty());
        let now = Boottime.now();
        let mut remembered = self.remembered();
        remembered.hear(stat.stamp, now);
        let granted = (token, version);
        remembered.granted(&claim.name, claim.holder, claim.ttl, granted, now);
        Ok(Answer::Granted(Grant::new(token)))
    }

    async fn mint(
        &self,
        last: Option<Token>,
        floor: Option<Token>,
        budget: Budget,
    ) -> Result<Token, Failure> {
        let age = self.remembered().clock.age(Boottime.now());
        if age.is_none_or(|age| age > stamp::OLD) {
            self.freshen(budget).await?;
        }
        let now_us = self.remembered().clock.now_us(Boottime.now());
        let now_us = now_us.ok_or_else(|| Failure::Odd("no stamp of a leader".into()))?;
        Token::mint(last, floor, now_us).map_err(Failure::Refused)
    }

    /// Writes something, to get a stamp of the current leader.
    pub(super) async fn freshen(&self, budget: Budget) -> Result<Stat, Failure> {
        let session = self.session(budget).await?;
        let root = self.shared.tree.root();
        let stat = match within(budget, session.set(root, b"")).await {
            Err(Failure::NoNode) => {
                self.make_root(budget).await?;
                within(budget, session.set(root, b"")).await
            }
            stat => stat,
        };
        Ok(self.heard(stat?))
    }

    async fn make_root(&self, budget: Budget) -> Result<(), Failure> {
        let session = self.session(budget).await?;
        let made = within(budget, session.ensure(self.shared.tree.root())).await;
        made.map_err(|failure| match failure {
            Failure::NoNode => Failure::Unable(format!(
                "the chroot is not there chroot={}",
                self.shared.address.chroot()
            )),
            other => other,
        })
    }

    async fn make_folder(&self, name: &Name, budget: Budget) -> Result<(), Failure> {
        self.make_root(budget).await?;
        let session = self.session(budget).await?;
        within(budget, session.ensure(&self.shared.tree.folder(name))).await
    }

    pub(super) fn heard(&self, stat: Stat) -> Stat {
        self.remembered().hear(stat.stamp, Boottime.now());
        stat
    }
}

/// What is to be done next.
enum Next {
    Answer(Answer),
    /// Write something, then look again.
    Stamp,
    /// Look again, on a server that has seen this change.
    Look(i64),
}

/// Returns how the node of a lease is made. It ends with the session only if the ttl ends first: the servers can hear
/// of a session up to half a tick late, and a tick is at most half of its time-out.
pub(super) fn mode(session: &Session, ttl: Duration) -> Mode {
    if ttl <= session.timeout() * 3 / 4 {
        Mode::Ephemeral
    } else {
        Mode::Persistent
    }
}

/// Returns whether a node would end with a session other than this one.
pub(super) fn is_strange(session: &Session, stat: Stat) -> bool {
    stat.owner != 0 && stat.owner != session.id()
}

/// Moves a lease into this session, in one transaction.
pub(super) async fn take_over(
    session: &Session,
    path: &str,
    ttl: Duration,
) -> Result<Stat, Failure> {
    let data = millis(ttl).into_bytes();
    let steps = [
        Change::Delete(path.into(), None),
        Change::Create(path.into(), data.clone(), mode(session, ttl)),
        Change::Set(path.into(), data, None),
    ];
    let stats = session.transact(&steps).await;
    let stats = stats.map_err(|aborted| aborted.failure)?;
    let stat = stats.into_iter().flatten().next();
    stat.ok_or_else(|| Failure::Odd("renewal without a stamp".into()))
}
