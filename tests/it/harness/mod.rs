//! The set-up of the tests: real servers as child processes, and a network and a store that fail when told to.

pub(crate) mod alone;
pub(crate) mod asking;
pub(crate) mod child;
pub(crate) mod fake_sentinel;
pub(crate) mod faulty_store;
pub(crate) mod full_disk;
pub(crate) mod leases;
pub(crate) mod network;
pub(crate) mod pgbouncer;
pub(crate) mod postgres_server;
pub(crate) mod preload;
pub(crate) mod prometheus_server;
pub(crate) mod proxy;
pub(crate) mod redis_cluster;
pub(crate) mod redis_group;
pub(crate) mod redis_quorum;
pub(crate) mod redis_server;
pub(crate) mod relay;
pub(crate) mod resp;
pub(crate) mod rivalry;
pub(crate) mod server_clock;
pub(crate) mod subprocess;
pub(crate) mod times;
pub(crate) mod tls;
pub(crate) mod wait;
pub(crate) mod zookeeper_server;
