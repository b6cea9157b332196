//! The scripts of a member, called raw, and what they leave in its keys.

use std::time::Duration;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{RedisError, Script, Value, cmd, from_redis_value};
use leasehold::store::quorum::{
    Attempted, Extension, Freed, Proposal, Purpose, Rules, TakenBack, Tenure, Vote,
};
use leasehold::store::{Eviction, Renewal};
use leasehold::{Holder, Name, Token};

/// What the holder tells about itself.
const INFO: &str = r#"{"host":"h","pid":1}"#;

/// A script with the text of the lease in front of it.
macro_rules! script {
    ($file:literal) => {
        Script::new(concat!(
            include_str!("../../../src/store/redis/lease.lua"),
            include_str!(concat!("../../../src/store/redis/", $file))
        ))
    };
}

/// A member on a real server, spoken to over one connection.
pub(super) struct RawMember {
    pub(super) connection: MultiplexedConnection,
    pub(super) rules: Rules,
    /// The run of the server, as the client says it. The scripts compare no more than the text.
    pub(super) run: u64,
}

/// What a member keeps of one name, as its keys have it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) tenure: Option<Tenure>,
    pub(super) counter: Option<KeptCounter>,
}

/// The counter of a name, without what only the tests of time compare.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KeptCounter {
    pub(super) token: Option<u64>,
    pub(super) by: Option<(Holder, Token)>,
    pub(super) last: Option<Attempted>,
    /// When it is forgotten, in milliseconds since 1970, rounded up.
    pub(super) forget_at_ms: u64,
}

impl RawMember {
    pub(super) fn keys(name: &Name) -> [String; 2] {
        [
            format!("leasehold:{{{name}}}"),
            format!("leasehold:{{{name}}}:token"),
        ]
    }

    /// Proposes a token, and returns the vote.
    pub(super) async fn hold(&mut self, name: &Name, proposal: &Proposal) -> Vote {
        let vote = self.try_hold(name, proposal).await;
        vote.expect("hold.lua answers")
    }

    /// The same where the server may refuse the script.
    pub(super) async fn try_hold(
        &mut self,
        name: &Name,
        proposal: &Proposal,
    ) -> Result<Vote, RedisError> {
        let [lease, counter] = Self::keys(name);
        let mode = match proposal.purpose {
            Purpose::Claim => "claim",
            Purpose::Repair => "repair",
        };
        let reply: Value = script!("hold.lua")
            .key(lease)
            .key(counter)
            .key("leasehold:node")
            .arg(proposal.holder.to_string())
            .arg(millis(proposal.ttl))
            .arg(mode)
            .arg(proposal.token.get())
            .arg(INFO)
            .arg(format!("{:x}", self.run))
            .arg(millis(self.rules.max_ttl))
            .arg(u8::from(self.rules.is_trusted))
            .invoke_async(&mut self.connection)
            .await?;
        Ok(vote(reply))
    }

    pub(super) async fn take_back(
        &mut self,
        name: &Name,
        holder: Holder,
        taken: TakenBack,
    ) -> Freed {
        let above = taken.above.map_or(0, Token::get);
        let numbers = [taken.token.get(), above];
        self.free(name, holder, "take_back", &numbers).await
    }

    pub(super) async fn release(
        &mut self,
        name: &Name,
        holder: Holder,
        keep: Option<Duration>,
    ) -> Freed {
        let keep = keep.map_or(0, millis);
        self.free(name, holder, "release", &[keep]).await
    }

    async fn free(&mut self, name: &Name, holder: Holder, how: &str, numbers: &[u64]) -> Freed {
        let [lease, counter] = Self::keys(name);
        let script = script!("free.lua");
        let mut call = script.prepare_invoke();
        call.key(lease)
            .key(counter)
            .arg(holder.to_string())
            .arg(how);
        call.arg("PUBLISH").arg(numbers);
        let reply: String = call
            .invoke_async(&mut self.connection)
            .await
            .expect("free.lua answers");
        match reply.as_str() {
            "freed" => Freed::Freed,
            "not_held" => Freed::NotHeld,
            other => panic!("no reply of free.lua: {other}"),
        }
    }

    pub(super) async fn renew(&mut self, renewal: &Renewal) -> Extension {
        let grant = format!("{} {} ", renewal.holder, renewal.token);
        let [lease, _] = Self::keys(&renewal.name);
        let reply: (String, String, String, String, Vec<String>) = script!("renew.lua")
            .key(lease)
            .arg(grant)
            .arg(millis(renewal.ttl))
            .invoke_async(&mut self.connection)
            .await
            .expect("renew.lua answers");
        match reply.3.as_str() {
            "y" => Extension::Renewed,
            "n" => Extension::Refused,
            "e" => Extension::Evicted,
            other => panic!("no outcome: {other}"),
        }
    }

    pub(super) async fn evict(&mut self, name: &Name, how: Eviction) -> bool {
        let [lease, counter] = Self::keys(name);
        let how = if how == Eviction::Now {
            "now"
        } else {
            "marked"
        };
        let reply: String = script!("evict_member.lua")
            .key(lease)
            .key(counter)
            .arg(how)
            .arg("PUBLISH")
            .invoke_async(&mut self.connection)
            .await
            .expect("evict_member.lua answers");
        reply == "evicted"
    }

    /// Returns what the keys have of this name.
    pub(super) async fn kept(&mut self, name: &Name, now_us: u64) -> Kept {
        let [lease, counter] = Self::keys(name);
        let value: Option<String> = self.told("GET", &lease).await;
        let left: i64 = self.told("PTTL", &lease).await;
        let tenure = value.map(|value| tenure(&value, left, now_us));
        let fields: (Option<u64>, Option<String>, Option<u64>, Option<String>) = cmd("HMGET")
            .arg(&counter)
            .arg(&["token", "by", "try", "trier"])
            .query_async(&mut self.connection)
            .await
            .expect("HMGET is answered");
        let left: i64 = self.told("PTTL", &counter).await;
        let (token, by, last, trier) = fields;
        let by = by.filter(|by| !by.is_empty());
        let counter = token.or(last).map(|_| KeptCounter {
            token,
            by: by.map(|by| {
                let (holder, token) = by.split_once(' ').expect("a holder and a token");
                (
                    holder.parse().expect("a holder"),
                    token.parse().expect("a token"),
                )
            }),
            last: last.map(|last| Attempted {
                token: Token::new(last).expect("a token"),
                by: trier.map(|trier| trier.parse().expect("a holder")),
            }),
            forget_at_ms: now_us / 1_000 + u64::try_from(left).expect("it has an expiry"),
        });
        Kept { tenure, counter }
    }

    async fn told<T: deadpool_redis::redis::FromRedisValue>(&mut self, word: &str, key: &str) -> T {
        let answer = cmd(word).arg(key).query_async(&mut self.connection).await;
        answer.unwrap_or_else(|error| panic!("{word} {key}: {error}"))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("a short time")
}

/// Reads the reply of `hold.lua` as the wire's description has it.
fn vote(reply: Value) -> Vote {
    if let Value::Array(items) = &reply {
        let texts: Vec<String> = items
            .iter()
            .map(|item| from_redis_value(item.clone()).expect("text"))
            .collect();
        assert_eq!(texts[0], "held", "{texts:?}");
        let clock = texts[3].parse().expect("the clock");
        return Vote::Held(tenure(&texts[2], texts[1].parse().expect("ms"), clock));
    }
    let text: String = from_redis_value(reply).expect("text");
    let words: Vec<&str> = text.split(' ').collect();
    let number = |index: usize| words[index].parse::<u64>().expect("a number");
    match words[0] {
        "granted" => Vote::Yes(Token::new(number(1)).expect("a token")),
        "low" => Vote::Low {
            floor: number(1),
            of_server: number(2),
        },
        "ahead" => Vote::Ahead,
        "away" => Vote::Away(number(1)),
        "mismatch" => Vote::Mismatch(number(1)),
        _ => panic!("no vote: {text}"),
    }
}

fn tenure(value: &str, left_ms: i64, now_us: u64) -> Tenure {
    let is_evicted = value.starts_with("evicted ");
    let value = value.strip_prefix("evicted ").unwrap_or(value);
    let mut words = value.split(' ');
    let holder = words.next().expect("a word");
    Tenure {
        holder: (holder != "kept").then(|| holder.parse().expect("a holder")),
        token: words.next().expect("a token").parse().expect("a token"),
        ends_at_us: now_us + u64::try_from(left_ms).expect("an end") * 1_000,
        is_evicted,
    }
}
