//! The store by every way to a server: sockets, ports, passwords, other databases, a pool of the caller's.

use std::future::{Future as _, ready};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use deadpool_redis::{Config, Pool, Runtime};
use leasehold::store::redis::Redis;
use leasehold::store::{MAX_BATCH, Outcome, Purpose, Release, Store, conformance};
use leasehold::{Client, ErrorKind};

use super::open;
use crate::conformance::check_at;
use crate::harness::alone::test_of;
use crate::harness::asking::{asked, claim, granted, held, next_token, released, renewed};
use crate::harness::network::with_hosts;
use crate::harness::proxy::{Fault, Request};
use crate::harness::redis_server::{RedisServer, Setup};
use crate::harness::times::{LIMIT, LONG};
use crate::harness::wait::{now, until};

#[tokio::test]
async fn a_server_on_a_port_with_a_password_and_another_database_keeps_the_contract() {
    let setup = Setup::default().with_port().with_password("s3cret/@");
    let server = setup.start().await;
    let url = format!("redis://:s3cret%2F%40@127.0.0.1:{}/3", server.port());
    check_at(url).await;
    assert_eq!(server.keys().await, [""; 0], "database 0 is untouched");
}

fn user_pool(server: &RedisServer) -> Pool {
    let config = Config::from_url(server.url());
    config.create_pool(Some(Runtime::Tokio1)).expect("a pool")
}

#[tokio::test]
async fn a_pool_of_the_callers_keeps_the_contract_and_stays_open() {
    let server = RedisServer::start().await;
    let pool = user_pool(&server);
    let builder = Redis::from_pool(pool.clone(), &server.url());
    let store = Arc::new(builder.build().expect("a store"));
    assert!(store.notices().await.expect("answered").is_some());
    let (pool_of_all, url) = (pool.clone(), server.url());
    conformance::check(move || {
        let builder = Redis::from_pool(pool_of_all.clone(), &url);
        ready(Arc::new(builder.build().expect("a store")) as _)
    })
    .await;
    assert!(!pool.is_closed());
    pool.get().await.expect("it serves its owner");
}

#[tokio::test]
async fn requests_share_one_connection_of_the_pool() {
    let server = RedisServer::start().await;
    let pool = user_pool(&server);
    let store = Arc::new(
        Redis::from_pool(pool.clone(), &server.url())
            .build()
            .expect("a store"),
    );
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..50 {
        let store = store.clone();
        tasks.spawn(async move { next_token(&*store, &format!("n{index}")).await });
    }
    tasks.join_all().await;
    assert_eq!(pool.status().size, 1);
}

#[tokio::test]
async fn a_lease_is_renewed_while_its_users_hold_every_connection_of_the_pool() {
    let server = RedisServer::start().await;
    let pool = user_pool(&server);
    pool.resize(4);
    let store = Arc::new(
        Redis::from_pool(pool.clone(), &server.url())
            .build()
            .expect("a store"),
    );
    // From here on it has the one connection that it keeps of the pool.
    granted(&*store, &claim("other", LONG)).await;
    let mut taken = Vec::new();
    while taken.len() < 3 {
        taken.push(pool.get().await.expect("one more"));
    }
    let ttl = Duration::from_secs(1);
    let client = Client::builder().shared_store(store).ttl(ttl).build().await;
    let lease = client.unwrap().acquire("a").await.unwrap();
    for _ in 0..3 {
        let deadline = lease.term().expect("it is held").deadline();
        lease
            .renewed_past(deadline)
            .await
            .expect("it is renewed beside the pool");
    }
}

#[tokio::test]
async fn prefixes_keep_leases_apart() {
    let server = RedisServer::start().await;
    let store = |prefix: &str| Redis::builder(&server.url()).prefix(prefix).build();
    let (one, other) = (
        store("one").expect("valid"),
        store("other[x]").expect("valid"),
    );
    granted(&one, &claim("a", LONG)).await;
    granted(&other, &claim("a", LONG)).await;
    held(&one, &claim("a", LONG)).await;
    assert_eq!(one.list("", LIMIT).await.expect("answered").len(), 1);
    assert_eq!(other.list("", LIMIT).await.expect("answered").len(), 1);
    let error = store("a{b}").expect_err("braces are refused");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_list_of_thousands_is_read_page_by_page() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    for index in 0..1_500 {
        granted(&*store, &claim(&format!("n{index:04}"), LONG)).await;
    }
    let () = server.told("SET leasehold:{nobody} 1 PX 60000").await;
    let list = store.list("n", LIMIT).await.expect("answered");
    let names: Vec<_> = list.iter().map(|held| held.name.to_string()).collect();
    let expected: Vec<_> = (0..1_500).map(|index| format!("n{index:04}")).collect();
    assert_eq!(names, expected);
}

#[tokio::test]
async fn scripts_that_are_missing_are_loaded_once_for_all_batches() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let claim = claim("a", LONG);
    granted(&*store, &claim).await;
    let at_first = server.scripts_loaded().await;
    let () = server.told("SCRIPT FLUSH").await;
    let () = server.told("CONFIG RESETSTAT").await;
    let renewal = crate::harness::asking::renewal(&claim);
    let batch = vec![renewal; MAX_BATCH];
    let batches = (0..10).map(|_| store.renew(&batch, LIMIT));
    for renewed in futures_util::future::join_all(batches).await {
        assert_eq!(renewed.outcomes.len(), batch.len());
        for outcome in renewed.outcomes {
            assert!(matches!(outcome, Outcome::Renewed), "{outcome:?}");
        }
    }
    assert_eq!(server.scripts_loaded().await, at_first, "each once");
}

#[test]
fn a_store_outlives_the_runtime_of_its_first_caller() {
    let runtime = || tokio::runtime::Runtime::new().expect("a runtime");
    let (first, second) = (runtime(), runtime());
    let server = second.block_on(RedisServer::start());
    let store = second.block_on(open(&server.url()));
    let one = claim("a", LONG);
    first.block_on(granted(&*store, &one));
    drop(first);
    second.block_on(async {
        assert!(matches!(renewed(&*store, &one).await, Outcome::Renewed));
        assert_eq!(released(&*store, &one).await, Release::Released);
    });
}

#[test]
fn the_watchdogs_connection_lives_while_the_users_runtime_is_blocked() {
    let (users, watchdogs) = (runtime_of_one_thread(), runtime_of_one_thread());
    let server = watchdogs.block_on(RedisServer::start());
    let store = Redis::open(&server.url()).expect("a store");
    let one = claim("a", LONG);
    users.block_on(granted(&store, &one));
    // From here on no thread drives the user's runtime, on which the shared connection was made.
    watchdogs.block_on(async {
        let own = store
            .on_own_connection(Purpose::Watchdog)
            .await
            .expect("a connection");
        assert!(matches!(renewed(&*own, &one).await, Outcome::Renewed));
    });
}

/// A runtime that only runs while a caller waits in it.
fn runtime_of_one_thread() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

#[test]
fn one_client_serves_two_runtimes_of_which_one_stands_still() {
    let runtimes = [runtime_of_one_thread(), runtime_of_one_thread()];
    let server = runtimes[0].block_on(RedisServer::start());
    let client = runtimes[0].block_on(Client::open(server.url())).unwrap();
    for round in 0..4 {
        for runtime in &runtimes {
            runtime.block_on(async {
                let acquired = client.acquire_within("a", Duration::from_secs(1)).await;
                let lease = acquired.unwrap_or_else(|error| panic!("round {round}: {error:?}"));
                assert_eq!(lease.release().await, leasehold::ReleaseOutcome::Released);
            });
        }
    }
}

#[test]
fn each_runtime_has_a_connection_that_ends_with_it() {
    let main = runtime_of_one_thread();
    let server = main.block_on(RedisServer::start());
    let store = Redis::open(&server.url()).expect("a store");
    let connections = |expected: usize| {
        main.block_on(until("the connections", async || {
            let clients: String = server.told("CLIENT LIST").await;
            // One is the connection that asks.
            (clients.lines().count() == expected + 1).then_some(())
        }));
    };
    let use_on = |runtime: &tokio::runtime::Runtime, name: &str| {
        let one = claim(name, LONG);
        runtime.block_on(granted(&store, &one));
    };
    let others: Vec<_> = (0..3).map(|_| runtime_of_one_thread()).collect();
    for (index, runtime) in others.iter().enumerate() {
        use_on(runtime, &format!("n{index}"));
        use_on(runtime, &format!("m{index}"));
    }
    connections(3);
    drop(others);
    connections(0);
    // A runtime that follows is not taken for the one before it.
    use_on(&runtime_of_one_thread(), "o");
    connections(0);
    main.block_on(async {
        granted(&store, &claim("p", LONG)).await;
        store.close().await;
    });
    connections(0);
}

#[tokio::test]
async fn a_store_that_is_closed_while_it_connects_stays_closed() {
    let server = RedisServer::start().await;
    let proxy = server.proxy().await;
    proxy.stall();
    let store = open(&proxy.url()).await;
    let asking = tokio::spawn({
        let store = store.clone();
        async move { asked(&*store, &claim("a", LONG), LIMIT).await }
    });
    until("the connection", async || {
        (proxy.connections() > 0).then_some(())
    })
    .await;
    store.close().await;
    proxy.flow();
    let kind = |answer: Result<_, leasehold::Error>| answer.expect_err("closed").kind();
    let answer = asking.await.expect("no panic");
    assert_eq!(kind(answer), ErrorKind::Closed, "the one that connected");
    let answer = asked(&*store, &claim("a", LONG), LIMIT).await;
    assert_eq!(kind(answer), ErrorKind::Closed, "the next one");
    until("the end of the connection", async || {
        let clients: String = server.told("CLIENT LIST").await;
        (!clients.contains("lib-name=leasehold") && clients.lines().count() == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_silent_server_gets_only_a_few_new_connections() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    let one = claim("a", LONG);
    granted(&*store, &one).await;
    // New connections are welcome, but no script is answered.
    let () = server.told("CLIENT PAUSE 800 WRITE").await;
    for _ in 0..20 {
        let silent = asked(&*store, &one, Duration::from_millis(20)).await;
        assert_eq!(silent.expect_err("paused").kind(), ErrorKind::TimedOut);
    }
    granted(&*store, &one).await;
    let info: String = server.told("INFO stats").await;
    let count = info
        .lines()
        .find_map(|line| line.strip_prefix("total_connections_received:"))
        .and_then(|count| count.parse::<u32>().ok())
        .expect("a count");
    // The harness' own, the first, its one replacement.
    assert!(count < 8, "{count} connections");
}

#[tokio::test]
async fn a_connection_is_kept_though_a_limit_is_shorter_than_the_way_to_the_server() {
    let server = RedisServer::start().await;
    let proxy = server.proxy().await;
    let store = open(&proxy.url()).await;
    let one = claim("a", LONG);
    granted(&*store, &one).await;
    let before = proxy.connections();
    proxy.set(|_| Some(Fault::DelayReply(Duration::from_millis(60))));
    for _ in 0..3 {
        let hasty = asked(&*store, &one, Duration::from_millis(20)).await;
        assert_eq!(hasty.expect_err("too far").kind(), ErrorKind::TimedOut);
        granted(&*store, &one).await;
    }
    assert_eq!(
        proxy.connections(),
        before,
        "a healthy connection was given up"
    );
}

/// As one through a proxy whose server is gone: the kernel's acknowledgements hide it.
#[tokio::test]
async fn a_connection_that_never_answers_is_replaced_though_all_limits_are_short() {
    let server = RedisServer::start().await;
    let proxy = server.proxy().await;
    let store = open(&proxy.url()).await;
    let one = claim("a", LONG);
    granted(&*store, &one).await;
    proxy.once(Request::is_script, Fault::HoldReply);
    until("an answer over another connection", async || {
        // Longer apart than each of them waits.
        tokio::time::sleep(Duration::from_millis(300)).await;
        asked(&*store, &one, Duration::from_millis(100)).await.ok()
    })
    .await;
}

struct Gone;

impl Wake for Gone {
    fn wake(self: Arc<Self>) {
        panic!("the event loop is gone, as it was told");
    }
}

#[tokio::test]
async fn a_waker_that_panics_fails_no_request_of_others() {
    let server = RedisServer::start().await;
    let proxy = server.proxy().await;
    let store = open(&proxy.url()).await;
    let gone = Waker::from(Arc::new(Gone));
    let (ones, others) = (claim("a", LONG), claim("b", LONG));
    // The first waits for the connection, the others for answers over it.
    for _ in 0..3 {
        proxy.stall();
        let mut doomed = pin!(store.acquire(&ones, ones.ask, LIMIT));
        let mut context = Context::from_waker(&gone);
        assert!(doomed.as_mut().poll(&mut context).is_pending());
        let asking = granted(&*store, &others);
        let flowing = async { proxy.flow() };
        tokio::join!(asking, flowing);
    }
}

#[tokio::test]
async fn a_closed_store_gives_no_connections() {
    let server = RedisServer::start().await;
    let store = open(&server.url()).await;
    store.close().await;
    let own = store.on_own_connection(Purpose::Watchdog).await;
    assert_eq!(own.expect_err("closed").kind(), ErrorKind::Closed);
    let notices = store.notices().await;
    assert_eq!(notices.expect_err("closed").kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn a_failure_without_a_waiting_caller_is_not_returned_to_the_next_caller() {
    let mut server = RedisServer::start().await;
    let store = open(&server.url()).await;
    server.kill();
    let one = claim("a", LONG);
    tokio::select! {
        biased;
        answer = asked(&*store, &one, LIMIT) => panic!("answered at once: {answer:?}"),
        () = std::future::ready(()) => {}
    }
    server.start_again().await;
    granted(&*store, &one).await;
}

#[test]
fn a_name_whose_first_address_says_nothing_keeps_no_client_from_the_second() {
    past_a_silent_address(async || {
        let server = Setup::default().with_port().start().await;
        let (port, url) = (
            server.port(),
            format!("redis://{TWO_ADDRESSES}:{}", server.port()),
        );
        (server, port, url)
    });
}

/// A host whose first address accepts connections and says nothing.
pub(crate) const TWO_ADDRESSES: &str = "two.example";

/// Fails unless a client of this server, by a URL with [`TWO_ADDRESSES`] and this port, soon has connections of all kinds.
pub(crate) fn past_a_silent_address<S>(start: impl AsyncFnOnce() -> (S, u16, String)) {
    let hosts = format!("::1 {TWO_ADDRESSES}\n127.0.0.1 {TWO_ADDRESSES}\n");
    with_hosts(test_of(&start), &hosts, || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let (_server, port, url) = start().await;
            // The system accepts, and no process answers.
            let silent = std::net::TcpListener::bind(("::1", port));
            let _silent = silent.expect("the port is free there");
            let store = open(&url).await;
            let begun = now();
            next_token(&*store, "a").await;
            let own = store.on_own_connection(Purpose::Watchdog).await;
            own.expect("a connection of its own");
            assert!(store.notices().await.expect("answered").is_some());
            let took = now().since(begun);
            assert!(took < Duration::from_millis(1_800), "{url}: {took:?}");
        });
    });
}
