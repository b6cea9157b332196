//! One test for each rule of the scripts: the bad thing is sent to them raw, and nothing may be left half done.

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{self, Client, FromRedisValue};

use super::wire::{
    Acquire, HOLDER, RENEW, RIVAL, Reply, evict_script, lease_key, mark, release_script,
    renew_grants, renew_script,
};
use crate::harness::redis_server::{RedisServer, Setup};

/// Times that no script may take.
const BAD_TIMES: [&str; 12] = [
    "30000.5",
    "",
    "9223372036854775807",
    "9007199254740993",
    "-1",
    "1e3",
    " 30000",
    "30000\n",
    "0x10",
    "nan",
    "inf",
    "30000 XX",
];

/// A server, and a connection to it that may do everything.
async fn connected() -> (RedisServer, MultiplexedConnection) {
    let server = RedisServer::start().await;
    let connection = server.connect().await.expect("it is up");
    (server, connection)
}

/// The answer of a script that must answer.
fn answered(answer: Result<Reply, redis::RedisError>) -> Reply {
    answer.expect("the script answers")
}

/// One word after a key: `PTTL`, `GET`.
async fn of<T: FromRedisValue>(to: &mut MultiplexedConnection, word: &str, key: &str) -> T {
    let answer = redis::cmd(word).arg(key).query_async(to).await;
    answer.unwrap_or_else(|error| panic!("{word} {key}: {error}"))
}

#[tokio::test]
async fn a_bad_ttl_is_refused_before_the_first_write() {
    let (server, mut connection) = connected().await;
    for ttl in BAD_TIMES.into_iter().chain(["0"]) {
        let claim = Acquire {
            ttl,
            ..Acquire::default()
        };
        let reply = answered(claim.send(&mut connection, "a").await);
        assert_eq!(reply.tag(), "invalid", "ttl={ttl:?}");
        assert_eq!(server.keys().await, [""; 0], "ttl={ttl:?}");
    }
}

#[tokio::test]
async fn a_bad_term_of_a_place_is_refused_before_the_first_write() {
    let (server, mut connection) = connected().await;
    answered(Acquire::default().send(&mut connection, "a").await).token();
    let before = server.contents().await;
    let waits = Acquire {
        holder: RIVAL,
        term: "3000",
        ..Acquire::default()
    };
    let terms = BAD_TIMES.map(|term| Acquire { term, ..waits });
    let listens = ["", "2", "x"].map(|listens| Acquire { listens, ..waits });
    for bad in terms.into_iter().chain(listens) {
        let reply = answered(bad.send(&mut connection, "a").await);
        assert_eq!(reply.tag(), "invalid", "{bad:?}");
        assert_eq!(server.contents().await, before, "{bad:?}");
    }
    let reply = answered(waits.send(&mut connection, "a").await);
    assert_eq!(reply.tag(), "queued");
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn the_longest_times_that_are_taken_give_an_expiry() {
    let (server, mut connection) = connected().await;
    let longest = "999999999999999";
    let claim = Acquire {
        ttl: longest,
        ..Acquire::default()
    };
    answered(claim.send(&mut connection, "a").await).token();
    server.assert_all_keys_run_out().await;
    let renewed = answered(renew_script(&mut connection, &[["a", HOLDER, longest]]).await);
    assert_eq!(renewed.text(3), "y");
    let kept = answered(release_script(&mut connection, "a", HOLDER, longest).await);
    assert_eq!(kept.tag(), "released");
    assert_eq!(server.keys().await, [mark("a"), lease_key("a")]);
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_bad_ttl_leaves_the_lease_of_its_holder_alone() {
    let (server, mut connection) = connected().await;
    answered(Acquire::default().send(&mut connection, "a").await).token();
    let before = server.contents().await;
    for bad in BAD_TIMES.into_iter().chain(["0"]) {
        let claim = Acquire {
            ttl: bad,
            ..Acquire::default()
        };
        let again = answered(claim.send(&mut connection, "a").await);
        assert_eq!(again.tag(), "invalid", "{bad:?}");
        let renewed = answered(renew_script(&mut connection, &[["a", HOLDER, bad]]).await);
        assert_eq!(renewed.text(3), "x", "{bad:?}");
        assert_eq!(server.contents().await, before, "{bad:?}");
        let left: i64 = of(&mut connection, "PTTL", &lease_key("a")).await;
        assert!((1..=30_000).contains(&left), "{bad:?}: {left}");
    }
}

#[tokio::test]
async fn a_bad_ttl_in_a_batch_spoils_only_its_own_lease() {
    let (server, mut connection) = connected().await;
    for name in ["a", "b", "c"] {
        answered(Acquire::default().send(&mut connection, name).await).token();
    }
    let batch = ["60000", "0", "60000"].iter().zip(["a", "b", "c"]);
    let batch: Vec<_> = batch.map(|(ttl, name)| [name, HOLDER, *ttl]).collect();
    let renewed = answered(renew_script(&mut connection, &batch).await);
    assert_eq!(renewed.text(3), "yxy");
    for (name, extended) in [("a", true), ("b", false), ("c", true)] {
        let left: i64 = of(&mut connection, "PTTL", &lease_key(name)).await;
        assert_eq!(left > 30_000, extended, "{name}: {left}");
    }
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_bad_time_to_keep_releases_nothing() {
    let (server, mut connection) = connected().await;
    answered(Acquire::default().send(&mut connection, "a").await).token();
    let before = server.contents().await;
    for bad in BAD_TIMES {
        let reply = answered(release_script(&mut connection, "a", HOLDER, bad).await);
        assert_eq!(reply.tag(), "invalid", "{bad:?}");
        assert_eq!(server.contents().await, before, "{bad:?}");
    }
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_bad_floor_is_refused_and_leaves_nothing() {
    let (server, mut connection) = connected().await;
    let day_ahead = server.time_ms().await * 1_000 + 86_400_000_000 + 60_000_000;
    let floors = [&day_ahead.to_string(), "", "-1", "1.5", "1e3", "x"];
    for floor in floors
        .into_iter()
        .chain(["9007199254740991", "18446744073709551616"])
    {
        let claim = Acquire {
            floor,
            ..Acquire::default()
        };
        let reply = answered(claim.send(&mut connection, "a").await);
        assert_eq!(
            (reply.tag(), reply.text(1)),
            ("invalid".into(), "floor".into()),
            "{floor:?}"
        );
        assert_eq!(server.keys().await, [""; 0], "{floor:?}");
    }
}

#[tokio::test]
async fn a_mark_at_the_top_or_of_another_kind_is_refused_untouched() {
    let (server, mut connection) = connected().await;
    let broken = [
        "9007199254740989",
        "9007199254740990",
        "9007199254740993",
        "1.79e+15",
        "",
        "-7",
        "x",
    ];
    for last in broken.into_iter().chain(["18446744073709551616"]) {
        let () = redis::cmd("SET")
            .arg(mark("a"))
            .arg(last)
            .query_async(&mut connection)
            .await
            .expect("it is up");
        let reply = answered(Acquire::default().send(&mut connection, "a").await);
        assert_eq!(reply.tag(), "broken", "{last:?}");
        assert_eq!(server.keys().await, [mark("a")], "{last:?}");
        assert_eq!(of::<String>(&mut connection, "GET", &mark("a")).await, last);
        server.assert_all_keys_run_out().await;
    }
}

#[tokio::test]
async fn the_last_tokens_are_granted_once_each() {
    let (server, mut connection) = connected().await;
    let () = server
        .told(&format!("SET {} 9007199254740986", mark("a")))
        .await;
    let mut tokens = Vec::new();
    for _ in 0..6 {
        let reply = answered(Acquire::default().send(&mut connection, "a").await);
        if reply.tag() == "granted" {
            tokens.push(reply.token());
            answered(release_script(&mut connection, "a", HOLDER, "0").await);
        }
    }
    let last = tokens.len() as u64;
    assert!((1..=4).contains(&last), "{tokens:?}");
    assert!(
        tokens
            .iter()
            .copied()
            .eq(9_007_199_254_740_987..9_007_199_254_740_987 + last),
        "{tokens:?}"
    );
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_key_of_another_program_is_left_as_it_is() {
    let (server, mut connection) = connected().await;
    let keys = [lease_key("a"), mark("b")];
    let () = server.told(&format!("SET {} theirs", keys[0])).await;
    let () = server.told(&format!("RPUSH {} theirs", keys[1])).await;
    let before = server.contents().await;
    let wrong = |answer: Result<Reply, redis::RedisError>| {
        let error = answer.expect_err("refused").to_string();
        assert!(error.contains("WRONGTYPE"), "{error}");
    };
    wrong(Acquire::default().send(&mut connection, "a").await);
    wrong(Acquire::default().send(&mut connection, "b").await);
    wrong(release_script(&mut connection, "a", HOLDER, "0").await);
    wrong(evict_script(&mut connection, "a", "now").await);
    wrong(evict_script(&mut connection, "a", "marked").await);
    let renewed = answered(renew_script(&mut connection, &[["a", HOLDER, "30000"]]).await);
    assert_eq!(renewed.text(3), "x");
    assert_eq!(server.contents().await, before);
}

#[tokio::test]
async fn a_lease_without_an_expiry_is_told_as_such_and_not_taken() {
    let (server, mut connection) = connected().await;
    answered(Acquire::default().send(&mut connection, "a").await).token();
    let () = server.told(&format!("PERSIST {}", lease_key("a"))).await;
    let rival = Acquire {
        holder: RIVAL,
        ..Acquire::default()
    };
    let held = answered(rival.send(&mut connection, "a").await);
    assert_eq!((held.tag(), held.text(1)), ("held".into(), "-1".into()));
    // Its holder mends it.
    answered(renew_script(&mut connection, &[["a", HOLDER, "30000"]]).await);
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_user_without_channels_releases_all_the_same() {
    let (server, mut connection) = connected().await;
    let () = server
        .told("ACL SETUSER worker on >secret ~leasehold:* +@all resetchannels")
        .await;
    let client = Client::open(format!("{}?user=worker&pass=secret", server.url()));
    let worker = client
        .expect("a valid url")
        .get_multiplexed_async_connection()
        .await;
    let mut worker = worker.expect("the user is known");
    redis::cmd("PUBLISH")
        .arg("c")
        .arg("m")
        .query_async::<()>(&mut worker)
        .await
        .expect_err("the user has no channels");
    for free in ["release", "evict"] {
        answered(Acquire::default().send(&mut worker, "a").await).token();
        let (reply, tag) = match free {
            "release" => (
                release_script(&mut worker, "a", HOLDER, "0").await,
                "released",
            ),
            _ => (evict_script(&mut worker, "a", "now").await, "evicted"),
        };
        assert_eq!(answered(reply).tag(), tag);
        assert_eq!(
            of::<u8>(&mut connection, "EXISTS", &lease_key("a")).await,
            0
        );
    }
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_full_server_refuses_a_claim_unharmed_and_takes_renewals_and_releases() {
    let (server, mut connection) = connected().await;
    for name in ["a", "b"] {
        answered(Acquire::default().send(&mut connection, name).await).token();
    }
    let () = server.told("CONFIG SET maxmemory-policy noeviction").await;
    let () = server.told("CONFIG SET maxmemory 1").await;
    let before = server.contents().await;
    let error = Acquire::default()
        .send(&mut connection, "c")
        .await
        .expect_err("it is full");
    assert!(error.to_string().contains("OOM"), "{error}");
    assert_eq!(server.contents().await, before);

    let renewed = answered(renew_script(&mut connection, &[["a", HOLDER, "60000"]]).await);
    assert_eq!(renewed.text(3), "y");
    assert!(of::<i64>(&mut connection, "PTTL", &lease_key("a")).await > 30_000);
    let again = answered(Acquire::default().send(&mut connection, "a").await);
    assert_eq!(again.tag(), "granted", "its holder, asking again");
    assert_eq!(
        answered(release_script(&mut connection, "a", HOLDER, "0").await).tag(),
        "released"
    );
    assert_eq!(
        answered(release_script(&mut connection, "b", HOLDER, "5000").await).tag(),
        "released"
    );
    assert_eq!(server.keys().await, [mark("a"), mark("b"), lease_key("b")]);
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_full_server_marks_an_eviction_and_keeps_the_end_of_the_lease() {
    let (server, mut connection) = connected().await;
    answered(Acquire::default().send(&mut connection, "a").await).token();
    let () = server.told("CONFIG SET maxmemory-policy noeviction").await;
    let () = server.told("CONFIG SET maxmemory 1").await;
    let marked = answered(evict_script(&mut connection, "a", "marked").await);
    assert_eq!(marked.tag(), "evicted");
    let renewed = answered(renew_script(&mut connection, &[["a", HOLDER, "60000"]]).await);
    assert_eq!(renewed.text(3), "e");
    let left: i64 = of(&mut connection, "PTTL", &lease_key("a")).await;
    assert!((1..=30_000).contains(&left), "{left}");
}

#[tokio::test]
async fn a_read_only_replica_is_left_as_it_is() {
    let master = Setup::default().with_port().start().await;
    let mut to_master = master.connect().await.expect("it is up");
    answered(Acquire::default().send(&mut to_master, "a").await).token();
    let replica = RedisServer::start().await;
    replica.follow(&master).await;
    let mut connection = replica.connect().await.expect("it is up");
    let before = replica.contents().await;
    let read_only = |answer: Result<Reply, redis::RedisError>| {
        let error = answer.expect_err("refused").to_string();
        assert!(error.contains("read only replica"), "{error}");
    };
    read_only(Acquire::default().send(&mut connection, "b").await);
    read_only(release_script(&mut connection, "a", HOLDER, "0").await);
    read_only(evict_script(&mut connection, "a", "now").await);
    read_only(evict_script(&mut connection, "a", "marked").await);
    read_only(renew_script(&mut connection, &[["a", HOLDER, "60000"]]).await);
    // It may not have received this lease so far, so it cannot say that no client holds it.
    read_only(renew_script(&mut connection, &[["unknown", HOLDER, "60000"]]).await);
    assert_eq!(replica.contents().await, before);
    replica.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn the_scripts_run_where_a_server_replicates_them_whole() {
    let (server, mut connection) = connected().await;
    // Only Redis 6.2 can still be set so; the others have done away with it, and say so.
    let version: String = server.told("INFO server").await;
    let set: Result<(), _> = server.ask("CONFIG SET lua-replicate-commands no").await;
    assert_eq!(
        set.is_ok(),
        version.contains("redis_version:6.2"),
        "{set:?}"
    );
    answered(Acquire::default().send(&mut connection, "a").await).token();
    answered(Acquire::default().send(&mut connection, "b").await).token();
    let renewed = answered(renew_script(&mut connection, &[["a", HOLDER, "60000"]]).await);
    assert_eq!(renewed.text(3), "y");
    assert_eq!(
        answered(evict_script(&mut connection, "b", "marked").await).tag(),
        "evicted"
    );
    assert_eq!(
        answered(release_script(&mut connection, "a", HOLDER, "5000").await).tag(),
        "released"
    );
    assert_eq!(
        answered(release_script(&mut connection, "b", HOLDER, "0").await).tag(),
        "released"
    );
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn the_lease_of_another_holder_is_left_alone() {
    let (server, mut connection) = connected().await;
    answered(Acquire::default().send(&mut connection, "a").await).token();
    let before = server.contents().await;
    let rival = Acquire {
        holder: RIVAL,
        ..Acquire::default()
    };
    assert_eq!(
        answered(rival.send(&mut connection, "a").await).tag(),
        "held"
    );
    assert_eq!(
        answered(renew_script(&mut connection, &[["a", RIVAL, "60000"]]).await).text(3),
        "n"
    );
    assert_eq!(
        answered(release_script(&mut connection, "a", RIVAL, "0").await).tag(),
        "not_held"
    );
    for field in ["token", "info", "evicted", "", "-"] {
        // The names of fields are no holders.
        let claim = Acquire {
            holder: field,
            ..Acquire::default()
        };
        let tag = answered(claim.send(&mut connection, "a").await).tag();
        assert_eq!(tag, "invalid", "{field:?}");
        let renewed =
            answered(renew_script(&mut connection, &[["a", field, "60000"]]).await).text(3);
        assert!(["x", "n"].contains(&&*renewed), "{field:?}: {renewed}");
        let grant = [["a", field, "60000"].map(String::from)];
        let renewed = answered(renew_grants(&mut connection, &grant).await).text(3);
        assert!(["x", "n"].contains(&&*renewed), "{field:?}: {renewed}");
        let released = answered(release_script(&mut connection, "a", field, "0").await).tag();
        assert!(
            ["invalid", "not_held"].contains(&&*released),
            "{field:?}: {released}"
        );
    }
    assert_eq!(server.contents().await, before);
}

#[tokio::test]
async fn a_renewal_needs_the_whole_grant() {
    let (server, mut connection) = connected().await;
    let token = answered(Acquire::default().send(&mut connection, "a").await).token();
    let before = server.contents().await;
    let cut = token / 10;
    for grant in [
        format!("{HOLDER} {cut} "),
        format!("{HOLDER} {cut}"),
        format!("{HOLDER} {token}"),
        format!("{HOLDER} {} ", token + 1),
        format!("{HOLDER} "),
        format!("{RIVAL} {token} "),
        String::new(),
    ] {
        let batch = [["a".into(), grant.clone(), "60000".into()]];
        let reply = answered(renew_grants(&mut connection, &batch).await);
        assert_eq!(reply.text(3), "n", "{grant:?}");
    }
    assert_eq!(server.contents().await, before);
    let batch = [["a".into(), format!("{HOLDER} {token} "), "60000".into()]];
    let reply = answered(renew_grants(&mut connection, &batch).await);
    assert_eq!(reply.text(3), "y");
}

#[tokio::test]
async fn one_ttl_serves_a_batch_and_grants_may_differ_in_length() {
    let (server, mut connection) = connected().await;
    let script = redis::Script::new(RENEW);
    let mut call = script.prepare_invoke();
    for (name, token) in [("a", "7"), ("b", "1234"), ("c", "12"), ("d", "1")] {
        let value = format!("{HOLDER} {token} {{}}");
        let mut set = redis::cmd("SET");
        set.arg(lease_key(name)).arg(value).arg("PX").arg(9_000);
        let set = set.query_async::<redis::Value>(&mut connection).await;
        set.expect("it is set");
        // The last one names another grant.
        let token = if name == "d" { "2" } else { token };
        call.key(lease_key(name)).arg(format!("{HOLDER} {token} "));
    }
    call.arg("60000");
    let reply: Vec<redis::Value> = call.invoke_async(&mut connection).await.expect("an answer");
    let letters: String = redis::from_redis_value(reply[3].clone()).expect("letters");
    assert_eq!(letters, "yyyn");
    for (name, is_extended) in [("a", true), ("b", true), ("c", true), ("d", false)] {
        let left: i64 = of(&mut connection, "PTTL", &lease_key(name)).await;
        assert_eq!(left > 9_000, is_extended, "{name} {left}");
    }
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_batch_of_the_wrong_length_changes_nothing() {
    let (server, mut connection) = connected().await;
    answered(Acquire::default().send(&mut connection, "a").await).token();
    let script = redis::Script::new(RENEW);
    let mut call = script.prepare_invoke();
    call.key(lease_key("a"))
        .key(lease_key("b"))
        .arg(HOLDER)
        .arg("60000");
    let reply: Vec<redis::Value> = call.invoke_async(&mut connection).await.expect("an answer");
    assert_eq!(
        redis::from_redis_value::<String>(reply[0].clone()).expect("a tag"),
        "invalid"
    );
    let left: i64 = of(&mut connection, "PTTL", &lease_key("a")).await;
    assert!((1..=30_000).contains(&left));
    server.assert_all_keys_run_out().await;
}
