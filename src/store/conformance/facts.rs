//! The facts and the members of a store.

use super::{Bench, LIMIT, LONG};
use crate::store::MemberState;

pub(super) async fn the_facts_are_told_and_every_member_is_up(bench: &Bench) {
    let facts = bench.store.facts();
    let is_word = |kind: &str| !kind.is_empty() && kind.chars().all(|c| c.is_ascii_lowercase());
    assert!(is_word(facts.kind), "{facts:?}");
    assert!(facts.max_ttl.is_none_or(|most| most >= LONG), "{facts:?}");
    let members = bench.store.members(LIMIT).await.expect("answered");
    assert!(!members.is_empty(), "a store has at least one member");
    for member in members {
        assert_eq!(member.state, MemberState::Up, "{member:?}");
    }
}
