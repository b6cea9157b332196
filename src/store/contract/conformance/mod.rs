//! The contract of [`Store`] as tests. The author of a store calls [`check`] from a test of its own.
//!
//! The checks run against the real thing in real time, with ttls of a fraction of a second, under names that no other
//! run uses. Each panics with its own name and what it saw.

mod bench;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use uuid::Uuid;

use self::bench::{Asking, Bench, Extended};
use super::{
    Answer, Eviction, Facts, Failed, HeldState, MAX_BATCH, MAX_KEEP, Member, MemberState, Outcome,
    Release, Sent, Store,
};
use crate::error::ErrorKind;
use crate::future::BoxFuture;
use crate::token::Token;

/// Long enough that no busy machine lets it run out within a check.
const LONG: Duration = Duration::from_secs(20);
/// Short enough to wait for.
const SHORT: Duration = Duration::from_millis(400);
/// The number of times that a check is begun. A busy machine can spoil one that must see something in a short time.
const ATTEMPTS: usize = 20;
/// The limit of each request.
const LIMIT: Duration = Duration::from_secs(5);

/// Opens the store that is checked.
pub(crate) type Open = Arc<dyn Fn() -> BoxFuture<'static, Arc<dyn Store>> + Send + Sync>;

type Check = for<'a> fn(&'a Bench) -> BoxFuture<'a, ()>;

macro_rules! checks {
    ($($check:ident),* $(,)?) => {
        &[$((stringify!($check), (|bench| Box::pin($check(bench))) as Check)),*]
    };
}

// Below the macro, which they use.
mod anew;
mod releases;
mod waiting;

const CHECKS: &[(&str, Check)] = checks![
    a_free_name_is_granted_and_a_taken_one_is_held,
    the_facts_of_the_holder_are_told,
    tokens_rise_across_release,
    tokens_rise_across_expiry,
    a_token_is_above_the_floor,
    a_floor_far_ahead_is_refused_and_nothing_is_left,
    asked_again_the_holder_gets_its_token_and_a_full_ttl,
    a_floor_that_rises_does_not_keep_the_holder_from_its_lease,
    a_renewal_extends,
    a_renewal_never_creates,
    a_renewal_of_another_holder_is_refused,
    a_renewal_of_another_grant_is_refused,
    a_batch_answers_one_by_one_in_order,
    an_empty_batch_is_answered,
    a_read_is_no_older_than_an_answered_claim,
    each_of_two_that_write_and_read_is_seen,
    a_marked_eviction_tells_the_holder_and_keeps_the_name,
    an_evicted_holder_does_not_keep_the_name,
    an_eviction_now_frees_the_name,
    an_eviction_of_a_free_name_says_so,
    a_list_has_all_names_with_the_prefix,
    odd_names_are_kept_apart,
    the_facts_are_told_and_the_members_are_up,
    the_watchdogs_connection_sees_the_same_leases,
    contended_grants_are_exclusive,
];

/// Closes the store, so it comes last.
const LAST: &[(&str, Check)] = checks![a_closed_store_says_so];

/// Runs every check against the store that `open` opens, one after the other.
///
/// It is opened several times, each time as another process would: the stores that `open` returns share the leases, and
/// nothing that one of them remembers. They are closed afterwards.
///
/// The checks of queues and of notices are those that the [facts](Store::facts) ask for: a store that promises them
/// must have them, and a store that does not must not seem to.
///
/// # Panics
/// Where the store breaks the contract.
pub async fn check<F>(open: impl Fn() -> F + Send + Sync + 'static)
where
    F: Future<Output = Arc<dyn Store>> + Send + 'static,
{
    check_as(open, |facts| facts, 0).await;
}

/// Runs the checks of [`check`] against a store whose set-up changes its facts: for example, a store that can give
/// notices cannot do so behind a transaction pooler, and must return no subscription there. `down` of its servers do
/// not answer.
///
/// # Panics
/// As [`check`].
pub async fn check_as<F>(
    open: impl Fn() -> F + Send + Sync + 'static,
    facts: impl FnOnce(Facts) -> Facts,
    down: usize,
) where
    F: Future<Output = Arc<dyn Store>> + Send + 'static,
{
    let open: Open = Arc::new(move || Box::pin(open()));
    let store = open().await;
    let run = Uuid::new_v4().simple().to_string();
    let waiting = waiting::checks(facts(store.facts()));
    let all = [CHECKS, anew::CHECKS, releases::CHECKS, &waiting, LAST].concat();
    for (name, check) in all {
        let mut attempts = 0..ATTEMPTS;
        loop {
            let Some(attempt) = attempts.next() else {
                panic!("in {ATTEMPTS} attempts at `{name}` no request was answered in time");
            };
            let spoiled = Arc::new(AtomicBool::new(false));
            let bench = Bench {
                store: store.clone(),
                prefix: format!("{run}/{name}/{attempt}"),
                down,
                open: open.clone(),
                spoiled: spoiled.clone(),
            };
            let outcome = tokio::spawn(async move { check(&bench).await }).await;
            match outcome {
                _ if spoiled.load(Ordering::Relaxed) => {}
                Ok(()) => break,
                Err(broken) => panic!("store {} breaks `{name}`: {broken}", store.location()),
            }
        }
    }
}

async fn a_free_name_is_granted_and_a_taken_one_is_held(bench: &Bench) {
    let (first, second) = (bench.claim("a", LONG), bench.claim("a", LONG));
    bench.granted(&first).await;
    let held = bench.held(&second).await;
    assert_eq!(held.by, Some(first.holder));
    bench.granted(&bench.claim("b", LONG)).await;
}

async fn the_facts_of_the_holder_are_told(bench: &Bench) {
    let claim = bench.claim("a", LONG);
    assert_eq!(bench.inspect(&claim.name).await, None);
    let token = bench.granted(&claim).await;
    let held = bench.inspect(&claim.name).await.expect("it is taken");
    assert_eq!(held.name, claim.name);
    assert_eq!(held.by, Some(claim.holder));
    assert_eq!(held.token, Some(token));
    assert_eq!(held.info, *claim.info);
    let since = held.since.expect("the store knows since when");
    let age = crate::clock::wall_clock().duration_since(since);
    assert!(age.unwrap_or_default() < LONG, "since {since:?}");
    let remaining = held.remaining.expect("it has an end");
    assert!(remaining > LONG / 2 && remaining <= LONG, "{remaining:?}");
    assert_eq!(held.state, HeldState::Leased);
}

async fn tokens_rise_across_release(bench: &Bench) {
    let mut last = None;
    for _ in 0..20 {
        let claim = bench.claim("a", LONG);
        let token = bench.granted(&claim).await;
        assert!(Some(token) > last, "{token} after {last:?}");
        last = Some(token);
        assert_eq!(bench.release(&claim).await, Release::Released);
    }
}

async fn tokens_rise_across_expiry(bench: &Bench) {
    let first = bench.granted(&bench.claim("a", bench.short())).await;
    bench.pass(bench.short() * 2).await;
    let second = bench.granted(&bench.claim("a", LONG)).await;
    assert!(second > first, "{second} after {first}");
}

async fn a_token_is_above_the_floor(bench: &Bench) {
    let first = bench.claim("a", LONG);
    let token = bench.granted(&first).await;
    bench.release(&first).await;
    let floor = Token::new(token.get() + 3_600_000_000).expect("an hour ahead");
    let second = bench.claim("a", LONG).with_floor(floor);
    let lifted = bench.granted(&second).await;
    assert!(lifted > floor);
    bench.release(&second).await;
    assert!(bench.granted(&bench.claim("a", LONG)).await > lifted);
}

async fn a_floor_far_ahead_is_refused_and_nothing_is_left(bench: &Bench) {
    let claim = bench.claim("a", LONG).with_floor(Token::MAX);
    let error = bench.store.acquire(&claim, claim.ask, LIMIT).await;
    let Failed { error, sent } = error.expect_err("a floor at the top is refused");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
    assert_eq!(sent, Sent::Answered, "{error:?}");
    assert_eq!(bench.inspect(&claim.name).await, None);
    bench.granted(&bench.claim("a", LONG)).await;
}

async fn asked_again_the_holder_gets_its_token_and_a_full_ttl(bench: &Bench) {
    bench.extends(Extended::Claim).await;
}

async fn a_floor_that_rises_does_not_keep_the_holder_from_its_lease(bench: &Bench) {
    let claim = bench.claim("a", LONG);
    let token = bench.granted(&claim).await;
    let floor = Token::new(token.get() + 3_600_000_000).expect("an hour ahead");
    assert_eq!(bench.granted(&claim.with_floor(floor)).await, token);
}

async fn a_renewal_extends(bench: &Bench) {
    bench.extends(Extended::Renewal).await;
}

async fn a_renewal_never_creates(bench: &Bench) {
    let claim = bench.claim("a", bench.short());
    assert!(bench.is_refused(&claim).await);
    assert_eq!(bench.inspect(&claim.name).await, None);
    bench.granted(&claim).await;
    bench.pass(bench.short() * 2).await;
    assert!(bench.is_refused(&claim).await);
    assert_eq!(bench.inspect(&claim.name).await, None);
}

async fn a_renewal_of_another_holder_is_refused(bench: &Bench) {
    let (first, second) = (bench.claim("a", LONG), bench.claim("a", LONG));
    bench.granted(&first).await;
    assert!(bench.is_refused(&second).await);
    let held = bench.inspect(&first.name).await.expect("still taken");
    assert_eq!(held.by, Some(first.holder));
}

async fn a_renewal_of_another_grant_is_refused(bench: &Bench) {
    let claim = bench.claim("a", LONG);
    let first = bench.granted(&claim).await;
    let earlier = claim.renewal();
    assert!(bench.evict(&claim.name, Eviction::Now).await);
    // As an attempt does that arrives after the lease has ended.
    assert!(bench.granted(&claim).await > first);
    let renewed = bench.store.renew(&[earlier, claim.renewal()], LIMIT).await;
    let is_told_apart = matches!(renewed.outcomes[..], [Outcome::Refused, Outcome::Renewed]);
    assert!(is_told_apart, "{renewed:?}");
}

async fn a_batch_answers_one_by_one_in_order(bench: &Bench) {
    let claims = (0..MAX_BATCH).map(|index| bench.claim(&index.to_string(), LONG));
    let claims: Vec<_> = claims.collect();
    for claim in claims.iter().step_by(2) {
        bench.granted(claim).await;
    }
    let outcomes = bench.renew(&claims.iter().collect::<Vec<_>>()).await;
    assert_eq!(outcomes.len(), claims.len());
    for (index, outcome) in outcomes.iter().enumerate() {
        let is_renewed = matches!(outcome, Outcome::Renewed);
        let is_answered = is_renewed || matches!(outcome, Outcome::Refused);
        assert!(
            is_answered && is_renewed == (index % 2 == 0),
            "{index}: {outcome:?}"
        );
    }
}

async fn an_empty_batch_is_answered(bench: &Bench) {
    assert!(bench.renew(&[]).await.is_empty());
}

/// By the same handle and by another connection of the same client.
async fn a_read_is_no_older_than_an_answered_claim(bench: &Bench) {
    let other = bench.another().await;
    for round in 0..50 {
        let claim = bench.claim("a", LONG);
        let token = bench.granted(&claim).await;
        for store in [&bench.store, &other] {
            let held = store.inspect(&claim.name, LIMIT).await.expect("answered");
            let held = held.unwrap_or_else(|| panic!("round {round}: it seems free"));
            assert_eq!(held.token, Some(token), "round {round}");
        }
        assert_eq!(bench.release(&claim).await, Release::Released);
        for store in [&other, &bench.store] {
            let held = store.inspect(&claim.name, LIMIT).await.expect("answered");
            assert_eq!(held, None, "round {round}");
        }
    }
    other.close().await;
}

/// Two clients, each of which claims its own name and then inspects the other's, as permits do: at least one sees the
/// other.
async fn each_of_two_that_write_and_read_is_seen(bench: &Bench) {
    for round in 0..100 {
        let sides = [("a", "b"), ("b", "a")].map(async |(own, other)| {
            let claim = bench.claim(own, LONG);
            bench.granted(&claim).await;
            let seen = bench.inspect(&bench.name(other)).await;
            (claim, seen)
        });
        let sides = futures_util::future::join_all(sides).await;
        let blind = sides.iter().filter(|(_, seen)| seen.is_none()).count();
        assert!(blind < 2, "round {round}: each saw the other's name free");
        for (claim, _) in &sides {
            assert_eq!(bench.release(claim).await, Release::Released);
        }
    }
}

async fn a_marked_eviction_tells_the_holder_and_keeps_the_name(bench: &Bench) {
    let claim = bench.claim("a", bench.short() * 2);
    let soon = bench.within(bench.short() * 2);
    bench.granted(&claim).await;
    assert!(bench.evict(&claim.name, Eviction::Marked).await);
    let held = bench.held(&bench.claim("a", LONG)).await;
    assert_eq!(held.state, HeldState::Evicted);
    assert_eq!(held.by, Some(claim.holder));
    assert_eq!(bench.state(&claim.name).await, Some(HeldState::Evicted));
    let renewed = bench.renew(&[&claim]).await;
    assert!(matches!(renewed[..], [Outcome::Evicted]), "{renewed:?}");
    drop(soon);
    bench.pass_evicted(&claim, bench.short() * 3).await;
    bench.granted(&bench.claim("a", LONG)).await;
    assert!(bench.is_refused(&claim).await);
}

async fn an_evicted_holder_does_not_keep_the_name(bench: &Bench) {
    let claim = bench.claim("a", LONG);
    bench.granted(&claim).await;
    assert!(bench.evict(&claim.name, Eviction::Marked).await);
    let kept = bench.release_keeping(&claim, LONG).await;
    assert_eq!(kept, Release::Released);
    assert_eq!(bench.inspect(&claim.name).await, None);
    bench.granted(&bench.claim("a", LONG)).await;
}

async fn an_eviction_now_frees_the_name(bench: &Bench) {
    let (first, second) = (bench.claim("a", LONG), bench.claim("a", LONG));
    let before = bench.granted(&first).await;
    assert!(bench.evict(&first.name, Eviction::Now).await);
    assert!(bench.granted(&second).await > before);
    let renewed = bench.renew(&[&first]).await;
    let is_over = matches!(renewed[..], [Outcome::Refused | Outcome::Evicted]);
    assert!(is_over, "{renewed:?}");
}

async fn an_eviction_of_a_free_name_says_so(bench: &Bench) {
    for how in [Eviction::Marked, Eviction::Now] {
        assert!(!bench.evict(&bench.name("a"), how).await);
    }
}

async fn a_list_has_all_names_with_the_prefix(bench: &Bench) {
    for rest in ["b*", "a", "b?", "c"] {
        bench.granted(&bench.claim(rest, LONG)).await;
    }
    bench.granted(&bench.claim("b[x]", bench.short())).await;
    bench.pass(bench.short() * 2).await;
    for (prefix, listed) in [("b", &["b*", "b?"][..]), ("b*", &["b*"]), ("x", &[])] {
        let held = bench.list(&bench.name(prefix)).await;
        let names: Vec<_> = held.into_iter().map(|held| held.name).collect();
        let expected: Vec<_> = listed.iter().map(|rest| bench.name(rest)).collect();
        assert_eq!(names, expected);
    }
}

async fn odd_names_are_kept_apart(bench: &Bench) {
    let odd = "x,X,x y,x:token,x',x\",x%,é,x\\,x:queue".split(',');
    for rest in odd.clone() {
        bench.granted(&bench.claim(rest, LONG)).await;
    }
    for rest in odd {
        bench.held(&bench.claim(rest, LONG)).await;
    }
}

async fn the_watchdogs_connection_sees_the_same_leases(bench: &Bench) {
    let claim = bench.claim("a", LONG);
    bench.granted(&claim).await;
    let other = bench.another().await;
    let renewed = other.renew(&[claim.renewal()], LIMIT).await.outcomes;
    assert!(matches!(renewed[..], [Outcome::Renewed]), "{renewed:?}");
    let released = other.release(&claim.name, claim.holder, None, LIMIT).await;
    assert_eq!(released.expect("answered"), Release::Released);
    other.close().await;
    assert_eq!(bench.inspect(&claim.name).await, None);
}

async fn contended_grants_are_exclusive(bench: &Bench) {
    let mut answers = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let (store, claim) = (bench.store.clone(), bench.claim("a", LONG));
        answers.spawn(async move { store.acquire(&claim, claim.ask, LIMIT).await });
    }
    let answers: Vec<Result<Answer, Failed>> = answers.join_all().await;
    let is_grant = |answer: &&_| matches!(answer, Ok(Answer::Granted(_)));
    assert_eq!(answers.iter().filter(is_grant).count(), 1, "{answers:?}");
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

async fn the_facts_are_told_and_the_members_are_up(bench: &Bench) {
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

async fn a_closed_store_says_so(bench: &Bench) {
    bench.store.close().await;
    let claim = bench.claim("a", LONG);
    let answer = bench.store.acquire(&claim, claim.ask, LIMIT).await;
    let Failed { error, sent } = answer.expect_err("closed");
    assert_eq!((error.kind(), sent), (ErrorKind::Closed, Sent::Never));
}
