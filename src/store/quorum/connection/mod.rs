//! The members, and questions to several of them at once.
//!
//! All members are asked at the same moment, and their answers are read as they come. Once a majority has answered and
//! nothing depends on the others, the call waits only a short time for them: a member that hangs does not set the
//! latency. A member that did not answer is left alone for a second, as long as a majority of the others is well.

mod member;
mod notices;
mod reply;

use std::fmt;
use std::ops::{Deref, Range};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::clock::{Boottime, Clock as _, Instant};
use crate::error::{Error, ErrorKind};
use crate::store::{Failed, Purpose};

#[cfg(feature = "internals")]
pub(crate) use self::member::sources;
pub(super) use self::member::{Act, NameAnswer, NameRequest, QuorumMember, words};
pub(super) use self::notices::MergedNotices;
pub(super) use self::reply::{MemberNode, SeenLease};
use super::protocol::majority;

/// Minimum wait for the remaining members once a majority has answered: more than the usual difference in load or
/// distance.
const LINGER: Duration = Duration::from_millis(100);
/// The remaining members get this many times the time the majority took.
const TIMES_AS_LONG: u32 = 8;
/// Pause before a member that did not answer is asked again.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// Minimum silence that is attributed to the member, and not to a caller's short limit.
const SILENCE: Duration = Duration::from_millis(100);

/// The members of a quorum, on the connections of one purpose.
#[derive(Debug, Clone)]
pub(super) struct Members {
    each: Arc<[Arc<QuorumMember>]>,
    /// When to ask each member again that did not answer.
    health: Arc<Mutex<Vec<Option<Instant>>>>,
}

/// The answers to one question, as they come. Dropping it leaves the others unread.
pub(super) struct Poll<T> {
    pub(super) pending: FuturesUnordered<Answering<T>>,
    members: usize,
    asked_at: Instant,
    deadline: Instant,
    /// Number of members that have answered.
    pub(super) answered: usize,
    /// The time that a majority took.
    pub(super) took: Option<Duration>,
    /// Whether to wait only a short time for the others once a majority has answered.
    hurries: bool,
}

/// Why members did not answer.
pub(super) type Failures = Vec<(usize, Failed)>;

type Answering<T> = Pin<Box<dyn Future<Output = (usize, Result<T, Failed>)> + Send>>;

impl Members {
    pub(super) fn new(each: Vec<QuorumMember>) -> Self {
        Self {
            health: Arc::new(Mutex::new(vec![None; each.len()])),
            each: each.into_iter().map(Arc::new).collect(),
        }
    }

    /// Returns the same members on connections of their own, which are not made yet.
    pub(super) fn beside(&self, purpose: Purpose) -> Self {
        Self::new(self.iter().map(|member| member.beside(purpose)).collect())
    }

    pub(super) fn all(&self) -> Range<usize> {
        0..self.len()
    }

    /// Returns how many of them are a majority.
    pub(super) fn majority(&self) -> usize {
        majority(self.len())
    }

    /// Returns the longest ttl, as the settings have it.
    pub(super) fn max_ttl(&self) -> Option<Duration> {
        self[0].server.max_ttl
    }

    /// Returns how long making all connections may take.
    pub(super) fn connect_timeout(&self) -> Duration {
        let each = self.iter().map(|member| member.server.connect_timeout());
        each.max().unwrap_or_default()
    }

    pub(super) fn location(&self, member: usize) -> &str {
        &self[member].server.location
    }

    /// Returns the locations of all members, as `init` records them.
    pub(super) fn locations(&self) -> String {
        let locations: Vec<_> = self.iter().map(|member| &*member.server.location).collect();
        locations.join(", ")
    }

    /// Reads the records of all members.
    pub(super) fn read_node(&self, limit: Duration) -> Poll<MemberNode> {
        self.ask(self.all(), limit, |_, member| async move {
            member.read_node(limit).await
        })
    }

    /// Asks these members.
    pub(super) fn ask<T, F>(
        &self,
        members: impl IntoIterator<Item = usize>,
        limit: Duration,
        ask: impl Fn(usize, Arc<QuorumMember>) -> F,
    ) -> Poll<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failed>> + Send + 'static,
    {
        let asked_at = Boottime.now();
        let skipped = skipped(&mut self.health.lock(), asked_at);
        let asking = |member: usize| -> Answering<T> {
            if skipped[member] {
                let failed = Failed::never(not_asked());
                return Box::pin(std::future::ready((member, Err(failed))));
            }
            let (answer, health) = (ask(member, self.each[member].clone()), self.health.clone());
            Box::pin(async move {
                let answer = answer.await;
                health.lock()[member] = ill_until(answer.as_ref().err(), asked_at);
                (member, answer)
            })
        };
        Poll {
            pending: members.into_iter().map(asking).collect(),
            members: self.len(),
            asked_at,
            deadline: asked_at.after(limit),
            answered: 0,
            took: None,
            hurries: false,
        }
    }
}

impl Deref for Members {
    type Target = [Arc<QuorumMember>];

    fn deref(&self) -> &Self::Target {
        &self.each
    }
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "quorum of {}", self.locations())
    }
}

impl<T> Poll<T> {
    /// Returns the next answer, with the index of its member. `None` if no more answers come in time.
    ///
    /// # Cancel safety
    /// Dropping the future loses no answer.
    pub(super) async fn next(&mut self) -> Option<(usize, Result<T, Failed>)> {
        let mut until = self.deadline;
        if let Some(took) = self.took.filter(|_| self.hurries) {
            let linger = LINGER.max(took * TIMES_AS_LONG);
            until = until.min(self.asked_at.after(took + linger));
        }
        let left = until.since(Boottime.now());
        let (member, answer) = timeout(left, self.pending.next()).await.ok()??;
        self.answered += usize::from(answer.is_ok());
        if self.took.is_none() && self.answered >= majority(self.members) {
            self.took = Some(Boottime.now().since(self.asked_at));
        }
        Some((member, answer))
    }

    /// Waits only a short time for the others once a majority has answered, because their answers change little. With
    /// the time that a majority took before, waits for none.
    pub(super) fn hurry(&mut self, took: Option<Duration>) {
        self.hurries = true;
        self.took = self.took.or(took);
    }

    /// Returns the answers that come in time, up to these that are enough, and the failures.
    pub(super) async fn gather(
        mut self,
        is_enough: impl Fn(&[(usize, T)]) -> bool,
    ) -> (Vec<(usize, T)>, Failures) {
        let (mut answers, mut failures) = (Vec::new(), Vec::new());
        while !is_enough(&answers)
            && let Some((member, answer)) = self.next().await
        {
            match answer {
                Ok(answer) => answers.push((member, answer)),
                Err(failed) => failures.push((member, failed)),
            }
        }
        (answers, failures)
    }
}

/// Returns the members that are skipped at this moment.
fn skipped(until: &mut [Option<Instant>], now: Instant) -> Vec<bool> {
    let well = until.iter().filter(|until| until.is_none()).count();
    if well < majority(until.len()) {
        return vec![false; until.len()];
    }
    let is_skipped = |until: &mut Option<Instant>| match until {
        // A member that is asked again is asked once, until it answers.
        Some(again) if now >= *again => {
            *again = now.after(PAUSE);
            false
        }
        until => until.is_some(),
    };
    until.iter_mut().map(is_skipped).collect()
}

/// Returns when to ask a member again after this answer; `None` if it is well.
fn ill_until(failed: Option<&Failed>, asked_at: Instant) -> Option<Instant> {
    let (kind, now) = (failed?.error.kind(), Boottime.now());
    let is_silent = kind == ErrorKind::TimedOut && now.since(asked_at) >= SILENCE;
    (is_silent || kind == ErrorKind::Unavailable).then(|| now.after(PAUSE))
}

fn not_asked() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "not asked: it did not answer a moment ago",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ill() -> Failed {
        Failed::never(not_asked())
    }

    #[test]
    fn a_member_that_did_not_answer_is_not_asked_for_a_second() {
        let mut until = [None; 3];
        let now = Boottime.now();
        until[1] = ill_until(Some(&ill()), now);
        assert_eq!(skipped(&mut until, now), [false, true, false]);
        let later = now.after(PAUSE * 2);
        assert_eq!(skipped(&mut until, later), [false; 3], "it is asked once");
        assert_eq!(skipped(&mut until, later), [false, true, false]);
        until[1] = ill_until(None, now);
        assert_eq!(skipped(&mut until, later), [false; 3]);
    }

    #[test]
    fn without_a_majority_that_is_well_all_are_asked() {
        let mut until = [None; 3];
        let now = Boottime.now();
        until[0] = ill_until(Some(&ill()), now);
        until[1] = ill_until(Some(&ill()), now);
        assert_eq!(skipped(&mut until, now), [false; 3]);
    }

    #[test]
    fn a_short_limit_says_nothing_about_a_member() {
        let mut until = [None; 3];
        let now = Boottime.now();
        let late = Failed::perhaps(Error::new(ErrorKind::TimedOut, "no answer in time"));
        until[0] = ill_until(Some(&late), now);
        assert_eq!(skipped(&mut until, now), [false; 3]);
        until[0] = ill_until(Some(&late), now.before(SILENCE));
        assert_eq!(skipped(&mut until, now), [true, false, false]);
    }
}
