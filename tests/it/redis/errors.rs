//! Each way a server can fail a request, brought about for real, and the advice that the caller gets.

use std::fs;
use std::time::Duration;

use deadpool_redis::redis::{self, Value};
use leasehold::store::redis::Redis;
use leasehold::store::{self, Eviction, MAX_KEEP, Outcome, Release, Store};
use leasehold::{Attempt, Client, Error, ErrorKind, Name, OutagePolicy, ReleaseOutcome};

use super::open;
use super::wire::lease_key;
use crate::harness::asking::{
    Asking, asked, chain, claim, granted, held, released, renewal, renewed,
};
use crate::harness::fake_sentinel::FakeSentinel;
use crate::harness::fake_server::FakeServer;
use crate::harness::leases::client_at;
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::times::{LIMIT, LONG, UNANSWERED};
use crate::harness::wait::{now, until, until_so};

/// What a busy machine may add to a limit.
const SLACK: Duration = Duration::from_millis(500);

/// The errors of a claim, a renewal and a release, each within its limit. No answer is an error too few.
async fn errors(store: &dyn Store, limit: Duration) -> [Error; 3] {
    let claim = claim("errors", LONG);
    let start = now();
    let acquired = asked(store, &claim, limit).await;
    let outcome = store.renew(&[renewal(&claim)], limit).await.outcomes.pop();
    let released = store.release(&claim.name, claim.holder, None, limit).await;
    let took = now().since(start);
    assert!(
        took < 3 * limit + SLACK,
        "three requests within {limit:?} each took {took:?}"
    );
    let unknown = match outcome {
        Some(Outcome::Unknown(error)) => error,
        other => panic!("renewed without a server's word: {other:?}"),
    };
    [
        acquired.expect_err("a claim without a server's word"),
        unknown,
        released.expect_err("a release without a server's word"),
    ]
}

/// All three fail so.
async fn assert_all_fail(store: &dyn Store, limit: Duration, kind: ErrorKind) {
    for error in errors(store, limit).await {
        assert_eq!(error.kind(), kind, "{error:?}");
    }
}

/// A holder before the failure and what it has; afterwards the same store must serve again.
async fn serves_again(store: &dyn Store, holder: &Asking) {
    until("the store's recovery", async || {
        let outcomes = store.renew(&[renewal(holder)], UNANSWERED).await.outcomes;
        matches!(outcomes[..], [Outcome::Renewed]).then_some(())
    })
    .await;
    assert_eq!(
        held(store, &claim(holder.name.as_str(), LONG)).await.by,
        Some(holder.holder)
    );
    assert_eq!(released(store, holder).await, Release::Released);
}

/// A server, a store on it, and a lease that is held.
async fn with_holder(setup: Setup) -> (RedisServer, std::sync::Arc<dyn Store>, Asking) {
    let server = setup.start().await;
    let store = open(&server.url()).await;
    let holder = claim("holder", LONG);
    granted(&*store, &holder).await;
    (server, store, holder)
}

#[tokio::test]
async fn a_server_that_is_down_is_unavailable_until_it_is_back() {
    let (mut server, store, holder) = with_holder(Setup::default()).await;
    let snapshot = server.snapshot().await;
    server.kill();
    assert_all_fail(&*store, LIMIT, ErrorKind::Unavailable).await;
    server.restart_from(&snapshot).await;
    serves_again(&*store, &holder).await;
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_server_that_was_restarted_is_found_by_the_next_request() {
    let (mut server, store, _) = with_holder(Setup::default()).await;
    for _ in 0..5 {
        server.restart_empty().await;
        granted(&*store, &claim("a", LONG)).await;
    }
}

#[tokio::test]
async fn a_port_without_a_listener_is_unavailable() {
    let mut server = Setup::default().with_port().start().await;
    let url = format!("redis://127.0.0.1:{}", server.port());
    server.kill();
    let error = first_error(&url).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}

#[tokio::test]
async fn a_stopped_server_times_out_within_the_limit() {
    let (server, store, holder) = with_holder(Setup::default()).await;
    server.pause();
    assert_all_fail(&*store, UNANSWERED, ErrorKind::TimedOut).await;
    server.resume();
    serves_again(&*store, &holder).await;
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_black_hole_times_out_within_the_limit() {
    let server = RedisServer::start().await;
    let proxy = server.proxy().await;
    let store = open(&proxy.url()).await;
    let holder = claim("holder", LONG);
    granted(&*store, &holder).await;
    proxy.stall();
    assert_all_fail(&*store, UNANSWERED, ErrorKind::TimedOut).await;
    let other = open(&proxy.url()).await;
    assert_all_fail(&*other, UNANSWERED, ErrorKind::TimedOut).await;
    proxy.flow();
    serves_again(&*store, &holder).await;
}

#[tokio::test]
async fn a_server_that_is_loading_is_unavailable_until_it_has_loaded() {
    // A millisecond for each key, of 10 kB; clients are heard once in 2 MB.
    let slow = Setup::default()
        .with(["--key-load-delay", "1000"])
        .with(["--rdbcompression", "no"]);
    let (mut server, store, holder) = with_holder(slow).await;
    let fill =
        "for i = 1, 1000 do redis.call('SET', 'k' .. i, string.rep('x', 10000), 'PX', 60000) end";
    let mut connection = server.connect().await.expect("it is up");
    let filled = redis::cmd("EVAL")
        .arg(fill)
        .arg(0)
        .query_async(&mut connection)
        .await;
    let () = filled.expect("it is up");
    server.snapshot().await;
    server.kill();
    server.launch();
    until("a server that is loading", async || {
        let error = server.ask::<String>("PING").await.err()?;
        (error.code() == Some("LOADING")).then_some(())
    })
    .await;
    let error = asked(&*store, &claim("a", LONG), LIMIT).await;
    let error = error.expect_err("it is loading");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    serves_again(&*store, &holder).await;
}

#[tokio::test]
async fn a_replica_without_its_master_is_unavailable() {
    let (server, store, holder) = with_holder(Setup::default()).await;
    let () = server.told("CONFIG SET replica-serve-stale-data no").await;
    let () = server.told("REPLICAOF 127.0.0.1 1").await;
    assert_all_fail(&*store, LIMIT, ErrorKind::Unavailable).await;
    server.promote().await;
    serves_again(&*store, &holder).await;
}

#[tokio::test]
async fn a_server_that_runs_a_long_script_is_unavailable() {
    let (server, store, holder) =
        with_holder(Setup::default().with(["--lua-time-limit", "20"])).await;
    let mut connection = server.connect().await.expect("it is up");
    let endless = tokio::spawn(async move {
        let mut script = redis::cmd("EVAL");
        script.arg("while true do end").arg(0);
        script.query_async::<Value>(&mut connection).await
    });
    until("a busy server", async || {
        let error = server.ask::<String>("PING").await.err()?;
        (error.code() == Some("BUSY")).then_some(())
    })
    .await;
    assert_all_fail(&*store, LIMIT, ErrorKind::Unavailable).await;
    let () = server.told("SCRIPT KILL").await;
    endless.await.expect("no panic").expect_err("killed");
    serves_again(&*store, &holder).await;
}

#[tokio::test]
async fn a_server_with_too_many_clients_is_unavailable() {
    let server = RedisServer::start().await;
    let mut only = server.connect().await.expect("it is up");
    let limit = async |only: &mut redis::aio::MultiplexedConnection, count: usize| {
        let mut command = redis::cmd("CONFIG");
        command.arg("SET").arg("maxclients").arg(count);
        command.query_async::<()>(only).await.expect("it is up");
    };
    limit(&mut only, 1).await;
    let error = first_error(&server.url()).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    limit(&mut only, 100).await;
    granted(&*open(&server.url()).await, &claim("a", LONG)).await;
}

#[tokio::test]
async fn a_server_that_cannot_save_is_unavailable() {
    let (server, store, holder) =
        with_holder(Setup::default().with(["--save", "3600", "1000000"])).await;
    // A folder where the snapshot should go.
    let target = server.folder().join("dump.rdb");
    fs::create_dir(&target).expect("the folder is ours");
    let () = server.told("BGSAVE").await;
    until("a failed snapshot", async || {
        let info: String = server.told("INFO persistence").await;
        info.contains("rdb_last_bgsave_status:err").then_some(())
    })
    .await;
    let error = asked(&*store, &claim("a", LONG), LIMIT).await;
    let error = error.expect_err("no write is taken");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    match renewed(&*store, &holder).await {
        Outcome::Unknown(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}"),
        other => panic!("renewed where no write is taken: {other:?}"),
    }
    fs::remove_dir(&target).expect("it is empty");
    let () = server
        .told("CONFIG SET stop-writes-on-bgsave-error no")
        .await;
    serves_again(&*store, &holder).await;
}

#[tokio::test]
async fn a_read_only_replica_is_misconfigured() {
    let master = Setup::default().with_port().start().await;
    let to_master = open(&master.url()).await;
    let holder = claim("holder", LONG);
    granted(&*to_master, &holder).await;
    let replica = RedisServer::start().await;
    replica.follow(&master).await;
    let store = open(&replica.url()).await;
    let error = asked(&*store, &claim("a", LONG), LIMIT).await;
    let error = error.expect_err("it takes no writes");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    match renewed(&*store, &holder).await {
        Outcome::Unknown(error) => assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}"),
        other => panic!("renewed by a replica: {other:?}"),
    }
    let released = store
        .release(&holder.name, holder.holder, None, LIMIT)
        .await;
    let error = released.expect_err("it takes no writes");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    replica.promote().await;
    serves_again(&*store, &holder).await;
}

#[tokio::test]
async fn a_full_server_is_unavailable_and_its_holders_go_on() {
    let (server, store, holder) = with_holder(Setup::default()).await;
    let () = server.told("CONFIG SET maxmemory 1").await;
    let error = asked(&*store, &claim("a", LONG), LIMIT).await;
    let error = error.expect_err("it is full");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(chain(&error).contains("OOM"), "{error:?}");
    serves_again(&*store, &holder).await;
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_waiting_client_goes_on_when_a_full_server_has_room_again() {
    let (server, store, holder) = with_holder(Setup::default()).await;
    let client = client_at(&server.url(), LONG).await;
    let () = server.told("CONFIG SET maxmemory 1").await;
    let () = server.told("CONFIG RESETSTAT").await;
    // Before the client waits: to one that has a place the name would be handed over, without a refusal.
    assert_eq!(released(&*store, &holder).await, Release::Released);
    let request = client.request("holder").on_outage(OutagePolicy::WaitOut);
    let waiting = tokio::spawn(request.acquire());
    until_so("a refusal for want of memory", async || {
        let calls: String = server.told("INFO commandstats").await;
        let mut lines = calls.lines();
        let scripts = lines.find(|line| line.starts_with("cmdstat_evalsha:"));
        scripts.is_some_and(|scripts| !scripts.contains("failed_calls=0"))
    })
    .await;
    let () = server.told("CONFIG SET maxmemory 0").await;
    let lease = waiting.await.expect("no panic");
    drop(lease.expect("it waited until there was room"));
}

#[tokio::test]
async fn a_key_of_another_type_is_misconfigured() {
    let (server, store, holder) = with_holder(Setup::default()).await;
    let () = server
        .told(&format!("SET {} theirs", lease_key("errors")))
        .await;
    assert_all_fail(&*store, LIMIT, ErrorKind::Misconfigured).await;
    let name = claim("errors", LONG).name.clone();
    for how in [Eviction::Marked, Eviction::Now] {
        let error = store.evict(&name, how, LIMIT).await.expect_err("not ours");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    }
    let error = store.inspect(&name, LIMIT).await.expect_err("not ours");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert_eq!(
        server
            .told::<String>(&format!("GET {}", lease_key("errors")))
            .await,
        "theirs"
    );
    serves_again(&*store, &holder).await;
}

#[tokio::test]
async fn a_member_of_a_quorum_takes_no_claim_and_is_left_as_it_is() {
    let server = RedisServer::start().await;
    let member = "HSET leasehold:node run x ready 0 keep_out 60000 floor 7";
    let () = server.told(member).await;
    let before = server.contents().await;
    let store = open(&server.url()).await;
    let keeping = open(&format!("{}?max_ttl=60s", server.url())).await;
    for store in [&store, &keeping] {
        let error = asked(&**store, &claim("a", LONG), LIMIT).await;
        let error = error.expect_err("a member");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        assert!(
            chain(&error).contains("a store of another kind"),
            "{error:?}"
        );
    }
    assert_eq!(server.contents().await, before);
    // Other names of the same server are another matter.
    let other = Redis::builder(&server.url()).prefix("other").build();
    granted(&other.expect("in order"), &claim("a", LONG)).await;
    let () = server.told("DEL leasehold:node").await;
    granted(&*store, &claim("a", LONG)).await;
}

#[tokio::test]
async fn a_server_that_misses_its_replicas_takes_no_claim() {
    let (server, store, holder) = with_holder(Setup::default()).await;
    let () = server.told("CONFIG SET min-replicas-to-write 1").await;
    let error = asked(&*store, &claim("a", LONG), LIMIT).await;
    let error = error.expect_err("it takes no writes");
    let kinds = [ErrorKind::Unavailable, ErrorKind::Misconfigured];
    assert!(kinds.contains(&error.kind()), "{error:?}");
    let () = server.told("CONFIG SET min-replicas-to-write 0").await;
    serves_again(&*store, &holder).await;
}

#[tokio::test]
async fn a_wrong_or_missing_password_is_denied() {
    let server = Setup::default().with_password("right").start().await;
    let missing = server.url();
    for url in [format!("{missing}?pass=wrong"), missing] {
        let error = first_error(&url).await;
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    }
    granted(
        &*open(&format!("{}?pass=right", server.url())).await,
        &claim("a", LONG),
    )
    .await;
}

#[tokio::test]
async fn a_missing_right_is_denied() {
    let server = RedisServer::start().await;
    let () = server
        .told("ACL SETUSER nokeys on >secret ~other:* &* +@all")
        .await;
    let () = server
        .told("ACL SETUSER noscripts on >secret ~* &* +@all -evalsha")
        .await;
    let () = server
        .told("ACL SETUSER nowrites on >secret ~* &* +@all -pexpire -del -set")
        .await;
    for user in ["nokeys", "noscripts"] {
        let store = open(&format!("{}?user={user}&pass=secret", server.url())).await;
        assert_all_fail(&*store, LIMIT, ErrorKind::Denied).await;
    }
    let store = open(&format!("{}?user=nowrites&pass=secret", server.url())).await;
    let error = asked(&*store, &claim("a", LONG), LIMIT).await;
    let error = error.expect_err("no right to write");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert_eq!(server.keys().await, [""; 0]);
}

#[tokio::test]
async fn no_error_and_no_description_shows_the_password() {
    let secret = "hunter2";
    let mut server = Setup::default()
        .with_port()
        .with_password("right")
        .start()
        .await;
    let address = format!("127.0.0.1:{}", server.port());
    let mut shown = Vec::new();
    let urls = [
        format!("redis://:{secret}@{address}"),
        format!("redis://somebody:{secret}@{address}/0"),
        format!("{}?pass={secret}", server.url()),
        format!("rediss://:{secret}@{address}"),
        format!("redis://:{secret}@{address}/notanumber"),
        format!("redis://:{secret}@127.0.0.1:notaport"),
        format!("redis://:{secret}@"),
        format!("gopher://:{secret}@{address}"),
        format!("{secret}@{address}"),
    ];
    for _ in ["a server that refuses", "no server"] {
        for url in &urls {
            match store::open(url).await {
                Ok(store) => {
                    shown.push(format!("{store:?} {}", store.location()));
                    shown.extend(errors(&*store, UNANSWERED).await.iter().map(chain));
                }
                Err(error) => shown.push(chain(&error)),
            }
            match Client::open(url).await {
                Ok(client) => shown.push(format!("{client:?}")),
                Err(error) => shown.push(chain(&error)),
            }
        }
        server.kill();
    }
    assert!(shown.len() >= 2 * urls.len(), "{shown:#?}");
    for text in shown {
        assert!(!text.contains(secret), "{text}");
    }
}

/// What is met first at this address: where it is opened, or at the first claim.
async fn first_error(url: &str) -> Error {
    match store::open(url).await {
        Err(error) => error,
        Ok(store) => {
            let answer = asked(&*store, &claim("errors", LONG), LIMIT).await;
            answer.expect_err("a claim without a server's word")
        }
    }
}

#[tokio::test]
async fn the_longest_prefix_and_name_are_served_and_a_longer_prefix_is_refused() {
    let server = RedisServer::start().await;
    let longest = "é".repeat(Name::MAX_BYTES / 2);
    let with = |prefix: String| Redis::builder(&server.url()).prefix(prefix).build();
    let store = with(longest.clone()).expect("the longest prefix");
    let claim = claim(&longest, LONG);
    granted(&store, &claim).await;
    assert!(matches!(renewed(&store, &claim).await, Outcome::Renewed));
    released(&store, &claim).await;
    server.assert_all_keys_run_out().await;
    let error = with(longest + "x").expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("1 to 512 bytes"), "{error}");
}

#[tokio::test]
async fn a_name_that_is_to_stay_taken_for_the_longest_time_is_released() {
    let server = RedisServer::start().await;
    let client = client_at(&server.url(), LONG).await;
    let kept = client.request("a").hold_at_least(MAX_KEEP);
    let ended = kept.acquire().await.unwrap().release().await;
    assert_eq!(ended, ReleaseOutcome::Released);
    assert!(matches!(
        client.try_acquire("a").await,
        Ok(Attempt::Held(_))
    ));
    server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn an_error_of_a_connection_names_the_master_that_refused() {
    let sentinel = FakeSentinel::naming(1, 7).await;
    let url = format!("redis+sentinel://{}/main", sentinel.host());
    let store = Redis::builder(&url).build().expect("settings in order");
    let error = asked(&store, &claim("a", LONG), LIMIT).await;
    let error = format!("{:#}", error.expect_err("no master"));
    assert!(error.contains(": 127.0.0.1:1: "), "{error}");
}

#[tokio::test]
async fn an_error_of_a_connection_names_the_node_that_refused() {
    let node = FakeServer::answering(|words| {
        let reply = match &*words[0].to_uppercase() {
            "CLUSTER" => "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
            _ => "+OK\r\n",
        };
        (0, reply.into())
    });
    let node = node.await;
    let url = format!("redis+cluster://{}", node.host());
    let store = Redis::builder(&url).build().expect("settings in order");
    let error = asked(&store, &claim("a", LONG), LIMIT).await;
    let error = format!("{:#}", error.expect_err("no such node"));
    assert!(error.contains(": 127.0.0.1:1: "), "{error}");
}

#[tokio::test]
async fn a_server_that_ends_the_connection_without_an_answer_is_called_no_redis_perhaps() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let ending = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            // It reads, as a server of another kind does, and closes.
            let _ = tokio::io::AsyncReadExt::read(&mut client, &mut [0; 64]).await;
        }
    });
    let store = Redis::builder(&url).build().expect("settings in order");
    let error = asked(&store, &claim("a", LONG), LIMIT).await;
    let error = error.expect_err("no answer");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:#}");
    assert!(error.to_string().contains("is no Redis"), "{error:#}");
    ending.abort();
}
