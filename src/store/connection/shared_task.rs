//! A task whose outcome several callers await.
//!
//! It goes on whether or not a caller polls it, so a caller whose future rests holds up no other one.

use std::pin::Pin;

use futures_util::future::{FutureExt as _, Shared};
use tokio::time::timeout;

use super::Unconnected;
use crate::future::shielded;
use crate::store::budget::Budget;

/// The task's outcome.
pub(in crate::store) type SharedTask<T, F> =
    Shared<Pin<Box<dyn Future<Output = Result<T, F>> + Send>>>;

/// Starts the work on the calling runtime. The outcome is `Abandoned` if that runtime ends first.
pub(in crate::store) fn start<T, F>(
    work: impl Future<Output = Result<T, F>> + Send + 'static,
) -> SharedTask<T, F>
where
    T: Clone + Send + Sync + 'static,
    F: Clone + Send + Sync + From<Unconnected> + 'static,
{
    let task = tokio::spawn(work);
    let outcome = async { task.await.unwrap_or(Err(Unconnected::Abandoned.into())) };
    let outcome: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(outcome);
    outcome.shared()
}

/// Awaits the outcome within this budget.
pub(in crate::store) async fn outcome<T: Clone, F: Clone + From<Unconnected>>(
    task: &SharedTask<T, F>,
    budget: Budget,
) -> Result<T, F> {
    let outcome = timeout(budget.left(), shielded(task.clone())).await;
    outcome.unwrap_or(Err(Unconnected::Late.into()))
}
