//! What goes over the wire, what is in the nodes, and what it means for a claim. Pure.

pub(super) mod judge;
pub(super) mod reading;
pub(super) mod stamp;
pub(super) mod tree;
pub(super) mod wire;
