//! Hints, and clients that wait in turn. The facts of a store say which of these it has; a store without them must not
//! behave as if it had them.

use super::{Asking, Bench, Check, LIMIT, LONG, SHORT};
use crate::holder::Holder;
use crate::store::{Eviction, Facts, HeldState, Notice, Notices, Queued, Release, Topic};

/// The checks for a store with these facts.
pub(crate) fn checks(facts: Facts) -> Vec<(&'static str, Check)> {
    let of_queues = if facts.has_queue { QUEUE } else { NO_QUEUE };
    let of_notices = if facts.has_notices {
        NOTICES
    } else {
        NO_NOTICES
    };
    let has_both = facts.has_queue && facts.has_notices;
    let of_both = if has_both { QUEUE_AND_NOTICES } else { &[] };
    [of_notices, of_queues, of_both].concat()
}

const NO_QUEUE: &[(&str, Check)] = checks![a_store_without_a_queue_gives_no_place];

const NO_NOTICES: &[(&str, Check)] = checks![a_store_without_notices_gives_no_subscription];

const NOTICES: &[(&str, Check)] = checks![a_freed_name_is_hinted_to_those_who_follow_it];

const QUEUE: &[(&str, Check)] = checks![
    clients_in_the_queue_are_served_in_the_order_in_which_they_joined,
    no_claim_overtakes_a_client_in_the_queue,
    an_offer_is_no_lease_and_is_accepted_once,
    a_look_tells_how_many_clients_wait,
    an_offer_is_shown_and_can_be_evicted,
    an_offer_that_lapses_goes_to_the_next_client,
    a_client_that_leaves_the_queue_passes_its_turn_on,
    a_client_with_more_waiters_joins_the_queue_again,
];

const QUEUE_AND_NOTICES: &[(&str, Check)] = checks![
    a_name_that_is_kept_for_a_while_is_hinted,
    a_client_in_the_queue_is_told_of_its_turn,
];

async fn a_store_without_a_queue_gives_no_place(bench: &Bench) {
    bench.granted(&bench.claim("a", LONG)).await;
    let queued = in_queue(bench, 0);
    for _ in 0..2 {
        assert_eq!(bench.held(&queued).await.ahead, None, "the facts say so");
    }
    let held = bench.inspect(&queued.name).await.expect("it is taken");
    assert_eq!(held.waiting, None, "the facts say so");
}

async fn a_store_without_notices_gives_no_subscription(bench: &Bench) {
    let notices = bench.store.notices().await.expect("answered");
    assert!(notices.is_none(), "the facts say so: {notices:?}");
}

/// A subscription of a store whose facts promise one.
async fn subscription(bench: &Bench) -> Box<dyn Notices> {
    let notices = bench.store.notices().await.expect("answered");
    notices.expect("the facts promise notices")
}

async fn a_freed_name_is_hinted_to_those_who_follow_it(bench: &Bench) {
    let notices = subscription(bench).await;
    let (first, other) = (bench.claim("a", LONG), bench.claim("b", LONG));
    bench.granted(&first).await;
    bench.granted(&other).await;
    notices.follow(&Topic::Freed(first.name.clone()));
    hint(&*notices, Notice::Freed(first.name.clone())).await;
    bench.release(&other).await;
    bench.release(&first).await;
    hint(&*notices, Notice::Freed(first.name.clone())).await;
    let second = bench.claim("a", LONG);
    bench.granted(&second).await;
    assert!(bench.evict(&second.name, Eviction::Now).await);
    hint(&*notices, Notice::Freed(first.name.clone())).await;
}

async fn a_name_that_is_kept_for_a_while_is_hinted(bench: &Bench) {
    let notices = subscription(bench).await;
    let (first, [next]) = queue(bench).await;
    let (name, client) = (&first.name, next.holder.client());
    notices.follow(&Topic::Freed(name.clone()));
    hint(&*notices, Notice::Freed(name.clone())).await;
    notices.follow(&Topic::Turn(name.clone(), client));
    hint(&*notices, Notice::Turn(name.clone())).await;
    let kept = bench.release_keeping(&first, SHORT).await;
    assert_eq!(kept, Release::Released);
    let (mut was_freed, mut was_next) = (false, false);
    while !(was_freed && was_next) {
        match next_hint(&*notices).await {
            Notice::Freed(freed) if freed == *name => was_freed = true,
            Notice::Next(kept, rest) if kept == *name && rest <= SHORT => was_next = true,
            other => panic!("freed={was_freed} next={was_next}: {other:?}"),
        }
    }
}

/// Takes the next hint.
async fn next_hint(notices: &dyn Notices) -> Notice {
    let notice = tokio::time::timeout(LIMIT, notices.next()).await;
    notice.expect("a hint in time")
}

/// Takes the next hint, which must be this one.
async fn hint(notices: &dyn Notices, expected: Notice) {
    assert_eq!(next_hint(notices).await, expected);
}

/// A claim of a client of its own that waits in turn, with this number of further waiters.
fn in_queue(bench: &Bench, more: u32) -> Asking {
    let mut claim = bench.claim("a", LONG);
    claim.ask.queued = Some(Queued::new(more));
    claim
}

/// Another claim of the same client.
fn again(claim: &Asking) -> Asking {
    let holder = Holder::draw(claim.holder.client()).expect("random bits");
    let mut claim = claim.clone();
    claim.claim.holder = holder;
    claim
}

/// A holder of the name and this number of clients in the queue for it.
async fn queue<const N: usize>(bench: &Bench) -> (Asking, [Asking; N]) {
    let first = bench.claim("a", LONG);
    bench.granted(&first).await;
    let queue = std::array::from_fn(|_| in_queue(bench, 0));
    for (place, claim) in queue.iter().enumerate() {
        let held = bench.held(claim).await;
        assert_eq!(held.ahead, Some(place), "the facts promise a queue");
    }
    (first, queue)
}

async fn clients_in_the_queue_are_served_in_the_order_in_which_they_joined(bench: &Bench) {
    let (mut last, clients) = queue::<4>(bench).await;
    for claim in &clients {
        assert_eq!(bench.release(&last).await, Release::Released);
        bench.granted(claim).await;
        last = claim.clone();
    }
}

async fn no_claim_overtakes_a_client_in_the_queue(bench: &Bench) {
    let (first, [ahead, behind]) = queue(bench).await;
    assert_eq!(bench.release(&first).await, Release::Released);
    for _ in 0..3 {
        let held = bench.held(&bench.claim("a", LONG)).await;
        let remaining = held.remaining.expect("an offer has an end");
        assert!(remaining <= Queued::OFFER, "{remaining:?}");
        assert_eq!(held.ahead, None, "a try does not join the queue");
        bench.held(&behind).await;
    }
    bench.granted(&ahead).await;
}

async fn an_offer_is_no_lease_and_is_accepted_once(bench: &Bench) {
    let (first, [next]) = queue(bench).await;
    assert_eq!(bench.release(&first).await, Release::Released);
    assert!(bench.is_refused(&next).await);
    assert_eq!(bench.release(&next).await, Release::NotHeld);
    assert_eq!(bench.release(&first).await, Release::NotHeld);
    let token = bench.granted(&next).await;
    bench.held(&again(&next)).await;
    assert_eq!(bench.granted(&next).await, token);
}

async fn a_look_tells_how_many_clients_wait(bench: &Bench) {
    let (first, [next, _]) = queue(bench).await;
    let name = &first.name;
    let waiting = async || {
        let looked = bench.inspect(name).await.expect("it is taken").waiting;
        assert_eq!(bench.list(name).await[0].waiting, looked);
        looked
    };
    assert_eq!(waiting().await, Some(2));
    assert_eq!(bench.release(&first).await, Release::Released);
    assert_eq!(waiting().await, Some(1), "one has the offer");
    bench.granted(&next).await;
    assert_eq!(waiting().await, Some(1));
}

async fn an_offer_is_shown_and_can_be_evicted(bench: &Bench) {
    let (first, [next]) = queue(bench).await;
    assert_eq!(bench.release(&first).await, Release::Released);
    let name = &first.name;
    let shown = bench.inspect(name).await.expect("the name is taken");
    assert_eq!((shown.by, shown.token), (None, None), "by no holder");
    assert_eq!(shown.state, HeldState::Offered);
    let told = bench.held(&bench.claim("a", LONG)).await;
    assert_eq!(told.state, HeldState::Offered);
    assert!(shown.remaining.is_some_and(|left| left <= Queued::OFFER));
    assert!(bench.list(name).await.iter().any(|held| held.name == *name));
    let is_marked = bench.evict(name, Eviction::Marked).await;
    assert!(!is_marked, "there is no holder to mark");
    assert!(bench.evict(name, Eviction::Now).await);
    // The client that had the offer was the only one in the queue.
    bench.granted(&bench.claim("a", LONG)).await;
    bench.held(&next).await;
}

async fn an_offer_that_lapses_goes_to_the_next_client(bench: &Bench) {
    let (first, [dead, next]) = queue(bench).await;
    assert_eq!(bench.release(&first).await, Release::Released);
    bench.pass(Queued::OFFER + SHORT).await;
    bench.granted(&next).await;
    // It is out of the queue: when it comes back it is the last one.
    assert_eq!(bench.held(&in_queue(bench, 0)).await.ahead, Some(0));
    assert_eq!(bench.held(&dead).await.ahead, Some(1));
}

async fn a_client_that_leaves_the_queue_passes_its_turn_on(bench: &Bench) {
    let (first, [one, two, three]) = queue(bench).await;
    let leave = async |claim: &Asking| {
        let client = claim.holder.client();
        let left = bench.store.leave(&claim.name, client, LIMIT).await;
        left.expect("answered");
    };
    leave(&two).await;
    assert_eq!(bench.held(&three).await.ahead, Some(1));
    assert_eq!(bench.release(&first).await, Release::Released);
    leave(&one).await;
    leave(&one).await;
    bench.granted(&three).await;
    // A holder that leaves the queue keeps its lease.
    leave(&three).await;
    bench.held(&bench.claim("a", LONG)).await;
}

async fn a_client_with_more_waiters_joins_the_queue_again(bench: &Bench) {
    let (first, [one, two]) = queue(bench).await;
    assert_eq!(bench.release(&first).await, Release::Released);
    let mut one = one;
    one.ask.queued = Some(Queued::new(7));
    bench.granted(&one).await;
    let second = again(&one);
    assert_eq!(bench.held(&second).await.ahead, Some(1));
    assert_eq!(bench.release(&one).await, Release::Released);
    bench.held(&second).await;
    bench.granted(&two).await;
    assert_eq!(bench.release(&two).await, Release::Released);
    bench.granted(&second).await;
}

async fn a_client_in_the_queue_is_told_of_its_turn(bench: &Bench) {
    let (first, [one, two]) = queue(bench).await;
    let notices = subscription(bench).await;
    let name = &first.name;
    for claim in [&one, &two] {
        notices.follow(&Topic::Turn(name.clone(), claim.holder.client()));
        hint(&*notices, Notice::Turn(name.clone())).await;
    }
    assert_eq!(bench.release(&first).await, Release::Released);
    hint(&*notices, Notice::Turn(name.clone())).await;
    match next_hint(&*notices).await {
        // The rest of the offer's time, as far as the store knows.
        Notice::Next(kept, left) => assert!(kept == *name && left <= Queued::OFFER, "{left:?}"),
        other => panic!("{other:?}"),
    }
    bench.granted(&one).await;
    assert_eq!(bench.release(&one).await, Release::Released);
    hint(&*notices, Notice::Turn(name.clone())).await;
}
