use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime;
use tokio::sync::{Notify, Semaphore};

use super::*;
use crate::telemetry::Sink;

const LONG: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Failure {
    Unconnected(Unconnected),
    Refused,
    OfRequest(Fault),
    Unsent(Box<Failure>),
    SentBefore(Box<Failure>),
}

/// Connections are numbered; a request is answered with the number of its connection.
#[derive(Clone, Default)]
struct Fake(Arc<FakeServer>);

struct FakeServer {
    made: AtomicUsize,
    /// An attempt ends once it gets a permit.
    may_end: Semaphore,
    refusals: AtomicUsize,
    faults: Mutex<VecDeque<Option<Fault>>>,
    /// A request is answered once it gets a permit, in order.
    may_answer: Semaphore,
    ends: Notify,
    next: AfterEnd,
}

impl Default for FakeServer {
    fn default() -> Self {
        Self {
            made: AtomicUsize::new(0),
            may_end: Semaphore::new(100),
            refusals: AtomicUsize::new(0),
            faults: Mutex::default(),
            may_answer: Semaphore::new(100),
            ends: Notify::new(),
            next: AfterEnd::Down,
        }
    }
}

impl From<Unconnected> for Failure {
    fn from(why: Unconnected) -> Self {
        Self::Unconnected(why)
    }
}

impl Connect for Fake {
    type Open = usize;
    type Engine = ();
    type Failure = Failure;

    async fn connect(&mut self) -> Result<(usize, ()), Failure> {
        let number = self.0.made.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.may_end.acquire().await.expect("open").forget();
        let refuse = |left: usize| left.checked_sub(1);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        match self.0.refusals.fetch_update(set, get, refuse) {
            Ok(_) => Err(Failure::Refused),
            Err(_) => Ok((number, ())),
        }
    }

    async fn drive(&mut self, (): (), _: &Driven<Self>) -> AfterEnd {
        self.0.ends.notified().await;
        self.0.next
    }
}

impl Exchange for Fake {
    type Request<'a> = ();
    type Answer = usize;

    async fn exchange(&self, open: &Arc<usize>, (): (), _: Budget) -> Result<usize, Failure> {
        self.0.may_answer.acquire().await.expect("open").forget();
        let fault = self.0.faults.lock().pop_front().flatten();
        fault.map_or(Ok(**open), |fault| Err(Failure::OfRequest(fault)))
    }

    fn fault(failure: &Failure, _: &usize, _: Duration) -> Option<Fault> {
        match failure {
            Failure::OfRequest(fault) => Some(*fault),
            _ => None,
        }
    }

    fn is_silent(_: &usize, _: Instant, _: Duration) -> bool {
        true
    }

    fn silence() -> Failure {
        Failure::OfRequest(Fault::Silent)
    }

    fn is_full(failure: &Failure) -> bool {
        *failure == Failure::Refused
    }

    fn unsent(failure: Failure) -> Failure {
        Failure::Unsent(Box::new(failure))
    }

    fn sent_before(failure: Failure) -> Failure {
        Failure::SentBefore(Box::new(failure))
    }
}

fn on(runtime: Handle, script: FakeServer) -> Connection<Fake> {
    let gauge = Sink::of_store("connection").connection(None);
    Connection::new(Fake(Arc::new(script)), HomeRuntime::Runtime(runtime), gauge)
}

fn here(script: FakeServer) -> Connection<Fake> {
    on(Handle::current(), script)
}

fn with_faults(faults: &[Option<Fault>]) -> Connection<Fake> {
    here(FakeServer {
        faults: Mutex::new(faults.iter().copied().collect()),
        ..FakeServer::default()
    })
}

fn stuck() -> FakeServer {
    FakeServer {
        may_end: Semaphore::new(0),
        ..FakeServer::default()
    }
}

fn soon() -> Budget {
    Budget::new(Duration::from_secs(10))
}

impl Connection<Fake> {
    async fn ask(&self, replace_every: Duration) -> Result<usize, Failure> {
        self.request((), soon().replacing_every(replace_every))
            .await
    }

    fn made(&self) -> usize {
        self.connector().0.made.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn many_callers_share_one_attempt_and_one_connection() {
    let connection = here(FakeServer::default());
    let asked = tokio::join!(connection.ask(LONG), connection.ask(LONG));
    assert_eq!(asked, (Ok(1), Ok(1)));
    assert_eq!((connection.ask(LONG).await, connection.made()), (Ok(1), 1));
}

#[tokio::test]
async fn an_attempt_goes_on_when_its_first_caller_gives_up() {
    let connection = here(stuck());
    let late = connection.open(Budget::new(Duration::from_millis(1))).await;
    assert_eq!(late, Err(Failure::Unconnected(Unconnected::Late)));
    assert!(connection.open(soon()).now_or_never().is_none());
    connection.connector().0.may_end.add_permits(1);
    assert_eq!((connection.ask(LONG).await, connection.made()), (Ok(1), 1));
}

#[tokio::test]
async fn a_failed_attempt_fails_those_that_wait_and_the_next_request_begins_another() {
    let connection = here(FakeServer {
        refusals: AtomicUsize::new(1),
        ..FakeServer::default()
    });
    let refused = Err(Failure::Unsent(Box::new(Failure::Refused)));
    let both = tokio::join!(connection.ask(LONG), connection.ask(LONG));
    assert_eq!(both, (refused.clone(), refused));
    assert_eq!(connection.ask(LONG).await, Ok(2));
}

#[tokio::test]
async fn a_request_whose_connection_was_found_closed_is_sent_again_at_once() {
    let connection = with_faults(&[Some(Fault::FoundClosed)]);
    assert_eq!(connection.ask(LONG).await, Ok(2));
    let connection = with_faults(&[Some(Fault::FoundClosed), Some(Fault::Broken)]);
    let broken = Failure::OfRequest(Fault::Broken);
    let failure = Failure::SentBefore(Box::new(broken));
    assert_eq!(connection.ask(LONG).await, Err(failure));
    assert_eq!(connection.ask(LONG).await, Ok(3));
}

#[tokio::test]
async fn a_broken_connection_is_given_up_and_its_request_is_not_sent_again() {
    let connection = with_faults(&[Some(Fault::Broken)]);
    let broken = Err(Failure::OfRequest(Fault::Broken));
    assert_eq!(connection.ask(LONG).await, broken);
    assert_eq!(connection.ask(LONG).await, Ok(2));
}

#[tokio::test]
async fn a_silent_connection_is_replaced_at_most_once_in_a_while() {
    let silent = Some(Fault::Silent);
    let connection = with_faults(&[silent, silent, silent]);
    let failed = Err(Failure::OfRequest(Fault::Silent));
    assert_eq!(connection.ask(LONG).await, failed);
    assert_eq!(connection.ask(LONG).await, failed);
    assert_eq!(connection.made(), 2, "the second one is kept");
    assert_eq!(connection.ask(Duration::ZERO).await, failed);
    assert_eq!(connection.ask(LONG).await, Ok(3));
}

/// A server that answers nothing until it is allowed to.
fn slow() -> Arc<Connection<Fake>> {
    Arc::new(here(FakeServer {
        may_answer: Semaphore::new(0),
        ..FakeServer::default()
    }))
}

/// A request whose server may be silent for a moment, and is awaited on.
fn slow_ask(connection: &Arc<Connection<Fake>>) -> tokio::task::JoinHandle<Result<usize, Failure>> {
    asked_with(connection, Duration::from_millis(10))
}

fn asked_with(
    connection: &Arc<Connection<Fake>>,
    silence: Duration,
) -> tokio::task::JoinHandle<Result<usize, Failure>> {
    let connection = connection.clone();
    tokio::spawn(async move {
        let budget = Budget::with_silence(LONG, silence);
        let budget = budget.replacing_every(Duration::ZERO);
        connection.request((), budget).await
    })
}

/// Returns once this many connections were made, and the last one was set aside.
async fn set_aside(connection: &Connection<Fake>, made: usize) {
    while connection.made() < made || !matches!(*connection.shared.state(), State::Down) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_answer_of_a_silent_connection_counts_beside_its_replacement() {
    let connection = slow();
    let first = slow_ask(&connection);
    set_aside(&connection, 1).await;
    let second = asked_with(&connection, LONG);
    while connection.made() < 2 {
        tokio::task::yield_now().await;
    }
    connection.connector().0.may_answer.add_permits(100);
    assert_eq!(first.await.expect("no panic"), Ok(1));
    assert_eq!(second.await.expect("no panic"), Ok(2));
}

#[tokio::test]
async fn a_silent_connection_that_answers_before_there_is_another_is_used_on() {
    let connection = slow();
    let first = slow_ask(&connection);
    set_aside(&connection, 1).await;
    connection.connector().0.may_answer.add_permits(100);
    assert_eq!(first.await.expect("no panic"), Ok(1));
    assert_eq!((connection.ask(LONG).await, connection.made()), (Ok(1), 1));
}

#[tokio::test]
async fn at_most_one_old_connection_is_kept() {
    let connection = slow();
    let first = slow_ask(&connection);
    set_aside(&connection, 1).await;
    let second = slow_ask(&connection);
    set_aside(&connection, 2).await;
    let silence = Err(Failure::OfRequest(Fault::Silent));
    let given_up = timeout(Duration::from_secs(5), first).await;
    assert_eq!(given_up.expect("given up").expect("no panic"), silence);
    connection.connector().0.may_answer.add_permits(100);
    assert_eq!(second.await.expect("no panic"), Ok(2));
}

#[tokio::test]
async fn a_server_that_has_no_room_loses_the_old_connection_first() {
    let connection = slow();
    let first = slow_ask(&connection);
    set_aside(&connection, 1).await;
    let server = &connection.connector().0;
    server.refusals.store(1, Ordering::Relaxed);
    let second = slow_ask(&connection);
    let silence = Err(Failure::OfRequest(Fault::Silent));
    assert_eq!(first.await.expect("no panic"), silence);
    server.may_answer.add_permits(100);
    assert_eq!(second.await.expect("no panic"), Ok(3));
}

#[tokio::test]
async fn a_request_to_the_wrong_server_is_sent_again_only_on_another_connection() {
    let wrong = Some(Fault::WrongServer);
    let connection = with_faults(&[wrong, None, wrong]);
    assert_eq!(connection.ask(LONG).await, Ok(2));
    let failed = Err(Failure::OfRequest(Fault::WrongServer));
    assert_eq!(connection.ask(LONG).await, failed);
    assert_eq!(connection.ask(LONG).await, Ok(2));
}

#[tokio::test]
async fn what_was_closed_stays_closed() {
    let closed = Err(Failure::Unconnected(Unconnected::Closed));
    let connection = here(stuck());
    let mut waiting = Box::pin(connection.open(soon()));
    assert!(waiting.as_mut().now_or_never().is_none());
    connection.close();
    assert_eq!(waiting.await, closed);
    assert_eq!(connection.open(soon()).await, closed);
    let connection = here(FakeServer::default());
    let open = connection.open(soon()).await.expect("it is made");
    assert_eq!(connection.close(), Some(open));
    assert_eq!(connection.open(soon()).await, closed);
}

#[tokio::test]
async fn a_connection_that_was_lost_is_made_again_for_the_next_request() {
    let connection = here(FakeServer::default());
    assert_eq!(connection.ask(LONG).await, Ok(1));
    connection.connector().0.ends.notify_one();
    while connection.shared.state().is_up() {
        tokio::task::yield_now().await;
    }
    assert_eq!(connection.made(), 1, "no request asked for another one");
    assert_eq!(connection.ask(LONG).await, Ok(2));
}

#[tokio::test]
async fn a_connection_that_is_to_be_kept_up_is_made_again_without_a_request() {
    let connection = here(FakeServer {
        next: AfterEnd::Again,
        ..FakeServer::default()
    });
    assert_eq!(connection.ask(LONG).await, Ok(1));
    connection.connector().0.ends.notify_one();
    while connection.made() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!((connection.ask(LONG).await, connection.made()), (Ok(2), 2));
}

#[test]
fn a_connection_is_down_once_its_runtime_has_ended() {
    let runtime = || {
        let runtime = runtime::Builder::new_current_thread();
        { runtime }.enable_all().build().expect("a runtime")
    };
    let its_own = runtime();
    let connection = on(its_own.handle().clone(), FakeServer::default());
    assert_eq!(its_own.block_on(connection.ask(LONG)), Ok(1));
    drop(its_own);
    assert!(!connection.shared.state().is_up());
    let abandoned = Failure::Unconnected(Unconnected::Abandoned);
    let outcome = runtime().block_on(connection.open(soon()));
    assert_eq!(outcome, Err(abandoned));
}

impl State<Fake> {
    fn is_up(&self) -> bool {
        matches!(self, Self::Up(_))
    }
}
