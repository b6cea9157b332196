//! The wire: the functions in the database, and their replies.

mod record;
pub(super) mod reply;
pub(super) mod schema;
