//! The parts of the harness of `tests/it` that start a server for buckets.

#[path = "../../tests/it/harness/bucket_server.rs"]
pub(crate) mod bucket_server;
#[path = "../../tests/it/harness/child.rs"]
pub(crate) mod child;
#[path = "../../tests/it/harness/ports.rs"]
pub(crate) mod ports;
#[path = "../../tests/it/harness/times.rs"]
pub(crate) mod times;
#[path = "../../tests/it/harness/wait.rs"]
pub(crate) mod wait;
