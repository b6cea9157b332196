//! Stores as version 0.1 left them: every later version must read what is recorded here.
//!
//! Each has a lease, an evicted one, a name that is kept after its release, and a free name with a token far ahead of every
//! clock. The files are never changed: a version that writes something else adds its own. `faults::mysql` reads `mysql.sql`.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Name;
use leasehold::store::bucket::Bucket;
use leasehold::store::record::Records;
use leasehold::store::sqlite::Sqlite;
use leasehold::store::{HeldState, Store, open};
use object_store::ObjectStoreExt as _;
use object_store::memory::InMemory;
use object_store::path::Path;

use crate::harness::asking::{claim, granted};
use crate::harness::etcd_server::EtcdServer;
use crate::harness::postgres_server::PostgresServer;
use crate::harness::redis_quorum::RedisQuorum;
use crate::harness::redis_server::RedisServer;
use crate::harness::times::{LIMIT, LONG};
use crate::harness::zookeeper_server::{Wire, ZookeeperServer};
use crate::kubernetes::fake;
use crate::{postgres, redis, zookeeper};

/// The last token of the free name.
const HIGHEST: u64 = 9_007_199_254_740_000;

pub(crate) async fn assert_read(store: &dyn Store) {
    for (text, state) in [
        ("held", HeldState::Leased),
        ("evicted", HeldState::Evicted),
        ("kept", HeldState::Kept),
    ] {
        let name = Name::new(text).unwrap();
        let held = store.inspect(&name, LIMIT).await.unwrap();
        let held = held.unwrap_or_else(|| panic!("{text} is free"));
        assert_eq!(held.state, state, "{text}");
        assert!(held.token.is_some(), "{held:?}");
        assert_eq!(held.info.host, "recorded", "{held:?}");
    }
    let token = granted(store, &claim("free", LONG)).await;
    assert_eq!(token.get(), HIGHEST + 1);
}

#[tokio::test]
async fn a_recorded_file_of_sqlite_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leases.sqlite");
    let recorded = rusqlite::Connection::open(&file).unwrap();
    recorded.execute_batch(include_str!("sqlite.sql")).unwrap();
    drop(recorded);
    assert_read(&Sqlite::open(&file).await.unwrap()).await;
}

/// Writes recorded keys to a server. Those that are not kept for good end in ten minutes.
async fn restore(server: &RedisServer, recorded: &str) {
    let mut connection = server.connect().await.unwrap();
    for line in recorded.lines() {
        let (key, value) = line.split_once(' ').unwrap();
        let mut command = deadpool_redis::redis::cmd("SET");
        if key == "leasehold:node" {
            command = deadpool_redis::redis::cmd("HSET");
            command.arg(key).arg(value.split(' ').collect::<Vec<_>>());
        } else {
            command.arg(key).arg(value);
            if !key.ends_with(":mark") {
                command.arg("EX").arg(600);
            }
        }
        let () = command.query_async(&mut connection).await.unwrap();
    }
}

#[tokio::test]
async fn recorded_keys_of_redis_are_read() {
    let server = RedisServer::start().await;
    restore(&server, include_str!("redis.txt")).await;
    assert_read(&*redis::open(&server.url()).await).await;
}

/// What a member knows of itself and of the others is of today; the rest of its node is recorded.
#[tokio::test]
async fn recorded_keys_of_a_quorum_are_read() {
    let quorum = RedisQuorum::start_new(3)
        .await
        .set_up(Duration::from_secs(600))
        .await;
    for server in &quorum.servers {
        restore(server, include_str!("quorum.txt")).await;
    }
    assert_read(&quorum.open()).await;
}

#[tokio::test]
async fn recorded_rows_of_postgres_are_read() {
    let database = PostgresServer::database().await;
    postgres::set_up(&database.url()).await;
    let connection = database.connect().await;
    let recorded = include_str!("postgres.sql");
    connection.batch_execute(recorded).await.unwrap();
    assert_read(&*postgres::open(&database.url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_objects_of_kubernetes_are_read() {
    let recorded = include_str!("kubernetes.jsonl").lines();
    let objects = recorded.map(|line| serde_json::from_str(line).unwrap());
    let api = fake::with(objects.collect()).await;
    assert_read(&*open(&api.url("a")).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_keys_of_etcd_are_read() {
    let server = EtcdServer::start().await;
    for line in include_str!("etcd.txt").lines() {
        let (key, value) = line.split_once(' ').unwrap();
        match key.contains("{held}") {
            true => server.write_for(600, key, value).await,
            false => server.write(key, value).await,
        }
    }
    assert_read(&*open(&server.url_with("", "leasehold")).await.unwrap()).await;
}

#[tokio::test]
async fn recorded_objects_of_a_bucket_are_read() {
    let objects = Arc::new(InMemory::new());
    for line in include_str!("bucket.txt").lines() {
        let (key, content) = line.split_once(' ').unwrap();
        let key = Path::parse(key).unwrap();
        objects.put(&key, content.to_owned().into()).await.unwrap();
    }
    let bucket = Bucket::new(objects, "leasehold").unwrap();
    assert_read(&Records::new(bucket)).await;
}

#[tokio::test]
async fn recorded_nodes_of_zookeeper_are_read() {
    let server = ZookeeperServer::start(Duration::from_secs(2)).await;
    let mut operator = Wire::connect(&server);
    for line in include_str!("zookeeper.txt").lines() {
        let (path, data) = line.split_once(' ').unwrap_or((line, ""));
        assert_eq!(operator.create(path, data.as_bytes()), 0, "{path}");
    }
    assert_read(&*zookeeper::open(&server.url("/r"))).await;
}
