//! The times that tests share, each with one meaning. A time whose length is particular to a test stays beside that test.

use std::time::Duration;

/// How long a test waits for an event that must come. Enough for a busy machine; a test that reaches it has failed.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The limit of a request that should be answered.
pub const LIMIT: Duration = Duration::from_secs(5);
/// The limit of a request that gets no answer. Short, because the test waits for its end.
pub const UNANSWERED: Duration = Duration::from_millis(300);
/// The ttl of a lease that must not expire within a test on a busy machine.
pub const LONG: Duration = Duration::from_secs(60);
/// The ttl of a lease that lives in this process and that a test outlives several times, with [`MARGIN`]. Long enough for a
/// busy machine.
pub const TTL: Duration = Duration::from_millis(600);
/// The margin of such a lease.
pub const MARGIN: Duration = Duration::from_millis(60);
/// The ttl of a lease on a server or in a file that a test outlives, with the default margin.
pub const STORED_TTL: Duration = Duration::from_secs(2);
