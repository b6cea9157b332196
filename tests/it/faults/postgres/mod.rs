//! What becomes of leases in Postgres when servers fail over, stop, or fill up.

mod chaos;
mod failover;
mod growth;
mod planted;
mod stops;
mod unlogged;
