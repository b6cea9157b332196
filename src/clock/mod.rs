//! The clocks that measure leases, each with its own way to sleep.
//!
//! A lease's clock must run whenever a rival's clock can, so the store names the clock: [`Boottime`] for servers,
//! because the server runs on while this machine is suspended; [`Monotonic`] for SQLite and memory, whose rivals are
//! suspended with this process. [`Manual`] is moved by a test. No wall clock decides whether a lease is held.
//!
//! macOS has one clock for both, which counts suspends. There, and on Linux with `--cfg leasehold_portable_clock`, a
//! sleep is made of short steps, which notice within a tenth of a second that the clock went on during a suspend.

#[cfg(all(target_os = "linux", not(leasehold_portable_clock)))]
mod timerfd;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Notify;

pub use crate::term::{Fraction, Instant, Term, Timing};

/// A future that sleeps until some moment of a clock.
pub type Sleep<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A source of time that only goes forward.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the current moment.
    fn now(&self) -> Instant;

    /// Sleeps until `at`: the future completes at `at` or soon after, never before. It needs a tokio runtime with its
    /// I/O and time drivers enabled.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    fn sleep_until(&self, at: Instant) -> Sleep<'_>;

    /// Sleeps until `at`, where there may be thousands of sleepers at once. It uses no file descriptor, but may
    /// complete up to five seconds late after a suspend. The default is [`sleep_until`](Self::sleep_until).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    fn nap_until(&self, at: Instant) -> Sleep<'_> {
        self.sleep_until(at)
    }

    /// Returns the usual name of this clock, for the status file of a job.
    fn name(&self) -> &'static str;
}

/// The system's clock that counts suspends.
#[cfg(not(target_os = "macos"))]
const BOOTTIME: ClockId = ClockId::Boottime;
#[cfg(target_os = "macos")]
const BOOTTIME: ClockId = ClockId::Monotonic;

/// `CLOCK_BOOTTIME`, on macOS `CLOCK_MONOTONIC`: also runs while the machine is suspended.
#[derive(Debug, Clone, Copy, Default)]
pub struct Boottime;

/// `CLOCK_MONOTONIC`: stops while the machine is suspended, except on macOS.
#[derive(Debug, Clone, Copy, Default)]
pub struct Monotonic;

impl Clock for Boottime {
    fn now(&self) -> Instant {
        read(BOOTTIME)
    }

    fn sleep_until(&self, at: Instant) -> Sleep<'_> {
        Box::pin(sleep(self, BOOTTIME, at))
    }

    fn nap_until(&self, at: Instant) -> Sleep<'_> {
        Box::pin(steps(self, at, NAP))
    }

    fn name(&self) -> &'static str {
        match BOOTTIME {
            ClockId::Monotonic => Monotonic.name(),
            _ => "CLOCK_BOOTTIME",
        }
    }
}

impl Clock for Monotonic {
    fn now(&self) -> Instant {
        read(ClockId::Monotonic)
    }

    fn sleep_until(&self, at: Instant) -> Sleep<'_> {
        Box::pin(sleep(self, ClockId::Monotonic, at))
    }

    fn nap_until(&self, at: Instant) -> Sleep<'_> {
        Box::pin(steps(self, at, NAP))
    }

    fn name(&self) -> &'static str {
        "CLOCK_MONOTONIC"
    }
}

fn read(id: ClockId) -> Instant {
    let time = clock_gettime(id);
    let seconds = u64::try_from(time.tv_sec).expect("these clocks start at zero");
    let nanos = u64::try_from(time.tv_nsec).expect("these clocks start at zero");
    Instant::from_nanos(seconds * 1_000_000_000 + nanos)
}

/// The longest nap that relies on tokio's timer, which stops while the machine is suspended.
const NAP: Duration = Duration::from_secs(5);

/// The longest step of a sleep without a timer of the clock itself.
const STEP: Duration = Duration::from_millis(100);

/// Sleeps on a timer of the clock itself: tokio's own timer has a grain of one millisecond and stops during a suspend.
/// Where there is none, or no file descriptor is left, the sleep is coarse.
async fn sleep(clock: &dyn Clock, id: ClockId, at: Instant) {
    if clock.now() < at && timer(id, at).await.is_err() {
        steps(clock, at, STEP).await;
    }
}

#[cfg(all(target_os = "linux", not(leasehold_portable_clock)))]
use timerfd::sleep_until as timer;

#[cfg(any(not(target_os = "linux"), leasehold_portable_clock))]
async fn timer(_: ClockId, _: Instant) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Sleeps on tokio's timer, and reads the clock after each step.
async fn steps(clock: &dyn Clock, at: Instant, longest: Duration) {
    loop {
        let left = at.since(clock.now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(longest)).await;
    }
}

/// Reads the wall clock. It decides nothing about leases: it is for the tokens of SQLite and memory, to recognize a
/// token that no store can have minted, and for what people read.
#[expect(
    clippy::disallowed_methods,
    reason = "only this function reads the wall clock"
)]
pub fn wall_clock() -> SystemTime {
    SystemTime::now()
}

/// Returns a pause of at most this length, half of it random, so that clients that failed together do not all return
/// together.
pub(crate) fn half_random(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// Returns the wall clock in microseconds since 1970.
pub(crate) fn wall_clock_us() -> u64 {
    let since = wall_clock()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A clock that moves only when a test moves it.
#[derive(Debug, Default)]
pub struct Manual {
    nanos: AtomicU64,
    moved: Notify,
}

impl Manual {
    /// Makes a clock that shows one hour, so that tests can look back.
    pub fn new() -> Self {
        Self {
            nanos: AtomicU64::new(3_600_000_000_000),
            moved: Notify::new(),
        }
    }

    /// Moves the clock forward and wakes the tasks whose sleep has ended.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).expect("tests move by less than 500 years");
        self.nanos.fetch_add(by, Ordering::SeqCst);
        self.moved.notify_waiters();
    }
}

impl Clock for Manual {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.nanos.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, at: Instant) -> Sleep<'_> {
        Box::pin(async move {
            loop {
                let moved = self.moved.notified();
                if self.now() >= at {
                    return;
                }
                moved.await;
            }
        })
    }

    fn name(&self) -> &'static str {
        "manual"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sleep_never_ends_early() {
        for clock in [&Boottime as &dyn Clock, &Monotonic] {
            let at = clock.now().after(Duration::from_millis(5));
            clock.sleep_until(at).await;
            assert!(clock.now() >= at);
            clock.sleep_until(Instant::ZERO).await;
            let at = clock.now().after(Duration::from_millis(5));
            clock.nap_until(at).await;
            assert!(clock.now() >= at);
        }
    }

    #[tokio::test]
    async fn a_sleep_in_steps_notices_that_the_clock_went_on() {
        let clock = Manual::new();
        let at = clock.now().after(Duration::from_secs(3_600));
        let suspend = async {
            tokio::time::sleep(2 * STEP).await;
            clock.advance(Duration::from_secs(3_600));
            Boottime.now()
        };
        let ((), woken_at) = tokio::join!(steps(&clock, at, STEP), suspend);
        assert!(Boottime.now().since(woken_at) < Duration::from_secs(60));
    }

    #[tokio::test]
    async fn a_manual_clock_wakes_its_sleepers_when_moved() {
        let clock = std::sync::Arc::new(Manual::new());
        let at = clock.now().after(Duration::from_secs(5));
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep_until(at).await }
        });
        clock.advance(Duration::from_secs(4));
        tokio::task::yield_now().await;
        assert!(!sleeper.is_finished());
        clock.advance(Duration::from_secs(1));
        sleeper.await.expect("woken");
    }
}
