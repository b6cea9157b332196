//! A server as a member: each request of the protocol is one call of one of the two scripts.

use std::iter;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use deadpool_redis::redis::{Cmd, RedisWrite, Value};
use tokio::sync::Semaphore;

use super::super::KIND;
use super::super::protocol::{MemberAnswer, MemberId};
use super::reply::{self, MemberNode, SeenLease, told};
use crate::clock::wall_clock_us;
use crate::error::{Error, ErrorKind};
use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::store::kit::budget::{Budget, millis};
use crate::store::redis::{Builder, Program, Redis, Script};
use crate::store::{Failed, Info, Purpose};
use crate::token::Token;

/// Maximum number of releases that wait for one member. Beyond it a lease that stays behind ends with its ttl.
const MOST_OWED: usize = 1_024;

static NAMES: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../protocol/names.lua")));
static NODE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../redis/protocol/origin.lua"),
        include_str!("../protocol/node.lua")
    ))
});

/// The scripts of a member.
const PROGRAM: Program = Program {
    kind: KIND,
    scripts: || vec![&*NAMES, &*NODE],
};

/// A server as a member of a quorum.
///
/// The semaphores limit the background work for it: one adoption, and some releases. They belong to these connections
/// alone, because a waiting task may be on a blocked runtime and must not keep the watchdog from the same work. A
/// permit ends with its task or the runtime.
#[derive(Debug)]
pub(crate) struct QuorumMember {
    pub(crate) server: Redis,
    pub(crate) adopting: Arc<Semaphore>,
    pub(crate) releasing: Arc<Semaphore>,
}

/// A request for a name.
#[derive(Debug, Clone)]
pub(crate) struct NameRequest {
    pub(crate) name: Name,
    pub(crate) holder: Holder,
    pub(crate) token: Token,
    /// Time from now that the lease lasts, or the name is kept.
    pub(crate) ttl: Duration,
    /// The facts about the holder as JSON, if they are sent.
    pub(crate) info: Option<Arc<str>>,
    /// The mark that is sent back by a client that vouches for the lease.
    pub(crate) mark: Option<u64>,
}

/// A request to a member about names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Claim,
    Renew,
    Release,
    /// A release without a notice to waiting clients.
    TakeBack,
    Evict,
    /// A read, which changes nothing.
    Inspect,
}

impl Act {
    const fn word(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Renew => "renew",
            Self::Release => "release",
            Self::TakeBack => "take_back",
            Self::Evict => "evict",
            Self::Inspect => "inspect",
        }
    }
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

    /// Makes a request to inspect a name; its other fields have no effect.
    pub(crate) fn inspecting(name: &Name) -> Self {
        let nobody = Holder::new(ClientId::from_u128(0), 0);
        Self::new(name, nobody, Token::MAX, Duration::ZERO)
    }

    /// Returns the same request with the facts about the holder, which has claimed the name since this moment.
    pub(crate) fn with_info(mut self, info: &Info) -> Self {
        let info = serde_json::to_string(info).expect("text and numbers become JSON");
        let info = format!(r#"{{"since":{},{}"#, wall_clock_us(), &info[1..]);
        self.info = Some(info.into());
        self
    }
}

impl QuorumMember {
    /// Makes the member at the URL of this builder.
    ///
    /// # Errors
    /// `Invalid`, with the setting that is refused.
    pub(crate) fn new(server: Builder) -> Result<Self, Error> {
        Ok(Self::of(server.program(PROGRAM).build()?))
    }

    /// Returns the same member on a connection of its own, not connected yet.
    pub(crate) fn beside(&self, purpose: Purpose) -> Self {
        Self::of(self.server.beside(purpose))
    }

    fn of(server: Redis) -> Self {
        Self {
            server,
            adopting: Arc::new(Semaphore::new(1)),
            releasing: Arc::new(Semaphore::new(MOST_OWED)),
        }
    }

    /// Asks for these names, at most a batch of them. Returns an answer for each, in order.
    ///
    /// A member that may be away is asked for its node: if it is in, it has noted what shows it, and is asked again.
    pub(crate) async fn ask(
        &self,
        id: MemberId,
        act: Act,
        batch: &[NameRequest],
        limit: Duration,
    ) -> Result<Vec<NameAnswer>, Failed> {
        let of = words(id);
        let ttl = batch.iter().map(|asked| asked.ttl).min();
        let ttl = ttl.filter(|_| matches!(act, Act::Claim | Act::Renew));
        let budget = Budget::new(limit);
        for _ in 0..2 {
            let call = self.request(&of, act, batch);
            let read = |reply: &Value| told(reply, batch);
            let (limit, ttl) = (budget.left(), ttl.unwrap_or(limit));
            let told = self.server.call(call, act.word(), limit, ttl, read);
            if let Some(told) = told.await? {
                self.server
                    .need_for(Some(ttl).filter(|_| act == Act::Renew));
                return Ok(told);
            }
            let found = self.node("look", &[&of], budget.left()).await?;
            if let Some(absence) = found.absence(id) {
                return Ok(vec![Ok(MemberAnswer::Absent(absence)); batch.len()]);
            }
        }
        Err(Failed::never(Error::new(
            ErrorKind::Unavailable,
            "the member's replication id changes all the time",
        )))
    }

    fn request(&self, of: &str, act: Act, batch: &[NameRequest]) -> Cmd {
        let keys = &self.server.keys;
        let names = batch.iter().map(|asked| &asked.name);
        let of_names = names.flat_map(|name| [keys.lease(name), keys.mark(name)]);
        let keys = iter::once(keys.node()).chain(of_names);
        let mut call = NAMES.call(keys.collect::<Vec<_>>());
        call.arg(act.word()).arg(of);
        for asked in batch {
            let (holder, token, ttl) = (asked.holder, asked.token, millis(asked.ttl));
            let mark = asked.mark.map_or(String::new(), |mark| mark.to_string());
            call.write_arg_fmt(format_args!("{holder} {token} {ttl} {mark}"));
            call.arg(asked.info.as_deref().unwrap_or("{}"));
        }
        call
    }

    /// Reads the member's record of itself.
    pub(crate) async fn read_node(&self, limit: Duration) -> Result<MemberNode, Failed> {
        self.node("look", &[], limit).await
    }

    /// Calls `node.lua`, which lists the arguments of each word. Returns the member's record after it.
    pub(crate) async fn node(
        &self,
        word: &str,
        arguments: &[&str],
        limit: Duration,
    ) -> Result<MemberNode, Failed> {
        let mut call = NODE.call([self.server.keys.node()]);
        call.arg(word).arg(arguments);
        let answer = self.server.call(call, word, limit, limit, reply::node);
        answer.await?.map_err(|why| {
            let message = format!("{why} member={}", self.server.location);
            Failed::answered(Error::new(ErrorKind::Misconfigured, message))
        })
    }
}

/// Returns the argument that names a member.
pub(crate) fn words(MemberId { quorum, index, of }: MemberId) -> String {
    format!("{quorum} {index} {of}")
}

/// Returns the sources of `names.lua` and `node.lua`.
#[cfg(feature = "internals")]
pub(crate) fn sources() -> [&'static str; 2] {
    [NAMES.source, NODE.source]
}
