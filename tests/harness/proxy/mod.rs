//! A network between client and server that fails on request, or at random from a seed.
//!
//! Requests pass one by one, so that a test can decide what happens to *this* request or to its reply:
//!
//! ```text
//! client --> read_requests --(Request, Fault)--> pass_requests --> server
//!        <------------------- pass_replies <--(Fate of each)------
//! ```
//!
//! A byte stream cannot lose one message and continue. So a dropped message ends its connection, and a held one
//! silences its connection for ever. A request that was read is still carried out after the client hung up, as in real
//! networks.

mod connection;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::resp;

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The server never receives it; the connection ends.
    DropRequest,
    /// It is carried out; the connection ends instead of the reply.
    DropReply,
    /// The server never receives it or the requests after it, and the client gets no error.
    HoldRequest,
    /// It is carried out; the client never receives the reply or the replies after it.
    HoldReply,
    /// It arrives late, and so do the requests after it.
    DelayRequest(Duration),
    /// Its reply arrives late, and so do the replies after it.
    DelayReply(Duration),
    /// It is carried out twice; the client receives the first reply.
    DoubleRequest,
    /// Its reply arrives twice.
    DoubleReply,
    /// It is carried out; the client receives this text instead of the reply.
    GarbleReply(&'static str),
}

/// A request on its way.
#[derive(Debug)]
pub struct Request {
    /// How many requests came before it, over all connections.
    pub index: usize,
    /// The command and its arguments.
    pub words: Vec<String>,
    bytes: Vec<u8>,
}

impl Request {
    /// Returns whether it calls a loaded script.
    pub fn is_script(&self) -> bool {
        self.words[0].eq_ignore_ascii_case("EVALSHA")
    }
}

/// Decides about each request.
type Policy = Box<dyn FnMut(&Request) -> Option<Fault> + Send>;

/// The network. Ends with all its connections on drop.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    road: Arc<Road>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Makes a network without faults in front of the server on this socket.
    pub async fn before(server: &Path) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.expect("loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let road = Arc::new(Road::to(server));
        let accepting = tokio::spawn(carry_each(listener, road.clone()));
        Self {
            port,
            road,
            accepting,
        }
    }

    /// Sends new connections to the server on this socket. Existing ones stay where they are, as behind a virtual
    /// address.
    pub fn lead_to(&self, server: &Path) {
        *self.road.server() = server.into();
    }

    /// Returns the URL for the store.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// From now on this policy decides about each request.
    pub fn set(&self, policy: impl FnMut(&Request) -> Option<Fault> + Send + 'static) {
        self.road.desk().policy = Box::new(policy);
    }

    /// The next request that satisfies this meets this fault.
    pub fn once(&self, is_it: impl Fn(&Request) -> bool + Send + 'static, fault: Fault) {
        let mut fault = Some(fault);
        self.set(move |request| fault.take_if(|_| is_it(request)));
    }

    /// From now on requests meet faults at random.
    pub fn set_weather(&self, weather: Weather) {
        eprintln!("proxy: {weather:?}");
        self.set(move |request| weather.fault(request));
    }

    /// Returns the faults so far, each with the command of its request.
    pub fn faults(&self) -> Vec<(String, Fault)> {
        self.road.desk().faults.clone()
    }

    /// Returns how many connections have come.
    pub fn connections(&self) -> usize {
        self.road.desk().connections
    }

    /// Returns how many requests have come.
    pub fn requests(&self) -> usize {
        self.road.desk().requests
    }

    /// Stops all traffic in both directions, without telling either side. New connections are accepted, and receive
    /// nothing.
    pub fn stall(&self) {
        self.road.stalled.send_replace(true);
    }

    /// Passes on the stopped bytes, in order.
    pub fn flow(&self) {
        self.road.stalled.send_replace(false);
    }

    /// Ends the existing connections.
    pub fn cut(&self) {
        self.road.cuts.send_modify(|cuts| *cuts += 1);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Random faults: of 1,000 requests, how many meet each.
#[derive(Debug, Clone)]
pub struct Weather {
    /// The same seed gives the same fault to the same request.
    pub seed: u64,
    /// The faults and how often they happen.
    pub per_mille: Vec<(u32, Fault)>,
}

impl Weather {
    fn fault(&self, request: &Request) -> Option<Fault> {
        // Drawn for each request from the seed and its number, so that requests do not change each other's faults.
        let seed = self.seed ^ (request.index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut dice = fastrand::Rng::with_seed(seed).u32(0..1_000);
        for (share, fault) in &self.per_mille {
            match dice.checked_sub(*share) {
                Some(rest) => dice = rest,
                None => return Some(*fault),
            }
        }
        None
    }
}

/// The state that all connections share.
struct Road {
    server: Mutex<PathBuf>,
    desk: Mutex<Desk>,
    stalled: watch::Sender<bool>,
    cuts: watch::Sender<usize>,
}

impl std::fmt::Debug for Road {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Road").finish_non_exhaustive()
    }
}

/// Where the fault of each request is decided.
struct Desk {
    policy: Policy,
    connections: usize,
    requests: usize,
    faults: Vec<(String, Fault)>,
}

impl Road {
    fn to(server: &Path) -> Self {
        Self {
            server: Mutex::new(server.into()),
            desk: Mutex::new(Desk {
                policy: Box::new(|_| None),
                connections: 0,
                requests: 0,
                faults: Vec::new(),
            }),
            stalled: watch::Sender::new(false),
            cuts: watch::Sender::new(0),
        }
    }

    fn server(&self) -> std::sync::MutexGuard<'_, PathBuf> {
        self.server.lock().expect("nobody panics while it is held")
    }

    fn desk(&self) -> std::sync::MutexGuard<'_, Desk> {
        self.desk.lock().expect("policies do not panic")
    }

    fn decide(&self, bytes: Vec<u8>) -> (Request, Option<Fault>) {
        let mut desk = self.desk();
        let request = Request {
            index: desk.requests,
            words: resp::words(&bytes),
            bytes,
        };
        desk.requests += 1;
        let fault = (desk.policy)(&request);
        if let Some(fault) = fault {
            desk.faults.push((request.words[0].clone(), fault));
        }
        (request, fault)
    }

    async fn flowing(&self) {
        let mut stalled = self.stalled.subscribe();
        let flows = stalled.wait_for(|stalled| !stalled).await;
        flows.expect("the road outlives its connections");
    }
}

async fn carry_each(listener: TcpListener, road: Arc<Road>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let road = road.clone();
        road.desk().connections += 1;
        let mut cuts = road.cuts.subscribe();
        connections.spawn(async move {
            tokio::select! {
                _ = cuts.changed() => {}
                () = connection::carry(client, &road) => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use deadpool_redis::redis::aio::MultiplexedConnection;
    use deadpool_redis::redis::{self, RedisError};
    use tokio::time::timeout;

    use super::*;
    use crate::redis_server::RedisServer;
    use crate::times::{LIMIT, UNANSWERED};
    use crate::wait::{now, until};

    /// Increments a counter through the proxy, on a connection of its own.
    async fn count(proxy: &Proxy, limit: Duration) -> Result<u64, RedisError> {
        let mut connection = connect(proxy, limit).await;
        redis::cmd("INCR")
            .arg("n")
            .query_async(&mut connection)
            .await
    }

    async fn connect(proxy: &Proxy, limit: Duration) -> MultiplexedConnection {
        let client = redis::Client::open(proxy.url());
        let client = client.expect("a valid url");
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(limit));
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        connection.await.expect("the proxy takes connections")
    }

    #[tokio::test]
    async fn each_fault_does_to_its_request_what_it_says() {
        let server = RedisServer::start().await;
        let proxy = server.proxy().await;
        let late = Duration::from_millis(100);
        for (fault, answers, counted) in [
            (Fault::DropRequest, false, 0),
            (Fault::DropReply, false, 1),
            (Fault::HoldRequest, false, 0),
            (Fault::HoldReply, false, 1),
            (Fault::DelayRequest(late), true, 1),
            (Fault::DelayReply(late), true, 1),
            (Fault::DoubleRequest, true, 2),
            (Fault::DoubleReply, true, 1),
        ] {
            let () = server.told("SET n 0").await;
            proxy.once(|request| request.words[0] == "INCR", fault);
            let start = now();
            let limit = if answers { LIMIT } else { UNANSWERED };
            let answer = count(&proxy, limit).await;
            assert_eq!(answer.is_ok(), answers, "{fault:?}: {answer:?}");
            assert_eq!(server.told::<u64>("GET n").await, counted, "{fault:?}");
            if matches!(fault, Fault::DelayRequest(_) | Fault::DelayReply(_)) {
                assert!(now().since(start) >= late, "{fault:?}");
            }
        }
        assert_eq!(proxy.faults().len(), 8);
    }

    #[tokio::test]
    async fn a_request_on_its_way_arrives_though_its_client_hung_up() {
        let server = RedisServer::start().await;
        let proxy = server.proxy().await;
        let late = Fault::DelayRequest(10 * UNANSWERED);
        proxy.once(|request| request.words[0] == "INCR", late);
        count(&proxy, UNANSWERED).await.expect_err("gave up");
        assert_eq!(server.keys().await, [""; 0]);
        until("the late request", async || {
            (server.keys().await == ["n"]).then_some(())
        })
        .await;
    }

    #[tokio::test]
    async fn a_stall_is_silence_and_ends_in_order() {
        let server = RedisServer::start().await;
        let proxy = server.proxy().await;
        let mut connection = connect(&proxy, LIMIT).await;
        let count = redis::cmd("INCR").arg("n").to_owned();
        proxy.stall();
        let first = count.query_async::<u64>(&mut connection);
        let answer = timeout(UNANSWERED, first).await;
        answer.expect_err("silence");
        assert_eq!(server.keys().await, [""; 0]);
        proxy.flow();
        let second = count.query_async::<u64>(&mut connection).await;
        assert_eq!(second.expect("it flows"), 2);
        proxy.cut();
        let cut = redis::cmd("PING")
            .query_async::<String>(&mut connection)
            .await;
        cut.expect_err("the connection ended");
    }

    #[test]
    fn the_same_seed_brings_the_same_faults() {
        let weather = |seed| {
            let per_mille = vec![(300, Fault::DropRequest), (300, Fault::DropReply)];
            let weather = Weather { seed, per_mille };
            let request = |index| Request {
                index,
                words: Vec::new(),
                bytes: Vec::new(),
            };
            let faults = (0..200).map(|index| weather.fault(&request(index)));
            faults.collect::<Vec<_>>()
        };
        assert_eq!(weather(7), weather(7));
        assert_ne!(weather(7), weather(8));
        let fair = weather(7).iter().flatten().count();
        assert!((80..160).contains(&fair), "{fair} of 200, expected 120");
    }
}
