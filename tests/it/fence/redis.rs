//! The fence in Redis, on a real server.

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{self, AsyncCommands};
use leasehold::fence::redis::Fence;
use leasehold::fence::{Pass, Refusal};
use leasehold::{Error, ErrorKind};

use super::{Guard, keeps_the_contract, pass};
use crate::harness::redis_server::{RedisServer, Setup};

/// A server with a register for each resource, in the slot of its fence.
#[derive(Debug)]
struct Registers {
    connection: MultiplexedConnection,
    _server: RedisServer,
}

fn fence(resource: &str) -> Fence {
    Fence::new(resource).expect("a valid resource")
}

fn register(resource: &str) -> String {
    format!("register:{{{resource}}}")
}

impl Guard for Registers {
    async fn raise(&self, resource: &str, shown: Option<&Pass>) -> Result<(), Error> {
        let pass = Pass::required(shown)?;
        fence(resource)
            .raise(&mut self.connection.clone(), pass)
            .await
    }

    async fn write(&self, resource: &str, shown: Option<&Pass>, value: &str) -> Result<(), Error> {
        let pass = Pass::required(shown)?;
        let mut commands = redis::pipe();
        commands.set(register(resource), value);
        fence(resource)
            .write(&mut self.connection.clone(), pass, &commands)
            .await
    }

    async fn read(&self, resource: &str) -> Option<String> {
        let value = self.connection.clone().get(register(resource)).await;
        value.expect("read")
    }

    async fn row(&self, resource: &str) -> Option<Pass> {
        let row = fence(resource).row(&mut self.connection.clone()).await;
        row.expect("read")
    }
}

#[tokio::test]
async fn redis_keeps_the_contract() {
    let server = RedisServer::start().await;
    let connection = server.connect().await.expect("it is up");
    keeps_the_contract(Registers {
        connection,
        _server: server,
    })
    .await;
}

#[tokio::test]
async fn the_replies_of_all_commands_come_back_in_order() {
    let server = RedisServer::start().await;
    let mut connection = server.connect().await.expect("it is up");
    let mut commands = redis::pipe();
    commands
        .set("text:{a}", "é \0 \"")
        .incr("count:{a}", 41)
        .get("text:{a}")
        .get("none:{a}")
        .hset("hash:{a}", "field", 1)
        .hgetall("hash:{a}");
    let replies: (String, u64, String, Option<String>, u64, Vec<String>) = fence("a")
        .write(&mut connection, &pass(1, 1), &commands)
        .await
        .expect("written");
    assert_eq!(replies.0, "OK");
    assert_eq!(replies.1, 41);
    assert_eq!(replies.2, "é \0 \"");
    assert_eq!(replies.3, None);
    assert_eq!(replies.5, ["field", "1"]);
}

#[tokio::test]
async fn a_command_that_the_server_refuses_is_named_and_those_before_it_stay() {
    let server = RedisServer::start().await;
    let mut connection = server.connect().await.expect("it is up");
    let mut commands = redis::pipe();
    commands
        .set("a:{a}", "text")
        .incr("a:{a}", 1)
        .set("b:{a}", "never");
    let error = fence("a")
        .write::<()>(&mut connection, &pass(1, 1), &commands)
        .await
        .expect_err("text cannot be counted");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
    assert!(error.to_string().contains("command=2"), "{error}");
    let seen: (String, Option<String>) = connection.mget(&["a:{a}", "b:{a}"]).await.expect("read");
    assert_eq!(seen, ("text".into(), None));
}

#[tokio::test]
async fn a_full_server_refuses_the_raise_unharmed() {
    let server = Setup::default()
        .with(["--maxmemory-policy", "noeviction"])
        .start()
        .await;
    let mut connection = server.connect().await.expect("it is up");
    let older = pass(1, 1);
    fence("a")
        .raise(&mut connection, &older)
        .await
        .expect("there is room yet");
    // Full for certain: how much a server frees after a refusal differs between versions.
    let () = server.told("CONFIG SET maxmemory 1").await;
    let error = fence("a")
        .raise(&mut connection, &pass(2, 2))
        .await
        .expect_err("full");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    let row = fence("a").row(&mut connection).await.expect("read");
    assert_eq!(row, Some(older));
}

#[tokio::test]
async fn a_fence_that_was_given_an_end_loses_it_with_the_next_raise() {
    let server = RedisServer::start().await;
    let mut connection = server.connect().await.expect("it is up");
    let fence = fence("a");
    fence
        .raise(&mut connection, &pass(1, 1))
        .await
        .expect("raised");
    let _: bool = connection.expire(fence.key(), 1_000).await.expect("told");
    fence
        .raise(&mut connection, &pass(2, 2))
        .await
        .expect("raised");
    let left: i64 = connection.ttl(fence.key()).await.expect("asked");
    assert_eq!(left, -1);
}

#[tokio::test]
async fn a_fence_that_was_given_an_end_loses_it_with_the_next_write() {
    let server = RedisServer::start().await;
    let mut connection = server.connect().await.expect("it is up");
    let fence = fence("a");
    let holder = pass(42, 42);
    let raised = fence.raise(&mut connection, &holder).await;
    raised.expect("raised");
    let _: bool = connection.expire(fence.key(), 1_000).await.expect("told");
    // Fields have ends of their own from Redis 7.4 on; before, the server does not know the command.
    let of_field = "HPEXPIRE leasehold:fence:{a} 200 FIELDS 1 token";
    let words: Vec<_> = of_field.split(' ').collect();
    let told: Result<redis::Value, _> = redis::cmd(words[0])
        .arg(&words[1..])
        .query_async(&mut connection)
        .await;
    let mut commands = redis::pipe();
    commands.set(register("a"), "again");
    let written: Result<(String,), _> = fence.write(&mut connection, &holder, &commands).await;
    written.expect("written");
    let left: i64 = connection.ttl(fence.key()).await.expect("asked");
    assert_eq!(left, -1);
    if told.is_ok() {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }
    let error = fence.raise(&mut connection, &pass(41, 41)).await;
    assert_eq!(error.expect_err("stale").kind(), ErrorKind::Stale);
}

#[tokio::test]
async fn a_key_of_another_kind_is_not_taken_for_no_fence() {
    let server = RedisServer::start().await;
    let mut connection = server.connect().await.expect("it is up");
    for line in [
        "SET leasehold:fence:{a} text",
        "HSET leasehold:fence:{b} token many holder h name n",
        "HSET leasehold:fence:{c} token 7",
    ] {
        let _: redis::Value = server.told(line).await;
    }
    for resource in ["a", "b", "c"] {
        let fence = fence(resource);
        let mut commands = redis::pipe();
        commands.set("written", 1);
        let error = fence
            .write::<()>(&mut connection, &pass(1, 1), &commands)
            .await
            .expect_err("damaged");
        assert_eq!(
            error.kind(),
            ErrorKind::Misconfigured,
            "{resource}: {error:?}"
        );
        let error = fence.row(&mut connection).await.expect_err("damaged");
        assert_eq!(
            error.kind(),
            ErrorKind::Misconfigured,
            "{resource}: {error:?}"
        );
    }
    assert_eq!(
        connection
            .get::<_, Option<u8>>("written")
            .await
            .expect("read"),
        None
    );
}

#[tokio::test]
async fn the_script_itself_refuses_a_write_without_a_pass() {
    let server = RedisServer::start().await;
    let mut connection = server.connect().await.expect("it is up");
    let script = redis::Script::new(include_str!("../../../src/fence/fence.lua"));
    for (token, holder, name) in [
        ("", "h", "n"),
        ("0", "h", "n"),
        ("1.5", "h", "n"),
        ("-1", "h", "n"),
        ("9007199254740992", "h", "n"),
        ("nan", "h", "n"),
        ("1", "", "n"),
        ("1", "h", ""),
    ] {
        let (tag, _): (String, String) = script
            .key("fence")
            .arg(&[token, holder, name, "3", "SET", "written", "1"])
            .invoke_async(&mut connection)
            .await
            .expect("answered");
        assert_eq!(tag, "malformed", "{token:?} {holder:?} {name:?}");
    }
    assert_eq!(server.keys().await, [""; 0]);
}

#[tokio::test]
async fn a_flush_forgets_the_fence_and_the_next_raise_sets_it_again() {
    let server = RedisServer::start().await;
    let mut connection = server.connect().await.expect("it is up");
    fence("a")
        .raise(&mut connection, &pass(2, 2))
        .await
        .expect("raised");
    let () = server.told("FLUSHALL").await;
    assert_eq!(fence("a").row(&mut connection).await.expect("read"), None);
    fence("a")
        .raise(&mut connection, &pass(3, 3))
        .await
        .expect("raised");
    let error = fence("a")
        .raise(&mut connection, &pass(2, 2))
        .await
        .expect_err("refused");
    let stored = pass(3, 3).token;
    assert_eq!(Refusal::of(&error), Some(&Refusal::Stale { stored }));
}

#[tokio::test]
async fn a_server_that_takes_no_writes_for_a_while_is_unavailable() {
    let server = RedisServer::start().await;
    let mut connection = server.connect().await.expect("it is up");
    let refused = async |connection: &mut MultiplexedConnection, code: &str| {
        let raised = fence("a").raise(connection, &pass(1, 1)).await;
        let error = raised.expect_err(code);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{code}: {error:?}");
    };
    let () = server.told("CONFIG SET min-replicas-to-write 1").await;
    refused(&mut connection, "NOREPLICAS").await;
    let () = server.told("CONFIG SET min-replicas-to-write 0").await;
    let () = server.told("REPLICAOF 127.0.0.1 1").await;
    refused(&mut connection, "READONLY").await;
    let () = server.told("CONFIG SET replica-serve-stale-data no").await;
    refused(&mut connection, "MASTERDOWN").await;
    server.promote().await;
    let raised = fence("a").raise(&mut connection, &pass(1, 1)).await;
    raised.expect("it is a master again");
}
