//! Decides about a claim, from one reading of its name. Pure.

use super::reading::{NameReading, Taken};
use super::tree::{Kind, QueuePlace};
use crate::holder::ClientId;
use crate::store::{Ask, Claim, Held, Place};
use crate::token::Token;

/// The decision about a claim.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The claimant has the lease, with this token: set its full ttl again.
    Extend(Token),
    /// Grant the name to the claimant, replacing a lease that has run out, and delete these nodes of the queue.
    Grant(Vec<String>),
    /// Remove a lease that has run out, delete these nodes of the queue, and keep the name for the next client in it.
    PassOn(Vec<String>),
    /// Another holder has the name, or it is kept for a client.
    Held(Box<Held>),
}

/// Judges a claim.
pub(crate) fn judge(reading: &NameReading, claim: &Claim, ask: Ask) -> Judgement {
    let client = ask.queued.map(|_| claim.holder.client());
    let is_offered = reading.is_offered();
    let is_first = client.is_some_and(|client| reading.children.place(client) == Some(0));
    if reading.left.is_zero() || is_offered && is_first {
        return queued(reading, client);
    }
    let is_own = |taken: &Taken| taken.kind == Kind::Leased && taken.holder == claim.holder;
    if reading.taken.as_ref().is_some_and(is_own) {
        // A lease whose token an operator removed is granted anew.
        let last = reading.last_of(claim.holder);
        let anew = Judgement::Grant(Vec::new());
        return last.map_or(anew, |(last, _)| Judgement::Extend(last.token));
    }
    let mut held = reading.held(&claim.name);
    let last = reading.children.queue.len();
    let ahead = client.map(|client| reading.children.place(client).unwrap_or(last));
    // The client that has the offer no longer waits.
    let place = |ahead: usize| Place::new(0, ahead.saturating_sub(usize::from(is_offered)));
    held.place = ahead.map(place);
    Judgement::Held(Box::new(held))
}

/// Judges a claim of this client, if it asks for a place in the queue, for a name that can be granted to the first one
/// in it.
fn queued(reading: &NameReading, client: Option<ClientId>) -> Judgement {
    let is_own = |place: &QueuePlace| Some(place.client) == client;
    match &reading.children.queue[..] {
        // Without a token no stamp says when an offer begins: the name goes to the client that claims it.
        queue if queue.is_empty() || reading.last.is_none() => Judgement::Grant(Vec::new()),
        [first, ..] if is_own(first) => Judgement::Grant(first.nodes.clone()),
        _ if !reading.is_offered() => Judgement::PassOn(Vec::new()),
        // The first one has let its offer lapse.
        [first, next, ..] if !is_own(next) => Judgement::PassOn(first.nodes.clone()),
        lapsed => {
            let nodes = lapsed.iter().take(2).flat_map(|place| &place.nodes);
            Judgement::Grant(nodes.cloned().collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::reading::LastGrant;
    use super::super::tree::Children;
    use super::super::wire::{Change, Stat};
    use super::*;
    use crate::holder::Holder;
    use crate::name::Name;
    use crate::store::{HeldState, Info, Queued};

    const LEFT: Duration = Duration::from_secs(1);

    fn holder(client: u128) -> Holder {
        Holder::new(ClientId::from_u128(client), 7)
    }

    fn token() -> Token {
        Token::new(5).expect("a token")
    }

    fn reading(taken: Option<Kind>, is_freed: bool, queue: &[u128]) -> NameReading {
        let mut nodes: Vec<_> = queue
            .iter()
            .enumerate()
            .map(|(place, client)| format!("q-{}-{place:010}", ClientId::from_u128(*client)))
            .collect();
        nodes.push("t-0000000000000005".into());
        let signature = format!(r#"{{"by":"{}"}}"#, holder(1));
        let data = if is_freed { "" } else { &signature };
        let stat = Stat::default();
        let mut reading = NameReading::untaken("/a".into(), Some(stat), Children::read(&nodes));
        reading.last = Some(LastGrant::read(token(), data.as_bytes(), stat));
        reading.taken = taken.map(|kind| Taken {
            kind,
            holder: holder(1),
            span: LEFT,
            stat: Stat { version: 3, ..stat },
        });
        reading
    }

    fn ask(reading: &NameReading, client: u128, is_queued: bool, left: Duration) -> Judgement {
        let name = Name::new("a").expect("a name");
        let claim = Claim::new(name, holder(client), LEFT, Arc::new(Info::default()));
        let ask = Ask::default().with_queued(is_queued.then(|| Queued::new(LEFT)));
        let mut reading = reading.clone();
        reading.left = left;
        judge(&reading, &claim, ask)
    }

    fn places(verdict: &Judgement) -> Vec<u128> {
        let (Judgement::Grant(places) | Judgement::PassOn(places)) = verdict else {
            panic!("{verdict:?}");
        };
        let client = |node: &String| u128::from_str_radix(&node[2..34], 16).expect("hex");
        places.iter().map(client).collect()
    }

    fn held(verdict: Judgement) -> Held {
        match verdict {
            Judgement::Held(held) => *held,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_holder_that_asks_again_has_its_lease_and_others_do_not() {
        let taken = reading(Some(Kind::Leased), false, &[]);
        assert_eq!(ask(&taken, 1, false, LEFT), Judgement::Extend(token()));
        let other = held(ask(&taken, 2, true, LEFT));
        assert_eq!(
            (other.place, other.by),
            (Some(Place::new(0, 0)), Some(holder(1)))
        );
        for kind in [Kind::Evicted, Kind::Kept] {
            held(ask(&reading(Some(kind), false, &[]), 1, false, LEFT));
        }
    }

    #[test]
    fn what_ran_out_is_taken_over() {
        let taken = reading(Some(Kind::Leased), false, &[]);
        let granted = ask(&taken, 2, false, Duration::ZERO);
        assert_eq!(granted, Judgement::Grant(Vec::new()));
        assert!(taken.make_way(&[], None).contains(&Change::Delete(
            format!("/a/{}", Kind::Leased.node(holder(1))),
            Some(3)
        )));
    }

    #[test]
    fn an_offer_keeps_the_name_for_the_first_in_the_queue() {
        let offered = reading(None, true, &[2, 3]);
        assert_eq!(places(&ask(&offered, 2, true, LEFT)), [2]);
        for (client, is_queued) in [(2, false), (3, true), (4, true), (4, false)] {
            let refused = held(ask(&offered, client, is_queued, LEFT));
            assert_eq!(refused.state, HeldState::Kept);
        }
    }

    #[test]
    fn an_offer_that_lapsed_goes_to_the_next() {
        let offered = reading(None, true, &[2, 3]);
        let next = ask(&offered, 3, true, Duration::ZERO);
        assert!(matches!(next, Judgement::Grant(_)), "{next:?}");
        assert_eq!(places(&next), [2, 3]);
        let other = ask(&offered, 4, true, Duration::ZERO);
        assert!(matches!(other, Judgement::PassOn(_)), "{other:?}");
        assert_eq!(places(&other), [2]);
        let last = ask(&reading(None, true, &[2]), 4, true, Duration::ZERO);
        assert!(matches!(last, Judgement::Grant(_)), "{last:?}");
    }

    #[test]
    fn the_first_in_the_queue_gets_an_offer_of_what_ran_out() {
        let ran_out = reading(Some(Kind::Leased), false, &[2, 3]);
        // The session of the second one ended: there is no node to delete, and no offer was begun.
        for reading in [ran_out, reading(None, false, &[2, 3])] {
            let passed_on = ask(&reading, 4, true, Duration::ZERO);
            assert_eq!(passed_on, Judgement::PassOn(Vec::new()));
        }
    }
}
