//! The wire: the functions in the database, and their replies.

pub(super) mod reply;
pub(super) mod schema;
