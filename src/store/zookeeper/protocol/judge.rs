//! Decides what becomes of a claim, from one look at its name. Pure: how much is left of each term is an argument.

use std::time::Duration;

use super::reading::NameReading;
use super::stamp::Left;
use super::tree::{Kind, QueuePlace};
use crate::holder::{ClientId, Holder};
use crate::store::HeldState;

/// The holder that claims, and its client.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Claimant {
    pub(in super::super) holder: Holder,
    /// Says whether the claim asks for a place in the queue.
    pub(in super::super) is_queued: bool,
}

impl Claimant {
    /// Returns the client, if it asks for a place in the queue.
    fn client(self) -> Option<ClientId> {
        self.is_queued.then(|| self.holder.client())
    }
}

/// The rest of each term of a name.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Times {
    /// The rest of the term of the node that keeps the name taken, if there is one.
    pub(in super::super) taken: Left,
    /// The rest of the offer, if the name is free and clients wait for it.
    pub(in super::super) offer: Left,
}

/// The decision about a claim.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) enum Judgement {
    /// The claimant has the lease: set its full ttl again.
    Extend,
    /// Grant the name to the claimant.
    Grant(Drops),
    /// Free the name, and keep it for the next client in the queue.
    PassOn(Drops),
    /// Another holder has the name, or it is kept for a client.
    Held(Refused),
    /// The leader's clock is not known well enough: write something for a stamp of the current leader, and look again.
    Unclear,
}

/// The refusal of a claim.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct Refused {
    pub(in super::super) state: HeldState,
    pub(in super::super) remaining: Duration,
    pub(in super::super) ahead: Option<usize>,
    /// Says whether the claim asks for a place in the queue and has none.
    pub(in super::super) joins: bool,
}

/// The nodes that are removed in the same step.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Drops {
    /// Says whether to delete the node that kept the name taken, because it has run out.
    pub(in super::super) taken: bool,
    /// The nodes of the queue to delete.
    pub(in super::super) places: Vec<String>,
    /// Says whether the decision depends on time: then the leader's clock must have been read in this call.
    pub(in super::super) by_time: bool,
}

impl Drops {
    /// Drops the node that keeps the name taken.
    pub(in super::super) fn of_taken() -> Self {
        Self {
            taken: true,
            ..Self::default()
        }
    }
}

/// Judges a claim.
pub(in super::super) fn judge(
    reading: &NameReading,
    claimant: Claimant,
    times: Times,
) -> Judgement {
    let mut drops = Drops::default();
    if let Some(taken) = &reading.taken {
        match times.taken {
            Left::Unknown => return Judgement::Unclear,
            Left::For(_) if taken.kind == Kind::Leased && taken.holder == claimant.holder => {
                return Judgement::Extend;
            }
            Left::For(left) => return refused(reading, claimant, state_of(taken.kind), left),
            Left::Over => {
                drops.taken = true;
                drops.by_time = true;
            }
        }
    }
    let client = claimant.client();
    let queue = &reading.children.queue;
    let Some(first) = queue.first() else {
        return Judgement::Grant(drops);
    };
    if Some(first.client) == client {
        drops.places.clone_from(&first.nodes);
        return Judgement::Grant(drops);
    }
    if !reading.is_offered() {
        return Judgement::PassOn(drops);
    }
    match times.offer {
        Left::Unknown => Judgement::Unclear,
        Left::For(left) => refused(reading, claimant, HeldState::Offered, left),
        Left::Over => lapsed(queue, client, drops),
    }
}

/// Judges a claim for a name whose first client in the queue has let its offer lapse.
fn lapsed(queue: &[QueuePlace], client: Option<ClientId>, mut drops: Drops) -> Judgement {
    drops.by_time = true;
    drops.places.clone_from(&queue[0].nodes);
    match queue.get(1) {
        Some(next) if Some(next.client) != client => return Judgement::PassOn(drops),
        Some(own) => drops.places.extend_from_slice(&own.nodes),
        None => {}
    }
    Judgement::Grant(drops)
}

fn refused(
    reading: &NameReading,
    claimant: Claimant,
    state: HeldState,
    remaining: Duration,
) -> Judgement {
    let client = claimant.client();
    let place = client.and_then(|client| reading.children.place(client));
    let last = reading.children.queue.len();
    // The client that has the offer no longer waits.
    let offered = usize::from(state == HeldState::Offered);
    Judgement::Held(Refused {
        state,
        remaining,
        ahead: client.map(|_| place.unwrap_or(last).saturating_sub(offered)),
        joins: client.is_some() && place.is_none(),
    })
}

/// Returns how the name is shown to be taken, and for how long. Returns `None` if it is free.
pub(in super::super) fn shown(
    reading: &NameReading,
    times: Times,
) -> Option<(HeldState, Option<Duration>)> {
    let (state, left) = match &reading.taken {
        Some(taken) => (state_of(taken.kind), times.taken),
        None if reading.is_offered() => (HeldState::Offered, times.offer),
        None => return None,
    };
    match left {
        Left::Over => None,
        Left::For(left) => Some((state, Some(left))),
        Left::Unknown => Some((state, None)),
    }
}

/// Returns the places of this client.
pub(in super::super) fn places_of(reading: &NameReading, client: ClientId) -> &[String] {
    let place = reading.children.place(client);
    place.map_or(&[], |place| &reading.children.queue[place].nodes)
}

const fn state_of(kind: Kind) -> HeldState {
    match kind {
        Kind::Leased => HeldState::Leased,
        Kind::Evicted => HeldState::Evicted,
        Kind::Kept => HeldState::Kept,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::protocol::reading::{LastGrant, Taken};
    use super::super::super::protocol::stamp::Stamp;
    use super::super::super::protocol::tree::Children;
    use super::*;
    use crate::store::Info;
    use crate::token::Token;

    const STAMP: Stamp = Stamp { ms: 1, zxid: 1 };
    const LEFT: Left = Left::For(Duration::from_secs(1));
    const REST: Duration = Duration::from_secs(1);

    fn holder(client: u128) -> Holder {
        Holder::new(ClientId::from_u128(client), 7)
    }

    fn reading(taken: Option<Kind>, is_freed: bool, queue: &[u128]) -> NameReading {
        let token = Token::new(5).expect("a token");
        let mut nodes: Vec<_> = queue
            .iter()
            .enumerate()
            .map(|(place, client)| format!("q-{}-{place:010}", ClientId::from_u128(*client)))
            .collect();
        nodes.push("t-0000000000000005".into());
        NameReading {
            version: 1,
            children_made: 1,
            children: Children::read(&nodes),
            taken: taken.map(|kind| Taken {
                kind,
                holder: holder(1),
                span: REST,
                stamp: STAMP,
                version: 3,
            }),
            last: Some(LastGrant {
                token,
                by: None,
                info: Info::default(),
                since_ms: 0,
                freed: is_freed.then_some(STAMP),
                version: 0,
            }),
        }
    }

    fn ask(
        reading: &NameReading,
        client: u128,
        is_queued: bool,
        taken: Left,
        offer: Left,
    ) -> Judgement {
        let holder = holder(client);
        let claimant = Claimant { holder, is_queued };
        judge(reading, claimant, Times { taken, offer })
    }

    fn places(verdict: &Judgement) -> Vec<u128> {
        let (Judgement::Grant(drops) | Judgement::PassOn(drops)) = verdict else {
            panic!("{verdict:?}");
        };
        let client = |node: &String| u128::from_str_radix(&node[2..34], 16).expect("hex");
        drops.places.iter().map(client).collect()
    }

    #[test]
    fn a_holder_that_asks_again_has_its_lease_and_others_do_not() {
        let taken = reading(Some(Kind::Leased), false, &[]);
        assert_eq!(ask(&taken, 1, false, LEFT, LEFT), Judgement::Extend);
        let verdict = ask(&taken, 2, true, LEFT, LEFT);
        let Judgement::Held(refusal) = verdict else {
            panic!("{verdict:?}");
        };
        assert_eq!((refusal.ahead, refusal.joins), (Some(0), true));
        for kind in [Kind::Evicted, Kind::Kept] {
            let verdict = ask(&reading(Some(kind), false, &[]), 1, false, LEFT, LEFT);
            assert!(matches!(verdict, Judgement::Held(_)), "{verdict:?}");
        }
    }

    #[test]
    fn what_ran_out_is_taken_over_by_time() {
        let taken = reading(Some(Kind::Leased), false, &[]);
        let Judgement::Grant(drops) = ask(&taken, 2, false, Left::Over, LEFT) else {
            panic!("not granted");
        };
        assert!(drops.taken && drops.by_time);
        let unclear = ask(&taken, 2, false, Left::Unknown, LEFT);
        assert_eq!(unclear, Judgement::Unclear);
    }

    #[test]
    fn an_offer_keeps_the_name_for_the_first_in_the_queue() {
        let offered = reading(None, true, &[2, 3]);
        assert_eq!(places(&ask(&offered, 2, true, LEFT, LEFT)), [2]);
        for (client, is_queued) in [(2, false), (3, true), (4, true), (4, false)] {
            let verdict = ask(&offered, client, is_queued, LEFT, LEFT);
            let Judgement::Held(refusal) = verdict else {
                panic!("{client}: {verdict:?}");
            };
            assert_eq!(refusal.state, HeldState::Offered);
        }
    }

    #[test]
    fn an_offer_that_lapsed_goes_to_the_next() {
        let offered = reading(None, true, &[2, 3]);
        let next = ask(&offered, 3, true, LEFT, Left::Over);
        assert!(matches!(next, Judgement::Grant(_)), "{next:?}");
        assert_eq!(places(&next), [2, 3]);
        let other = ask(&offered, 4, true, LEFT, Left::Over);
        assert!(matches!(other, Judgement::PassOn(_)), "{other:?}");
        assert_eq!(places(&other), [2]);
        let last = ask(&reading(None, true, &[2]), 4, true, LEFT, Left::Over);
        assert!(matches!(last, Judgement::Grant(_)), "{last:?}");
    }

    #[test]
    fn the_first_in_the_queue_gets_an_offer_of_what_ran_out() {
        let ran_out = reading(Some(Kind::Leased), false, &[2, 3]);
        let verdict = ask(&ran_out, 4, false, Left::Over, LEFT);
        let Judgement::PassOn(drops) = verdict else {
            panic!("{verdict:?}");
        };
        assert!(drops.taken && drops.places.is_empty());
        // Its session ended: there is no node to drop, and no offer was begun.
        let gone = reading(None, false, &[2, 3]);
        let verdict = ask(&gone, 3, true, LEFT, LEFT);
        assert_eq!(verdict, Judgement::PassOn(Drops::default()));
    }
}
