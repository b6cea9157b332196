//! The calls of the functions, one for each operation, and the notices that follow some of them.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::failure::Failure;
use super::lane::Query;
use super::{Postgres, REPLACE_EVERY, millis, replace_every, reply};
use crate::clock::{Boottime, Clock, Instant};
use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::store::{Answer, Ask, Claim, Eviction, Held, Queued, Release};
use crate::token::Token;

impl Postgres {
    pub(super) async fn call(
        &self,
        statement: &str,
        arguments: &[(&(dyn ToSql + Sync), Type)],
        until: Instant,
    ) -> Result<Vec<Row>, Failure> {
        let call = Query {
            statement,
            arguments,
        };
        self.lanes.request(call, until, REPLACE_EVERY).await
    }

    pub(super) async fn try_acquire(
        &self,
        claim: &Claim,
        ask: Ask,
        limit: Duration,
    ) -> Result<Answer, Failure> {
        let until = Boottime.now().after(limit);
        let info = serde_json::to_string(&*claim.info).expect("text and numbers become JSON");
        let floor = ask.floor.map_or(0, Token::get);
        let client = ask.queued.map(|_| claim.holder.client().to_string());
        let call = Query {
            statement: &self.statements.acquire,
            arguments: &[
                (&claim.name.as_str(), Type::TEXT),
                (&claim.holder.to_string(), Type::TEXT),
                (&millis(claim.ttl), Type::INT8),
                (&info, Type::TEXT),
                (&i64::try_from(floor).unwrap_or(i64::MAX), Type::INT8),
                (&client, Type::TEXT),
                (
                    &ask.queued.map_or(0, |queued| i64::from(queued.more)),
                    Type::INT8,
                ),
                (&millis(Queued::PATIENCE), Type::INT8),
                (&millis(Queued::OFFER), Type::INT8),
            ],
        };
        let rows = self.lanes.request(call, until, replace_every(claim.ttl));
        let answered = reply::acquired(&rows.await?, &claim.name);
        if let Err(Failure::TooLong { max_ttl_ms, .. }) = answered {
            self.max_ttl.learn(Duration::from_millis(max_ttl_ms));
        }
        let (answer, tell) = answered?;
        if tell {
            self.tell(&claim.name, until).await;
        }
        if let Answer::Granted(_) = answer {
            self.upkeep
                .after_grant(&self.lanes, &self.statements, self.token_memory);
        }
        Ok(answer)
    }

    pub(super) async fn try_release(
        &self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
        limit: Duration,
    ) -> Result<Release, Failure> {
        let until = Boottime.now().after(limit);
        let arguments: &[(&(dyn ToSql + Sync), Type)] = &[
            (&name.as_str(), Type::TEXT),
            (&holder.to_string(), Type::TEXT),
            (&keep_for.map_or(0, millis), Type::INT8),
            (&millis(Queued::OFFER), Type::INT8),
        ];
        let rows = self
            .call(&self.statements.release, arguments, until)
            .await?;
        let (release, tell) = reply::released(&rows)?;
        if tell {
            self.tell(name, until).await;
        }
        Ok(release)
    }

    pub(super) async fn try_leave(
        &self,
        name: &Name,
        client: ClientId,
        limit: Duration,
    ) -> Result<(), Failure> {
        let until = Boottime.now().after(limit);
        let arguments: &[(&(dyn ToSql + Sync), Type)] = &[
            (&name.as_str(), Type::TEXT),
            (&client.to_string(), Type::TEXT),
            (&millis(Queued::OFFER), Type::INT8),
        ];
        let rows = self.call(&self.statements.leave, arguments, until).await?;
        if reply::left(&rows)? {
            self.tell(name, until).await;
        }
        Ok(())
    }

    pub(super) async fn try_evict(
        &self,
        name: &Name,
        how: Eviction,
        limit: Duration,
    ) -> Result<bool, Failure> {
        let until = Boottime.now().after(limit);
        let how = match how {
            Eviction::Marked => "marked",
            Eviction::Now => "now",
        };
        let arguments: &[(&(dyn ToSql + Sync), Type)] = &[
            (&name.as_str(), Type::TEXT),
            (&how, Type::TEXT),
            (&millis(Queued::OFFER), Type::INT8),
        ];
        let rows = self.call(&self.statements.evict, arguments, until).await?;
        let (was_held, tell) = reply::evicted(&rows)?;
        if tell {
            self.tell(name, until).await;
        }
        Ok(was_held)
    }

    /// Sends the notices of a name that clients wait for: never in the transaction that freed it, whose commit it would
    /// serialize with all others of the server. If a notice is lost, the waiting client checks again after some time.
    async fn tell(&self, name: &Name, until: Instant) {
        let until = until.min(Boottime.now().after(REPLACE_EVERY));
        let names = vec![name.as_str()];
        let arguments: &[(&(dyn ToSql + Sync), Type)] = &[(&names, Type::TEXT_ARRAY)];
        let told = self.call(&self.statements.tell, arguments, until).await;
        if let Err(failure) = told {
            tracing::debug!(%name, %failure, "notice not sent");
        }
    }

    pub(super) async fn try_inspect(
        &self,
        name: &Name,
        limit: Duration,
    ) -> Result<Option<Held>, Failure> {
        let until = Boottime.now().after(limit);
        let arguments: &[(&(dyn ToSql + Sync), Type)] = &[(&name.as_str(), Type::TEXT)];
        let rows = self
            .call(&self.statements.inspect, arguments, until)
            .await?;
        reply::inspected(&rows, name)
    }

    pub(super) async fn try_list(
        &self,
        prefix: &str,
        limit: Duration,
    ) -> Result<Vec<Held>, Failure> {
        let until = Boottime.now().after(limit);
        let arguments: &[(&(dyn ToSql + Sync), Type)] = &[(&prefix, Type::TEXT)];
        let rows = self.call(&self.statements.list, arguments, until).await?;
        reply::listed(&rows)
    }
}
