//! What becomes of leases in Postgres when servers fail over, stop, or fill up.

mod chaos;
mod clock;
mod crowds;
mod failover;
mod full_disk;
mod growth;
mod hosts;
mod outages;
mod recovery;
mod stops;
