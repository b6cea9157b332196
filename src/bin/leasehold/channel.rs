//! The messages between the tool, its guardian and its warden: one JSON message per packet, over a socket pair.
//!
//! Packets keep their boundaries, and the end of either side shows as an end of file, also after kill -9. Nothing here
//! blocks: sending fails if the socket is full, and each side goes on without that message.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::timeline::{Cause, Distances};

/// Maximum size of a message. The longest path fits, at five characters per byte; lists of processes are cut earlier.
const MAX_MESSAGE: usize = 32 * 1024;

/// A message from the tool to the guardian. The warden gets `Begin` and `Renewed` as well.
#[derive(Debug, Serialize, Deserialize)]
pub enum Instruction {
    /// Start a guardian. Sent once, as the first, and only to the warden. The guardian's channel is attached.
    Guard,
    /// Start the job. Sent once. For the guardian, the job's standard input is attached.
    Begin(Begin),
    /// A renewal was confirmed.
    Renewed { deadline_ns: u64 },
    /// Pass this signal on to the job.
    Signal(i32),
    /// End the job.
    Stop(Cause),
}

/// Everything that the guardian needs to know.
#[derive(Debug, Serialize, Deserialize)]
pub struct Begin {
    /// The lease's clock, by its [name](leasehold::clock::Clock::name).
    pub clock: String,
    pub distances: Distances,
    pub deadline_ns: u64,
    /// Whether the tool runs within the job of another run.
    pub is_nested: bool,
    /// The tool's process group, which may have the terminal; 0 if it is outside of this container.
    pub tool_group: i32,
    /// Variables of the job's environment that describe its lease.
    pub environment: Vec<(String, String)>,
    /// Its path is one of the job's variables. The guardian removes it at the end if the tool has ended.
    pub status_file: OsString,
}

/// A message from the guardian to the tool.
#[derive(Debug, Serialize, Deserialize)]
pub enum Event {
    /// The job runs under this guardian, as the leader of the group of this number.
    Started { pid: i32, guardian: i32 },
    /// The job was not started, because it could not be or because it was too late for it.
    NotStarted { error: String, is_late: bool },
    /// The job was sent TERM.
    Stopping { cause: Cause },
    /// The command ended. `cause` is set if the guardian was already ending the job.
    Exited { end: End, cause: Option<Cause> },
    /// The job was stopped. If it has a terminal, the tool owns that again.
    Suspended { has_terminal: bool },
    /// The job has ended. The last message. `strays` left its session and are still running; `left` could not be
    /// killed.
    Gone { strays: Vec<i32>, left: Vec<i32> },
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    Code(u8),
    Signal(i32),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(number) => match Signal::try_from(number) {
                Ok(signal) => write!(f, "was ended by signal {number} ({signal})"),
                // A real-time signal, which has no name.
                Err(_) => write!(f, "was ended by signal {number}"),
            },
        }
    }
}

/// Creates both ends.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    Ok(pair)
}

/// Sends a message, and a copy of a file descriptor.
pub fn send<T: Serialize>(
    side: impl AsFd,
    message: &T,
    fd: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = fd.as_slice();
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(side, &[IoSlice::new(&bytes)], &mut ancillary, flags)?;
    Ok(())
}

/// A message, with the file descriptor that came with it.
pub type Received<T> = (T, Option<OwnedFd>);

/// Returns the next message; `None` once the other side has ended. It fails with `WouldBlock` if there is no message.
pub fn receive<T: DeserializeOwned>(side: impl AsFd) -> io::Result<Option<Received<T>>> {
    let mut bytes = [0_u8; MAX_MESSAGE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let length = match recvmsg(&side, &mut parts, &mut ancillary, flags) {
        Ok(message) => message.bytes,
        // The other end closed before it had read everything. The kernel reports this once, ahead of what that end had
        // sent.
        Err(Errno::CONNRESET | Errno::INTR) => return receive(side.as_fd()),
        Err(Errno::PIPE) => 0,
        Err(error) => return Err(error.into()),
    };
    if length == 0 {
        return Ok(None);
    }
    let fd = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok(Some((serde_json::from_slice(&bytes[..length])?, fd)))
}

/// Waits for the next message, and fails if the other side has ended.
pub fn wait<T: DeserializeOwned>(side: impl AsFd) -> io::Result<Received<T>> {
    let mut waiting = [PollFd::new(&side, PollFlags::IN)];
    rustix::io::retry_on_intr(|| poll(&mut waiting, None))?;
    receive(&side)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Makes the error for a message that does not come first.
pub fn unexpected() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn next(side: &OwnedFd) -> Option<Received<Instruction>> {
        receive(side).expect("received")
    }

    #[test]
    fn messages_keep_their_borders_and_the_end_is_seen() {
        let (ours, theirs) = pair().expect("a pair");
        let early = receive::<Instruction>(&theirs).expect_err("none was sent");
        assert_eq!(early.kind(), io::ErrorKind::WouldBlock);
        send(&ours, &Instruction::Signal(1), None).expect("sent");
        send(&ours, &Instruction::Signal(2), None).expect("sent");
        drop(ours);
        for number in [1, 2] {
            let received = next(&theirs);
            assert!(
                matches!(received, Some((Instruction::Signal(n), None)) if n == number),
                "{received:?}"
            );
        }
        assert!(next(&theirs).is_none());
    }

    #[test]
    fn the_last_message_of_an_end_that_left_some_unread_is_received() {
        let (ours, theirs) = pair().expect("a pair");
        send(&ours, &Instruction::Signal(1), None).expect("sent");
        send(&theirs, &Instruction::Signal(2), None).expect("sent");
        drop(ours);
        assert!(next(&theirs).is_some());
        assert!(next(&theirs).is_none());
    }

    #[test]
    fn a_descriptor_travels_with_its_message() {
        let (ours, theirs) = pair().expect("a pair");
        let (reader, mut writer) = io::pipe().expect("a pipe");
        send(&ours, &Instruction::Signal(1), Some(reader.as_fd())).expect("sent");
        drop(reader);
        let Some((_, Some(fd))) = next(&theirs) else {
            panic!("no descriptor");
        };
        writer.write_all(b"x").expect("written");
        drop(writer);
        let mut text = String::new();
        std::fs::File::from(fd)
            .read_to_string(&mut text)
            .expect("read");
        assert_eq!(text, "x");
    }

    #[test]
    fn a_reader_that_sleeps_does_not_hold_up_the_sender() {
        let (ours, _theirs) = pair().expect("a pair");
        while send(&ours, &Instruction::Signal(1), None).is_ok() {}
        assert!(send(&ours, &Instruction::Signal(1), None).is_err());
    }
}
