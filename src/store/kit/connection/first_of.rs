//! Opens a connection to the first of several servers or addresses that answers.
//!
//! Each attempt is a whole handshake, because a server that hangs still accepts: the system does so for its process.

use std::future::Future;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::timeout;

use super::Unconnected;
use crate::error::ErrorKind;
use crate::store::kit::backend::Failing;

/// Time after which a connection to the next address is begun as well.
pub(crate) const HEAD_START: Duration = Duration::from_millis(300);

/// Begins one attempt after the other: the next one as soon as one has failed, and at the latest after this head start.
/// Returns the first that succeeds, or all failures.
pub(crate) async fn first_of<T, F>(
    head_start: Duration,
    attempts: impl Iterator<Item = impl Future<Output = Result<T, F>>>,
) -> Result<T, Vec<F>> {
    let mut later = attempts;
    let mut running: FuturesUnordered<_> = later.next().into_iter().collect();
    let mut failures = Vec::new();
    while !running.is_empty() {
        match timeout(head_start, running.next()).await {
            Ok(Some(Ok(opened))) => return Ok(opened),
            Ok(Some(Err(failure))) => failures.push(failure),
            Ok(None) | Err(_) => {}
        }
        running.extend(later.next());
    }
    Err(failures)
}

/// Returns the most informative failure: an answer rather than silence.
pub(crate) fn most_telling<F: Failing + From<Unconnected>>(failures: Vec<F>) -> F {
    let is_final = failures.iter().any(|failure| !is_transient(failure));
    let told = best(failures, |failure| match is_final {
        true => !is_transient(failure),
        false => failure.kind() != ErrorKind::TimedOut,
    });
    told.unwrap_or(Unconnected::Late.into())
}

/// Returns whether another attempt may succeed later.
pub(crate) fn is_transient(failure: &impl Failing) -> bool {
    failure.kind().is_transient()
}

/// Returns the first failure of this sort, or else the last one.
pub(crate) fn best<F>(mut failures: Vec<F>, is_of_sort: impl Fn(&F) -> bool) -> Option<F> {
    match failures.iter().position(is_of_sort) {
        Some(index) => Some(failures.swap_remove(index)),
        None => failures.pop(),
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::Pin;

    use super::*;
    use crate::clock::{Boottime, Clock};

    type Attempt = Pin<Box<dyn Future<Output = Result<u8, u8>>>>;

    #[tokio::test]
    async fn the_next_is_tried_at_once_after_a_failure_and_soon_beside_a_silence() {
        let begun = Boottime.now();
        let attempts: [Attempt; 4] = [
            Box::pin(pending()),
            Box::pin(ready(Err(1))),
            Box::pin(pending()),
            Box::pin(ready(Ok(3))),
        ];
        let first = first_of(HEAD_START, attempts.into_iter()).await;
        assert_eq!(first.expect("the last one answers"), 3);
        let took = Boottime.now().since(begun);
        assert!((2 * HEAD_START..4 * HEAD_START).contains(&took), "{took:?}");
    }

    #[tokio::test]
    async fn a_slow_one_is_not_given_up_when_the_next_is_tried() {
        let attempts: [Attempt; 2] = [
            Box::pin(async {
                tokio::time::sleep(2 * HEAD_START).await;
                Ok(0)
            }),
            Box::pin(pending()),
        ];
        let first = first_of(HEAD_START, attempts.into_iter()).await;
        assert_eq!(first.expect("it answers"), 0);
    }

    #[tokio::test]
    async fn without_an_answer_there_are_all_failures() {
        let attempts = [1, 2].map(|failure| ready(Err::<u8, _>(failure)));
        let failures = first_of(HEAD_START, attempts.into_iter()).await;
        assert_eq!(failures.expect_err("none succeeds"), [1, 2]);
    }

    #[test]
    fn the_failure_of_a_sort_counts_for_more_than_the_last() {
        let is_even = |number: &u8| number.is_multiple_of(2);
        assert_eq!(best(vec![1, 2, 3], is_even), Some(2));
        assert_eq!(best(vec![1, 3], is_even), Some(3));
        assert_eq!(best(Vec::new(), is_even), None);
    }
}
