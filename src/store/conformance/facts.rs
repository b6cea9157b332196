//! The facts and the members of a store.

use super::{Bench, LIMIT, LONG};
use crate::store::{Member, MemberState};

pub(super) async fn the_facts_are_told_and_the_members_are_up(bench: &Bench) {
    let facts = bench.store.facts();
    let is_word = |kind: &str| !kind.is_empty() && kind.chars().all(|c| c.is_ascii_lowercase());
    assert!(is_word(facts.kind), "{facts:?}");
    assert!(facts.max_ttl.is_none_or(|most| most >= LONG), "{facts:?}");
    let members = bench.store.members(LIMIT).await.expect("answered");
    assert!(!members.is_empty(), "a store has at least one member");
    let is_down = |member: &&Member| member.state == MemberState::Down;
    let down = members.iter().filter(is_down).count();
    assert_eq!(down, bench.down, "{members:?}");
    for member in members.iter().filter(|member| !is_down(member)) {
        assert_eq!(member.state, MemberState::Up, "{member:?}");
    }
}
