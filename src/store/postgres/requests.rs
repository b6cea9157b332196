//! The calls of the functions, one for each operation, and the notices that follow some of them.

use std::fmt::Display;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_postgres::types::Type;

use super::connection::Arguments;
use super::failure::Failure;
use super::hazards::CHECKS;
use super::{KIND, Postgres, RenewalLane, Side, millis, notices, replacing, reply};
use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::store::backend::Backend;
use crate::store::budget::Budget;
use crate::store::check::judge;
use crate::store::connection::Unconnected;
use crate::store::{
    Answer, Ask, Claim, Eviction, Facts, Hazard, Held, Member, Notices, Purpose, Queued, Release,
    Renewal, Renewed,
};
use crate::token::Token;

/// The longest time that a call spends on the notices that follow it.
const TELLING: Duration = Duration::from_millis(500);

impl Postgres {
    /// Sends the notices of a name, if its reply says that clients wait for it: never in the transaction that freed it,
    /// whose commit it would serialize with all others of the server. If a notice is lost, the waiting client checks
    /// again after some time.
    async fn tell(&self, is_awaited: bool, name: &Name, budget: Budget) {
        if !is_awaited {
            return;
        }
        let budget = budget.at_most(TELLING);
        let names = vec![name.as_str()];
        let arguments: Arguments<'_> = &[(&names, Type::TEXT_ARRAY)];
        if let Err(failure) = self.connections().call("tell_1", arguments, budget).await {
            tracing::debug!(%name, %failure, "notice not sent");
        }
    }
}

impl Backend for Postgres {
    type Failure = Failure;

    fn describe(&self) -> Facts {
        let facts = Facts::new(KIND).with_queue().with_notices();
        // The server's set-up has it. As long as it is not known, only the server refuses longer ones.
        match self.max_ttl.known() {
            Some(max_ttl) => facts.with_max_ttl(max_ttl),
            None => facts,
        }
    }

    fn place(&self) -> &dyn Display {
        &*self.address
    }

    async fn try_acquire(
        &self,
        claim: &Claim,
        ask: Ask,
        budget: Budget,
    ) -> Result<Answer, Failure> {
        let info = serde_json::to_string(&*claim.info).expect("text and numbers become JSON");
        let floor = ask.floor.map_or(0, Token::get);
        let client = ask.queued.map(|_| claim.holder.client().to_string());
        let more = ask.queued.map_or(0, |queued| i64::from(queued.more));
        let arguments: Arguments<'_> = &[
            (&claim.name.as_str(), Type::TEXT),
            (&claim.holder.to_string(), Type::TEXT),
            (&millis(claim.ttl), Type::INT8),
            (&info, Type::TEXT),
            (&i64::try_from(floor).unwrap_or(i64::MAX), Type::INT8),
            (&client, Type::TEXT),
            (&more, Type::INT8),
            (&millis(Queued::PATIENCE), Type::INT8),
            (&millis(Queued::OFFER), Type::INT8),
        ];
        let replacing = replacing(budget, claim.ttl);
        let rows = self.connections().call("acquire_1", arguments, replacing);
        let rows = rows.await?;
        let answered = reply::acquired(&rows, &claim.name);
        if let Err(Failure::TooLong { max_ttl_ms, .. }) = answered {
            self.max_ttl.learn(Duration::from_millis(max_ttl_ms));
        }
        let (answer, is_awaited) = answered?;
        if let Answer::Granted(_) = answer {
            self.connections.room().need_for(claim.ttl);
        }
        self.tell(is_awaited, &claim.name, budget).await;
        Ok(answer)
    }

    async fn try_release(
        &self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
        budget: Budget,
    ) -> Result<Release, Failure> {
        let arguments: Arguments<'_> = &[
            (&name.as_str(), Type::TEXT),
            (&holder.to_string(), Type::TEXT),
            (&keep_for.map_or(0, millis), Type::INT8),
            (&millis(Queued::OFFER), Type::INT8),
        ];
        let rows = self
            .connections()
            .call("release_1", arguments, budget)
            .await?;
        let (release, is_awaited) = reply::released(&rows)?;
        self.tell(is_awaited, name, budget).await;
        Ok(release)
    }

    async fn try_leave(
        &self,
        name: &Name,
        client: ClientId,
        budget: Budget,
    ) -> Result<(), Failure> {
        let arguments: Arguments<'_> = &[
            (&name.as_str(), Type::TEXT),
            (&client.to_string(), Type::TEXT),
            (&millis(Queued::OFFER), Type::INT8),
        ];
        let rows = self
            .connections()
            .call("leave_1", arguments, budget)
            .await?;
        self.tell(reply::left(&rows)?, name, budget).await;
        Ok(())
    }

    async fn try_evict(&self, name: &Name, how: Eviction, budget: Budget) -> Result<bool, Failure> {
        let how = match how {
            Eviction::Marked => "marked",
            Eviction::Now => "now",
        };
        let arguments: Arguments<'_> = &[
            (&name.as_str(), Type::TEXT),
            (&how, Type::TEXT),
            (&millis(Queued::OFFER), Type::INT8),
        ];
        let rows = self
            .connections()
            .call("evict_1", arguments, budget)
            .await?;
        let (was_held, is_awaited) = reply::evicted(&rows)?;
        self.tell(is_awaited, name, budget).await;
        Ok(was_held)
    }

    async fn try_inspect(&self, name: &Name, budget: Budget) -> Result<Option<Held>, Failure> {
        let arguments: Arguments<'_> = &[(&name.as_str(), Type::TEXT)];
        let rows = self
            .connections()
            .call("inspect_1", arguments, budget)
            .await?;
        reply::inspected(&rows, name)
    }

    async fn try_list(&self, prefix: &str, budget: Budget) -> Result<Vec<Held>, Failure> {
        let arguments: Arguments<'_> = &[(&prefix, Type::TEXT)];
        let rows = self.connections().call("list_1", arguments, budget).await?;
        reply::listed(&rows)
    }

    async fn renew_all(&self, batch: &[Renewal], budget: Budget) -> Renewed {
        self.renew_batch(batch, budget).await
    }

    async fn subscribe(&self) -> Result<Option<Box<dyn Notices>>, Failure> {
        if !self.address.has_notices {
            return Ok(None);
        }
        let limit = self.connect_timeout;
        let subscribed = notices::subscribe(&self.address, &self.connections, limit).await?;
        if subscribed.is_none() && !self.has_told_of_pooler.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                store = %self.address,
                "notices do not arrive, as behind a transaction pooler; waiting clients only check again after some time"
            );
        }
        Ok(subscribed.map(|subscription| Box::new(subscription) as Box<dyn Notices>))
    }

    async fn look_for_hazards(&self, limit: Duration) -> Result<Vec<Hazard>, Failure> {
        let facts = self.survey(&self.connections, Budget::new(limit)).await?;
        Ok(judge(CHECKS, &facts))
    }

    async fn look_at_members(&self, limit: Duration) -> Result<Vec<Member>, Failure> {
        self.look_at_servers(limit).await
    }

    async fn connected(&self, purpose: Purpose) -> Result<Self, Failure> {
        if self.connections.is_closed() {
            return Err(Unconnected::Closed.into());
        }
        Ok(Self {
            address: self.address.clone(),
            connections: self.connections.clone(),
            side: match purpose {
                Purpose::Watchdog => Side::Watchdog(RenewalLane::start(self)),
                Purpose::Waiting => Side::Waiting,
            },
            connect_timeout: self.connect_timeout,
            has_told_of_pooler: self.has_told_of_pooler.clone(),
            max_ttl: self.max_ttl.clone(),
        })
    }

    async fn end(&self) {
        match &self.side {
            Side::All => self.connections.close(),
            Side::Watchdog(watchdog) => watchdog.own.close(),
            Side::Waiting => {}
        }
    }
}
