//! The hash slots of Redis Cluster, and for each slot a tag that is in it.
//!
//! All names of a slot share one mark of the highest token, so the mark's key must be in that slot, whatever the name:
//! its tag is the least whole number whose decimal text is in the slot. Clients in other languages find the same tags.

use std::sync::LazyLock;

/// The number of slots.
pub(crate) const SLOTS: u16 = 16_384;
/// The highest of the tags.
const LAST_TAG: u32 = 109_757;

/// Returns the slot of this tag, the text between the braces of a key.
pub(crate) fn slot_of(tag: &str) -> u16 {
    crc16(tag.as_bytes()) % SLOTS
}

/// Returns the tag in the key of this slot's mark.
pub(crate) fn tag_of(slot: u16) -> u32 {
    static TAGS: LazyLock<Box<[u32]>> = LazyLock::new(tags);
    TAGS[usize::from(slot)]
}

/// Finds the tags of all slots: of the numbers in a slot the least is taken last. The first claim waits for it, so the
/// checksum of each number goes on from that of the number without its last digit.
fn tags() -> Box<[u32]> {
    let mut checksums = Vec::new();
    for (_, digit) in (0..=LAST_TAG).zip((b'0'..=b'9').cycle()) {
        let before = match checksums.len() {
            0..10 => 0,
            number => checksums[number / 10],
        };
        checksums.push(crc16_with(before, digit));
    }
    let mut tags = vec![0; usize::from(SLOTS)];
    for (number, checksum) in (0..=LAST_TAG).rev().zip(checksums.iter().rev()) {
        tags[usize::from(checksum % SLOTS)] = number;
    }
    tags.into()
}

/// CRC-16/XMODEM, as the specification of the cluster requires.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().copied().fold(0, crc16_with)
}

/// Returns the checksum of a text from that of the text before its last byte.
fn crc16_with(before: u16, byte: u8) -> u16 {
    let [high, low] = before.to_be_bytes();
    CRC16_OF_BYTE[usize::from(high ^ byte)] ^ u16::from(low) << 8
}

const CRC16_OF_BYTE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            let carry = crc & 0x8000 != 0;
            crc <<= 1;
            if carry {
                crc ^= 0x1021;
            }
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster() {
        // The answer of CLUSTER KEYSLOT.
        assert_eq!(slot_of("billing"), 12_682);
        assert_eq!(slot_of("a"), 15_495);
        assert_eq!(slot_of("é"), 10_180);
    }

    #[test]
    fn the_tag_of_a_slot_is_the_least_number_in_it() {
        for (slot, tag) in [(0, 3_560), (1, 22_179), (12_682, 43_473), (16_383, 39_296)] {
            assert_eq!(tag_of(slot), tag);
            let least = (0..tag).all(|number| slot_of(&number.to_string()) != slot);
            assert!(least, "{tag} is not the least of slot {slot}");
        }
    }

    #[test]
    fn each_slot_has_a_tag_in_it() {
        for slot in 0..SLOTS {
            assert_eq!(slot_of(&tag_of(slot).to_string()), slot);
        }
    }
}
