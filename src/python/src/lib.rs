//! What Python cannot do itself: the client without async, its leases, and the library's log. `leasehold/__init__.py`
//! is what users read.
//!
//! Nothing here waits for the GIL while it holds a lock or drives a connection. A call from Python lets the GIL go
//! while it waits; what is told to Python comes from a thread that does nothing else.

mod call;
mod client;
mod error;
mod fence;
mod lease;
mod log;
mod options;

/// The part of the package `leasehold` that is written in Rust.
#[pyo3::pymodule(name = "_leasehold")]
mod module {
    #[pymodule_export]
    use super::{
        call::Call,
        client::Client,
        fence::{fence_key, fence_script, refused},
        lease::{Lease, call_when_lost, release, wait_lost},
        log::{end_log, lock_log, set_log_level, take_events, unlock_log},
    };
}
