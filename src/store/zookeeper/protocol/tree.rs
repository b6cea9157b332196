//! The paths of the nodes, and what a node's name means. Pure.
//!
//! ```text
//! /<chroot>/<prefix>/<00..ff>/<name>    a container; its version counts grants and joins
//!     t-<token>             the last grant of this name, whether or not it is held
//!     h-<holder>            the lease
//!     e-<holder>            evicted by an operator, and kept for the rest of its time
//!     k-<holder>            released with a time to keep
//!     q-<client>-<number>   a place in the queue
//! ```

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::holder::{ClientId, Holder};
use crate::name::Name;
use crate::store::HeldState;
use crate::token::Token;
use crate::words::words;

/// The root of all names, and the paths below it.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    root: String,
}

words! {
    /// How a node keeps a name taken, with the letter of the node.
    pub(crate) enum Kind {
        /// Exits: Evicted, Kept, gone (released, run out, its session ended).
        Leased = "h",
        /// Exits: gone (released, run out).
        Evicted = "e",
        /// Exits: gone (run out, evicted).
        Kept = "k",
    }
}

/// One client's place in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueuePlace {
    pub(crate) client: ClientId,
    /// The names of its nodes, in order. After a lost reply there can be a second one.
    pub(crate) nodes: Vec<String>,
}

/// The children of a name, by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Children {
    pub(crate) token: Option<Token>,
    pub(crate) taken: Option<(Kind, Holder)>,
    /// Two nodes that keep the name taken. No rule of ours makes a second one.
    pub(crate) rivals: Option<[String; 2]>,
    /// A node with a name that this version cannot read: a later one or another program made it.
    pub(crate) unknown: Option<String>,
    pub(crate) queue: Vec<QueuePlace>,
}

impl Tree {
    pub(crate) fn new(chroot: &str, prefix: &str) -> Self {
        let root = format!("{chroot}/{}", encode(prefix));
        Self { root }
    }

    /// Returns the node above all folders. Its data is empty, and is written for its stamp only.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// Returns the folder of a name: one of 256, so that none has too many children for one reply.
    pub(crate) fn folder(&self, name: &Name) -> String {
        format!("{}/{:02x}", self.root, hash(name.as_str()))
    }

    pub(crate) fn name(&self, name: &Name) -> String {
        format!("{}/{}", self.folder(name), encode(name.as_str()))
    }

    pub(crate) fn lease(&self, name: &Name, holder: Holder) -> String {
        self.taken(name, Kind::Leased, holder)
    }

    pub(crate) fn taken(&self, name: &Name, kind: Kind, holder: Holder) -> String {
        format!("{}/{}", self.name(name), kind.node(holder))
    }

    pub(crate) fn token(&self, name: &Name, token: Token) -> String {
        format!("{}/{}", self.name(name), token_node(token))
    }

    /// Returns the beginning of the path of a new place; the server adds the number.
    pub(crate) fn place(&self, name: &Name, client: ClientId) -> String {
        format!("{}/q-{client}-", self.name(name))
    }
}

/// Returns the name of the node of a token.
pub(crate) fn token_node(token: Token) -> String {
    format!("t-{:016x}", token.get())
}

impl Kind {
    /// Returns how a name that is taken in this way is shown.
    pub(crate) const fn state(self) -> HeldState {
        match self {
            Self::Leased => HeldState::Leased,
            Self::Evicted => HeldState::Evicted,
            Self::Kept => HeldState::Kept,
        }
    }

    /// Returns the name of this holder's node.
    pub(crate) fn node(self, holder: Holder) -> String {
        format!("{}-{holder}", self.as_str())
    }
}

impl Children {
    pub(crate) fn read(nodes: &[String]) -> Self {
        let mut children = Self::default();
        let mut nodes: Vec<_> = nodes.iter().collect();
        // Places by the server's number, which has ten digits: how many children the name has had. At its end, 2^31-1,
        // it stays for ever, so a name is made anew before.
        nodes.sort_by_key(|node| (node.rsplit('-').next(), *node));
        for node in nodes {
            if children.take(node).is_none() {
                children.unknown.get_or_insert_with(|| node.clone());
            }
        }
        children
    }

    /// Adds a node. Returns `None` if its name has a form that this version does not know.
    fn take(&mut self, node: &str) -> Option<()> {
        let (letter, rest) = node.split_once('-')?;
        match letter {
            "t" => {
                let token = u64::from_str_radix(rest, 16).ok()?;
                self.token = self.token.max(Some(Token::new(token).ok()?));
            }
            "q" => {
                let (client, number) = rest.split_at_checked(32)?;
                let client = ClientId::from_u128(u128::from_str_radix(client, 16).ok()?);
                number.strip_prefix('-')?.parse::<u32>().ok()?;
                let node = node.to_owned();
                match self.place(client) {
                    Some(place) => self.queue[place].nodes.push(node),
                    None => self.queue.push(QueuePlace {
                        client,
                        nodes: vec![node],
                    }),
                }
            }
            _ => {
                let kind = Kind::ALL.into_iter().find(|it| it.as_str() == letter)?;
                let before = self.taken.replace((kind, rest.parse().ok()?));
                if let Some((kind, holder)) = before {
                    self.rivals = Some([kind.node(holder), node.to_owned()]);
                }
            }
        }
        Some(())
    }

    /// Returns how many clients are before this one.
    pub(crate) fn place(&self, client: ClientId) -> Option<usize> {
        let mut queue = self.queue.iter();
        queue.position(|place| place.client == client)
    }
}

/// Writes every byte but those of `[A-Za-z0-9_:-]` as `%XX`, so there is no `/`, no `.` and nothing that the server
/// refuses.
pub(crate) fn encode(text: &str) -> String {
    const CODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b':').remove(b'-');
    utf8_percent_encode(text, CODED).to_string()
}

/// Returns the low byte of FNV-1a with 32 bits.
fn hash(text: &str) -> u8 {
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    hash.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: ClientId = ClientId::from_u128(1);
    const B: ClientId = ClientId::from_u128(2);

    fn tree() -> Tree {
        Tree::new("/app", "leases")
    }

    fn last(path: &str) -> &str {
        path.rsplit('/').next().expect("a path")
    }

    #[test]
    fn the_layout_is_that_of_the_readme() {
        let name = Name::new("a.b/é").expect("a name");
        let holder = Holder::new(A, 255);
        let tree = tree();
        assert_eq!(tree.root(), "/app/leases");
        assert_eq!(tree.name(&name), "/app/leases/85/a%2Eb%2F%C3%A9");
        assert_eq!(
            last(&tree.lease(&name, holder)),
            "h-00000000000000000000000000000001-00000000000000ff"
        );
        let token = Token::new(255).expect("a token");
        assert_eq!(last(&tree.token(&name, token)), "t-00000000000000ff");
        assert_eq!(
            last(&tree.place(&name, A)),
            "q-00000000000000000000000000000001-"
        );
    }

    #[test]
    fn what_is_written_is_read_back() {
        let name = Name::new("a").expect("a name");
        let holder = Holder::new(A, 7);
        let tree = tree();
        let read = |node: &str| Children::read(&[node.to_owned()]);
        for kind in Kind::ALL {
            let path = tree.taken(&name, kind, holder);
            assert_eq!(read(last(&path)).taken, Some((kind, holder)));
        }
        let path = format!("{}0000000012", tree.place(&name, A));
        let place = QueuePlace {
            client: A,
            nodes: vec![last(&path).to_owned()],
        };
        assert_eq!(read(last(&path)).queue, [place]);
        for odd in ["", "t", "t-", "t-x", "h-1", "q-1", "x-1", "q-é", "lock-1"] {
            let unknown = Children {
                unknown: Some(odd.to_owned()),
                ..Children::default()
            };
            assert_eq!(read(odd), unknown);
        }
    }

    #[test]
    fn the_queue_is_in_the_servers_order() {
        let node = |client, number: &str| format!("q-{client}-{number}");
        let children = Children::read(&[
            node(B, "0000000010"),
            node(A, "0000000009"),
            "t-00000000000000ff".into(),
            node(A, "2147483647"),
        ]);
        let clients: Vec<_> = children.queue.iter().map(|place| place.client).collect();
        assert_eq!(clients, [A, B]);
        assert_eq!(children.queue[0].nodes.len(), 2, "the second of A");
        assert_eq!(children.place(B), Some(1));
    }

    #[test]
    fn two_nodes_that_keep_a_name_taken_are_seen() {
        let node = |client| format!("h-{}", Holder::new(client, 7));
        assert_eq!(Children::read(&[node(A)]).rivals, None);
        let both = [node(A), node(B)];
        assert_eq!(Children::read(&both).rivals, Some(both));
    }

    proptest! {
        #[test]
        fn every_name_is_a_node_of_its_own(text in "[^\\p{Cc}{}]{1,60}") {
            let node = encode(&text);
            prop_assert!(node.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b'.'));
            prop_assert_eq!(crate::percent::decode(&node), Some(text));
        }
    }
}
