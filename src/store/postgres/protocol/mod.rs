//! The wire: the functions in the database, and their replies.

pub(super) mod reply;
mod results;
pub(super) mod schema;
