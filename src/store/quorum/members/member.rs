//! A server as a member: each request of the protocol is one call of one of the two scripts.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use deadpool_redis::redis::Cmd;

use super::super::KIND;
use super::super::protocol::{MemberId, Writing};
use super::reply::{MemberPlace, NameReply, foreign, placed, told};
use crate::error::{Error, ErrorKind};
use crate::holder::Holder;
use crate::name::Name;
use crate::store::budget::millis;
use crate::store::redis::{Builder, Program, RemoteServer, Script};
use crate::store::{self, Failed, Hazard, Info, Notices, Purpose};
use crate::token::Token;

/// Says how many names one call reads; reading a whole lease costs the server more than a renewal.
const BATCH: usize = 128;

/// Joins the script in this file with the parts that it needs in front of it.
macro_rules! script {
    ($file:literal) => {
        LazyLock::new(|| {
            Script::new(concat!(
                include_str!("../../redis/origin.lua"),
                include_str!("member.lua"),
                include_str!($file)
            ))
        })
    };
}

static NAMES: LazyLock<Script> = script!("names.lua");
static PLACE: LazyLock<Script> = script!("place.lua");

/// The scripts of a member.
const PROGRAM: Program = Program {
    kind: KIND,
    scripts: || vec![&*NAMES, &*PLACE],
};

/// A server as a member of a quorum.
#[derive(Debug)]
pub(in super::super) struct QuorumMember {
    server: RemoteServer,
}

/// A request for a name.
#[derive(Debug, Clone)]
pub(in super::super) struct NameRequest {
    pub(in super::super) name: Name,
    pub(in super::super) holder: Holder,
    pub(in super::super) token: Token,
    pub(in super::super) ttl: Duration,
    pub(in super::super) info: Option<Arc<Info>>,
    /// The mark that is told back by a client that vouches for the lease.
    pub(in super::super) mark: Option<u64>,
}

/// The work that a member is asked to do with names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Act {
    Claim,
    Renew,
    Release,
    /// A release that no waiting client has to hear of.
    TakeBack,
    Evict,
}

impl QuorumMember {
    /// Makes the member at the URL of this builder.
    ///
    /// # Errors
    /// `Invalid`, with the setting that is refused.
    pub(in super::super) fn new(server: Builder) -> Result<Self, Error> {
        let server = RemoteServer::new(server, PROGRAM)?;
        Ok(Self { server })
    }

    /// Returns where it is, for people to read and without secrets.
    pub(in super::super) fn place(&self) -> &str {
        self.server.place()
    }

    /// Returns the same member on a connection of its own, not connected yet.
    pub(super) fn beside(&self, purpose: Purpose) -> Self {
        Self {
            server: self.server.beside(purpose),
        }
    }

    /// Makes the connection of the calling runtime now.
    pub(in super::super) async fn connect(&self) -> Result<(), Error> {
        self.server.connect().await
    }

    pub(super) fn is_closed(&self) -> bool {
        self.server.is_closed()
    }

    pub(in super::super) async fn close(&self) {
        self.server.close().await;
    }

    pub(super) async fn notices(&self) -> Result<Box<dyn Notices>, Error> {
        self.server.notices().await
    }

    pub(in super::super) async fn hazards(&self, limit: Duration) -> Result<Vec<Hazard>, Error> {
        self.server.hazards(limit).await
    }

    /// Returns whether it answers.
    pub(in super::super) async fn see(&self, limit: Duration) -> Result<store::Member, Error> {
        self.server.see(limit).await
    }

    /// Returns a key that belongs to a name or a slot, if there is any.
    pub(in super::super) async fn any_key(&self, limit: Duration) -> Result<Option<String>, Error> {
        self.server.any_key(limit).await
    }

    /// Asks for these names, at most a batch of them. Returns an answer for each, in order.
    pub(in super::super) async fn ask(
        &self,
        id: MemberId,
        act: Act,
        batch: &[NameRequest],
        limit: Duration,
    ) -> Result<Vec<NameReply>, Failed> {
        let (word, publish) = match act {
            Act::Claim => ("claim", ""),
            Act::Renew => ("renew", ""),
            Act::Release => ("release", "PUBLISH"),
            Act::TakeBack => ("release", ""),
            Act::Evict => ("evict", ""),
        };
        let names: Vec<&Name> = batch.iter().map(|asked| &asked.name).collect();
        let mut call = self.call_of(&names, word, id, publish);
        for asked in batch {
            let info = asked
                .info
                .as_ref()
                .map(|info| serde_json::to_string(&**info).expect("text and numbers become JSON"));
            call.arg(asked.holder.to_string())
                .arg(asked.token.get())
                .arg(millis(asked.ttl))
                .arg(info.unwrap_or_default())
                .arg(asked.mark.map_or(String::new(), |mark| mark.to_string()));
        }
        let ttl = batch.iter().map(|asked| asked.ttl).min();
        let ttl = ttl.filter(|_| matches!(act, Act::Claim | Act::Renew));
        self.named(&call, word, &names, limit, ttl).await
    }

    /// Returns the leases of these names, at most a batch of them.
    async fn inspect(
        &self,
        id: MemberId,
        names: &[&Name],
        limit: Duration,
    ) -> Result<Vec<NameReply>, Failed> {
        let call = self.call_of(names, "inspect", id, "");
        self.named(&call, "inspect", names, limit, None).await
    }

    /// Returns the lease of this name.
    pub(in super::super) async fn inspect_one(
        &self,
        id: MemberId,
        name: &Name,
        limit: Duration,
    ) -> Result<NameReply, Failed> {
        let told = self.inspect(id, &[name], limit).await?;
        Ok(told.into_iter().next().unwrap_or(NameReply::Free))
    }

    /// Returns the answers for all names with this prefix that have a key here.
    pub(in super::super) async fn list(
        &self,
        id: MemberId,
        prefix: &str,
        limit: Duration,
    ) -> Result<Vec<NameReply>, Failed> {
        let names = self.server.names(prefix, limit).await;
        let names = names.map_err(Failed::perhaps)?;
        let names: Vec<&Name> = names.iter().collect();
        let mut told = Vec::new();
        for batch in names.chunks(BATCH) {
            told.extend(self.inspect(id, batch, limit).await?);
        }
        Ok(told)
    }

    fn call_of(&self, names: &[&Name], word: &str, id: MemberId, publish: &str) -> Cmd {
        let mut keys = Vec::with_capacity(1 + 2 * names.len());
        keys.push(self.server.node_key());
        keys.extend(names.iter().flat_map(|name| self.server.keys_of(name)));
        let mut call = NAMES.call(keys);
        call.arg(word)
            .arg(id.quorum)
            .arg(id.index)
            .arg(id.of)
            .arg(publish);
        call
    }

    async fn named(
        &self,
        call: &Cmd,
        word: &str,
        names: &[&Name],
        limit: Duration,
        ttl: Option<Duration>,
    ) -> Result<Vec<NameReply>, Failed> {
        let ttl = ttl.unwrap_or(limit);
        let told = self.server.call(call, word, limit, ttl, |reply| {
            foreign(reply)
                .map(Err)
                .or_else(|| Some(Ok(told(reply, names)?)))
        });
        told.await?.map_err(|why| self.misused(why))
    }

    /// Asks what the member keeps of itself.
    pub(in super::super) async fn look(&self, limit: Duration) -> Result<MemberPlace, Failed> {
        self.placed("look", limit, |_| ()).await
    }

    /// Reserves the server for a run of `init`.
    pub(in super::super) async fn reserve(
        &self,
        run: u64,
        limit: Duration,
    ) -> Result<MemberPlace, Failed> {
        self.placed("reserve", limit, |call| {
            call.arg(run);
        })
        .await
    }

    /// Closes the member's quorum for this one.
    pub(in super::super) async fn close_for(
        &self,
        id: MemberId,
        successor: u64,
        limit: Duration,
    ) -> Result<MemberPlace, Failed> {
        self.placed("close", limit, |call| {
            call.arg(id.quorum).arg(id.index).arg(id.of).arg(successor);
        })
        .await
    }

    /// Takes a member in that was out for the keep-out.
    pub(in super::super) async fn adopt(
        &self,
        writing: &Writing<String>,
        members: &str,
        limit: Duration,
    ) -> Result<MemberPlace, Failed> {
        self.written("adopt", writing, &writing.found, members, limit)
            .await
    }

    /// Makes a server that this run has reserved a member that is in.
    pub(in super::super) async fn open(
        &self,
        writing: &Writing<String>,
        run: u64,
        members: &str,
        limit: Duration,
    ) -> Result<MemberPlace, Failed> {
        self.written("open", writing, &run.to_string(), members, limit)
            .await
    }

    async fn written(
        &self,
        word: &str,
        writing: &Writing<String>,
        by: &str,
        members: &str,
        limit: Duration,
    ) -> Result<MemberPlace, Failed> {
        let id = writing.id;
        self.placed(word, limit, |call| {
            call.arg(id.quorum).arg(id.index).arg(id.of);
            call.arg(writing.max_ttl_us / 1_000)
                .arg(by)
                .arg(writing.highest)
                .arg(members);
        })
        .await
    }

    async fn placed(
        &self,
        word: &str,
        limit: Duration,
        arguments: impl FnOnce(&mut Cmd),
    ) -> Result<MemberPlace, Failed> {
        let mut call = PLACE.call([self.server.node_key()]);
        call.arg(word);
        arguments(&mut call);
        let place = self.server.call(&call, word, limit, limit, |reply| {
            foreign(reply).map(Err).or_else(|| Some(Ok(placed(reply)?)))
        });
        place.await?.map_err(|why| self.misused(why))
    }

    fn misused(&self, why: &'static str) -> Failed {
        let message = format!("{why} member={}", self.place());
        Failed::answered(Error::new(ErrorKind::Misconfigured, message))
    }
}

/// Returns the sources of `names.lua` and `place.lua`.
#[cfg(feature = "internals")]
pub(crate) fn sources() -> [&'static str; 2] {
    [NAMES.source, PLACE.source]
}
