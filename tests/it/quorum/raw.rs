//! The scripts of a member, called raw, and what they leave in its keys, as the plain functions of the protocol have
//! it.

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{RedisError, Script, Value, from_redis_value};
use leasehold::Token;
use leasehold::internals::quorum_scripts;
use leasehold::store::HeldState;
use leasehold::store::quorum::protocol::{Absence, MemberAnswer, MemberId, MemberLease};

use super::node::{At, FirstSeen, Incarnation, MemberRecord, MemberRequest, Node, Writing};
use crate::harness::redis_server::RedisServer;

/// What the holder tells about itself.
const INFO: &str = r#"{"host":"h","pid":1}"#;
pub(super) const MEMBERS: &str = "a, b, c";

impl Incarnation for String {
    const AHEAD: u64 = 1_000;
}

/// A member on a real server, spoken to over one connection.
pub(super) struct RawMember {
    connection: MultiplexedConnection,
}

impl RawMember {
    pub(super) async fn of(server: &RedisServer) -> Self {
        let connection = server.connect().await.expect("it is up");
        Self { connection }
    }

    /// Asks for a name by its keys.
    pub(super) async fn ask(
        &mut self,
        word: &str,
        keys: [&str; 2],
        asked: &MemberRequest,
        told: Option<u64>,
    ) -> Result<MemberAnswer, RedisError> {
        let script = Script::new(quorum_scripts()[0]);
        let mut call = script.prepare_invoke();
        call.key("leasehold:node").key(&keys);
        let (holder, token, ttl_ms) = (asked.holder, asked.token, asked.ttl_us / 1_000);
        let told = told.map_or(String::new(), |mark| mark.to_string());
        let request = format!("{holder} {token} {ttl_ms} {told}");
        call.arg(word)
            .arg(member_words(asked.id))
            .arg(request)
            .arg(INFO);
        // One that may be away tells its node, and is asked again if it is in.
        for _ in 0..2 {
            let reply: Value = call.invoke_async(&mut self.connection).await?;
            if text(&items(&reply)[0]) != "away" {
                return Ok(said(reply));
            }
            let look = ["look".into(), member_words(asked.id)];
            let (node, at, _) = noted(self.told(&look).await?);
            if let Some(absence) = node.absence(asked.id, &at) {
                return Ok(MemberAnswer::Absent(absence));
            }
        }
        panic!("it is in, and takes no part");
    }

    /// Asks for the member's node, and returns what it then is.
    pub(super) async fn node(&mut self, arguments: &[String]) -> (Node<String>, At<String>, bool) {
        noted(self.told(arguments).await.expect("node.lua answers"))
    }

    async fn told(&mut self, arguments: &[String]) -> Result<Value, RedisError> {
        let script = Script::new(quorum_scripts()[1]);
        let mut call = script.prepare_invoke();
        call.key("leasehold:node").arg(arguments);
        call.invoke_async(&mut self.connection).await
    }
}

/// The argument that says which member is meant.
pub(super) fn member_words(MemberId { quorum, index, of }: MemberId) -> String {
    format!("{quorum} {index} {of}")
}

/// The arguments of `node.lua` that write.
pub(super) fn writing_words(word: &str, by: &str, writing: &Writing<String>) -> Vec<String> {
    let max_ttl_ms = writing.max_ttl_us / 1_000;
    [
        word.to_owned(),
        member_words(writing.id),
        by.to_owned(),
        max_ttl_ms.to_string(),
        writing.highest.to_string(),
        MEMBERS.to_owned(),
    ]
    .to_vec()
}

fn text(value: &Value) -> String {
    from_redis_value(value.clone()).expect("text")
}

fn number(value: &Value) -> u64 {
    from_redis_value(value.clone()).expect("a number")
}

fn items(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items.clone(),
        alone => vec![alone.clone()],
    }
}

fn said(reply: Value) -> MemberAnswer {
    let items = items(&reply);
    MemberAnswer::Absent(match &*text(&items[0]) {
        "too_long" => Absence::TooLong(number(&items[1]) * 1_000),
        "yes" | "freed" => return MemberAnswer::Yes,
        "not_held" => return MemberAnswer::NotHeld,
        "low" => return MemberAnswer::Low(number(&items[1])),
        "taken" => {
            let (left_ms, now_us) = (number(&items[1]), number(&items[3]));
            return MemberAnswer::Taken(lease_in(&text(&items[2]), left_ms, now_us));
        }
        _ => panic!("no reply of names.lua: {reply:?}"),
    })
}

/// Reads which member a server is.
fn member_of(value: &str) -> MemberId {
    let words: Vec<u64> = value
        .split(' ')
        .map(|word| word.parse().expect("a number"))
        .collect();
    let small = |word: u64| u8::try_from(word).expect("small");
    MemberId {
        quorum: words[0],
        index: small(words[1]),
        of: small(words[2]),
    }
}

/// Reads a lease's value as the page of the protocol has it.
pub(super) fn lease_in(value: &str, left_ms: u64, now_us: u64) -> MemberLease {
    let words: Vec<&str> = value.splitn(5, ' ').collect();
    MemberLease {
        state: match words[0] {
            "held" => HeldState::Leased,
            "evicted" => HeldState::Evicted,
            "kept" => HeldState::Kept,
            other => panic!("no state: {other}"),
        },
        holder: words[1].parse().expect("a holder"),
        token: words[2].parse::<Token>().expect("a token"),
        floor: words[3].parse().expect("a floor"),
        ends_at_us: now_us + left_ms * 1_000,
    }
}

fn noted(reply: Value) -> (Node<String>, At<String>, bool) {
    let items = items(&reply);
    assert_eq!(text(&items[0]), "node", "{reply:?}");
    let (present, is_in) = (text(&items[2]), number(&items[4]) == 1);
    let field = |name: &str| {
        let mut fields = items[5..].chunks_exact(2);
        let field = fields.find(|field| text(&field[0]) == name)?;
        Some(text(&field[1]))
    };
    let optional = |name: &str| field(name)?.parse::<u64>().ok();
    let membership = field("member").map(|member| MemberRecord {
        id: member_of(&member),
        max_ttl_us: optional("keep_out").expect("a ttl") * 1_000,
        incarnation: if is_in {
            present.clone()
        } else {
            String::new()
        },
        max: optional("max").expect("a mark"),
        floor: optional("floor").expect("a floor"),
        closed_for: optional("closed_for"),
    });
    let node = Node {
        membership,
        seen: (number(&items[3]) > 0).then(|| FirstSeen {
            incarnation: present.clone(),
            at_us: number(&items[3]),
        }),
        reserved_by: optional("reserved_by"),
    };
    let at = At {
        now_us: number(&items[1]),
        incarnation: present,
    };
    (node, at, is_in)
}
