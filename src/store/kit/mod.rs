//! The tools for authors of stores in this crate: the implementation of the trait over a store's requests, budgets of
//! time, subscriptions and watches; for stores on servers also their URLs, a connection that is kept alive, and tables of
//! hazards.

pub(crate) mod backend;
pub(crate) mod budget;
#[cfg(feature = "_connection")]
pub(crate) mod check;
#[cfg(feature = "_connection")]
pub(crate) mod connect_timeout;
#[cfg(feature = "_connection")]
pub(crate) mod connection;
#[cfg(feature = "_server")]
pub(crate) mod server_url;
pub(crate) mod subscription;
pub(crate) mod tables;
#[cfg(feature = "_tls")]
pub(crate) mod tls;
#[cfg(any(feature = "etcd", feature = "kubernetes"))]
pub(crate) mod watches;
