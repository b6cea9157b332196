//! Notices, and clients that wait in turn. The facts of a store say which of these it has; a store without them must
//! not behave as if it had them.

use super::{Asking, Bench, Check, LIMIT, LONG};
use crate::holder::Holder;
use crate::store::{
    Answer, Eviction, Facts, Handover, Held, HeldState, Notice, Notices, Outcome, Place, Queued,
    Release, Topic,
};
use crate::token::Token;

/// The checks for a store with these facts.
pub(crate) fn checks(facts: Facts) -> Vec<(&'static str, Check)> {
    let of_queues = if facts.has_queue { QUEUE } else { NO_QUEUE };
    let of_notices = if facts.has_notices {
        NOTICES
    } else {
        NO_NOTICES
    };
    let of_grants = if facts.trusts_notices { HANDOVER } else { &[] };
    let is_told = facts.trusts_notices && facts.has_notices;
    let of_both = if is_told { NOTICES_OF_GRANTS } else { &[] };
    [of_notices, of_queues, of_grants, of_both].concat()
}

const NO_QUEUE: &[(&str, Check)] = checks![a_store_without_a_queue_gives_no_place];

const NO_NOTICES: &[(&str, Check)] = checks![a_store_without_notices_gives_no_subscription];

const NOTICES: &[(&str, Check)] = checks![followers_of_a_freed_name_get_a_notice];

const QUEUE: &[(&str, Check)] = checks![
    clients_in_the_queue_are_served_in_the_order_in_which_they_joined,
    no_claim_overtakes_a_client_in_the_queue,
    a_read_tells_how_many_clients_wait,
    a_dead_client_costs_those_behind_it_no_more_than_its_term,
    a_claim_that_is_released_is_out_of_the_queue,
    a_client_keeps_its_place_when_another_of_its_callers_claims,
    a_client_that_was_granted_the_name_joins_at_the_end,
];

/// Of a store whose release grants the name.
const HANDOVER: &[(&str, Check)] = checks![
    a_release_grants_the_name_to_the_first_in_the_queue,
    an_eviction_at_once_grants_the_name_to_the_first_in_the_queue,
    a_claim_that_was_granted_the_name_is_answered_its_token_and_has_its_ttl,
    a_grant_that_no_client_counts_ends_with_the_term_of_its_place,
    a_granted_name_has_a_token_above_the_floor_of_its_claim,
    a_claim_that_was_granted_the_name_unheard_can_release_it,
    a_caller_that_gives_up_leaves_its_place_to_another_of_its_client,
];

const NOTICES_OF_GRANTS: &[(&str, Check)] = checks![
    the_notice_of_a_grant_names_the_claim_and_a_token_above_the_height,
    the_end_of_a_kept_name_brings_a_notice,
];

async fn a_store_without_a_queue_gives_no_place(bench: &Bench) {
    bench.granted(&bench.claim("a", LONG)).await;
    let queued = in_queue(bench);
    for _ in 0..2 {
        assert_eq!(bench.held(&queued).await.place, None, "the facts say so");
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

async fn followers_of_a_freed_name_get_a_notice(bench: &Bench) {
    let notices = subscription(bench).await;
    let (first, other) = (bench.claim("a", LONG), bench.claim("b", LONG));
    bench.granted(&first).await;
    bench.granted(&other).await;
    notices.follow(&Topic::Freed(first.name.clone()));
    expect_notice(&*notices, Notice::Freed(first.name.clone())).await;
    bench.release(&other).await;
    bench.release(&first).await;
    expect_notice(&*notices, Notice::Freed(first.name.clone())).await;
    let second = bench.claim("a", LONG);
    bench.granted(&second).await;
    assert!(bench.evict(&second.name, Eviction::Now).await);
    expect_notice(&*notices, Notice::Freed(first.name.clone())).await;
}

async fn the_end_of_a_kept_name_brings_a_notice(bench: &Bench) {
    let notices = subscription(bench).await;
    let (first, [next]) = queue(bench).await;
    let (name, client) = (&first.name, next.holder.client());
    let freed = Notice::Freed(name.clone());
    for topic in [
        Topic::Freed(name.clone()),
        Topic::Queue(name.clone(), client),
    ] {
        notices.follow(&topic);
        expect_notice(&*notices, freed.clone()).await;
    }
    let soon = bench.within(bench.short());
    let kept = bench.release_keeping(&first, bench.short()).await;
    assert_eq!(kept, Release::Released);
    expect_notice(&*notices, freed).await;
    assert_eq!(bench.state(name).await, Some(HeldState::Kept));
    drop(soon);
    bench.pass(bench.short() * 2).await;
    bench.granted(&next).await;
}

/// Takes the next notice.
async fn next_notice(notices: &dyn Notices) -> Notice {
    let notice = tokio::time::timeout(LIMIT, notices.next()).await;
    notice.expect("a notice in time")
}

/// Takes the next notice, which must be this one.
async fn expect_notice(notices: &dyn Notices, expected: Notice) {
    assert_eq!(next_notice(notices).await, expected);
}

/// A claim of a client of its own that waits in turn. Its place outlasts the check.
fn in_queue(bench: &Bench) -> Asking {
    let mut claim = bench.claim("a", LONG);
    let mut queued = Queued::new(LONG);
    queued.term = LONG;
    claim.ask.queued = Some(queued);
    claim
}

/// Another claim of the same client.
fn again(claim: &Asking) -> Asking {
    let holder = Holder::draw(claim.holder.client()).expect("random bits");
    let mut claim = claim.clone();
    claim.claim.holder = holder;
    claim
}

/// Claims a name that another holder has. Returns the place of the claim's client.
async fn place(bench: &Bench, claim: &Asking) -> Place {
    let held = bench.held(claim).await;
    held.place.expect("the facts promise a queue")
}

/// The same, for how many clients are before it.
async fn ahead(bench: &Bench, claim: &Asking) -> usize {
    place(bench, claim).await.ahead
}

/// A holder of the name and this number of clients in the queue for it.
async fn queue<const N: usize>(bench: &Bench) -> (Asking, [Asking; N]) {
    let first = bench.claim("a", LONG);
    bench.granted(&first).await;
    let queue = std::array::from_fn(|_| in_queue(bench));
    for (before, claim) in queue.iter().enumerate() {
        assert_eq!(ahead(bench, claim).await, before);
    }
    (first, queue)
}

/// The holder of the name.
async fn holder(bench: &Bench, claim: &Asking) -> Held {
    let held = bench.inspect(&claim.name).await.expect("it is taken");
    assert_eq!(
        (held.by, held.state),
        (Some(claim.holder), HeldState::Leased)
    );
    held
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
    let (first, [before, behind]) = queue(bench).await;
    assert_eq!(bench.release(&first).await, Release::Released);
    for _ in 0..3 {
        let held = bench.held(&bench.claim("a", LONG)).await;
        assert_eq!(held.place, None, "a try does not join the queue");
        bench.held(&behind).await;
    }
    bench.granted(&before).await;
}

async fn a_read_tells_how_many_clients_wait(bench: &Bench) {
    let (first, [next, other]) = queue(bench).await;
    let name = &first.name;
    let waiting = async || {
        let looked = bench.inspect(name).await.expect("it is taken").waiting;
        assert_eq!(bench.list(name).await[0].waiting, looked);
        looked
    };
    assert_eq!(waiting().await, Some(2));
    assert_eq!(bench.release(&first).await, Release::Released);
    bench.granted(&next).await;
    assert_eq!(waiting().await, Some(1));
    assert_eq!(bench.release(&other).await, Release::NotHeld);
    assert_eq!(waiting().await, Some(0));
}

async fn a_dead_client_costs_those_behind_it_no_more_than_its_term(bench: &Bench) {
    let first = bench.claim("a", LONG);
    bench.granted(&first).await;
    let (mut dead, next) = (in_queue(bench), in_queue(bench));
    dead.ask.queued = Some(Queued::new(bench.short() * 3));
    assert_eq!(ahead(bench, &dead).await, 0);
    ahead(bench, &next).await;
    assert_eq!(bench.release(&first).await, Release::Released);
    let begun = bench.store.clock().now();
    let token = loop {
        match bench.ask(&next).await {
            Answer::Granted(grant) => break grant.token,
            Answer::Held(_) => bench.pass(bench.short() / 4).await,
        }
    };
    let cost = bench.store.clock().now().since(begun);
    assert!(cost < Queued::LONGEST_TERM, "{cost:?}");
    assert_eq!(bench.granted(&next).await, token);
    // It is out of the queue: when it comes back it is the last one.
    assert_eq!(ahead(bench, &in_queue(bench)).await, 0);
    assert_eq!(ahead(bench, &dead).await, 1);
}

async fn a_claim_that_is_released_is_out_of_the_queue(bench: &Bench) {
    let (first, [one, two, three]) = queue(bench).await;
    for _ in 0..2 {
        assert_eq!(bench.release(&two).await, Release::NotHeld);
    }
    assert_eq!(ahead(bench, &three).await, 1);
    assert_eq!(bench.release(&first).await, Release::Released);
    // It may have been granted the name.
    bench.release(&one).await;
    bench.granted(&three).await;
    assert_eq!(bench.release(&one).await, Release::NotHeld);
    bench.held(&bench.claim("a", LONG)).await;
}

async fn a_client_keeps_its_place_when_another_of_its_callers_claims(bench: &Bench) {
    let (first, [one, two]) = queue(bench).await;
    let other = again(&one);
    assert_eq!(ahead(bench, &other).await, 0);
    assert_eq!(bench.release(&one).await, Release::NotHeld);
    assert_eq!(bench.release(&first).await, Release::Released);
    bench.held(&two).await;
    bench.granted(&other).await;
}

async fn a_client_that_was_granted_the_name_joins_at_the_end(bench: &Bench) {
    let (first, [one, two]) = queue(bench).await;
    assert_eq!(bench.release(&first).await, Release::Released);
    bench.granted(&one).await;
    let second = again(&one);
    assert_eq!(ahead(bench, &second).await, 1);
    assert_eq!(bench.release(&one).await, Release::Released);
    bench.held(&second).await;
    bench.granted(&two).await;
    assert_eq!(bench.release(&two).await, Release::Released);
    bench.granted(&second).await;
}

async fn a_release_grants_the_name_to_the_first_in_the_queue(bench: &Bench) {
    let (first, [one, two]) = queue(bench).await;
    let before = holder(bench, &first).await.token;
    assert_eq!(bench.release(&first).await, Release::Released);
    let held = holder(bench, &one).await;
    assert!(held.token > before && held.since.is_some(), "{held:?}");
    assert_eq!(
        (held.info, held.waiting),
        (one.info.as_ref().clone(), Some(1))
    );
    // It is a lease as any other.
    one.note(held.token.expect("a token"));
    assert!(matches!(bench.renew(&[&one]).await[..], [Outcome::Renewed]));
    assert!(bench.is_refused(&two).await);
    assert_eq!(bench.release(&first).await, Release::NotHeld);
    assert_eq!(bench.release(&one).await, Release::Released);
    holder(bench, &two).await;
}

async fn an_eviction_at_once_grants_the_name_to_the_first_in_the_queue(bench: &Bench) {
    let (first, [one]) = queue(bench).await;
    assert!(bench.evict(&first.name, Eviction::Now).await);
    holder(bench, &one).await;
    assert!(bench.is_refused(&first).await);
}

async fn a_claim_that_was_granted_the_name_is_answered_its_token_and_has_its_ttl(bench: &Bench) {
    let (first, [mut one]) = queue(bench).await;
    one.ask.queued = Some(Queued::new(LONG));
    bench.held(&one).await;
    assert_eq!(bench.release(&first).await, Release::Released);
    let token = holder(bench, &one).await.token;
    assert_eq!(Some(bench.granted(&one).await), token);
    let remaining = holder(bench, &one).await.remaining;
    assert!(
        remaining.is_some_and(|left| left > LONG / 2),
        "{remaining:?}"
    );
}

async fn a_grant_that_no_client_counts_ends_with_the_term_of_its_place(bench: &Bench) {
    let first = bench.claim("a", LONG);
    bench.granted(&first).await;
    let mut one = bench.claim("a", LONG);
    one.ask.queued = Some(Queued::new(bench.short() * 2));
    ahead(bench, &one).await;
    bench.pass(bench.short()).await;
    assert_eq!(bench.release(&first).await, Release::Released);
    // On a busy machine it can be over already.
    if let Some(held) = bench.inspect(&first.name).await {
        assert!(
            held.remaining.is_some_and(|left| left <= bench.short()),
            "{held:?}"
        );
    }
    // Half as long again: a server that is interrupted within the release counts from a little later, in milliseconds.
    bench.pass(bench.short() + bench.short() / 2).await;
    bench.granted(&bench.claim("a", LONG)).await;
}

async fn a_granted_name_has_a_token_above_the_floor_of_its_claim(bench: &Bench) {
    let first = bench.claim("a", LONG);
    let token = bench.granted(&first).await;
    let floor = Token::new(token.get() + 3_600_000_000).expect("an hour ahead");
    let one = in_queue(bench).with_floor(floor);
    ahead(bench, &one).await;
    assert_eq!(bench.release(&first).await, Release::Released);
    let granted = holder(bench, &one).await.token;
    assert!(granted > Some(floor), "{granted:?}");
}

async fn a_claim_that_was_granted_the_name_unheard_can_release_it(bench: &Bench) {
    let (first, [one]) = queue(bench).await;
    assert_eq!(bench.release(&first).await, Release::Released);
    assert_eq!(bench.release(&one).await, Release::Released);
    bench.granted(&bench.claim("a", LONG)).await;
}

async fn a_caller_that_gives_up_leaves_its_place_to_another_of_its_client(bench: &Bench) {
    let (first, [one, two]) = queue(bench).await;
    assert_eq!(bench.release(&one).await, Release::NotHeld);
    assert_eq!(
        ahead(bench, &two).await,
        0,
        "nobody claims at the place before it"
    );
    let other = again(&one);
    assert_eq!(ahead(bench, &other).await, 0);
    assert_eq!(bench.release(&first).await, Release::Released);
    holder(bench, &other).await;
}

async fn the_notice_of_a_grant_names_the_claim_and_a_token_above_the_height(bench: &Bench) {
    let (first, [one, two]) = queue(bench).await;
    let notices = subscription(bench).await;
    let name = &first.name;
    for claim in [&one, &two] {
        notices.follow(&Topic::Queue(name.clone(), claim.holder.client()));
        expect_notice(&*notices, Notice::Freed(name.clone())).await;
    }
    let mut last = first.clone();
    for claim in [&one, &two] {
        let before = holder(bench, &last).await.token.map_or(0, Token::get);
        let height = place(bench, claim).await.height;
        assert!(height >= before, "{height} at {before}");
        assert_eq!(bench.release(&last).await, Release::Released);
        let now = bench.store.clock().now();
        let soon = bench.within(bench.short());
        let lease = holder(bench, claim).await;
        drop(soon);
        let token = lease.token.expect("a token");
        assert!(token.get() > height, "{token} after {height}");
        let Notice::Granted(told) = next_notice(&*notices).await else {
            panic!("no grant was told of");
        };
        let mut handover = Handover::new(name.clone(), claim.holder, token);
        handover.ends_at = told.ends_at;
        assert_eq!(*told, handover);
        if let (Some(told), Some(left)) = (told.ends_at, lease.remaining) {
            assert!(
                told.since(now) <= left + bench.short(),
                "{told:?}, {now:?}, {left:?}"
            );
        }
        last = claim.clone();
    }
}
