//! The store on Redis: many clients on a bad network, a server that forgets thousands of leases, and the faults of
//! Sentinels and clusters.

mod clocks;
mod clusters;
mod crowds;
mod holder;
mod listeners;
mod listing;
mod lossy_network;
mod partitions;
mod restart;
mod sentinels;
mod slow_line;
