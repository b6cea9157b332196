//! The wire format: frames of big-endian numbers, texts and buffers, each after its length. Pure.

use std::time::Duration;

use tokio_util::bytes::Buf;

use super::super::failure::Failure;
use super::stamp::Stamp;

/// The protocol's numbers of its requests.
pub(crate) mod code {
    pub(crate) const CREATE: i32 = 1;
    pub(crate) const DELETE: i32 = 2;
    pub(crate) const DATA: i32 = 4;
    pub(crate) const SET: i32 = 5;
    pub(crate) const SYNC: i32 = 9;
    pub(crate) const PING: i32 = 11;
    pub(crate) const CHILDREN: i32 = 12;
    pub(crate) const TRANSACTION: i32 = 14;
    pub(crate) const CREATE_WITH_STAT: i32 = 15;
    pub(crate) const CREATE_CONTAINER: i32 = 19;
    pub(crate) const LOGIN: i32 = 100;
    pub(crate) const CLOSE: i32 = -11;
}

/// The numbers of replies that answer no numbered request.
pub(crate) const NOTIFICATION: i32 = -1;
pub(crate) const PONG: i32 = -2;
pub(crate) const LOGGED_IN: i32 = -4;

/// Errors of the servers that end a connection.
pub(crate) const UNKNOWN: i32 = -12;
pub(crate) const EXPIRED: i32 = -112;
pub(crate) const NO_LOGIN: i32 = -115;
pub(crate) const MOVED: i32 = -118;

/// In a failed transaction: this step failed only because another one did.
const UNDONE: i32 = -2;
/// The length of the header of a reply.
pub(crate) const HEADER: usize = 16;

/// The server's report about a node.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stat {
    /// The stamp of the last change of its data.
    pub(crate) stamp: Stamp,
    /// The number of the last change of its data or its children.
    pub(crate) zxid: i64,
    pub(crate) created_ms: u64,
    pub(crate) version: i32,
    /// Number of children it ever had, which is the number of its next one.
    pub(crate) children_made: u32,
    /// Number of children that it got and that it lost.
    pub(crate) children_changes: i32,
    /// The session with which the node ends; 0 if it ends with none.
    pub(crate) owner: i64,
}

/// The kind of a node that is made, with the protocol's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Persistent = 0,
    /// Ends with our session.
    Ephemeral = 1,
    /// Ends with our session; the server adds a number to its path.
    Numbered = 3,
    /// Removed by the server some time after its last child.
    Container = 4,
}

/// One step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Create(String, Vec<u8>, Mode),
    /// Writes the data; with a version, only if the node has it.
    Set(String, Vec<u8>, Option<i32>),
    Delete(String, Option<i32>),
}

impl Change {
    /// Returns whether the step makes a node that ends with the session.
    pub(crate) const fn is_ephemeral(&self) -> bool {
        matches!(self, Self::Create(_, _, Mode::Ephemeral | Mode::Numbered))
    }
}

/// A transaction was not carried out.
#[derive(Debug)]
pub(crate) struct Aborted {
    /// The first step that failed by itself, if the server names it.
    pub(crate) step: Option<usize>,
    pub(crate) failure: Failure,
}

impl From<Aborted> for Failure {
    fn from(aborted: Aborted) -> Self {
        aborted.failure
    }
}

/// A frame to be sent, with room for its length and, if it is a request, for its number.
#[derive(Debug)]
pub(crate) struct Frame(Vec<u8>);

/// A frame that came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

/// The session that a server has granted. The password lets it go on over another connection.
#[derive(Clone)]
pub(crate) struct Granted {
    pub(crate) id: i64,
    timeout_ms: i32,
    password: Vec<u8>,
    /// The highest number of a write that an answer under this session was later than.
    pub(crate) seen: i64,
}

/// The first part of a reply.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) number: i32,
    /// The number of the last write that the server knew of.
    pub(crate) zxid: i64,
    /// 0 if the request was carried out.
    pub(crate) error: i32,
}

impl Granted {
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.timeout_ms).unwrap_or_default())
    }
}

impl Frame {
    /// Begins a frame without a number, as only the first one is.
    fn new() -> Self {
        Self(vec![0; 4])
    }

    /// Begins a request.
    pub(crate) fn request(code: i32) -> Self {
        Self::new().int(0).int(code)
    }

    /// Asks for a session, or for this one.
    pub(crate) fn hello(timeout: Duration, resumed: Option<&Granted>) -> Self {
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // No write is named as the last one seen: servers that lost their data would refuse the connection for it, and
        // would not tell that the session has ended.
        let frame = Self::new().int(0).long(0).int(timeout_ms);
        match resumed {
            Some(granted) => frame.long(granted.id).bytes(&granted.password),
            None => frame.long(0).bytes(&[0; 16]),
        }
        .flag(false)
    }

    pub(crate) fn login(user_and_password: &str) -> Self {
        let frame = Self::request(code::LOGIN).int(0).text("digest");
        frame.bytes(user_and_password.as_bytes())
    }

    pub(crate) fn int(mut self, number: i32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn long(mut self, number: i64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(crate) fn flag(mut self, flag: bool) -> Self {
        self.0.push(u8::from(flag));
        self
    }

    pub(crate) fn bytes(self, bytes: &[u8]) -> Self {
        let length = i32::try_from(bytes.len()).expect("no name is as long");
        let mut frame = self.int(length);
        frame.0.extend(bytes);
        frame
    }

    pub(crate) fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    /// Adds what says who may use a node: its creator, or everybody.
    pub(crate) fn access(self, is_owned: bool) -> Self {
        let (scheme, id) = if is_owned {
            ("auth", "")
        } else {
            ("world", "anyone")
        };
        self.int(1).int(31).text(scheme).text(id)
    }

    /// Adds one step of a transaction.
    pub(crate) fn step(self, change: &Change, is_owned: bool) -> Self {
        let (code, path) = match change {
            Change::Create(path, _, Mode::Container) => (code::CREATE_CONTAINER, path),
            Change::Create(path, ..) => (code::CREATE, path),
            Change::Set(path, ..) => (code::SET, path),
            Change::Delete(path, _) => (code::DELETE, path),
        };
        let frame = self.int(code).flag(false).int(-1).text(path);
        match change {
            Change::Create(_, data, mode) => frame.bytes(data).access(is_owned).int(*mode as i32),
            Change::Set(_, data, version) => frame.bytes(data).int(version.unwrap_or(-1)),
            Change::Delete(_, version) => frame.int(version.unwrap_or(-1)),
        }
    }

    /// Ends a transaction.
    pub(crate) fn end_of_steps(self) -> Self {
        self.int(-1).flag(true).int(-1)
    }

    /// Returns the bytes of a request with this number.
    pub(crate) fn numbered(mut self, number: i32) -> Vec<u8> {
        self.0[4..8].copy_from_slice(&number.to_be_bytes());
        self.finished()
    }

    /// Returns the bytes of a frame that has no number.
    pub(crate) fn finished(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len() - 4).expect("no frame is as long");
        self.0[..4].copy_from_slice(&length.to_be_bytes());
        self.0
    }
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(frame: &'a [u8]) -> Self {
        Self(frame)
    }

    fn int(&mut self) -> Option<i32> {
        self.0.try_get_i32().ok()
    }

    fn long(&mut self) -> Option<i64> {
        self.0.try_get_i64().ok()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        // A length of -1 stands for no data.
        let length = usize::try_from(self.int()?.max(0)).ok()?;
        self.0.split_off(..length)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    /// Reads the answer to a hello. The id of a session that has ended is 0.
    pub(crate) fn granted(mut self) -> Option<Granted> {
        let _version = self.int()?;
        let timeout_ms = self.int()?;
        let (id, password) = (self.long()?, self.bytes()?.to_vec());
        Some(Granted {
            id,
            timeout_ms,
            password,
            seen: 0,
        })
    }

    pub(crate) fn header(&mut self) -> Option<Header> {
        let (number, zxid, error) = (self.int()?, self.long()?, self.int()?);
        Some(Header {
            number,
            zxid,
            error,
        })
    }

    /// Reads the path of a node that has changed.
    pub(crate) fn changed_path(mut self) -> Option<String> {
        let (_what, _state) = (self.int()?, self.int()?);
        self.text()
    }

    pub(crate) fn stat(&mut self) -> Option<Stat> {
        let _made_by = self.long()?;
        let (changed_by, created_ms, changed_ms) = (self.long()?, self.long()?, self.long()?);
        let (version, changes, _access_version) = (self.int()?, self.int()?, self.int()?);
        let owner = self.long()?;
        let (_bytes, children) = (self.int()?, self.int()?);
        let children_changed_by = self.long()?;
        Some(Stat {
            stamp: Stamp {
                ms: u64::try_from(changed_ms).unwrap_or_default(),
                zxid: changed_by,
            },
            zxid: changed_by.max(children_changed_by),
            created_ms: u64::try_from(created_ms).unwrap_or_default(),
            version,
            // The number counts the children that were made and those that were removed.
            children_made: changes.wrapping_add(children).cast_unsigned() / 2,
            children_changes: changes,
            owner,
        })
    }

    pub(crate) fn data(mut self) -> Option<(Vec<u8>, Stat)> {
        Some((self.bytes()?.to_vec(), self.stat()?))
    }

    pub(crate) fn children(mut self) -> Option<(Vec<String>, Stat)> {
        let count = self.int()?.max(0);
        let children = (0..count).map(|_| self.text()).collect::<Option<_>>()?;
        Some((children, self.stat()?))
    }

    /// Reads what became of the steps of a transaction: the stat of the node that each `Set` wrote, or why it was not
    /// carried out.
    pub(crate) fn steps(mut self) -> Option<Result<Vec<Stat>, Aborted>> {
        let mut stats = Vec::new();
        for step in 0.. {
            let (what, is_end, _error) = (self.int()?, self.0.try_get_u8().ok()? != 0, self.int()?);
            match what {
                _ if is_end => return Some(Ok(stats)),
                code::CREATE => {
                    self.bytes()?;
                }
                code::CREATE_WITH_STAT => {
                    // Servers fill it with arbitrary values (ZOOKEEPER-4026).
                    self.bytes()?;
                    self.stat()?;
                }
                code::SET => stats.push(self.stat()?),
                code::DELETE => {}
                -1 => match self.int()? {
                    0 | UNDONE => {}
                    error => {
                        let (step, failure) = (Some(step), Failure::of(error));
                        return Some(Err(Aborted { step, failure }));
                    }
                },
                _ => return None,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_that_failed_by_itself_is_found() {
        let failed = |error| Frame(Vec::new()).int(-1).flag(false).int(error).int(error);
        let steps = [0, -103, UNDONE].map(|error| failed(error).0).concat();
        let end = Frame(Vec::new()).end_of_steps().0;
        let reply = [steps, end].concat();
        let read = Reader::new(&reply).steps();
        let failed = read.expect("whole").expect_err("two steps failed");
        assert_eq!(failed.step, Some(1), "{failed:?}");
        assert!(matches!(failed.failure, Failure::Changed), "{failed:?}");
        assert!(Reader::new(&reply[..20]).steps().is_none(), "cut short");
    }
}
