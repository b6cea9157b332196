//! Maps slots to servers. No I/O: a discovery learns the map, and refusals correct it.

use std::collections::HashMap;
use std::time::Duration;

use deadpool_redis::redis::Value;

use super::super::address::AddressMap;
use super::super::failure::Failure;
use super::super::protocol::reply::{items, number, odd, parsed};
use super::super::protocol::slot::SLOTS;
use crate::clock::Instant;
use crate::store::kit::server_url::HostPort;

/// The index of an endpoint that is not known.
const NOBODY: u16 = u16::MAX;
/// How long a redirection takes precedence over a node's map of all slots: nodes learn of a move one after the other,
/// and one that is cut off still answers.
const REDIRECTED: Duration = Duration::from_secs(2);

/// The server of each slot, as far as known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Map {
    /// Every endpoint that was ever seen: an endpoint keeps its index, which is its shard.
    endpoints: Vec<HostPort>,
    /// The index of the endpoint that serves each slot; a single one if it serves all of them; none if nothing is
    /// known.
    owners: Vec<u16>,
    /// Slots whose server recently redirected a call: the target, and when.
    redirected: HashMap<u16, (u16, Instant)>,
    /// Number of times that the Sentinels had changed the master.
    pub(super) epoch: u64,
}

/// A range of slots and the server for it; `None` if there is none.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    first: u16,
    last: u16,
    owner: Option<HostPort>,
}

impl Map {
    /// Returns the server of this slot.
    pub(super) fn owner(&self, slot: u16) -> Option<&HostPort> {
        self.endpoints.get(usize::from(self.index(slot)))
    }

    /// Returns the shard of this slot: the index of its server.
    pub(super) fn shard(&self, slot: u16) -> u32 {
        match self.index(slot) {
            NOBODY => 0,
            index => index.into(),
        }
    }

    fn index(&self, slot: u16) -> u16 {
        let index = match self.owners.len() {
            1 => 0,
            _ => usize::from(slot),
        };
        self.owners.get(index).copied().unwrap_or(NOBODY)
    }

    /// Returns each server that serves any slot.
    pub(super) fn owners(&self) -> Vec<HostPort> {
        let mut indices = self.owners.clone();
        indices.sort_unstable();
        indices.dedup();
        let endpoints = indices.into_iter();
        let endpoints = endpoints.filter_map(|index| self.endpoints.get(usize::from(index)));
        endpoints.cloned().collect()
    }

    /// Returns whether this endpoint serves any slot.
    pub(super) fn serves(&self, endpoint: &HostPort) -> bool {
        let index = self.shard_of(endpoint);
        index.is_some_and(|index| self.owners.contains(&index))
    }

    pub(super) fn is_known(&self) -> bool {
        !self.owners.is_empty()
    }

    /// Makes this endpoint the server of all slots.
    pub(super) fn set_master(&mut self, endpoint: HostPort, epoch: u64) {
        self.owners = vec![self.index_of(endpoint)];
        self.epoch = epoch;
    }

    /// Makes these ranges the whole map, but for slots that were redirected just now.
    pub(super) fn set_ranges(&mut self, ranges: Vec<Range>, now: Instant) {
        let mut owners = vec![NOBODY; usize::from(SLOTS)];
        for range in ranges {
            let owner = range
                .owner
                .map_or(NOBODY, |endpoint| self.index_of(endpoint));
            if let Some(slots) = owners.get_mut(range.first.into()..=range.last.into()) {
                slots.fill(owner);
            }
        }
        (self.redirected).retain(|_, (_, since)| now.since(*since) < REDIRECTED);
        for (slot, (owner, _)) in &self.redirected {
            owners[usize::from(*slot)] = *owner;
        }
        self.owners = owners;
    }

    /// Records that a slot has moved to this endpoint.
    pub(super) fn set_owner(&mut self, slot: u16, endpoint: HostPort, now: Instant) {
        let index = self.index_of(endpoint);
        let is_of_cluster = self.owners.len() > 1;
        if let Some(owner) = self.owners.get_mut(usize::from(slot))
            && is_of_cluster
        {
            *owner = index;
            self.redirected.insert(slot, (index, now));
        }
    }

    /// Returns the index of an endpoint that was seen before: the shard of its slots.
    pub(super) fn shard_of(&self, endpoint: &HostPort) -> Option<u16> {
        let known = self.endpoints.iter().position(|known| known == endpoint)?;
        u16::try_from(known).ok()
    }

    fn index_of(&mut self, endpoint: HostPort) -> u16 {
        self.shard_of(&endpoint).unwrap_or_else(|| {
            self.endpoints.push(endpoint);
            u16::try_from(self.endpoints.len() - 1).unwrap_or(NOBODY)
        })
    }
}

/// Parses the reply of `CLUSTER SLOTS`. A server without a host is the one that answered.
pub(super) fn slots(
    reply: &Value,
    answered: &HostPort,
    address_map: &AddressMap,
) -> Result<Vec<Range>, Failure> {
    let short = |value: &Value| u16::try_from(number(value)?).map_err(|_| odd(value));
    let read = |range: &Value| {
        let [first, last, node, ..] = items(range)? else {
            return Err(odd(range));
        };
        let (first, last) = (short(first)?, short(last)?);
        if last >= SLOTS || first > last {
            return Err(odd(range));
        }
        let [host, port, ..] = items(node)? else {
            return Err(odd(node));
        };
        let host = parsed::<Option<String>>(host)?.unwrap_or_default();
        let owner = address_map.reached(&host, short(port)?, answered);
        Ok(Range { first, last, owner })
    };
    items(reply)?.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(port: u16) -> HostPort {
        HostPort::new("node", port)
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn ranges(parts: &[(u16, u16, u16)]) -> Vec<Range> {
        let parts = parts.iter().map(|&(first, last, port)| Range {
            first,
            last,
            owner: Some(endpoint(port)),
        });
        parts.collect()
    }

    #[test]
    fn a_server_keeps_its_shard_while_slots_move() {
        let mut map = Map::default();
        map.set_ranges(ranges(&[(0, 8_000, 1), (8_001, 16_383, 2)]), at(0));
        assert_eq!((map.shard(0), map.shard(9_000)), (0, 1));
        map.set_ranges(ranges(&[(0, 100, 2), (101, 16_383, 1)]), at(0));
        assert_eq!((map.shard(0), map.shard(9_000)), (1, 0));
        map.set_owner(9_000, endpoint(3), at(0));
        assert_eq!(map.owner(9_000), Some(&endpoint(3)));
        assert_eq!((map.shard(9_000), map.shard(9_001)), (2, 0));
        assert_eq!(map.owners(), [endpoint(1), endpoint(2), endpoint(3)]);
    }

    #[test]
    fn a_node_that_is_behind_does_not_take_back_what_a_server_said_just_now() {
        let mut map = Map::default();
        let behind = || ranges(&[(0, 16_383, 1)]);
        map.set_ranges(behind(), at(0));
        map.set_owner(7, endpoint(2), at(1));
        map.set_ranges(behind(), at(2));
        assert_eq!(
            (map.owner(7), map.owner(8)),
            (Some(&endpoint(2)), Some(&endpoint(1)))
        );
        map.set_ranges(behind(), at(3));
        assert_eq!(map.owner(7), Some(&endpoint(1)));
    }

    #[test]
    fn a_slot_without_a_server_has_no_owner() {
        let mut map = Map::default();
        assert_eq!(map.owner(5), None);
        map.set_owner(5, endpoint(1), at(0));
        assert!(!map.is_known(), "a redirection alone is not a map");
        map.set_ranges(ranges(&[(0, 9, 1)]), at(0));
        assert_eq!((map.owner(9), map.owner(10)), (Some(&endpoint(1)), None));
        assert!(map.serves(&endpoint(1)) && !map.serves(&endpoint(2)));
    }

    #[test]
    fn a_master_serves_every_slot() {
        let mut map = Map::default();
        map.set_master(endpoint(1), 7);
        assert_eq!(map.owner(16_383), Some(&endpoint(1)));
        map.set_master(endpoint(2), 8);
        assert_eq!((map.owner(0), map.epoch), (Some(&endpoint(2)), 8));
        assert!(!map.serves(&endpoint(1)));
    }

    #[test]
    fn the_reply_of_a_node_is_read() {
        let word = |text: &str| Value::BulkString(text.into());
        let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), word("id")]);
        let range = |first, last, node| {
            let replica = Value::Array(vec![word("10.0.0.9"), Value::Int(7_009), word("id")]);
            Value::Array(vec![Value::Int(first), Value::Int(last), node, replica])
        };
        let reply = Value::Array(vec![
            range(0, 1, node(word("10.0.0.1"), 7_000)),
            range(2, 3, node(Value::Nil, 7_001)),
            range(4, 4, node(word("?"), 7_002)),
        ]);
        let read = slots(&reply, &endpoint(1), &AddressMap::default()).expect("a reply");
        let owners = read.into_iter().map(|range| range.owner);
        let expected = [
            Some(HostPort::new("10.0.0.1", 7_000)),
            Some(endpoint(7_001)),
            None,
        ];
        assert_eq!(owners.collect::<Vec<_>>(), expected);
        for (first, last) in [(0, 16_384), (-1, 4), (4, 3)] {
            let reply = Value::Array(vec![range(first, last, node(word("a"), 1))]);
            assert!(
                slots(&reply, &endpoint(1), &AddressMap::default()).is_err(),
                "{first} to {last}"
            );
        }
    }
}
