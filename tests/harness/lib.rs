//! The set-up of the tests, the campaign and the benches: real servers as child processes, and a network and a store
//! that fail when told to. It fails by panic.
#![expect(
    missing_docs,
    missing_debug_implementations,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "read beside its users, and never published"
)]

pub mod alone;
pub mod asking;
pub mod bucket_server;
pub mod child;
pub mod crowd;
pub mod etcd_server;
pub mod fake_sentinel;
pub mod fake_server;
pub mod faulty_store;
pub mod full_disk;
pub mod kubernetes_server;
pub mod leases;
pub mod mysql_server;
pub mod network;
pub mod pgbouncer;
pub mod ports;
pub mod postgres_server;
pub mod preload;
pub mod prometheus_server;
pub mod proxy;
pub mod redis_cluster;
pub mod redis_group;
pub mod redis_quorum;
pub mod redis_server;
pub mod register;
pub mod relay;
pub mod resp;
pub mod rivalry;
pub mod server_clock;
pub mod subprocess;
pub mod times;
pub mod tls;
pub mod tree;
pub mod wait;
pub mod wrapped;
pub mod zookeeper_server;
