//! A task whose outcome several callers await.
//!
//! It goes on whether or not a caller polls it, so a caller whose future rests holds up no other one.

use std::pin::Pin;

use futures_util::future::{FutureExt as _, Shared};
use tokio::time::timeout;

use super::super::failure::Failure;
use super::budget::Budget;
use crate::future::shielded;

/// The task's outcome.
pub(in super::super) type SharedTask<T> =
    Shared<Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>>;

/// Starts the work on the calling runtime. The outcome is `Abandoned` if that runtime ends first.
pub(in super::super) fn start<T: Clone + Send + Sync + 'static>(
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> SharedTask<T> {
    let task = tokio::spawn(work);
    let outcome = async { task.await.unwrap_or(Err(Failure::Abandoned)) };
    let outcome: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(outcome);
    outcome.shared()
}

/// Awaits the outcome within this budget.
pub(in super::super) async fn outcome<T: Clone>(
    task: &SharedTask<T>,
    budget: Budget,
) -> Result<T, Failure> {
    let outcome = timeout(budget.left(), shielded(task.clone())).await;
    outcome.unwrap_or(Err(Failure::Silent))
}
