//! The metrics that a user's exporter shows: the table, the page in the docs, and each row as it moves.
//!
//! A test that moves metrics has a process of its own, because a process has one exporter and its totals are shared.

mod connections;
pub(crate) mod exporter;
mod fences;
mod idle;
mod leases;
mod log;
mod moved;
mod page;
mod quorum;
mod servers;
pub(crate) mod text;
