//! Requests of many tasks in one: what is asked while a request is under way goes out together as the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Semaphore, mpsc, oneshot};

/// The most that one request carries: a script on Redis stops all other clients meanwhile.
const MOST: usize = 64;

/// How much was asked, in how many requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Count(Arc<(AtomicUsize, AtomicUsize)>);

impl Count {
    fn add(&self, asked: usize) {
        self.0.0.fetch_add(asked, Ordering::Relaxed);
        self.0.1.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn so_far(&self) -> (usize, usize) {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (of(&self.0.0), of(&self.0.1))
    }
}

/// Where the tasks put what they ask.
#[derive(Debug)]
pub(crate) struct Gathered<Q, A>(mpsc::UnboundedSender<(Q, oneshot::Sender<A>)>);

impl<Q, A> Clone for Gathered<Q, A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<Q: Send + 'static, A: Send + 'static> Gathered<Q, A> {
    /// Starts the task that sends them, with so many requests under way at once. `send` returns as many answers as it got
    /// questions, in their order.
    pub(crate) fn start<F: Future<Output = Vec<A>> + Send + 'static>(
        under_way: usize,
        count: &Count,
        send: impl Fn(Vec<Q>) -> F + Send + 'static,
    ) -> Self {
        let (sender, mut queue) = mpsc::unbounded_channel::<(Q, oneshot::Sender<A>)>();
        let (room, count) = (Arc::new(Semaphore::new(under_way)), count.clone());
        tokio::spawn(async move {
            while let Ok(permit) = room.clone().acquire_owned().await {
                let mut gathered = Vec::new();
                if queue.recv_many(&mut gathered, MOST).await == 0 {
                    return;
                }
                let (questions, askers): (Vec<_>, Vec<_>) = gathered.into_iter().unzip();
                count.add(questions.len());
                let sent = send(questions);
                tokio::spawn(async move {
                    let answers = sent.await;
                    drop(permit);
                    assert_eq!(answers.len(), askers.len(), "each has its answer");
                    for (asker, answer) in askers.into_iter().zip(answers) {
                        // Each task of the bench waits.
                        let _ = asker.send(answer);
                    }
                });
            }
        });
        Self(sender)
    }

    pub(crate) async fn ask(&self, question: Q) -> A {
        let (asker, answer) = oneshot::channel();
        let sent = self.0.send((question, asker));
        assert!(sent.is_ok(), "the task runs");
        answer.await.expect("it answers")
    }
}
