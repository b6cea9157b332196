//! The frames on the wire, the contents of the nodes, and what they mean for a claim. Pure.

pub(super) mod judge;
pub(super) mod reading;
pub(super) mod stamp;
pub(super) mod tree;
pub(super) mod wire;
