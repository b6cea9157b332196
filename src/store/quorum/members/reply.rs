//! What the scripts of a member reply.

use std::time::{Duration, SystemTime};

use deadpool_redis::redis::Value;
use serde::Deserialize;

use super::super::protocol::{
    Absence, At, FirstSeen, MemberAnswer, MemberId, MemberLease, Membership, Node, Standing,
};
use crate::error::{Error, ErrorKind};
use crate::holder::Holder;
use crate::name::Name;
use crate::store::redis::{number, tagged, text};
use crate::store::{Held, HeldState, Info};
use crate::token::Token;

/// The answer of a member for one name.
#[derive(Debug)]
pub(in super::super) enum NameReply {
    Yes,
    /// Whether a release freed the name.
    Freed(bool),
    /// To a look at a name that has no lease.
    Free,
    Low(u64),
    Taken(MemberLease, Box<Held>),
    Away(Away),
    /// Nothing was changed for this name.
    Failed(Error),
}

/// Why a member takes no part.
#[derive(Debug, Clone)]
pub(in super::super) struct Away {
    pub(in super::super) absence: Absence<String>,
    /// For how long it has been out, by its clock in microseconds.
    pub(in super::super) out_us: u64,
    /// The members of the quorum that it belongs to, if that is another one.
    pub(in super::super) members: String,
}

/// What a member keeps of itself.
#[derive(Debug, Clone)]
pub(in super::super) struct MemberPlace {
    pub(in super::super) node: Node<String>,
    pub(in super::super) at: At<String>,
    /// The places of all members, as `init` was given them.
    pub(in super::super) members: String,
}

/// What the value of a lease tells of its holder.
#[derive(Deserialize, Default)]
struct LeaseInfo {
    since: Option<u64>,
    #[serde(flatten)]
    info: Info,
}

impl NameReply {
    /// Returns the answer that counts in a round. `None`: the member has none for this name.
    pub(in super::super) fn answer(&self) -> Option<MemberAnswer<String>> {
        match self {
            Self::Yes => Some(MemberAnswer::Yes),
            Self::Low(mark) => Some(MemberAnswer::Low(*mark)),
            Self::Taken(lease, _) => Some(MemberAnswer::Taken(*lease)),
            Self::Away(away) => Some(MemberAnswer::Away(away.absence.clone())),
            Self::Freed(_) | Self::Free | Self::Failed(_) => None,
        }
    }
}

impl MemberPlace {
    /// Returns the highest token that it has, if it knows.
    ///
    /// # Errors
    /// Why it does not know.
    pub(in super::super) fn highest(&self, id: MemberId) -> Result<u64, Absence<String>> {
        self.node.clone().highest(id, &self.at)
    }

    /// Returns why it takes no part as this member of a quorum.
    pub(in super::super) fn away(&self, id: MemberId) -> Option<Away> {
        let absence = self.node.clone().look(id, &self.at).err()?;
        let out_us = match &absence {
            Absence::Out(seen) => self.at.now_us.saturating_sub(seen.at_us),
            _ => 0,
        };
        Some(Away {
            absence,
            out_us,
            members: self.members.clone(),
        })
    }
}

/// Returns why a server is no member, if its node belongs to something else.
pub(super) fn foreign(reply: &Value) -> Option<&'static str> {
    match tagged(reply).ok()? {
        ("foreign", [what]) if text(what).ok()? == "alone" => Some(
            "the server grants leases on its own: open it alone, or use another prefix for the quorum",
        ),
        ("foreign", [_]) => Some(
            "the server is a member of a quorum of an earlier version: stop its clients, remove all keys with this prefix, \
             wait for the longest ttl, and run `leasehold init`",
        ),
        _ => None,
    }
}

pub(super) fn told(reply: &Value, names: &[&Name]) -> Option<Vec<NameReply>> {
    let number = |value: &Value| number(value).ok();
    let word = |value: &Value| text(value).ok().map(ToOwned::to_owned);
    let away = |absence, out_us, members| {
        let away = Away {
            absence,
            out_us,
            members,
        };
        Some(
            names
                .iter()
                .map(|_| NameReply::Away(away.clone()))
                .collect(),
        )
    };
    match tagged(reply).ok()? {
        ("done", [clock, answers @ ..]) if answers.len() == names.len() => {
            let clock_us = number(clock)?;
            let answers = answers.iter().zip(names);
            answers
                .map(|(answer, name)| told_of(answer, name, clock_us))
                .collect()
        }
        ("out", [incarnation, at, clock]) => {
            let (at_us, incarnation) = (number(at)?, word(incarnation)?);
            let seen = FirstSeen { incarnation, at_us };
            away(
                Absence::Out(seen),
                number(clock)?.saturating_sub(at_us),
                String::new(),
            )
        }
        ("other", [quorum, index, of, members]) => {
            let id = id_of(quorum, index, of)?;
            away(Absence::Other(id), 0, word(members)?)
        }
        ("closed", [quorum]) => away(Absence::Closed(number(quorum)?), 0, String::new()),
        _ => None,
    }
}

fn told_of(answer: &Value, name: &Name, clock_us: u64) -> Option<NameReply> {
    Some(match tagged(answer).ok()? {
        ("yes", []) => NameReply::Yes,
        ("freed", []) => NameReply::Freed(true),
        ("not_held", []) => NameReply::Freed(false),
        ("free", []) => NameReply::Free,
        ("low", [mark]) => NameReply::Low(number(mark).ok()?),
        ("taken", [left, value]) => {
            let left_ms = number(left).ok()?;
            let (lease, held) = lease_in(text(value).ok()?, name, left_ms, clock_us)?;
            NameReply::Taken(lease, Box::new(held))
        }
        ("too_long", [max]) => NameReply::Away(Away {
            absence: Absence::TooLong(number(max).ok()? * 1_000),
            out_us: 0,
            members: String::new(),
        }),
        ("failed", [message]) => {
            let message = format!(
                "a key holds something else: {} name={name}",
                text(message).ok()?
            );
            NameReply::Failed(Error::new(ErrorKind::Misconfigured, message))
        }
        _ => return None,
    })
}

/// Parses the value of a lease: `<standing> <holder> <token> <floor> <info>`.
fn lease_in(value: &str, name: &Name, left_ms: u64, clock_us: u64) -> Option<(MemberLease, Held)> {
    let mut words = value.splitn(5, ' ');
    let mut next = || words.next();
    let standing = match next()? {
        "held" => Standing::Held,
        "evicted" => Standing::Evicted,
        "kept" => Standing::Kept,
        _ => return None,
    };
    let holder: Holder = next()?.parse().ok()?;
    let token: Token = next()?.parse().ok()?;
    let floor = next()?.parse().ok()?;
    let told: LeaseInfo = serde_json::from_str(next()?).unwrap_or_default();
    let lease = MemberLease {
        holder,
        token,
        ends_at_us: clock_us + left_ms * 1_000,
        floor,
        standing,
    };
    let mut held = Held::new(name.clone());
    held.state = match standing {
        Standing::Held => HeldState::Leased,
        Standing::Evicted => HeldState::Evicted,
        Standing::Kept => HeldState::Kept,
    };
    held.by = (standing != Standing::Kept).then_some(holder);
    held.token = Some(token);
    let since = told.since.map(Duration::from_micros);
    held.since = since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
    held.remaining = Some(Duration::from_millis(left_ms));
    held.info = told.info;
    Some((lease, held))
}

fn id_of(quorum: &Value, index: &Value, of: &Value) -> Option<MemberId> {
    Some(MemberId {
        quorum: number(quorum).ok()?,
        index: number(index).ok()?.try_into().ok()?,
        of: number(of).ok()?.try_into().ok()?,
    })
}

pub(super) fn placed(reply: &Value) -> Option<MemberPlace> {
    let ("node", [clock, incarnation, since, is_in, rest @ ..]) = tagged(reply).ok()? else {
        return None;
    };
    let [
        quorum,
        index,
        of,
        keep_out,
        max,
        floor,
        closed_for,
        reserved_by,
        members,
    ] = rest
    else {
        return None;
    };
    let present = text(incarnation).ok()?.to_owned();
    let is_in = number(is_in).ok()? == 1;
    let optional = |value: &Value| number(value).ok();
    let membership = id_of(quorum, index, of).and_then(|id| {
        Some(Membership {
            id,
            max_ttl_us: optional(keep_out)? * 1_000,
            incarnation: if is_in {
                present.clone()
            } else {
                String::new()
            },
            max: optional(max)?,
            floor: optional(floor)?,
            closed_for: optional(closed_for),
        })
    });
    let since = number(since).ok()?;
    Some(MemberPlace {
        node: Node {
            membership,
            seen: (since > 0).then(|| FirstSeen {
                incarnation: present.clone(),
                at_us: since,
            }),
            reserved_by: optional(reserved_by),
        },
        at: At {
            now_us: number(clock).ok()?,
            incarnation: present,
        },
        members: text(members).ok()?.to_owned(),
    })
}
