//! What the project's own tests and benches must reach. Not for users: no promise of stability.

pub use crate::watchdog::schedule;
pub use crate::watchdog::signal;
