//! The parts of the harness of `tests/it` that start Redis servers, several of which belong together.
#![expect(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    reason = "tests/it uses the rest, and fails by panic"
)]

#[path = "../../tests/it/harness/alone.rs"]
pub(crate) mod alone;
#[path = "../../tests/it/harness/child.rs"]
pub(crate) mod child;
#[path = "../../tests/it/harness/network.rs"]
pub(crate) mod network;
#[path = "../../tests/it/harness/ports.rs"]
pub(crate) mod ports;
#[path = "../../tests/it/harness/preload.rs"]
pub(crate) mod preload;
#[path = "../../tests/it/harness/proxy/mod.rs"]
pub(crate) mod proxy;
#[path = "../../tests/it/harness/redis_cluster.rs"]
pub(crate) mod redis_cluster;
#[path = "../../tests/it/harness/redis_quorum.rs"]
pub(crate) mod redis_quorum;
#[path = "../../tests/it/harness/redis_server.rs"]
pub(crate) mod redis_server;
#[path = "../../tests/it/harness/resp.rs"]
pub(crate) mod resp;
#[path = "../../tests/it/harness/server_clock.rs"]
pub(crate) mod server_clock;
#[path = "../../tests/it/harness/times.rs"]
pub(crate) mod times;
#[path = "../../tests/it/harness/tls.rs"]
pub(crate) mod tls;
#[path = "../../tests/it/harness/wait.rs"]
pub(crate) mod wait;
