//! The scripts of a member, called raw, on a server that is full, lost its data, or holds what is not ours; and what a
//! quorum makes of such members.

use std::time::Duration;

use leasehold::store::quorum::{
    Extension, Freed, Proposal, Purpose, Rules, TakenBack, Vote, keep_out,
};
use leasehold::store::{Outcome, Release, Renewal};
use leasehold::{ClientId, ErrorKind, Holder, Name, Token};

use super::member::RawMember;
use crate::harness::asking::{asked, chain, claim, granted, next_token, released, renewed};
use crate::harness::redis_quorum::RedisQuorum;
use crate::harness::redis_server::RedisServer;
use crate::harness::times::{LIMIT, LONG};

const TTL: Duration = Duration::from_secs(30);

/// A member that has been in use for a long time.
async fn member() -> (RedisServer, RawMember) {
    let server = RedisServer::start().await;
    let rules = Rules::default();
    let longest = rules.max_ttl.as_millis();
    let row = format!("HSET leasehold:node run 0 ready 0 floor 0 keep_out {longest}");
    let _: i64 = server.told(&row).await;
    let connection = server.connect().await.expect("it is up");
    let member = RawMember {
        connection,
        rules,
        run: 0,
    };
    (server, member)
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

fn holder(number: u64) -> Holder {
    Holder::new(ClientId::from_u128(7), number)
}

/// A token so far in front of the server's clock.
async fn ahead(server: &RedisServer, by: Duration) -> Token {
    let now = u64::try_from(server.time_ms().await).expect("after 1970");
    let by = u64::try_from(by.as_micros()).expect("a short time");
    Token::new(now * 1_000 + by).expect("a token")
}

fn proposal(number: u64, token: Token) -> Proposal {
    Proposal {
        holder: holder(number),
        token,
        ttl: TTL,
        purpose: Purpose::Claim,
    }
}

/// The server takes no more memory.
async fn fill(server: &RedisServer) {
    let () = server.told("CONFIG SET maxmemory-policy noeviction").await;
    let () = server.told("CONFIG SET maxmemory 1").await;
}

#[tokio::test]
async fn a_full_server_refuses_a_claim_unharmed_and_takes_renewals_and_frees() {
    let (server, mut member) = member().await;
    let token = ahead(&server, LONG).await;
    for (text, number) in [("a", 1), ("b", 2), ("c", 3)] {
        let vote = member.hold(&name(text), &proposal(number, token)).await;
        assert_eq!(vote, Vote::Yes(token));
    }
    fill(&server).await;
    let before = server.contents().await;
    let refused = member.try_hold(&name("d"), &proposal(4, token)).await;
    let error = refused.expect_err("it is full");
    assert!(error.to_string().contains("OOM"), "{error}");
    assert_eq!(server.contents().await, before);

    let renewal = Renewal::new(name("a"), holder(1), token, LONG);
    assert_eq!(member.renew(&renewal).await, Extension::Renewed);
    let left: i64 = server.told("PTTL leasehold:{a}").await;
    assert!(left > 30_000, "{left}");
    let again = member.hold(&name("a"), &proposal(1, token)).await;
    assert_eq!(again, Vote::Yes(token), "its holder, asking again");
    let taken = TakenBack { token, above: None };
    let freed = member.take_back(&name("b"), holder(2), taken).await;
    assert_eq!(freed, Freed::Freed);
    let freed = member.release(&name("a"), holder(1), None).await;
    assert_eq!(freed, Freed::Freed);
    let kept = Some(Duration::from_secs(5));
    let freed = member.release(&name("c"), holder(3), kept).await;
    assert_eq!(freed, Freed::Freed);
    let leases = server.keys().await;
    let leases: Vec<_> = leases.iter().filter(|key| key.ends_with('}')).collect();
    assert_eq!(leases, ["leasehold:{c}"]);
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_flushed_server_keeps_out_and_then_takes_only_higher_tokens() {
    let (server, mut member) = member().await;
    let token = ahead(&server, LONG).await;
    member.hold(&name("a"), &proposal(1, token)).await;
    let () = server.told("FLUSHALL").await;
    let vote = member.hold(&name("a"), &proposal(2, token)).await;
    let Vote::Away(left) = vote else {
        panic!("{vote:?}");
    };
    let longest = u64::try_from(keep_out(member.rules.max_ttl).as_micros());
    assert!(left > 0 && left <= longest.expect("a short time"), "{left}");
    // As if the keep-out were over.
    let _: i64 = server.told("HSET leasehold:node ready 0").await;
    let vote = member.hold(&name("a"), &proposal(2, token)).await;
    let Vote::Low { floor, of_server } = vote else {
        panic!("{vote:?}");
    };
    assert!(floor >= of_server && of_server > token.get(), "{vote:?}");
}

#[tokio::test]
async fn another_run_of_a_server_keeps_out_unless_its_disk_is_trusted() {
    for is_trusted in [false, true] {
        let (server, mut member) = member().await;
        member.rules.is_trusted = is_trusted;
        let token = ahead(&server, LONG).await;
        member.hold(&name("a"), &proposal(1, token)).await;
        member.run = 1;
        let vote = member.hold(&name("b"), &proposal(2, token)).await;
        if is_trusted {
            assert_eq!(vote, Vote::Yes(token));
        } else {
            assert!(matches!(vote, Vote::Away(_)), "{vote:?}");
            // What it still has is renewed.
            let renewal = Renewal::new(name("a"), holder(1), token, TTL);
            assert_eq!(member.renew(&renewal).await, Extension::Renewed);
        }
        let known: String = server.told("HGET leasehold:node run").await;
        assert_eq!(known, "1");
    }
}

#[tokio::test]
async fn one_full_member_is_outvoted_and_a_full_majority_is_misconfigured() {
    let quorum = RedisQuorum::start(3).await;
    let store = quorum.open();
    let first = claim("a", LONG);
    granted(&store, &first).await;
    fill(&quorum.servers[0]).await;
    next_token(&store, "b").await;
    fill(&quorum.servers[1]).await;
    let error = asked(&store, &claim("c", LONG), LIMIT).await;
    let error = error.expect_err("two of three are full");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(chain(&error).contains("OOM"), "{error:#}");
    let outcome = renewed(&store, &first).await;
    assert!(matches!(outcome, Outcome::Renewed), "{outcome:?}");
    assert_eq!(released(&store, &first).await, Release::Released);
    // What the third member took was taken back.
    let keys = quorum.servers[2].keys().await;
    assert!(!keys.contains(&"leasehold:{c}".into()), "{keys:?}");
}

#[tokio::test]
async fn keys_of_another_type_are_misconfigured_and_left_alone() {
    let quorum = RedisQuorum::start(3).await;
    let store = quorum.open();
    for (text, foreign) in [
        ("a", "RPUSH leasehold:{a} theirs"),
        ("b", "SET leasehold:{b} theirs"),
        ("c", "SET leasehold:{c}:token theirs"),
    ] {
        for server in &quorum.servers[..2] {
            let _: deadpool_redis::redis::Value = server.told(foreign).await;
        }
        let before = quorum.servers[0].contents().await;
        let error = asked(&store, &claim(text, LONG), LIMIT).await;
        let error = error.expect_err("a majority cannot take it");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        assert!(chain(&error).contains("WRONGTYPE"), "{error:#}");
        assert!(
            error.to_string().contains(&format!("name={text} ")),
            "{error}"
        );
        assert_eq!(quorum.servers[0].contents().await, before);
    }
    next_token(&store, "d").await;
}
