//! The types for implementations of [`Store`](super::Store), which users of a client do not need.
//!
//! Until version 1.0 they may change with a minor version: a new kind of request adds a method to the trait, which has
//! no defaults, so that a store that lacks it does not compile.

pub use super::claim::{Answer, Ask, Claim, Failed, Grant, Place, Queued, Sent};
pub use super::facts::{Facts, Purpose};
pub use super::notice::{Handover, Notice, Notices, Topic};
pub use super::release::Release;
pub use super::renewal::{MAX_BATCH, Outcome, Renewal, Renewed, ServerTime};
