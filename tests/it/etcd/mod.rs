//! The store in etcd, on a server that the tests share. `faults::etcd` has the cluster, the failures and what takes long.

pub(crate) mod fake;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::store::{
    self, Answer, Eviction, HeldState, MemberState, Outcome, Release, Sent, Store,
};
use leasehold::{ErrorKind, LossReason, Name, Token};

use self::fake::{Fake, Said};
use crate::conformance::check_at;
use crate::harness::asking::{
    Asking, asked, claim, granted, held, next_token, refused, released, renewed,
};
use crate::harness::etcd_server::EtcdServer;
use crate::harness::leases::{client_at, take};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{lost, now, pause, soon, until};

/// The shortest lease of etcd.
const TTL: Duration = Duration::from_secs(2);

pub(crate) async fn open(url: &str) -> Arc<dyn Store> {
    store::open(url).await.expect("a URL in order")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_keeps_the_contract() {
    check_at(EtcdServer::shared().await.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_holders_name_is_free_after_its_ttl_for_a_process_that_never_saw_it() {
    let url = EtcdServer::shared().await.url();
    let dead = claim("a", TTL);
    let begun = now();
    let token = granted(&*open(&url).await, &dead).await;
    let next = claim("a", LONG);
    until("the end of the dead holder's lease", async || {
        // Each time as a process that was not there before.
        let answer = asked(&*open(&url).await, &next, LIMIT)
            .await
            .expect("answered");
        matches!(answer, Answer::Granted(_)).then_some(())
    })
    .await;
    let after = now().since(begun);
    eprintln!("case=a dead holder's name on etcd: after={after:.1?}");
    assert!(after >= TTL, "{after:?}");
    assert!(next.renewal().token > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_writes_nothing_and_a_longer_one_takes_another_lease() {
    let server = EtcdServer::shared().await;
    let url = server.url_with("", "renewals");
    let store = open(&url).await;
    let lease = claim("a", TTL);
    granted(&*store, &lease).await;
    let before = server.keys("renewals/").await;
    for _ in 0..3 {
        pause(TTL / 2).await;
        assert!(matches!(renewed(&*store, &lease).await, Outcome::Renewed));
    }
    assert_eq!(server.keys("renewals/").await, before);
    let mut longer = lease.clone();
    longer.claim.ttl = LONG;
    assert!(matches!(renewed(&*store, &longer).await, Outcome::Renewed));
    assert_ne!(server.keys("renewals/").await, before);
    // The shorter one, again: the ttl of a holder never falls.
    assert!(matches!(renewed(&*store, &lease).await, Outcome::Renewed));
    pause(2 * TTL).await;
    assert!(matches!(
        renewed(&*open(&url).await, &lease).await,
        Outcome::Renewed
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_renewals_at_once_are_answered() {
    let store = open(&EtcdServer::shared().await.url()).await;
    let leases: Vec<_> = (0..1_024)
        .map(|index| claim(&format!("n{index}"), LONG))
        .collect();
    for some in leases.chunks(64) {
        join_all(some.iter().map(|lease| granted(&*store, lease))).await;
    }
    let renewals: Vec<_> = leases.iter().map(Asking::renewal).collect();
    let batches = renewals.chunks(64).map(|batch| store.renew(batch, LIMIT));
    for renewed in join_all(batches).await {
        for outcome in renewed.outcomes {
            assert!(matches!(outcome, Outcome::Renewed), "{outcome:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_a_lease_but_the_mark_with_its_token() {
    let server = EtcdServer::start().await;
    let url = server.url_with("", "p");
    let store = open(&url).await;
    // Ahead of every clock, so that only what is remembered lifts the next one.
    let floor = Token::new(next_token(&*store, "a").await.get() + 3_600_000_000 * 9);
    let lifted = claim("a", LONG).with_floor(floor.expect("a token"));
    let token = granted(&*store, &lifted).await;
    assert_eq!(released(&*store, &lifted).await, Release::Released);
    assert_eq!(released(&*store, &lifted).await, Release::NotHeld);
    let mark = [("p/{mark}/292c".to_owned(), "0".to_owned())];
    let without_lease = |keys: Vec<(String, String)>| keys == mark || keys[0].1.is_empty();
    let keys = server.keys("p/").await;
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert!(without_lease(keys));
    until("the end of each lease", async || {
        (server.leases().await == 0).then_some(())
    })
    .await;
    // One that ends by itself.
    let dead = claim("a", TTL);
    let second = granted(&*store, &dead).await;
    assert!(second > token, "{second} after {token}");
    until("its end", async || {
        (server.keys("p/").await.len() == 1).then_some(())
    })
    .await;
    let third = next_token(&*open(&url).await, "a").await;
    assert!(third > second, "{third} after {second}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_from_an_old_read_gives_no_token_below_that_of_a_lease_that_ended_since() {
    let url = EtcdServer::shared().await.url();
    let [slow, quick] = [open(&url).await, open(&url).await];
    let first = next_token(&*slow, "a").await;
    // Hours ahead of every clock. The slow client has the free name in hand and puts without another look.
    let floor = Token::new(first.get() + 3_600_000_000 * 9).expect("a token");
    let lifted = claim("a", LONG).with_floor(floor);
    let last = granted(&*quick, &lifted).await;
    assert_eq!(released(&*quick, &lifted).await, Release::Released);
    let next = next_token(&*slow, "a").await;
    assert!(next > last, "{next} after {last}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicted_name_stays_taken_as_long_as_its_holder_counts_on_it() {
    let url = EtcdServer::shared().await.url();
    let (holder, operator) = (open(&url).await, open(&url).await);
    // Twice the shortest: etcd rounds what an eviction leaves up to that.
    let ttl = 2 * TTL;
    let lease = claim("a", ttl);
    granted(&*holder, &lease).await;
    // The operator has it in sight for longer than the ttl, while it is renewed without a new version.
    let rival = claim("a", LONG);
    for _ in 0..3 {
        held(&*operator, &rival).await;
        pause(ttl / 2).await;
        assert!(matches!(renewed(&*holder, &lease).await, Outcome::Renewed));
    }
    let renewed_at = now();
    let name = Name::new("a").expect("a name");
    let evicted = operator.evict(&name, Eviction::Marked, LIMIT).await;
    assert!(evicted.expect("answered"));
    let seen = operator.inspect(&name, LIMIT).await.expect("answered");
    assert_eq!(seen.expect("taken").state, HeldState::Evicted);
    until("the end of the eviction", async || {
        let answer = asked(&*operator, &rival, LIMIT).await.expect("answered");
        matches!(answer, Answer::Granted(_)).then_some(())
    })
    .await;
    let after = now().since(renewed_at);
    assert!(after >= ttl, "{after:?}");
    assert!(matches!(renewed(&*holder, &lease).await, Outcome::Refused));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_client_is_told_at_once_that_a_name_was_released() {
    let url = EtcdServer::shared().await.url();
    let (one, other) = (client_at(&url, LONG).await, client_at(&url, LONG).await);
    let lease = take(&one, "a").await;
    let waiting = tokio::spawn({
        let request = other.request("a");
        async move { (request.acquire().await.expect("granted"), now()) }
    });
    // Longer than it takes to look and to begin a watch.
    pause(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished());
    let released_at = now();
    lease.release().await;
    let (_lease, granted_at) = soon(waiting).await.expect("no panic");
    let took = granted_at.since(released_at);
    eprintln!("case=hand-off by a watch of etcd: took={took:.1?}");
    assert!(took < Duration::from_millis(500), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_is_told_in_time_when_the_server_falls_silent() {
    let server = EtcdServer::start().await;
    let client = client_at(&server.url(), Duration::from_secs(3)).await;
    let lease = take(&client, "a").await;
    server.pause();
    assert_eq!(lost(&lease).await, LossReason::Deadline);
    server.resume();
    drop(lease);
    let again = client.request("a").acquire_within(Duration::from_secs(30));
    drop(again.await.expect("it answers again"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_set_up_and_the_servers_are_told() {
    let server = EtcdServer::shared().await;
    // Nobody listens at the port of discard.
    let url = server.url().replace('?', ",127.0.0.1:9?");
    let store = open(&url).await;
    let hazards = store.hazards(LIMIT).await.expect("answered");
    let ids: Vec<_> = hazards.iter().map(|hazard| hazard.id).collect();
    assert_eq!(ids, ["etcd-few-members"]);
    let members = store.members(LIMIT).await.expect("answered");
    let states: Vec<_> = members.iter().map(|member| member.state).collect();
    assert_eq!(states, [MemberState::Up, MemberState::Down]);
    assert_eq!(members[0].version.as_deref(), Some("etcd 3.7.2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_an_operator_deleted_is_not_renewed_though_its_lease_is_there() {
    let server = EtcdServer::shared().await;
    let store = open(&server.url_with("", "deleted")).await;
    let lease = claim("a", LONG);
    granted(&*store, &lease).await;
    server.delete("deleted/{held}/a").await;
    assert!(matches!(renewed(&*store, &lease).await, Outcome::Refused));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_record_and_a_record_of_a_later_version_are_refused_by_their_key() {
    let server = EtcdServer::shared().await;
    for (prefix, value, words) in [
        ("odd", "hello", "the key \"odd/{held}/a\" is refused"),
        (
            "later",
            r#"{"v":2,"state":"leased"}"#,
            "older than the one that wrote it",
        ),
        (
            "copied",
            r#"{"v":1,"state":"leased","ttl_ms":9}"#,
            "it would never end",
        ),
    ] {
        server.write(&format!("{prefix}/{{held}}/a"), value).await;
        let url = server.url_with("", prefix);
        refused(&url, ErrorKind::Misconfigured, words).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_or_is_no_etcd_is_told_as_such() {
    let nobody = "etcd://me:s3cret@127.0.0.1:9";
    let words = "no server listens at 127.0.0.1:9";
    let sent = refused(nobody, ErrorKind::Unavailable, words).await;
    assert_eq!(sent, Sent::Never);
    let http = Fake::answering(|_| Said::Code(404)).await;
    let words = "what listens there is no etcd: it answered 404";
    refused(&http.url(), ErrorKind::Misconfigured, words).await;
    let old = Fake::answering(|_| Said::Refusal(12, "unknown service")).await;
    let words = "no etcd of version 3.4 or later answers here";
    refused(&old.url(), ErrorKind::Misconfigured, words).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_requests_are_an_outage_in_which_nothing_was_done() {
    let busy = Fake::answering(|_| Said::Refusal(8, "etcdserver: too many requests")).await;
    let sent = refused(&busy.url(), ErrorKind::Unavailable, "too many requests").await;
    assert_eq!(sent, Sent::Never, "the read of the name");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_without_an_answer_is_of_unknown_outcome() {
    let transactions = AtomicUsize::new(0);
    let server = Fake::answering(move |path| {
        let is_put = path.ends_with("/Txn") && transactions.fetch_add(1, Ordering::Relaxed) > 0;
        match is_put {
            true => Said::Nothing,
            false => Said::Message(Vec::new()),
        }
    })
    .await;
    let words = "ended before the answer";
    let sent = refused(&server.url(), ErrorKind::Unavailable, words).await;
    assert_eq!(sent, Sent::Perhaps);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_a_leader_is_left_for_another_within_one_request() {
    let alone = Fake::answering(|_| Said::Refusal(14, "etcdserver: no leader")).await;
    let url = EtcdServer::shared().await.url();
    let url = url.replace("etcd://", &format!("etcd://127.0.0.1:{},", alone.port));
    next_token(&*open(&url).await, "a").await;
    let words = "the members have no majority";
    let sent = refused(&alone.url(), ErrorKind::Unavailable, words).await;
    assert_eq!(sent, Sent::Never);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_ends_leases_too_early_is_told_and_a_read_that_is_refused() {
    let hazards = async |status: fn() -> Said| {
        let server = Fake::answering(move |path| match path.ends_with("/Status") {
            true => status(),
            // Three members without a word about them.
            false => Said::Message(vec![0x12, 0, 0x12, 0, 0x12, 0]),
        });
        let url = server.await;
        let hazards = open(&url.url()).await.hazards(LIMIT).await;
        hazards.expect("answered")
    };
    let old = hazards(|| Said::Message([&[0x12, 6][..], b"3.4.23"].concat())).await;
    assert_eq!(old.len(), 1, "{old:?}");
    assert_eq!(old[0].id, "etcd-revokes-early");
    assert!(old[0].what.ends_with("3.4.23"), "{old:?}");
    let refused = hazards(|| Said::Refusal(7, "etcdserver: permission denied")).await;
    let ids: Vec<_> = refused.iter().map(|hazard| hazard.id).collect();
    assert_eq!(ids, ["etcd-check-refused"]);
}
