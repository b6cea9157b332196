//! What a quorum makes of members that are full or hold keys that are not ours.

use leasehold::ErrorKind;
use leasehold::store::{Outcome, Release, Store as _};

use crate::harness::asking::{
    asked, chain, claim, granted, held, next_token, released, renewal, renewed,
};
use crate::harness::redis_quorum::RedisQuorum;
use crate::harness::redis_server::RedisServer;
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::until_so;

/// The server takes no more memory.
async fn fill_memory(server: &RedisServer) {
    let () = server.told("CONFIG SET maxmemory-policy noeviction").await;
    let () = server.told("CONFIG SET maxmemory 1").await;
}

/// What the first member has besides its node.
async fn others(quorum: &RedisQuorum) -> Vec<(String, Vec<u8>)> {
    let mut contents = quorum.servers[0].contents().await;
    contents.retain(|(key, _)| key != "leasehold:node");
    contents
}

#[tokio::test]
async fn a_full_server_refuses_a_claim_unharmed_and_takes_renewals_and_releases() {
    let quorum = RedisQuorum::start(3).await;
    let store = quorum.open();
    let claims = ["a", "b", "c"].map(|name| claim(name, LONG));
    for claim in &claims {
        granted(&store, claim).await;
    }
    for server in &quorum.servers {
        fill_memory(server).await;
    }
    let before = quorum.servers[0].contents().await;
    let error = asked(&store, &claim("d", LONG), LIMIT).await;
    assert!(chain(&error.expect_err("full")).contains("OOM"));
    assert_eq!(
        quorum.servers[0].contents().await.len(),
        before.len() + 1,
        "the mark of what was taken back"
    );
    let [a, b, c] = &claims;
    assert!(matches!(renewed(&store, a).await, Outcome::Renewed));
    granted(&store, a).await;
    assert_eq!(released(&store, b).await, Release::Released);
    let kept = store.release(&c.name, c.holder, Some(LONG), LIMIT).await;
    assert_eq!(kept.expect("answered"), Release::Released);
    assert_eq!(released(&store, a).await, Release::Released);
    let list = store.list("", LIMIT).await.expect("answered");
    let names: Vec<_> = list.iter().map(|held| held.name.as_str()).collect();
    assert_eq!(names, ["c"]);
}

#[tokio::test]
async fn one_full_member_is_outvoted_and_a_full_majority_is_unavailable() {
    let quorum = RedisQuorum::start(3).await;
    let store = quorum.open();
    let first = claim("a", LONG);
    granted(&store, &first).await;
    fill_memory(&quorum.servers[0]).await;
    next_token(&store, "b").await;
    fill_memory(&quorum.servers[1]).await;
    let error = asked(&store, &claim("c", LONG), LIMIT).await;
    let error = error.expect_err("two of three are full");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
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
    ] {
        for server in &quorum.servers[..2] {
            let _: deadpool_redis::redis::Value = server.told(foreign).await;
        }
        let before = others(&quorum).await;
        let error = asked(&store, &claim(text, LONG), LIMIT).await;
        let error = error.expect_err("a majority cannot take it");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        assert!(chain(&error).contains("WRONGTYPE"), "{error:#}");
        assert!(
            error.to_string().contains(&format!("name={text} ")),
            "{error}"
        );
        let seen = store.inspect(&claim(text, LONG).name, LIMIT).await;
        let error = seen.expect_err("it is not free");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        assert_eq!(others(&quorum).await, before);
    }
    next_token(&store, "d").await;
}

#[tokio::test]
async fn a_lease_without_an_end_or_of_no_known_form_hides_no_other() {
    let quorum = RedisQuorum::start(3).await;
    let store = quorum.open();
    let claims = ["endless", "odd", "sound"].map(|name| claim(name, LONG));
    for claim in &claims {
        granted(&store, claim).await;
        let key = format!("leasehold:{{{}}}", claim.name);
        until_so("it is at all members", async || {
            renewed(&store, claim).await;
            let mut keys = Vec::new();
            for server in &quorum.servers {
                keys.push(server.keys().await);
            }
            keys.iter().all(|keys| keys.contains(&key))
        })
        .await;
    }
    for server in &quorum.servers {
        let value: String = server.told("GET leasehold:{odd}").await;
        let mut connection = server.connect().await.expect("it is up");
        let mut set = deadpool_redis::redis::cmd("SET");
        set.arg("leasehold:{odd}")
            .arg(value.replacen("held", "unheard", 1))
            .arg("KEEPTTL");
        let () = set.query_async(&mut connection).await.expect("set");
        let _: i64 = server.told("PERSIST leasehold:{endless}").await;
    }
    let list = store.list("", LIMIT).await.expect("answered");
    let names: Vec<_> = list.iter().map(|held| held.name.as_str()).collect();
    assert_eq!(names, ["endless", "sound"]);
    let by_another = held(&store, &claim("endless", LONG)).await;
    assert_eq!(
        (by_another.by, by_another.remaining),
        (Some(claims[0].holder), None)
    );
    let batch = [renewal(&claims[1]), renewal(&claims[2])];
    let outcomes = store.renew(&batch, LIMIT).await.outcomes;
    let [Outcome::Unknown(error), Outcome::Renewed] = &*outcomes else {
        panic!("{outcomes:?}");
    };
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
}
