//! The way from a claim to a grant: look, judge, and one transaction that holds only if nothing changed meanwhile.

use std::time::Duration;

use super::connection::session::{Change, Mode, Session, Stat};
use super::connection::sessions::SessionCall;
use super::failure::Failure;
use super::millis;
use super::protocol::judge::{Claimant, Drops, Judgement, judge};
use super::protocol::reading::{NameReading, Signature};
use super::protocol::stamp;
use super::queue::delete_places;
use crate::clock::{Boottime, Clock};
use crate::name::Name;
use crate::store::{Answer, Ask, Claim, Grant};
use crate::token::Token;

/// The known state of a name that is to be granted. The default is a name that was never granted.
#[derive(Default)]
struct Ground {
    /// The version of the name; `None` if it was never granted.
    name: Option<i32>,
    /// Says that a client takes its turn. It deletes its place and the last token's node, so the version need not be
    /// compared, and joins behind it do not make it look again.
    takes_turn: bool,
    last: Option<(Token, i32)>,
    taken: Option<Change>,
    places: Vec<String>,
    /// Says whether other clients are in the queue.
    has_queue: bool,
    /// Says whether the name's node is deleted and made anew in the same step: that fails unless all of its children
    /// are among those that the step deletes.
    remakes: bool,
}

impl SessionCall<'_> {
    pub(super) async fn take(&self, claim: &Claim, ask: Ask) -> Result<Answer, Failure> {
        let free = self.shared.remembered().take_free(&claim.name);
        if let Some(free) = free {
            let ground = Ground {
                name: Some(free.version),
                last: Some((free.token, -1)),
                ..Ground::default()
            };
            match self.grant(claim, ask, &ground).await {
                Err(failure) if failure.is_stale() => {}
                answer => return answer,
            }
        }
        let mut has_stamp = false;
        let mut at_least = 0;
        loop {
            let step = match self.look(&claim.name, at_least).await? {
                None => self.grant_new(claim, ask).await,
                Some(reading) => self.step(claim, ask, &reading, has_stamp).await,
            };
            match step {
                Ok(Next::Answer(answer)) => return Ok(answer),
                Ok(Next::Stamp) => {
                    self.freshen().await?;
                    has_stamp = true;
                }
                Ok(Next::Look(zxid)) => at_least = zxid,
                Err(failure) if failure.is_stale() => {}
                Err(failure) => return Err(failure),
            }
            if self.budget.left().is_zero() {
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
    ) -> Result<Next, Failure> {
        let claimant = Claimant {
            holder: claim.holder,
            is_queued: ask.queued.is_some(),
        };
        let times = self.times(&claim.name, reading);
        let drops = match judge(reading, claimant, times) {
            Judgement::Unclear => return Ok(Next::Stamp),
            Judgement::Grant(drops) | Judgement::PassOn(drops) if drops.by_time && !has_stamp => {
                return Ok(Next::Stamp);
            }
            Judgement::Extend => match reading.last_of(claim.holder) {
                Some(last) => return self.extend(claim, reading, last.token).await,
                // An operator removed its token: it is granted anew.
                None => Drops::of_taken(),
            },
            Judgement::PassOn(drops) if let Some(last) = &reading.last => {
                let passed_on = self.pass_on(&claim.name, reading, last, &drops);
                return passed_on.await.map(Next::Look);
            }
            // Without a token no stamp says when an offer begins: the name goes to the client that claims it.
            Judgement::Grant(drops) | Judgement::PassOn(drops) => drops,
            Judgement::Held(refusal) if refusal.joins => {
                let joined = self.join(&claim.name, claim.holder.client());
                return joined.await.map(Next::Look);
            }
            Judgement::Held(refusal) => {
                let held = reading.refused(&claim.name, &refusal);
                return Ok(Next::Answer(Answer::Held(held)));
            }
        };
        let ground = self.ground(&claim.name, reading, claimant, drops);
        let granted = self.grant(claim, ask, &ground).await;
        granted.map(Next::Answer)
    }

    fn ground(
        &self,
        name: &Name,
        reading: &NameReading,
        claimant: Claimant,
        drops: Drops,
    ) -> Ground {
        let taken = self.drop_taken(name, reading, &drops);
        let remakes = reading.is_to_be_remade();
        let places = if remakes {
            // Those who wait join again.
            let queue = reading.children.queue.iter();
            queue.flat_map(|place| place.nodes.clone()).collect()
        } else {
            drops.places
        };
        let own_place = reading.children.place(claimant.holder.client());
        Ground {
            name: Some(reading.version),
            takes_turn: claimant.is_queued && own_place.is_some(),
            last: reading.last.as_ref().map(|last| (last.token, last.version)),
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
    async fn grant_new(&self, claim: &Claim, ask: Ask) -> Result<Next, Failure> {
        match self.grant(claim, ask, &Ground::default()).await {
            Err(Failure::NoNode) => {
                self.make_folder(&claim.name).await?;
                Ok(Next::Look(0))
            }
            answer => {
                let answer = answer?;
                self.store.sweep_now_and_then(&claim.name);
                Ok(Next::Answer(answer))
            }
        }
    }

    /// Grants the name if it did not change since it was read.
    ///
    /// Deletes the old token's node by its path and creates another: a comparison of the version alone would succeed
    /// again once the name was removed and made anew.
    async fn grant(&self, claim: &Claim, ask: Ask, ground: &Ground) -> Result<Answer, Failure> {
        let last = match ground.last {
            Some((token, _)) => Some(token),
            None => self.last_swept(&claim.name).await?,
        };
        let token = self.mint(last, ask.floor).await?;
        let mut steps = self.steps_to_make_way(&claim.name, ground);
        steps.extend(self.steps_of_lease(claim, token));
        let stat = self.write(&steps).await?;
        // Others have joined since the name was read, if its version was raised by more than this grant.
        let has_newcomers = ground
            .name
            .is_some_and(|version| !ground.remakes && stat.version != version.wrapping_add(1));
        let is_alone = !ground.has_queue && !has_newcomers;
        let answer = self.note_grant(claim, token, stat, is_alone.then_some(stat.version));
        if let Some(queued) = ask.queued
            && queued.more > 0
        {
            // If this fails, the next claim joins the queue.
            let _ = self.join(&claim.name, claim.holder.client()).await;
        }
        Ok(answer)
    }

    /// Returns the steps that write the name's node first, and delete what the grant replaces.
    fn steps_to_make_way(&self, name: &Name, ground: &Ground) -> Vec<Change> {
        let path = self.shared.tree.name(name);
        let last = ground.last;
        let last =
            last.map(|(last, at)| Change::Delete(self.shared.tree.token(name, last), Some(at)));
        let drops = last.into_iter().chain(ground.taken.clone());
        let drops = drops.chain(delete_places(&path, &ground.places));
        let made = Change::Create(path.clone(), Vec::new(), Mode::Container);
        let written = |version| Change::Set(path.clone(), Vec::new(), version);
        match ground.name {
            None => vec![made, written(None)],
            Some(_) if ground.remakes => {
                let remade = [Change::Delete(path.clone(), None), made, written(None)];
                drops.chain(remade).collect()
            }
            Some(version) => {
                let written = written((!ground.takes_turn).then_some(version));
                [written].into_iter().chain(drops).collect()
            }
        }
    }

    fn steps_of_lease(&self, claim: &Claim, token: Token) -> [Change; 2] {
        let tree = &self.shared.tree;
        let signature = Signature {
            by: claim.holder,
            info: claim.info.as_ref().clone(),
        };
        let signature = serde_json::to_vec(&signature).expect("text and numbers become JSON");
        let (token, lease) = (
            tree.token(&claim.name, token),
            tree.lease(&claim.name, claim.holder),
        );
        [
            Change::Create(token, signature, Mode::Persistent),
            Change::Create(lease, millis(claim.ttl), self.mode(claim.ttl)),
        ]
    }

    /// Notes a grant, with the version of its name if no other client waits for it.
    fn note_grant(&self, claim: &Claim, token: Token, stat: Stat, version: Option<i32>) -> Answer {
        let now = Boottime.now();
        let mut remembered = self.shared.remembered();
        remembered.clock.hear(stat.stamp, now);
        remembered.granted(&claim.name, claim.holder, claim.ttl, (token, version), now);
        Answer::Granted(Grant::new(token))
    }

    /// Sets the full ttl of a lease again, for its own holder.
    async fn extend(
        &self,
        claim: &Claim,
        reading: &NameReading,
        token: Token,
    ) -> Result<Next, Failure> {
        let path = self.shared.tree.lease(&claim.name, claim.holder);
        let stat = self.renew(&path, claim.ttl).await?;
        let version = reading.children.queue.is_empty().then_some(reading.version);
        let answer = self.note_grant(claim, token, stat, version);
        Ok(Next::Answer(answer))
    }

    async fn mint(&self, last: Option<Token>, floor: Option<Token>) -> Result<Token, Failure> {
        let age = self.shared.remembered().clock.age(Boottime.now());
        if age.is_none_or(|age| age > stamp::OLD) {
            self.freshen().await?;
        }
        let now_us = self.shared.remembered().clock.now_us(Boottime.now());
        let now_us = now_us.ok_or_else(|| Failure::Odd("lack of a stamp of the leader"))?;
        Token::mint(last, floor, now_us).map_err(Failure::Refused)
    }

    /// Writes something, to get a stamp of the current leader.
    pub(super) async fn freshen(&self) -> Result<Stat, Failure> {
        let root = self.shared.tree.root();
        let stat = match self.set(root, b"").await {
            Err(Failure::NoNode) => {
                self.make_root().await?;
                self.set(root, b"").await
            }
            stat => stat,
        };
        Ok(self.heard(stat?))
    }

    async fn make_root(&self) -> Result<(), Failure> {
        match self.ensure(self.shared.tree.root()).await {
            Err(Failure::NoNode) => Err(Failure::Unable(format!(
                "the chroot is not there chroot={}",
                self.shared.address.chroot()
            ))),
            made => made,
        }
    }

    async fn make_folder(&self, name: &Name) -> Result<(), Failure> {
        self.make_root().await?;
        self.ensure(&self.shared.tree.folder(name)).await
    }

    pub(super) fn heard(&self, stat: Stat) -> Stat {
        self.shared
            .remembered()
            .clock
            .hear(stat.stamp, Boottime.now());
        stat
    }
}

/// The next step of a claim.
enum Next {
    Answer(Answer),
    /// Write something, then look again.
    Stamp,
    /// Look again, on a server that has seen this change.
    Look(i64),
}

impl Session {
    /// Returns how the node of a lease is made. It ends with the session only if the ttl ends first: the servers can
    /// hear of a session up to half a tick late, and a tick is at most half of its time-out.
    pub(super) fn mode(&self, ttl: Duration) -> Mode {
        if ttl <= self.timeout() * 3 / 4 {
            Mode::Ephemeral
        } else {
            Mode::Persistent
        }
    }

    /// Writes a lease to its node. A node that would end with another session is moved into this one, in one
    /// transaction.
    pub(super) async fn renew(&self, path: &str, ttl: Duration) -> Result<Stat, Failure> {
        let stat = self.set(path, &millis(ttl)).await?;
        self.adopted(path, ttl, stat).await
    }

    /// Moves a lease that was written into this session, if it would end with another one.
    pub(super) async fn adopted(
        &self,
        path: &str,
        ttl: Duration,
        stat: Stat,
    ) -> Result<Stat, Failure> {
        if stat.owner == 0 || stat.owner == self.id() {
            return Ok(stat);
        }
        let steps = [
            Change::Delete(path.into(), None),
            Change::Create(path.into(), millis(ttl), self.mode(ttl)),
            Change::Set(path.into(), millis(ttl), None),
        ];
        self.write(&steps).await
    }
}
