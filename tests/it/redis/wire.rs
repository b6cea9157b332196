//! The scripts as another language's client would call them: raw, so that a test can send what our own client never would.

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{AsyncCommands as _, RedisError, Script, Value, from_redis_value};

use crate::harness::redis_server::RedisServer;

/// A holder's identity.
pub(super) const HOLDER: &str = "00000000000000000000000000000001-0000000000000001";
/// Another's.
pub(super) const RIVAL: &str = "00000000000000000000000000000002-0000000000000002";

/// The key of a lease.
pub(super) fn lease_key(name: &str) -> String {
    format!("leasehold:{{{name}}}")
}

/// The key of the highest token of a name's slot: as the wire's description has it, and not as the store finds it.
pub(super) fn mark(name: &str) -> String {
    let tag = (0_u32..).find(|tag| slot(&tag.to_string()) == slot(name));
    format!("leasehold:{{{}}}:mark", tag.expect("each slot has one"))
}

/// The hash slot of a tag: CRC-16/XMODEM, modulo 16,384.
fn slot(tag: &str) -> u16 {
    let mut crc = 0_u16;
    for byte in tag.bytes() {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            let carry = crc & 0x8000 != 0;
            crc = if carry { crc << 1 ^ 0x1021 } else { crc << 1 };
        }
    }
    crc % 16_384
}

/// The key of the places in the queue.
pub(super) fn queue(name: &str) -> String {
    format!("leasehold:{{{name}}}:queue")
}

/// The key of the claims that wait at those places.
pub(super) fn waiting(name: &str) -> String {
    format!("leasehold:{{{name}}}:waiting")
}

/// The token in the lease of this name.
pub(super) async fn token_at(server: &RedisServer, name: &str) -> u64 {
    let value: String = server.told(&format!("GET {}", lease_key(name))).await;
    let token = value.split(' ').nth(1).expect("it is after the holder");
    token.parse().expect("a token is a number")
}

/// A tagged reply. One that comes alone is split at its spaces.
#[derive(Debug, PartialEq)]
pub(super) struct Reply(Vec<Value>);

impl From<Value> for Reply {
    fn from(value: Value) -> Self {
        Self(match value {
            Value::Array(items) => items,
            Value::BulkString(alone) => {
                let words = alone.split(|byte| *byte == b' ');
                words.map(|word| Value::BulkString(word.into())).collect()
            }
            other => panic!("no reply of a script: {other:?}"),
        })
    }
}

impl Reply {
    /// What kind of reply it is.
    pub(super) fn tag(&self) -> String {
        self.text(0)
    }

    /// One of its elements.
    pub(super) fn text(&self, index: usize) -> String {
        let value = self
            .0
            .get(index)
            .unwrap_or_else(|| panic!("no element {index} in {self:?}"));
        from_redis_value(value.clone()).unwrap_or_else(|_| panic!("no text at {index} in {self:?}"))
    }

    /// The token of a grant.
    pub(super) fn token(&self) -> u64 {
        assert_eq!(self.tag(), "granted", "{self:?}");
        self.text(1).parse().expect("a token is a number")
    }
}

pub(super) type Answer = Result<Reply, RedisError>;

/// A call of `acquire.lua`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Acquire<'a> {
    pub(super) holder: &'a str,
    pub(super) ttl: &'a str,
    pub(super) floor: &'a str,
    pub(super) info: &'a str,
    /// How long it waits at its place, in milliseconds.
    pub(super) term: &'a str,
    pub(super) listens: &'a str,
}

impl Default for Acquire<'_> {
    fn default() -> Self {
        Self {
            holder: HOLDER,
            ttl: "30000",
            floor: "0",
            info: r#"{"host":"h","pid":1}"#,
            term: "0",
            listens: "0",
        }
    }
}

impl Acquire<'_> {
    pub(super) async fn send(&self, to: &mut MultiplexedConnection, name: &str) -> Answer {
        Script::new(concat!(
            include_str!("../../../src/store/redis/protocol/lease.lua"),
            include_str!("../../../src/store/redis/protocol/grant.lua"),
            include_str!("../../../src/store/redis/protocol/queue.lua"),
            include_str!("../../../src/store/redis/protocol/origin.lua"),
            include_str!("../../../src/store/redis/protocol/node.lua"),
            include_str!("../../../src/store/redis/protocol/acquire.lua")
        ))
        .key(lease_key(name))
        .key(mark(name))
        .key(queue(name))
        .key(waiting(name))
        .key("leasehold:node")
        .arg(self.holder)
        .arg(self.ttl)
        .arg(self.floor)
        .arg(self.info)
        .arg(self.term)
        .arg(self.listens)
        .invoke_async::<Value>(to)
        .await
        .map(Reply::from)
    }
}

/// The text of `renew.lua` as it is loaded.
pub(super) const RENEW: &str = concat!(
    include_str!("../../../src/store/redis/protocol/lease.lua"),
    include_str!("../../../src/store/redis/protocol/renew.lua")
);

/// Calls `renew.lua` with (name, holder, ttl) for each lease, under the token that the lease has.
pub(super) async fn renew_script(to: &mut MultiplexedConnection, batch: &[[&str; 3]]) -> Answer {
    let mut grants = Vec::new();
    for [name, holder, ttl] in batch {
        let token = token_in(to, name).await.unwrap_or_else(|| "1".into());
        grants.push([(*name).into(), format!("{holder} {token} "), (*ttl).into()]);
    }
    renew_grants(to, &grants).await
}

/// Calls `renew.lua` with (name, grant, ttl) for each lease.
pub(super) async fn renew_grants(to: &mut MultiplexedConnection, batch: &[[String; 3]]) -> Answer {
    let script = Script::new(RENEW);
    let mut call = script.prepare_invoke();
    for [name, grant, _] in batch {
        call.key(lease_key(name)).arg(grant);
    }
    for [_, _, ttl] in batch {
        call.arg(ttl);
    }
    call.invoke_async::<Value>(to).await.map(Reply::from)
}

/// The token in the value of a lease, if it has one.
async fn token_in(to: &mut MultiplexedConnection, name: &str) -> Option<String> {
    let value: Option<String> = to.get(lease_key(name)).await.ok()?;
    let value = value?;
    let mut words = value.trim_start_matches("evicted ").split(' ');
    words.nth(1).map(Into::into)
}

/// Calls `release.lua`.
pub(super) async fn release_script(
    to: &mut MultiplexedConnection,
    name: &str,
    holder: &str,
    keep: &str,
) -> Answer {
    let script = include_str!("../../../src/store/redis/protocol/release.lua");
    end_lease(to, script, name, &[holder, keep]).await
}

/// Calls `evict.lua`.
pub(super) async fn evict_script(to: &mut MultiplexedConnection, name: &str, how: &str) -> Answer {
    let script = include_str!("../../../src/store/redis/protocol/evict.lua");
    end_lease(to, script, name, &[how]).await
}

async fn end_lease(
    to: &mut MultiplexedConnection,
    script: &str,
    name: &str,
    how: &[&str],
) -> Answer {
    let lease = include_str!("../../../src/store/redis/protocol/lease.lua");
    let granted = include_str!("../../../src/store/redis/protocol/grant.lua");
    let queued = include_str!("../../../src/store/redis/protocol/queue.lua");
    Script::new(&[lease, granted, queued, script].concat())
        .key(lease_key(name))
        .key(mark(name))
        .key(queue(name))
        .key(waiting(name))
        .key("leasehold:node")
        .arg(how)
        .invoke_async::<Value>(to)
        .await
        .map(Reply::from)
}
