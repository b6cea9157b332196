//! Leases in etcd: the failures of real servers, a cluster whose members go, and work.

mod cluster;
mod refusals;
mod users;
mod work;
