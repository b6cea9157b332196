//! The manual, in five chapters.
//!
//! - [`promises`]: what leasehold guarantees, and under which assumptions.
//! - [`fencing`]: how storage refuses a holder that was told too late.
//! - [`waiting`]: how clients wait for a name, in which order, and how to elect a leader.
//! - [`failure`]: what happens to a lease in each fault, and what to do about each kind of error.
//! - [`stable`]: which interfaces are stable, and which may change until 1.0.
//!
//! The reference is in the modules themselves: [`store`](crate::store) and [`fence`](crate::fence) each begin with the
//! contract that their implementations keep.

pub mod failure;
pub mod fencing;
pub mod promises;
#[cfg(all(doctest, feature = "sqlite", feature = "rusqlite"))]
mod readme;
pub mod stable;
pub mod waiting;
