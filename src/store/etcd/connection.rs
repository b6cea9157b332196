//! Requests to one of the servers over HTTP/2, in the frames of gRPC.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{BufMut as _, Bytes};
use futures_util::FutureExt as _;
use futures_util::future::Shared;
use h2::client::{ResponseFuture, SendRequest};
use h2::{PingPong, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use parking_lot::Mutex;
use prost::Message;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::KIND;
use super::address::Address;
use super::failure::{GrpcStatus, Unconnected, odd, of_silence};
use super::messages::{AuthenticateRequest, AuthenticateResponse, Method};
use crate::clock::{Boottime, Clock as _};
use crate::error::ErrorKind;
use crate::future::BoxFuture;
use crate::percent;
use crate::store::kit::connection::{HEAD_START, best, first_of};
use crate::store::record::Failure;
use crate::telemetry::{ConnectionGauge, ConnectionPurpose, Sink};

/// Time limit for an attempt to connect to one server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time without an answer after which the next request takes another server, while this one keeps waiting: a repeated
/// renewal must not go to the silent server.
const SILENCE: Duration = Duration::from_millis(500);
/// Interval between pings of a server while a watch waits: servers end a connection that pings more often than every
/// five seconds, or while nothing is under way.
const PING_EVERY: Duration = Duration::from_secs(10);
/// Window of unread data on a connection. h2 limits small answers to half of it, and renewals have hundreds at once:
/// with the usual window it ends a connection at the 129th.
const WINDOW: u32 = 16 << 20;
/// The most of one answer. A page of a list is smaller.
const MAX_ANSWER: usize = 16 << 20;

/// The connection of one runtime. When a request was given up without an answer, the next one takes another server:
/// this one may be gone.
#[derive(Debug)]
pub(super) struct Connection {
    address: Arc<Address>,
    watches: bool,
    gauge: Arc<ConnectionGauge>,
    /// The connection, made or being made, for all callers that wait for it, and its number.
    line: Mutex<Option<(usize, Connecting)>>,
    /// The number of the next one; its rest names the server that is tried first.
    next: AtomicUsize,
}

type Connecting = Shared<BoxFuture<'static, Result<Link, Unconnected>>>;

/// A connection to a server that has logged in.
#[derive(Debug, Clone)]
struct Link {
    requests: SendRequest<Bytes>,
    scheme: &'static str,
    token: Option<HeaderValue>,
}

/// Replaces the connection unless the request on it was answered.
struct Unanswered<'a>(Option<(&'a Connection, usize)>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some((connection, number)) = self.0 {
            connection.replace(number);
        }
    }
}

/// A call under way: the messages that a server sends.
pub(super) struct Replies {
    /// The connection on which it is.
    number: usize,
    answered: Answered,
    received: Vec<u8>,
    /// While it is there the server expects more messages of ours.
    _more: SendStream<Bytes>,
}

enum Answered {
    Not(ResponseFuture),
    Begun(HeaderMap, RecvStream),
}

/// The end of a call without a message.
pub(super) enum Ended {
    Refused(GrpcStatus),
    Failed(Failure),
}

impl From<h2::Error> for Ended {
    fn from(error: h2::Error) -> Self {
        Self::Failed(of_silence(error))
    }
}

impl From<Ended> for Failure {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Refused(refusal) => refusal.into(),
            Ended::Failed(failure) => failure,
        }
    }
}

impl Connection {
    /// Without a purpose no metric shows it.
    pub(super) fn new(address: Arc<Address>, purpose: Option<ConnectionPurpose>) -> Self {
        Self {
            address,
            watches: purpose == Some(ConnectionPurpose::Notices),
            gauge: Sink::of_store(KIND).connection(purpose),
            line: Mutex::default(),
            next: AtomicUsize::new(0),
        }
    }

    /// Sends a request, and returns its answer. A server that refuses because it has forgotten the login, or has no
    /// leader, is left for another.
    pub(super) async fn ask<Q: Method>(&self, request: &Q) -> Result<Q::Answer, Ended> {
        let mut tries_left = self.address.servers.len();
        loop {
            let (mut answers, mut unanswered) = self.begin(Q::PATH, request, true).await?;
            let answer = match timeout(SILENCE, answers.next()).await {
                Ok(answer) => answer,
                Err(_) => {
                    self.leave(&answers);
                    answers.next().await
                }
            };
            let refusal = match answer {
                Ok(Some(answer)) => {
                    // Reads the status; otherwise the server would learn that the client stopped waiting.
                    let end: Result<Option<Q::Answer>, Ended> = answers.next().await;
                    end?;
                    unanswered.0 = None;
                    return Ok(answer);
                }
                Ok(None) => return Err(Ended::Failed(odd("etcd answered without a message"))),
                Err(Ended::Refused(refusal)) => refusal,
                Err(failed) => return Err(failed),
            };
            let was_left = refusal.wants_login() || refusal.is_without_leader();
            if !was_left && !refusal.is_of_one_server() {
                unanswered.0 = None;
            }
            if !was_left || tries_left == 0 {
                return Err(Ended::Refused(refusal));
            }
            tries_left -= 1;
        }
    }

    /// Begins a call whose answers are read as they come, until it is dropped.
    pub(super) async fn stream<Q: Message>(
        &self,
        path: &'static str,
        request: &Q,
    ) -> Result<Replies, Ended> {
        let (answers, mut unanswered) = self.begin(path, request, false).await?;
        unanswered.0 = None;
        Ok(answers)
    }

    /// Makes the next request take another server than this call.
    pub(super) fn leave(&self, call: &Replies) {
        self.replace(call.number);
    }

    async fn begin<Q: Message>(
        &self,
        path: &'static str,
        request: &Q,
        is_all: bool,
    ) -> Result<(Replies, Unanswered<'_>), Ended> {
        loop {
            let (number, line) = self.line().await.map_err(|why| Ended::Failed(why.into()))?;
            let unanswered = Unanswered(Some((self, number)));
            // One that has ended since is noticed here, and nothing was sent.
            let Ok(requests) = line.requests.clone().ready().await else {
                continue;
            };
            let mut answers = line.begin(requests, path, request, is_all)?;
            answers.number = number;
            return Ok((answers, unanswered));
        }
    }

    /// Returns the connection, and its number. Where there is none, it is made, once for all callers.
    async fn line(&self) -> Result<(usize, Link), Unconnected> {
        let (number, connecting) = {
            let mut line = self.line.lock();
            let made = line.get_or_insert_with(|| {
                let number = self.next.load(Ordering::Relaxed);
                let connect = connect(self.address.clone(), number, self.watches);
                let gauge = self.gauge.clone();
                let connect = connect.inspect(move |made| gauge.connecting_ended(made.is_ok()));
                (number, connect.boxed().shared())
            });
            made.clone()
        };
        // A caller that gives up leaves it to the others, and to the next one.
        let line = connecting.await;
        let line = line.inspect_err(|_| self.replace(number))?;
        Ok((number, line))
    }

    /// Drops the connection, if it still has this number.
    fn replace(&self, number: usize) {
        let mut line = self.line.lock();
        if line.as_ref().is_some_and(|(known, _)| *known == number) {
            *line = None;
            self.gauge.lost();
            self.next.store(number + 1, Ordering::Relaxed);
        }
    }
}

impl Link {
    fn begin<Q: Message>(
        &self,
        mut requests: SendRequest<Bytes>,
        path: &'static str,
        request: &Q,
        is_all: bool,
    ) -> Result<Replies, h2::Error> {
        let mut head = Request::post(format!("{}://etcd{path}", self.scheme))
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            // A server without a leader refuses, rather than to be silent.
            .header("hasleader", "true");
        if let Some(token) = &self.token {
            head = head.header("token", token);
        }
        let head = head.body(()).expect("each header is in order");
        let (response, mut stream) = requests.send_request(head, false)?;
        stream.send_data(framed(request), is_all)?;
        Ok(Replies {
            number: 0,
            answered: Answered::Not(response),
            received: Vec::new(),
            _more: stream,
        })
    }
}

/// The frame of a message: that it is not compressed, its length, and the message.
fn framed(message: &impl Message) -> Bytes {
    let mut frame = Vec::with_capacity(5 + message.encoded_len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.encoded_len()).unwrap_or(u32::MAX));
    message.encode(&mut frame).expect("a vector grows");
    frame.into()
}

impl Replies {
    /// Returns the next message. `None`: the server has ended the call, and all is well.
    pub(super) async fn next<A: Message + Default>(&mut self) -> Result<Option<A>, Ended> {
        if let Answered::Not(response) = &mut self.answered {
            let (head, body) = response.await?.into_parts();
            if head.status != StatusCode::OK {
                let what = format!("what listens there is no etcd: it answered {}", head.status);
                return Err(Ended::Failed(odd(what)));
            }
            self.answered = Answered::Begun(head.headers, body);
        }
        let Answered::Begun(head, body) = &mut self.answered else {
            unreachable!("its begin was awaited");
        };
        loop {
            if let Some(message) = whole(&mut self.received) {
                let message = A::decode(&*message);
                return message.map(Some).map_err(|error| {
                    Ended::Failed(odd("the answer is not that of etcd").with_source(error))
                });
            }
            let Some(chunk) = body.data().await else {
                let trailers = body.trailers().await?;
                return match refusal(trailers.as_ref().unwrap_or(head)) {
                    Some(refusal) => Err(Ended::Refused(refusal)),
                    None => Ok(None),
                };
            };
            let chunk = chunk?;
            body.flow_control().release_capacity(chunk.len())?;
            self.received.extend_from_slice(&chunk);
            if self.received.len() > MAX_ANSWER {
                return Err(Ended::Failed(odd("the answer is longer than 16 MiB")));
            }
        }
    }
}

/// Takes the first message, if it has arrived as a whole.
fn whole(received: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = received.get(1..5)?.try_into().expect("four bytes");
    let end = 5 + u32::from_be_bytes(length) as usize;
    let message = received.get(5..end)?.to_vec();
    received.drain(..end);
    Some(message)
}

/// Reads the status of a call. `None`: it was carried out.
fn refusal(head: &HeaderMap) -> Option<GrpcStatus> {
    let text = |name| head.get(name).and_then(|value| value.to_str().ok());
    // Without a status, gRPC's code for unknown errors.
    let code = text("grpc-status")
        .and_then(|code| code.parse().ok())
        .unwrap_or(2);
    let message = text("grpc-message").unwrap_or_default();
    let message = percent::decode(message).unwrap_or_else(|| message.to_owned());
    (code != 0).then_some(GrpcStatus { code, message })
}

/// Connects to the first server that answers, beginning with the one that this number names.
async fn connect(address: Arc<Address>, number: usize, watches: bool) -> Result<Link, Unconnected> {
    let count = address.servers.len();
    let attempts = (0..count).map(|index| open(&address, (number + index) % count, watches));
    let failures = match first_of(HEAD_START, attempts).await {
        Ok(line) => return Ok(line),
        Err(failures) => failures,
    };
    // Failures that need a change come before those that pass.
    let told = best(failures, |failure| !failure.kind.is_transient());
    Err(told.expect("there is a server, and it failed"))
}

async fn open(address: &Address, index: usize, watches: bool) -> Result<Link, Unconnected> {
    let server = address.servers[index].to_string();
    let opened = timeout(CONNECT_TIMEOUT, try_open(address, index, watches)).await;
    opened.unwrap_or_else(|_| {
        let what = format!("no answer from {server}");
        Err(Unconnected::new(ErrorKind::Unavailable, what))
    })
}

async fn try_open(address: &Address, index: usize, watches: bool) -> Result<Link, Unconnected> {
    let endpoint = &address.servers[index];
    let server = endpoint.to_string();
    let failed = |error: std::io::Error| Unconnected::of(&server, &error);
    let (host, port) = (&*endpoint.host, endpoint.port);
    let stream = TcpStream::connect((host, port)).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let Some(tls) = &address.tls else {
        return log_in(address, &server, stream, watches).await;
    };
    let unusable = |why| Unconnected::new(ErrorKind::Unavailable, why);
    let mut config = (*tls.config_now().await.map_err(unusable)?).clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from(tls.name_of(host).to_owned());
    let name = name.map_err(|error| Unconnected::of(&server, &error))?;
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
    let stream = connecting.await.map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            let what =
                format!("{server} hung up at once; a server without TLS has the URL etcd://");
            Unconnected::new(ErrorKind::Unavailable, what)
        }
        _ => failed(error),
    })?;
    log_in(address, &server, stream, watches).await
}

/// Begins HTTP/2, waits for a sign of life (a server that hangs still accepts connections), and logs in.
async fn log_in(
    address: &Address,
    server: &str,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    watches: bool,
) -> Result<Link, Unconnected> {
    let has_tls = address.tls.is_some();
    let failed = |error: h2::Error| Unconnected::of_first_word(server, has_tls, &error);
    let mut builder = h2::client::Builder::new();
    builder.initial_connection_window_size(WINDOW);
    let handshake = builder.handshake(stream).await;
    let (requests, mut connection) = handshake.map_err(failed)?;
    let mut pings = connection.ping_pong().expect("it is taken once");
    let mut driving = Box::pin(connection);
    tokio::select! {
        pong = pings.ping(h2::Ping::opaque()) => {
            pong.map_err(failed)?;
        }
        ended = &mut driving => {
            ended.map_err(failed)?;
            return Err(Unconnected::hung_up(server, has_tls));
        }
    }
    tokio::spawn(async move {
        tokio::select! {
            _ = driving => {}
            () = silence(pings), if watches => {}
        }
    });
    let mut line = Link {
        requests,
        scheme: if has_tls { "https" } else { "http" },
        token: None,
    };
    if let Some((name, password)) = address.login.clone() {
        let login = AuthenticateRequest { name, password };
        let requests = line.requests.clone().ready().await.map_err(failed)?;
        let answers = line.begin(requests, AuthenticateRequest::PATH, &login, true);
        let mut answers = answers.map_err(failed)?;
        let token = match answers.next::<AuthenticateResponse>().await {
            Ok(token) => token.unwrap_or_default().token,
            Err(Ended::Refused(refusal)) => return Err(Unconnected::of_login(refusal)),
            Err(Ended::Failed(failure)) => return Err(Unconnected::of(server, &failure)),
        };
        let mut token = HeaderValue::try_from(token)
            .map_err(|_| Unconnected::new(ErrorKind::Misconfigured, "the token is no header"))?;
        token.set_sensitive(true);
        line.token = Some(token);
    }
    Ok(line)
}

/// Returns once the server is gone.
async fn silence(mut pings: PingPong) {
    loop {
        Boottime.nap_until(Boottime.now().after(PING_EVERY)).await;
        let pong = timeout(PING_EVERY / 2, pings.ping(h2::Ping::opaque())).await;
        if !matches!(pong, Ok(Ok(_))) {
            return;
        }
    }
}
