//! What becomes of leases on a quorum of servers when members die, hang and forget, and networks do their worst.

mod chaos;
mod conformance;
mod rivals;
mod way;
