//! Everything that needs more than a pure function: real stores, real processes, real time.
#![expect(
    clippy::unwrap_used,
    clippy::await_holding_invalid_type,
    reason = "tests speak through their names and fail by panic, and the lock of a test may last"
)]

mod bucket;
mod conformance;
mod dashboards;
mod etcd;
mod example_files;
mod faults;
mod fence;
mod groups;
mod kubernetes;
mod lease;
mod licences;
mod metrics;
mod mysql;
mod pools;
mod postgres;
mod quorum;
mod record;
mod recorded;
mod redis;
mod simulator;
mod sqlite;
mod tidy;
mod tls;
mod tool;
mod waiting;
mod watchdog;
mod zookeeper;

use leasehold_harness as harness;
