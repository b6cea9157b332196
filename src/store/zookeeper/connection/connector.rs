//! Keeps a session, over a connection to one server after the other.
//!
//! The task of the connection runs on the runtime that has to keep the session alive: the session ends when that
//! runtime is blocked or has ended. A lost connection is remade at once, to another server if there is one, and the
//! session continues over it; a new session follows one that the servers no longer know.

use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::codec::LengthDelimitedCodec;

use super::super::address::Address;
use super::super::failure::Failure;
use super::super::protocol::wire::{Frame, Granted, LOGGED_IN, Reader};
use super::session::Line;
use super::silence::{self, Silence, SilenceLimit};
use super::{End, ServerConnection};
use crate::clock::{Boottime, Clock, Instant, half_random};
use crate::store::kit::connection::{AfterEnd, Connect, Driven};

/// Time for one server to answer a hello, before the next is tried.
const HELLO: Duration = Duration::from_secs(1);
/// That time once all of them took longer: a new session is a write to their disks.
const HELLO_MOST: Duration = Duration::from_secs(4);
/// Pause after no server was reached.
const PAUSE: Duration = Duration::from_millis(200);
/// Longest pause of a client without a session whose connections the servers close at once. The pause doubles each
/// time, so that clients with a session find room first.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);
/// How long to try servers for a new session: an election has ended by then. The next request tries again.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum size of a frame. The children of a folder with a million names fit.
const LONGEST: usize = 64 << 20;
/// Queue length that makes callers wait. The store's permits bound their number.
const QUEUE: usize = 1_024;
/// Maximum number of claims and releases under way at once in a session, so that renewals never queue behind more.
const IN_FLIGHT: usize = 256;

/// Makes the connections of a session, and remembers some facts from one to the next.
#[derive(Clone)]
pub(crate) struct Connector {
    address: Arc<Address>,
    session_timeout: Duration,
    resumed: Option<Granted>,
    /// The servers, in the order of attempts. A server that was left or did not answer goes to the end, so that one
    /// that hangs is tried again only after all others.
    servers: VecDeque<String>,
    /// Number of ticks that the next server may be silent at first.
    silent: u32,
    /// When to ask a server for a new session again, and the pause before it.
    refused: Option<(Instant, Duration)>,
    /// Why the last attempt failed, as ": reason", for callers that time out before the connector stops trying.
    last_failure: Arc<Mutex<String>>,
}

impl Connector {
    pub(crate) fn new(address: Arc<Address>, session_timeout: Duration) -> Self {
        let mut servers = address.servers.clone();
        fastrand::shuffle(&mut servers);
        Self {
            address,
            session_timeout,
            resumed: None,
            servers: servers.into(),
            silent: silence::USUAL,
            refused: None,
            last_failure: Arc::default(),
        }
    }

    fn note(&self, server: &dyn Display, why: &str) {
        *self.last_failure.lock() = format!(": {server}: {why}");
    }

    /// Returns that no server was reached, and why not.
    pub(super) fn failure(&self) -> Failure {
        Failure::NotReached(self.last_failure.lock().clone())
    }

    /// Goes from server to server until one grants a session or goes on with this one. Returns `None` once none was
    /// reached for long enough: a session has ended by then.
    async fn walk(&mut self) -> Option<(Line, ServerConnection)> {
        let begun = Boottime.now();
        let mut hello = HELLO;
        loop {
            if let Some((until, _)) = self.refused.filter(|_| self.resumed.is_none()) {
                tokio::time::sleep(until.since(Boottime.now())).await;
            }
            let mut is_refused = false;
            for _ in 0..self.servers.len() {
                for address in self.addresses(&self.servers[0], hello).await {
                    match self.greet(address, hello).await {
                        Ok(made) => {
                            self.refused = None;
                            return Some(made);
                        }
                        Err(kind) => is_refused |= kind == io::ErrorKind::UnexpectedEof,
                    }
                }
                self.servers.rotate_left(1);
            }
            if is_refused {
                let pause = self.refused.map_or(PAUSE, |(_, pause)| pause * 2);
                let pause = pause.min(LONGEST_PAUSE);
                self.refused = Some((Boottime.now().after(half_random(pause)), pause));
            }
            let resumed = self.resumed.as_ref();
            let enough = resumed.map_or(CONNECT_TIMEOUT, Granted::timeout);
            if Boottime.now().since(begun) >= enough {
                return None;
            }
            tokio::time::sleep(PAUSE).await;
            hello = (2 * hello).min(HELLO_MOST);
        }
    }

    /// Asks a server for the session, and for a new one if that has ended.
    async fn greet(
        &mut self,
        server: SocketAddr,
        limit: Duration,
    ) -> Result<(Line, ServerConnection), io::ErrorKind> {
        loop {
            let error = match timeout(limit, self.hello(server)).await {
                Ok(Ok(Some(made))) => return Ok(made),
                Ok(Ok(None)) if self.resumed.take().is_some() => continue,
                Ok(Ok(None)) => io::Error::other("no session"),
                Ok(Err(error)) => error,
                Err(_) => io::Error::new(io::ErrorKind::TimedOut, "silent"),
            };
            tracing::debug!(store = %self.address, %server, failed = %error, "not connected");
            self.note(&server, &error.to_string());
            return Err(error.kind());
        }
    }

    /// Connects to a server, and asks for a new session or for this one. `Ok(None)` if this session has ended.
    async fn hello(&self, server: SocketAddr) -> io::Result<Option<(Line, ServerConnection)>> {
        let mut stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let resumed = self.resumed.as_ref();
        let hello = Frame::hello(self.session_timeout, resumed).finished();
        stream.write_all(&hello).await.map_err(closed_by)?;
        let (reader, writer) = stream.into_split();
        let codec = LengthDelimitedCodec::builder()
            .max_frame_length(LONGEST)
            .to_owned();
        let mut reader = codec.new_read(reader);
        let answer = reader.next().await.unwrap_or_else(|| Err(closed()));
        let answer = answer.map_err(closed_by)?;
        let mut granted = Reader::new(&answer)
            .granted()
            .ok_or(io::ErrorKind::InvalidData)?;
        granted.seen = resumed.map_or(0, |resumed| resumed.seen);
        if granted.id == 0 {
            return Ok(None);
        }
        let (sender, requests) = mpsc::channel(QUEUE);
        let silence_limit = SilenceLimit::new();
        let line = Line {
            id: granted.id,
            timeout: granted.timeout(),
            requests: sender,
            silence_limit: silence_limit.clone(),
            in_flight: Semaphore::new(IN_FLIGHT),
        };
        let login = self.address.login.as_deref();
        let login = login.map(|login| Frame::login(login).numbered(LOGGED_IN));
        let connection = ServerConnection {
            granted,
            reader,
            writer,
            requests,
            coming: 0,
            outbox: login.unwrap_or_default(),
            number: 0,
            unanswered: VecDeque::new(),
            watches: HashMap::new(),
            silence: Silence::new(self.silent, silence_limit),
        };
        Ok(Some((line, connection)))
    }

    async fn addresses(&self, server: &str, limit: Duration) -> Vec<SocketAddr> {
        match timeout(limit, lookup_host(server)).await {
            Ok(Ok(found)) => return found.collect(),
            Ok(Err(error)) => self.note(&server, &error.to_string()),
            Err(_) => self.note(&server, "its name is not resolved in time"),
        }
        Vec::new()
    }
}

/// A server that closes at once may have done so before it was written to, as well.
fn closed_by(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => closed(),
        _ => error,
    }
}

/// The error of a connection that the server closed before it answered. It says no more when it does not serve yet.
fn closed() -> io::Error {
    let why = "the server closed the connection at once; unless it has just started, too many clients of this address have one (maxClientCnxns)";
    io::Error::new(io::ErrorKind::UnexpectedEof, why)
}

impl Connect for Connector {
    type Open = Line;
    type Engine = ServerConnection;
    type Failure = Failure;

    async fn connect(&mut self) -> Result<(Line, ServerConnection), Failure> {
        if self.silent == silence::MOST {
            // It was lost repeatedly.
            tokio::time::sleep(PAUSE).await;
        }
        let made = self.walk().await;
        made.ok_or_else(|| self.failure())
    }

    async fn drive(&mut self, mut connection: ServerConnection, driven: &Driven<Self>) -> AfterEnd {
        let end = connection.serve(driven.closing()).await;
        tracing::debug!(store = %self.address, ?end, "connection ended");
        self.servers.rotate_left(1);
        self.silent = connection.silence.first_of_next();
        self.resumed = match end {
            End::Lost => Some(connection.granted),
            End::Expired => None,
            End::LockedOut => return AfterEnd::Down,
        };
        AfterEnd::Again
    }
}
