//! The wire: the keys, the scripts, and their replies.

pub(super) mod keys;
pub(super) mod reply;
pub(super) mod scripts;
pub(super) mod slot;
pub(super) mod value;
