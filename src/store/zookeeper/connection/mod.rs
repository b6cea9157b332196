//! One connection to one server: a task that owns the socket, and ends when the connection does.
//!
//! ```text
//!   requests --(queue)--> task <--(socket)--> server
//!                          | replies, in the order of the requests
//!                          | changes of watched nodes
//! ```
//!
//! A request is no longer sent once its caller gave up. When the connection ends, unanswered requests fail and every
//! watch fires: the nodes are read again over the next connection.

pub(super) mod connector;
pub(super) mod session;
pub(super) mod sessions;
mod silence;

use std::collections::{HashMap, VecDeque};

use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::bytes::{Buf, BytesMut};
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};
use tokio_util::sync::CancellationToken;

use self::silence::{Due, Silence, TICK};
use super::failure::Failure;
use super::protocol::wire::{
    self, Frame, Granted, Header, LOGGED_IN, NOTIFICATION, PONG, Reader, code,
};

/// No request is accepted while this many bytes are waiting to be sent.
const OUTBOX: usize = 64 << 10;
/// Number of requests that are taken together: one write to the socket sends them.
const AT_ONCE: usize = 64;

/// The failure of requests that were unanswered when the connection was lost.
const LOST: Failure = Failure::Broken("the connection was lost");

/// A request on its way to the task.
#[derive(Debug)]
pub(super) struct WireRequest {
    pub(super) frame: Frame,
    pub(super) reply: ReplySender,
    pub(super) watch: Option<NodeWatch>,
}

/// A watch that the server sets if it carries out the request.
#[derive(Debug)]
pub(super) struct NodeWatch {
    path: String,
    /// Dropped when the children of the node change, it is deleted or the connection ends.
    alarm: oneshot::Sender<()>,
}

/// The end of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Lost,
    /// The servers no longer know the session, or this one does not know all that the session has seen.
    Expired,
    /// The servers refuse the login.
    LockedOut,
}

/// A connection that was made.
pub(crate) struct ServerConnection {
    granted: Granted,
    reader: FramedRead<OwnedReadHalf, LengthDelimitedCodec>,
    writer: OwnedWriteHalf,
    requests: mpsc::Receiver<WireRequest>,
    /// How much of a frame had come at the last tick.
    coming: usize,
    outbox: Vec<u8>,
    number: i32,
    /// Each with the number of its request.
    unanswered: VecDeque<(i32, ReplySender, Option<NodeWatch>)>,
    watches: HashMap<String, Vec<oneshot::Sender<()>>>,
    silence: Silence,
}

type ReplySender = oneshot::Sender<Result<BytesMut, Failure>>;

impl ServerConnection {
    /// Sends requests until the connection ends or the session is to be closed.
    pub(super) async fn serve(&mut self, closing: &CancellationToken) -> End {
        let (mut is_closing, mut taken) = (false, Vec::new());
        let mut ticks = interval(TICK);
        // A tick that was missed while this thread was busy does not count: only the server's silence does.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let handled = tokio::select! {
                biased;
                frame = self.reader.next() => match frame {
                    Some(Ok(frame)) => self.take_reply(frame),
                    _ => Err(End::Lost),
                },
                written = self.writer.write(&self.outbox), if !self.outbox.is_empty() => {
                    written.map_err(|_| End::Lost).map(|count| drop(self.outbox.drain(..count)))
                }
                1.. = self.requests.recv_many(&mut taken, AT_ONCE),
                    if self.outbox.len() < OUTBOX && !is_closing =>
                {
                    for request in taken.drain(..).filter(|it| !it.reply.is_closed()) {
                        self.send(request);
                    }
                    Ok(())
                }
                () = closing.cancelled(), if !is_closing => {
                    is_closing = true;
                    self.send(WireRequest {
                        frame: Frame::request(code::CLOSE),
                        // No caller waits for the answer.
                        reply: oneshot::channel().0,
                        watch: None,
                    });
                    Ok(())
                }
                _ = ticks.tick() => self.tick(),
            };
            if let Err(end) = handled {
                return self.ended(end);
            }
        }
    }

    /// Fails all unanswered requests.
    fn ended(&mut self, end: End) -> End {
        let failure = match end {
            End::Lost | End::Expired => LOST,
            End::LockedOut => Failure::LockedOut,
        };
        for (_, reply, _) in self.unanswered.drain(..) {
            let _ = reply.send(Err(failure.clone()));
        }
        end
    }

    fn tick(&mut self) -> Result<(), End> {
        let coming = self.reader.read_buffer().len();
        if std::mem::replace(&mut self.coming, coming) != coming {
            // A server that sends a long answer is not silent.
            self.silence.end();
        }
        match self.silence.tick() {
            Due::Nothing => {}
            Due::Ask => self
                .outbox
                .extend(Frame::request(code::PING).numbered(PONG)),
            Due::Leave => return Err(End::Lost),
        }
        Ok(())
    }

    fn send(&mut self, request: WireRequest) {
        self.number = self.number.checked_add(1).unwrap_or(1);
        self.outbox.extend(request.frame.numbered(self.number));
        let awaited = (self.number, request.reply, request.watch);
        self.unanswered.push_back(awaited);
    }

    fn take_reply(&mut self, frame: BytesMut) -> Result<(), End> {
        self.silence.end();
        let mut reader = Reader::new(&frame);
        let header = reader.header().ok_or(End::Lost)?;
        match header.number {
            NOTIFICATION => {
                let path = reader.changed_path().ok_or(End::Lost)?;
                self.watches.remove(&path);
                Ok(())
            }
            PONG => Ok(()),
            LOGGED_IN if header.error == 0 => Ok(()),
            LOGGED_IN => Err(End::LockedOut),
            _ => self.take_answer(header, frame),
        }
    }

    fn take_answer(&mut self, header: Header, mut frame: BytesMut) -> Result<(), End> {
        let answered = self.unanswered.pop_front();
        let answered = answered.filter(|(number, ..)| *number == header.number);
        let (_, reply, watch) = answered.ok_or(End::Lost)?;
        // A leader that is cut off answers its own clients until it notices: it shows names as free that are taken. A
        // new session needs the majority; it is at least as late as all that was answered before. And servers that lost
        // their data would be behind for ever.
        if header.zxid > 0 && header.zxid < self.granted.seen {
            return Err(End::Expired);
        }
        self.granted.seen = self.granted.seen.max(header.zxid);
        let failure = (header.error != 0).then(|| Failure::of(header.error));
        if let Some(watch) = watch.filter(|_| failure.is_none()) {
            let alarms = self.watches.entry(watch.path).or_default();
            alarms.retain(|alarm| !alarm.is_closed());
            alarms.push(watch.alarm);
        }
        frame.advance(wire::HEADER);
        let _ = reply.send(failure.map_or(Ok(frame), Err));
        match header.error {
            wire::EXPIRED | wire::UNKNOWN => Err(End::Expired),
            // Another server has the session since then: one that hung has read the hello after all.
            wire::MOVED => Err(End::Lost),
            _ => Ok(()),
        }
    }
}
