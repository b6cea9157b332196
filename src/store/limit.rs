//! What becomes of a call that its store does not end in time, although it promised to: no caller waits for it for ever.

use std::future::Future;
use std::time::Duration;

use crate::clock::Sleep;

/// How long a call of this limit is waited for. The half on top is for the store's own clock to be the one that ends it.
pub(crate) fn at_most(limit: Duration) -> Duration {
    limit + limit / 2
}

/// The answer, unless the call is given up first: then what was asked is as open as after a lost reply.
pub(crate) async fn within<T>(given_up: Sleep<'_>, answer: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        answer = answer => Some(answer),
        () = given_up => None,
    }
}
