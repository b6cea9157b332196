//! The names of keys and channels, and how a lease's name is read back from a key.
//!
//! The braces are the hash tag of Redis Cluster: all keys of one name are in one slot, and so is the mark that it
//! shares with the slot's other names. Names and prefixes contain no braces, so no two names share a lease.

use std::fmt;

use super::slot;
use crate::error::Error;
use crate::holder::ClientId;
use crate::name::{self, Name};

/// The keys of all names under one prefix.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    prefix: Box<str>,
}

/// A key, in parts that are joined only where it is written: each request names five.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key<'a> {
    prefix: &'a str,
    of: Of<'a>,
}

/// What a key belongs to.
#[derive(Debug, Clone, Copy)]
enum Of<'a> {
    /// A name. The key ends with this text.
    Name(&'a str, &'static str),
    /// The names of the slot with this tag.
    Slot(u32),
    /// The server.
    Node,
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = self.prefix;
        match self.of {
            Of::Name(name, end) => {
                let mut parts = [prefix, ":{", name, "}", end].into_iter();
                parts.try_for_each(|part| f.write_str(part))
            }
            Of::Slot(tag) => write!(f, "{prefix}:{{{tag}}}:mark"),
            Of::Node => write!(f, "{prefix}:node"),
        }
    }
}

impl Keys {
    pub(crate) const DEFAULT_PREFIX: &str = "leasehold";

    pub(crate) fn new(prefix: &str) -> Result<Self, Error> {
        name::check("prefix", prefix)?;
        Ok(Self {
            prefix: prefix.into(),
        })
    }

    /// Returns the key of the lease, a string.
    pub(crate) fn lease<'a>(&'a self, name: &'a Name) -> Key<'a> {
        self.key(Of::Name(name.as_str(), ""))
    }

    /// Returns the key of the highest token of all names in the slot of this one, a string.
    pub(crate) fn mark(&self, name: &Name) -> Key<'_> {
        self.mark_of(slot::slot_of(name.as_str()))
    }

    /// The same, of this slot.
    pub(crate) fn mark_of(&self, slot: u16) -> Key<'_> {
        self.key(Of::Slot(slot::tag_of(slot)))
    }

    /// Returns the keys of the scripts that take or free a name. In a cluster that of the server itself would be in
    /// another slot.
    pub(crate) fn of_name<'a>(
        &'a self,
        name: &'a Name,
        is_in_cluster: bool,
    ) -> impl ExactSizeIterator<Item = Key<'a>> {
        let keys = [
            self.lease(name),
            self.mark(name),
            self.queue(name),
            self.waiting(name),
            self.node(),
        ];
        let of_name = keys.len() - usize::from(is_in_cluster);
        keys.into_iter().take(of_name)
    }

    /// Returns the key that shows whether a server still has its data. It is there only where keep-out is on, and on
    /// servers of a store of another kind.
    pub(crate) fn node(&self) -> Key<'_> {
        self.key(Of::Node)
    }

    /// Returns the SCAN pattern of all keys that belong to a name or a slot.
    pub(crate) fn of_any_name(&self) -> String {
        escape(&self.prefix) + ":{*"
    }

    /// Returns the key of the queue of waiting clients, a sorted set.
    pub(crate) fn queue<'a>(&'a self, name: &'a Name) -> Key<'a> {
        self.key(Of::Name(name.as_str(), ":queue"))
    }

    /// Returns the key of the claims that wait at the places of these clients, a hash.
    pub(crate) fn waiting<'a>(&'a self, name: &'a Name) -> Key<'a> {
        self.key(Of::Name(name.as_str(), ":waiting"))
    }

    /// Returns the channel with the notices of a client's grants of the name.
    pub(crate) fn granted_channel(&self, name: &Name, client: ClientId) -> String {
        format!("{}:granted:{client}", self.lease(name))
    }

    /// Returns the channel on which releases are published.
    pub(crate) fn channel(&self, name: &Name) -> String {
        self.key(Of::Name(name.as_str(), ":freed")).to_string()
    }

    /// Returns a channel that belongs to no name, since a name is never empty, but needs the same permission.
    pub(crate) fn probe_channel(&self) -> String {
        self.key(Of::Name("", ":freed")).to_string()
    }

    /// Returns the SCAN pattern of all leases whose names have this prefix.
    pub(crate) fn pattern(&self, begin: &str) -> String {
        let (prefix, begin) = (escape(&self.prefix), escape(begin));
        format!("{prefix}:{{{begin}*}}")
    }

    /// Returns the name of a lease's key; `None` for other keys.
    pub(crate) fn name_of_lease(&self, key: &str) -> Option<Name> {
        self.name_before(key, "}")
    }

    /// Returns the name of a channel; `None` for other channels.
    pub(crate) fn name_of_channel(&self, channel: &str) -> Option<Name> {
        self.name_before(channel, "}:freed")
    }

    /// Returns the name of a channel of grants; `None` for other channels.
    pub(crate) fn name_of_granted_channel(&self, channel: &str) -> Option<Name> {
        let (_, client) = channel.rsplit_once(":granted:")?;
        self.name_before(channel, &format!("}}:granted:{client}"))
    }

    fn name_before(&self, key: &str, end: &str) -> Option<Name> {
        let name = key.strip_prefix(&*self.prefix)?.strip_prefix(":{")?;
        Name::new(name.strip_suffix(end)?).ok()
    }

    const fn key<'a>(&'a self, of: Of<'a>) -> Key<'a> {
        let prefix = &*self.prefix;
        Key { prefix, of }
    }
}

/// Escapes the characters that have a meaning in SCAN's patterns.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '^' | '-' | '\\') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys() -> Keys {
        Keys::new(Keys::DEFAULT_PREFIX).expect("a valid prefix")
    }

    fn name(text: &str) -> Name {
        Name::new(text).expect("a valid name")
    }

    #[test]
    fn everything_of_a_name_has_its_hash_tag() {
        assert_eq!(
            keys().lease(&name("billing")).to_string(),
            "leasehold:{billing}"
        );
        assert_eq!(
            keys().queue(&name("billing")).to_string(),
            "leasehold:{billing}:queue"
        );
        assert_eq!(
            keys().channel(&name("billing")),
            "leasehold:{billing}:freed"
        );
    }

    #[test]
    fn the_mark_of_a_name_lies_in_its_slot() {
        assert_eq!(
            keys().mark(&name("billing")).to_string(),
            "leasehold:{43473}:mark"
        );
        assert_eq!(slot::slot_of("43473"), slot::slot_of("billing"));
        // The name that equals the tag.
        assert_eq!(
            keys().mark(&name("43473")).to_string(),
            "leasehold:{43473}:mark"
        );
    }

    #[test]
    fn a_name_that_looks_like_another_key_is_kept_apart() {
        assert_ne!(
            keys().lease(&name("a:queue")).to_string(),
            keys().queue(&name("a")).to_string(),
            "the brace closes before the suffix"
        );
        assert_eq!(keys().name_of_lease("leasehold:{7}:mark"), None);
        assert_eq!(
            keys().name_of_lease("leasehold:{a:queue}"),
            Some(name("a:queue"))
        );
    }

    #[test]
    fn a_pattern_takes_special_characters_by_the_letter() {
        let keys = Keys::new("p*").expect("a valid prefix");
        assert_eq!(keys.pattern("a?[b]\\"), r"p\*:{a\?\[b\]\\*}");
        assert_eq!(keys.pattern(""), r"p\*:{*}");
    }

    #[test]
    fn a_prefix_obeys_the_rule_for_names() {
        for bad in ["", "a{", "a}b", "a\n"] {
            let error = Keys::new(bad).expect_err("refused");
            assert!(error.to_string().starts_with("prefix"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_read_back_from_its_keys(text in "[^{}\\p{Cc}\\s]([^{}\\p{Cc}]{0,38}[^{}\\p{Cc}\\s])?") {
            let name = name(&text);
            prop_assert_eq!(keys().name_of_lease(&keys().lease(&name).to_string()), Some(name.clone()));
            let channel = keys().granted_channel(&name, ClientId::from_u128(0));
            prop_assert_eq!(keys().name_of_granted_channel(&channel), Some(name.clone()));
            prop_assert_eq!(keys().name_of_channel(&keys().channel(&name)), Some(name));
        }
    }
}
