//! What the tests stand on: real servers as child processes, and a network that fails on order.

pub(crate) mod alone;
pub(crate) mod asking;
pub(crate) mod child;
pub(crate) mod forward;
pub(crate) mod pgbouncer;
pub(crate) mod postgres_server;
pub(crate) mod preload;
pub(crate) mod proxy;
pub(crate) mod redis_server;
pub(crate) mod relay;
pub(crate) mod resp;
pub(crate) mod server_clock;
pub(crate) mod tls;
pub(crate) mod wait;
