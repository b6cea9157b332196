//! The parts of the harness of `tests/it` that start servers, networks and processes: the campaign has no other ones.
#![expect(dead_code, reason = "tests/it uses the rest")]

#[path = "../it/harness/alone.rs"]
pub(crate) mod alone;
#[path = "../it/harness/child.rs"]
pub(crate) mod child;
#[path = "../it/harness/full_disk.rs"]
pub(crate) mod full_disk;
#[path = "../it/harness/network.rs"]
pub(crate) mod network;
#[path = "../it/harness/postgres_server.rs"]
pub(crate) mod postgres_server;
#[path = "../it/harness/preload.rs"]
pub(crate) mod preload;
#[path = "../it/harness/proxy/mod.rs"]
pub(crate) mod proxy;
#[path = "../it/harness/redis_cluster.rs"]
pub(crate) mod redis_cluster;
#[path = "../it/harness/redis_group.rs"]
pub(crate) mod redis_group;
#[path = "../it/harness/redis_server.rs"]
pub(crate) mod redis_server;
#[path = "../it/harness/relay.rs"]
pub(crate) mod relay;
#[path = "../it/harness/resp.rs"]
pub(crate) mod resp;
#[path = "../it/harness/server_clock.rs"]
pub(crate) mod server_clock;
#[path = "../it/harness/times.rs"]
pub(crate) mod times;
#[path = "../it/harness/tls.rs"]
pub(crate) mod tls;
#[path = "../it/harness/wait.rs"]
pub(crate) mod wait;
#[path = "../it/harness/zookeeper_server/mod.rs"]
pub(crate) mod zookeeper_server;
