//! Leases in MySQL, on servers of MariaDB: the contract, work, and the failures of real servers.

mod clock;
mod fence;
mod hosts;
mod outages;
mod refusals;
mod rows;
mod tool;
mod work;
