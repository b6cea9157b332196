//! A server as a member: each request of the protocol is one call of one of the two scripts.

use std::iter;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use deadpool_redis::redis::{Cmd, Value};
use tokio::sync::Semaphore;

use super::super::KIND;
use super::super::protocol::{MemberAnswer, MemberId};
use super::reply::{MemberPlace, SeenLease, foreign, placed, told};
use crate::error::{Error, ErrorKind};
use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::store::budget::millis;
use crate::store::redis::{Builder, Program, Redis, Script};
use crate::store::{Failed, Info, Purpose};
use crate::token::Token;

/// Most releases that wait for one member. A lease left behind beyond that ends with its ttl.
const MOST_OWED: usize = 1_024;

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
///
/// The permits limit the work in the background for it: one adoption, and some releases. They are of these connections
/// alone, because a task that waits may be on a runtime that is blocked, and must not keep the watchdog from the same
/// work. A permit ends with its task or the runtime.
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
    /// The facts about the holder as JSON, or nothing.
    pub(crate) info: String,
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
    /// A look, which changes nothing.
    Inspect,
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
            info: String::new(),
            mark: None,
        }
    }

    /// Makes a request to inspect a name, of which only the name is sent.
    pub(crate) fn inspecting(name: &Name) -> Self {
        let nobody = Holder::new(ClientId::from_u128(0), 0);
        Self::new(name, nobody, Token::MAX, Duration::ZERO)
    }

    /// Returns the same request with the facts about the holder.
    pub(crate) fn with_info(mut self, info: &Info) -> Self {
        self.info = serde_json::to_string(info).expect("text and numbers become JSON");
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
            Act::Inspect => ("inspect", ""),
        };
        let keys = &self.server.keys;
        let of_name = |asked: &NameRequest| [keys.lease(&asked.name), keys.mark(&asked.name)];
        let keys = iter::once(keys.node()).chain(batch.iter().flat_map(of_name));
        let mut call = NAMES.call(keys.collect::<Vec<_>>());
        call.arg(word).arg(&words(id)).arg(publish);
        for asked in batch.iter().filter(|_| act != Act::Inspect) {
            call.arg(asked.holder.to_string())
                .arg(asked.token.get())
                .arg(millis(asked.ttl))
                .arg(&asked.info)
                .arg(asked.mark.map_or(String::new(), |mark| mark.to_string()));
        }
        let ttl = batch.iter().map(|asked| asked.ttl).min();
        let ttl = ttl.filter(|_| matches!(act, Act::Claim | Act::Renew));
        let read = |reply: &Value| told(reply, batch);
        self.call(call, word, limit, ttl.unwrap_or(limit), read)
            .await
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
        self.call(call, word, limit, limit, placed).await
    }

    async fn call<T>(
        &self,
        call: Cmd,
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
