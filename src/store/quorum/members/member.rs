//! A server as a member: each request of the protocol is one call of one of the two scripts.

use std::iter;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use deadpool_redis::redis::{Cmd, Value};

use super::super::KIND;
use super::super::protocol::{Absence, MemberAnswer, MemberId};
use super::reply::{MemberPlace, SeenLease, foreign, placed, told};
use crate::error::{Error, ErrorKind};
use crate::holder::Holder;
use crate::name::Name;
use crate::store::budget::{Budget, millis};
use crate::store::redis::{Builder, Program, Redis, Script};
use crate::store::{Failed, Info, Purpose};
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
pub(crate) struct QuorumMember {
    pub(crate) server: Redis,
}

/// A request for a name.
#[derive(Debug, Clone)]
pub(crate) struct NameRequest {
    pub(crate) name: Name,
    pub(crate) holder: Holder,
    pub(crate) token: Token,
    /// Time from now that the lease lasts, or the name is kept.
    pub(crate) ttl: Duration,
    pub(crate) info: Option<Arc<Info>>,
    /// The mark that is sent back by a client that vouches for the lease.
    pub(crate) mark: Option<u64>,
}

/// The work that a member is asked to do with names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Claim,
    Renew,
    Release,
    /// A release that no waiting client has to hear of.
    TakeBack,
    Evict,
}

/// The names whose leases are asked for.
#[derive(Debug)]
pub(crate) enum SoughtNames {
    One(Name),
    /// Those that have a key at the member that is asked.
    WithPrefix(String),
}

/// The answer for one name. If it failed, nothing was changed for this name.
pub(crate) type NameAnswer = Result<MemberAnswer<Box<SeenLease>>, Error>;

impl NameRequest {
    pub(crate) fn new(name: &Name, holder: Holder, token: Token, ttl: Duration) -> Self {
        Self {
            name: name.clone(),
            holder,
            token,
            ttl,
            info: None,
            mark: None,
        }
    }
}

impl QuorumMember {
    /// Makes the member at the URL of this builder.
    ///
    /// # Errors
    /// `Invalid`, with the setting that is refused.
    pub(crate) fn new(server: Builder) -> Result<Self, Error> {
        let server = server.program(PROGRAM).build()?;
        Ok(Self { server })
    }

    /// Returns the same member on a connection of its own, not connected yet.
    pub(crate) fn beside(&self, purpose: Purpose) -> Self {
        let server = self.server.beside(purpose);
        Self { server }
    }

    /// Asks for these names, at most a batch of them. Returns an answer for each, in order.
    pub(crate) async fn ask(
        &self,
        id: MemberId,
        act: Act,
        batch: &[NameRequest],
        limit: Duration,
    ) -> Result<Vec<NameAnswer>, Failed> {
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
        let read = |reply: &Value| told(reply, &names);
        self.call(&call, word, limit, ttl.unwrap_or(limit), read)
            .await
    }

    /// Returns the leases of these names, or why it takes no part.
    pub(crate) async fn leases(
        &self,
        id: MemberId,
        names: &SoughtNames,
        limit: Duration,
    ) -> Result<Result<Vec<SeenLease>, Absence>, Failed> {
        let is_list = matches!(names, SoughtNames::WithPrefix(_));
        let names = match names {
            SoughtNames::One(name) => vec![name.clone()],
            SoughtNames::WithPrefix(prefix) => {
                let names = self.server.names(prefix, Budget::new(limit)).await;
                names.map_err(|failure| self.server.failed(failure, "list"))?
            }
        };
        let mut leases = Vec::new();
        for batch in names.chunks(BATCH) {
            let names: Vec<&Name> = batch.iter().collect();
            let call = self.call_of(&names, "inspect", id, "");
            let read = |reply: &Value| told(reply, &names);
            let told = self.call(&call, "inspect", limit, limit, read).await?;
            for answer in told {
                match answer {
                    Ok(MemberAnswer::Taken(lease)) => leases.push(*lease),
                    Ok(MemberAnswer::Away(absence)) => return Ok(Err(absence)),
                    Err(error) if !is_list => return Err(Failed::answered(error)),
                    // A key in a list that is another program's is not a lease.
                    _ => {}
                }
            }
        }
        Ok(Ok(leases))
    }

    fn call_of(&self, names: &[&Name], word: &str, id: MemberId, publish: &str) -> Cmd {
        let keys = &self.server.keys;
        let of_name = |name: &&Name| [keys.lease(name), keys.mark(name)];
        let all = iter::once(keys.node()).chain(names.iter().flat_map(of_name));
        let mut call = NAMES.call(all.collect::<Vec<_>>());
        call.arg(word).arg(&words(id)).arg(publish);
        call
    }

    /// Asks what the member keeps of itself.
    pub(crate) async fn look(&self, limit: Duration) -> Result<MemberPlace, Failed> {
        self.place("look", &[], limit).await
    }

    /// Calls `place.lua`, which lists the arguments of each word. Returns what the member keeps of itself then.
    pub(crate) async fn place(
        &self,
        word: &str,
        arguments: &[String],
        limit: Duration,
    ) -> Result<MemberPlace, Failed> {
        let mut call = PLACE.call([self.server.keys.node()]);
        call.arg(word).arg(arguments);
        self.call(&call, word, limit, limit, placed).await
    }

    async fn call<T>(
        &self,
        call: &Cmd,
        word: &str,
        limit: Duration,
        ttl: Duration,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, Failed> {
        let read = |reply: &Value| match foreign(reply) {
            Some(why) => Some(Err(why)),
            None => read(reply).map(Ok),
        };
        let told = self.server.call(call, word, limit, ttl, read).await?;
        told.map_err(|why| {
            let message = format!("{why} member={}", self.server.place);
            Failed::answered(Error::new(ErrorKind::Misconfigured, message))
        })
    }
}

/// Returns the arguments that name a member.
pub(crate) fn words(id: MemberId) -> [String; 3] {
    [id.quorum, id.index.into(), id.of.into()].map(|number: u64| number.to_string())
}

/// Returns the sources of `names.lua` and `place.lua`.
#[cfg(feature = "internals")]
pub(crate) fn sources() -> [&'static str; 2] {
    [NAMES.source, PLACE.source]
}
