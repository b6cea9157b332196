//! The way from a claim to a grant: read, judge, and one transaction that succeeds only if nothing changed in between.

use super::connection::session::SessionCall;
use super::failure::Failure;
use super::millis;
use super::protocol::judge::{Judgement, judge};
use super::protocol::reading::{NameReading, Signature};
use super::protocol::wire::{Change, Mode};
use super::remembered::OwnLease;
use crate::clock::{Boottime, Clock};
use crate::store::{Answer, Ask, Claim, Grant};
use crate::token::Token;

impl SessionCall<'_> {
    /// Claims a name, from one reading of it. The failure is a stale one if the name has to be read again.
    pub(super) async fn take(&self, claim: &Claim, ask: Ask) -> Result<Answer, Failure> {
        let known = (self.shared.remembered.lock()).take_known(&claim.name, ask);
        let reading = &match known {
            None => self.read(&claim.name).await?,
            Some(known) => known,
        };
        match judge(reading, claim, ask) {
            Judgement::Extend(token) => {
                let path = self.shared.tree.lease(&claim.name, claim.holder);
                let stat = self.set(&path, millis(claim.ttl)).await?;
                self.adopt(&path, claim.ttl, stat).await?;
                let is_alone = reading.children.queue.is_empty();
                let version = reading.version().filter(|_| is_alone);
                Ok(self.granted(claim, token, version))
            }
            Judgement::Grant(places) => self.grant(claim, ask, reading, &places).await,
            Judgement::PassOn(places) => {
                self.pass_on(reading, &places).await?;
                Err(Failure::Changed)
            }
            Judgement::Held(held) => {
                let client = claim.holder.client();
                if ask.queued.is_some() {
                    self.shared.remembered.lock().waits(claim);
                }
                if ask.queued.is_some() && reading.children.place(client).is_none() {
                    let joined = self.join(&claim.name, client).await?;
                    let changes = reading
                        .stat
                        .map(|stat| stat.children_changes.wrapping_add(1));
                    // Unless only the place changed, the name may be free.
                    if Some(joined.children_changes) != changes {
                        // Another session joined, perhaps at another server. A read of a followed name asks for the
                        // change itself.
                        if self.shared.remembered.lock().seen(&claim.name) < joined.zxid {
                            self.sync(&reading.path).await?;
                        }
                        return Err(Failure::Changed);
                    }
                }
                Ok(Answer::Held(held))
            }
        }
    }

    /// Grants the name if it did not change since it was read, and deletes these places in its queue.
    ///
    /// Deletes the old token's node by its path and creates another: a comparison of the version alone would succeed
    /// again once the name was removed and made anew.
    async fn grant(
        &self,
        claim: &Claim,
        ask: Ask,
        reading: &NameReading,
        places: &[String],
    ) -> Result<Answer, Failure> {
        self.shorten(reading, places).await?;
        let client = claim.holder.client();
        let last = match &reading.last {
            Some(last) => Some(last.token),
            None => self.last_swept(&claim.name).await?,
        };
        let token = self.mint(last, ask.floor).await?;
        let mut steps = reading.make_way(places, ask.queued.map(|_| client));
        steps.extend(self.steps_of_lease(claim, token));
        let version = self.write(&steps).await?.version;
        if reading.stat.is_none() {
            self.store.sweep_now_and_then(&claim.name);
        }
        let others_wait = reading.others_wait_after(places, version);
        let version = (!others_wait).then_some(version);
        Ok(self.granted(claim, token, version))
    }

    fn steps_of_lease(&self, claim: &Claim, token: Token) -> [Change; 2] {
        let tree = &self.shared.tree;
        let signature = Signature {
            by: claim.holder,
            info: claim.info.as_ref().clone(),
        };
        let signature = serde_json::to_vec(&signature).expect("text and numbers become JSON");
        let lease = tree.lease(&claim.name, claim.holder);
        [
            Change::Create(tree.token(&claim.name, token), signature, Mode::Persistent),
            Change::Create(lease, millis(claim.ttl), self.mode(claim.ttl)),
        ]
    }

    /// Records a grant, with the version of its name if no other client waits for it.
    fn granted(&self, claim: &Claim, token: Token, version: Option<i32>) -> Answer {
        let lease = OwnLease {
            token,
            version,
            ttl: claim.ttl,
            renewed_at: Boottime.now(),
        };
        let mut remembered = self.shared.remembered.lock();
        remembered.waits_no_more(&claim.name, claim.holder);
        remembered.granted(&claim.name, claim.holder, lease);
        Answer::Granted(Grant::new(token))
    }

    async fn mint(&self, last: Option<Token>, floor: Option<Token>) -> Result<Token, Failure> {
        let now_us = || self.shared.remembered.lock().clock.now_us(Boottime.now());
        let now_us = match now_us() {
            Some(now_us) => now_us,
            None => {
                self.freshen().await?;
                now_us().ok_or_else(|| Failure::Odd("lack of a stamp of the leader"))?
            }
        };
        Token::mint(last, floor, now_us).map_err(Failure::Refused)
    }
}
