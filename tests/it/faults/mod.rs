//! The long tests: seeded campaigns, thousands of leases, and tables of every fault.
//!
//! `tests/run` leaves them out and `tests/run --faults` runs them. They are told apart by this folder alone: `tests/run`
//! passes `--skip faults::` to the test program. A plain `cargo test` runs them too.
//!
//! A test belongs here if it takes more than about 10 seconds on a quiet machine, or if the tests of its store take more
//! than 90 seconds without it. The conformance of a store, one death and one silence of its server stay outside.

mod boundary;
mod contender;
mod etcd;
mod journal;
mod kubernetes;
mod mysql;
mod object_store;
mod page;
mod permits;
mod postgres;
mod quorum;
mod redis;
mod simulator;
mod sqlite;
mod times;
mod turns;
mod zookeeper;
