//! The replies of a member's scripts.

use std::slice;
use std::time::Duration;

use deadpool_redis::redis::Value;

use super::super::protocol::{Absence, MemberAnswer, MemberId, MemberLease, Membership};
use super::member::{NameAnswer, NameRequest};
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::store::redis::{number, read_info, tagged, text};
use crate::store::{Held, HeldState};

/// A lease that a member reports.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SeenLease {
    pub(crate) lease: MemberLease,
    pub(crate) held: Held,
}

/// What the key `<prefix>:node` of a member holds: its record of itself.
#[derive(Debug, Clone)]
pub(crate) struct MemberNode {
    pub(crate) membership: Option<Membership>,
    pub(crate) incarnation: String,
    pub(crate) clock_us: u64,
    /// How long it has been away, by its clock.
    pub(crate) away_us: u64,
    /// The quorum that a client asked a blank server for, which has lost its data.
    pub(crate) asked_for: Option<u64>,
    /// The run of `init` that may write here.
    pub(crate) reserved_by: Option<u64>,
    /// The locations of all members, as `init` was given them.
    pub(crate) members: String,
}

impl AsRef<MemberLease> for Box<SeenLease> {
    fn as_ref(&self) -> &MemberLease {
        &self.lease
    }
}

impl MemberNode {
    /// Returns why it takes no part as this member of a quorum.
    pub(crate) fn absence(&self, id: MemberId) -> Option<Absence> {
        Membership::absence(self.membership, id, self.away_us)
    }

    /// Returns the run id of the server.
    pub(crate) fn run(&self) -> Option<&str> {
        self.incarnation.split(':').next()
    }

    /// Returns the highest token that it has, for the adoption of another one.
    pub(crate) fn highest(&self, id: MemberId) -> Result<u64, Absence> {
        Membership::highest(self.membership, id)
    }
}

/// Reads a reply of `names.lua`. `Some(None)`: the member may be away.
pub(super) fn told(reply: &Value, asked: &[NameRequest]) -> Option<Option<Vec<NameAnswer>>> {
    let answers = match tagged(reply).ok()? {
        ("away", []) => return Some(None),
        ("done", answers) => answers,
        // The answer for one name comes alone.
        _ => slice::from_ref(reply),
    };
    if answers.len() != asked.len() {
        return None;
    }
    // An unreadable answer does not affect the other names.
    let read = |(answer, asked): (&Value, &NameRequest)| {
        told_of(answer, &asked.name)
            .unwrap_or_else(|| Err(odd_key("it cannot be read", &asked.name)))
    };
    Some(Some(answers.iter().zip(asked).map(read).collect()))
}

fn told_of(answer: &Value, name: &Name) -> Option<NameAnswer> {
    Some(Ok(match tagged(answer).ok()? {
        ("yes" | "freed", []) => MemberAnswer::Yes,
        ("not_held" | "free", []) => MemberAnswer::NotHeld,
        ("low", [mark]) => MemberAnswer::Low(number(mark).ok()?),
        ("taken", [Value::Int(left), value, clock]) => {
            // A number below 0 means that the key has no expiry.
            let left_ms = u64::try_from(*left).ok();
            let seen = lease_in(text(value).ok()?, name, left_ms, number(clock).ok()?)?;
            MemberAnswer::Taken(Box::new(seen))
        }
        ("too_long", [max]) => {
            MemberAnswer::Absent(Absence::TooLong(number(max).ok()?.saturating_mul(1_000)))
        }
        ("failed", [message]) => return Some(Err(odd_key(text(message).ok()?, name))),
        _ => return None,
    }))
}

fn odd_key(why: &str, name: &Name) -> Error {
    let message = format!("a key holds something else: {why} name={name}");
    Error::new(ErrorKind::Misconfigured, message)
}

/// Parses the value of a lease: `<state> <holder> <token> <floor> <info>`.
fn lease_in(value: &str, name: &Name, left_ms: Option<u64>, clock_us: u64) -> Option<SeenLease> {
    let mut words = value.splitn(5, ' ');
    let mut next = || words.next();
    let mut held = Held::new(name.clone());
    held.state = match next()? {
        "held" => HeldState::Leased,
        "evicted" => HeldState::Evicted,
        "kept" => HeldState::Kept,
        _ => return None,
    };
    let lease = MemberLease {
        holder: next()?.parse().ok()?,
        token: next()?.parse().ok()?,
        floor: next()?.parse().ok()?,
        ends_at_us: left_ms.map_or(u64::MAX, |left_ms| {
            clock_us.saturating_add(left_ms.saturating_mul(1_000))
        }),
        state: held.state,
    };
    held.by = (lease.state != HeldState::Kept).then_some(lease.holder);
    held.token = Some(lease.token);
    held.remaining = left_ms.map(Duration::from_millis);
    read_info(next()?, &mut held);
    Some(SeenLease { lease, held })
}

/// Parses which member a server is.
fn member_of(value: &Value) -> Option<MemberId> {
    let mut words = text(value).ok()?.split(' ');
    Some(MemberId {
        quorum: words.next()?.parse().ok()?,
        index: words.next()?.parse().ok()?,
        of: words.next()?.parse().ok()?,
    })
}

/// Reads a reply of `node.lua`: the record, or why the server is no member, if its node belongs to something else.
pub(super) fn node(reply: &Value) -> Option<Result<MemberNode, &'static str>> {
    match tagged(reply).ok()? {
        ("node", parts) => node_in(parts).map(Ok),
        ("foreign", [what]) if text(what).ok()? == "alone" => Some(Err(
            "the server grants leases on its own: open it alone, or use another prefix for the quorum",
        )),
        ("foreign", [_]) => Some(Err(
            "the server is a member of a quorum of an earlier version: stop its clients, remove all keys with this prefix, \
             wait for the longest ttl, and run `leasehold init`",
        )),
        _ => None,
    }
}

fn node_in(parts: &[Value]) -> Option<MemberNode> {
    let [clock, incarnation, since, is_in, fields @ ..] = parts else {
        return None;
    };
    let field = |name: &str| {
        let mut fields = fields.chunks_exact(2);
        fields.find_map(|field| (text(&field[0]).ok()? == name).then_some(&field[1]))
    };
    let count = |name: &str| number(field(name)?).ok();
    let (clock_us, is_in) = (number(clock).ok()?, number(is_in).ok()? == 1);
    let since = Some(number(since).ok()?).filter(|since| *since > 0);
    let members = field("members").and_then(|members| text(members).ok());
    Some(MemberNode {
        membership: field("member").and_then(member_of).map(|id| Membership {
            id,
            max_ttl_us: count("keep_out").unwrap_or(0).saturating_mul(1_000),
            is_in,
            max: count("max").unwrap_or(0),
            closed_for: count("closed_for"),
        }),
        incarnation: text(incarnation).ok()?.into(),
        clock_us,
        away_us: since.map_or(0, |since| clock_us.saturating_sub(since)),
        asked_for: count("asked_for"),
        reserved_by: count("reserved_by"),
        members: members.unwrap_or_default().into(),
    })
}
