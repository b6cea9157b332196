//! What a member knows of itself: which quorum it belongs to, whether it is in, and how it comes in.
//!
//! ```text
//!   blank ──open──► in ──close──► closed ──open or adopt, for the successor──► in
//!     │             │ ▲
//!     │    another incarnation: restarted, promoted, restored
//!     │             ▼ │
//!     └── seen ──► out ── adopt, once the keep-out has passed
//! ```

use super::keep_out_us;

/// What makes a member a member: the key `node`. `I` is the incarnation, which changes with every start of the server
/// and with every promotion: a text of the server, or a number of the model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node<I> {
    /// `None` on a server that `init` never wrote, or that lost its data.
    pub membership: Option<Membership<I>>,
    /// Since when the member is out.
    pub seen: Option<FirstSeen<I>>,
    /// The run of `init` that may write the server: the last one that reserved it.
    pub reserved_by: Option<u64>,
}

/// The place of a member in its quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId {
    /// The quorum. Drawn by the first `init`, and computed from the plan by each that replaces one.
    pub quorum: u64,
    /// The member's place in the list of members, which is the same for all clients.
    pub index: u8,
    /// How many members the quorum has.
    pub of: u8,
}

/// What `init` or an adoption wrote, and the highest token since.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Membership<I> {
    /// Which member of which quorum it is.
    pub id: MemberId,
    /// The longest ttl of the quorum.
    pub max_ttl_us: u64,
    /// The incarnation that came in. The member is out while its present one is another.
    pub incarnation: I,
    /// The highest mark of any slot.
    pub max: u64,
    /// What `max` was when the member came in. No claim at or below it is taken, and a lease that was taken under
    /// another floor does not count: a member comes in without its leases.
    pub floor: u64,
    /// The quorum for which this one was closed. The first one stays.
    pub closed_for: Option<u64>,
}

/// When an incarnation that is out was first seen, by any request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FirstSeen<I> {
    /// The incarnation.
    pub incarnation: I,
    /// When it was first seen, by the member's clock.
    pub at_us: u64,
}

/// What the server is at the moment of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At<I> {
    /// Its clock.
    pub now_us: u64,
    /// Its incarnation.
    pub incarnation: I,
}

/// Why a member takes no part in a request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Absence<I> {
    /// It belongs to another quorum, or is another member of this one.
    Other(MemberId),
    /// Its quorum was closed for this one.
    Closed(u64),
    /// The request's ttl is longer than the longest of the quorum, which is this one.
    TooLong(u64),
    /// It is out.
    Out(FirstSeen<I>),
}

/// What `init` or an adoption writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writing<I> {
    /// Which member the server becomes or is.
    pub id: MemberId,
    /// The longest ttl of the quorum.
    pub max_ttl_us: u64,
    /// The incarnation for which this was found out. An adoption writes no other.
    pub found: I,
    /// The highest token that any grant can have.
    pub highest: u64,
}

impl<I: Clone + Eq> Node<I> {
    /// Returns a server that is no member.
    pub const fn blank() -> Self {
        Self {
            membership: None,
            seen: None,
            reserved_by: None,
        }
    }

    /// Returns the membership if the member is the one that is asked, and is in.
    ///
    /// # Errors
    /// Why it takes no part.
    pub fn look(&mut self, id: MemberId, at: &At<I>) -> Result<&mut Membership<I>, Absence<I>> {
        let is_in = match &self.membership {
            Some(member) if member.id == id => match member.closed_for {
                Some(successor) => return Err(Absence::Closed(successor)),
                None => member.incarnation == at.incarnation,
            },
            // It was closed to become a member of this one, and was not written: it comes in as one that lost its data.
            Some(member) if member.closed_for == Some(id.quorum) => false,
            Some(member) => return Err(Absence::Other(member.id)),
            None => false,
        };
        match &mut self.membership {
            Some(member) if is_in => Ok(member),
            _ => Err(Absence::Out(see(&mut self.seen, at))),
        }
    }

    /// Returns the highest token that the member has, for the adoption of another one: if it is in, or was closed for
    /// this quorum and kept its data since, so that it has said yes to no claim of it.
    ///
    /// # Errors
    /// Why it does not know.
    pub fn highest(&mut self, id: MemberId, at: &At<I>) -> Result<u64, Absence<I>> {
        let told = self.look(id, at).map(|member| member.max);
        match (&self.membership, told) {
            (Some(member), Err(Absence::Out(_)))
                if member.id != id && member.incarnation == at.incarnation =>
            {
                Ok(member.max)
            }
            (_, told) => told,
        }
    }

    /// Takes a member in that was out for the keep-out. What it had of leases does not count any more, and no claim at
    /// or below `highest` is taken.
    ///
    /// # Errors
    /// The member is out still: the write is for another incarnation, or comes too early. Or it is closed, or another.
    pub fn adopt(&mut self, writing: &Writing<I>, at: &At<I>) -> Result<(), Absence<I>> {
        let absence = match self.look(writing.id, at) {
            Ok(_) => return Ok(()),
            Err(absence) => absence,
        };
        let Absence::Out(seen) = &absence else {
            return Err(absence);
        };
        let it = self.membership.as_ref();
        let it = it.filter(|member| member.id == writing.id);
        let max_ttl_us = it.map_or(writing.max_ttl_us, |member| member.max_ttl_us);
        let is_over = at.now_us - seen.at_us >= keep_out_us(max_ttl_us);
        if !is_over || writing.found != at.incarnation {
            return Err(absence);
        }
        self.write(writing, max_ttl_us, at);
        Ok(())
    }

    /// Reserves a server for a run of `init`, and returns which member it is already. What an earlier run sends is
    /// refused from now on. A server that loses its data loses this too. The run writes once it has reserved all
    /// servers and has seen after the last one that all are reserved by it still.
    pub const fn reserve(&mut self, run: u64) -> Option<MemberId> {
        self.reserved_by = Some(run);
        match &self.membership {
            Some(member) => Some(member.id),
            None => None,
        }
    }

    /// Makes a server that this run has reserved a member that is in. It is blank, or its quorum was closed for this
    /// one.
    ///
    /// # Errors
    /// It is a member of another quorum, was written already, or is not reserved: then an adoption takes it in.
    pub fn open(&mut self, writing: &Writing<I>, run: u64, at: &At<I>) -> Result<(), Absence<I>> {
        match &self.membership {
            Some(member) if member.id == writing.id => self.look(writing.id, at).map(|_| ()),
            Some(member) if member.closed_for != Some(writing.id.quorum) => {
                Err(Absence::Other(member.id))
            }
            _ if self.reserved_by != Some(run) => Err(Absence::Out(see(&mut self.seen, at))),
            _ => {
                self.write(writing, writing.max_ttl_us, at);
                Ok(())
            }
        }
    }

    /// Closes the member's quorum for another one: it takes no claim and extends nothing from now on. Returns its
    /// highest token if it is in, whatever it was closed for before, and for which quorum it is closed.
    ///
    /// # Errors
    /// It is another member, or blank.
    pub fn close(
        &mut self,
        id: MemberId,
        successor: u64,
        at: &At<I>,
    ) -> Result<(u64, Option<u64>), Absence<I>> {
        match &mut self.membership {
            None => Err(Absence::Out(see(&mut self.seen, at))),
            Some(member) if member.id.quorum == successor => Ok((successor, Some(member.max))),
            Some(member) if member.id != id => Err(Absence::Other(member.id)),
            Some(member) => {
                let is_in = member.incarnation == at.incarnation;
                let closed_for = *member.closed_for.get_or_insert(successor);
                Ok((closed_for, is_in.then_some(member.max)))
            }
        }
    }

    fn write(&mut self, writing: &Writing<I>, max_ttl_us: u64, at: &At<I>) {
        let max = self.membership.as_ref().map_or(0, |member| member.max);
        // Above each floor that it had, because a lease is told from an older one by its floor.
        let floor = writing.highest.max(max) + 1;
        self.membership = Some(Membership {
            id: writing.id,
            max_ttl_us,
            incarnation: at.incarnation.clone(),
            max: floor,
            floor,
            closed_for: None,
        });
        self.seen = None;
        self.reserved_by = None;
    }
}

/// Notes when the incarnation was first seen. A clock that was ahead then does not make the keep-out longer.
fn see<I: Clone + Eq>(noted: &mut Option<FirstSeen<I>>, at: &At<I>) -> FirstSeen<I> {
    let seen = match noted.take() {
        Some(seen) if seen.incarnation == at.incarnation => FirstSeen {
            at_us: seen.at_us.min(at.now_us),
            ..seen
        },
        _ => FirstSeen {
            incarnation: at.incarnation.clone(),
            at_us: at.now_us,
        },
    };
    noted.insert(seen).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: MemberId = MemberId {
        quorum: 7,
        index: 0,
        of: 3,
    };
    const MAX_TTL_US: u64 = 1_000_000;

    const fn at(now_us: u64, incarnation: u8) -> At<u8> {
        At {
            now_us,
            incarnation,
        }
    }

    const fn writing(found: u8, highest: u64) -> Writing<u8> {
        Writing {
            id: ID,
            max_ttl_us: MAX_TTL_US,
            found,
            highest,
        }
    }

    fn opened() -> Node<u8> {
        let mut node = Node::blank();
        assert_eq!(node.reserve(3), None);
        node.open(&writing(1, 40), 3, &at(0, 1))
            .expect("it is blank");
        node
    }

    #[test]
    fn a_member_is_out_as_long_as_its_incarnation_is_another() {
        let mut node = opened();
        assert_eq!(node.look(ID, &at(5, 1)).expect("it is in").floor, 41);
        let seen = FirstSeen {
            incarnation: 2,
            at_us: 5,
        };
        assert_eq!(node.look(ID, &at(5, 2)), Err(Absence::Out(seen)));
        assert!(node.look(ID, &at(6, 1)).is_ok());
    }

    #[test]
    fn it_comes_in_after_the_keep_out_and_above_all_that_it_knows() {
        let mut node = opened();
        let _ = node.look(ID, &at(5, 2));
        let end = 5 + keep_out_us(MAX_TTL_US);
        assert!(node.adopt(&writing(2, 30), &at(end - 1, 2)).is_err());
        node.adopt(&writing(2, 30), &at(end, 2)).expect("in time");
        assert_eq!(node.look(ID, &at(end, 2)).expect("it is in").floor, 42);
    }

    #[test]
    fn a_clock_that_was_ahead_at_first_sight_does_not_lengthen_the_keep_out() {
        let mut node = opened();
        let _ = node.look(ID, &at(86_400_000_000, 2));
        let _ = node.look(ID, &at(5, 2));
        let end = 5 + keep_out_us(MAX_TTL_US);
        node.adopt(&writing(2, 40), &at(end, 2)).expect("in time");
    }

    #[test]
    fn a_write_for_another_incarnation_is_refused() {
        let mut node = opened();
        let _ = node.look(ID, &at(0, 3));
        let later = 2 * keep_out_us(MAX_TTL_US);
        assert!(node.adopt(&writing(2, 40), &at(later, 3)).is_err());
    }

    #[test]
    fn the_longest_ttl_of_the_member_counts_and_not_that_of_the_client() {
        let mut node = opened();
        let _ = node.look(ID, &at(0, 2));
        let shorter = Writing {
            max_ttl_us: 10,
            ..writing(2, 40)
        };
        assert!(node.adopt(&shorter, &at(MAX_TTL_US, 2)).is_err());
    }

    #[test]
    fn a_closed_member_takes_part_in_nothing_and_stays_closed_for_the_first_quorum() {
        let mut node = opened();
        assert_eq!(node.close(ID, 8, &at(1, 1)), Ok((8, Some(41))));
        assert_eq!(node.close(ID, 9, &at(1, 1)), Ok((8, Some(41))));
        assert_eq!(node.look(ID, &at(1, 1)), Err(Absence::Closed(8)));
        assert!(node.adopt(&writing(1, 40), &at(1, 1)).is_err());
        let mut other = writing(1, 40);
        other.id.quorum = 9;
        assert_eq!(node.reserve(4), Some(ID));
        assert_eq!(node.open(&other, 4, &at(2, 1)), Err(Absence::Other(ID)));
        other.id.quorum = 8;
        assert_eq!(node.open(&other, 4, &at(2, 1)), Ok(()));
        assert_eq!(node.look(ID, &at(2, 1)), Err(Absence::Other(other.id)));
    }

    #[test]
    fn a_member_that_was_closed_comes_into_the_new_quorum_though_it_was_not_written() {
        let mut node = opened();
        assert_eq!(node.close(ID, 8, &at(1, 1)), Ok((8, Some(41))));
        let mut writing = writing(1, 50);
        writing.id.quorum = 8;
        let new = writing.id;
        assert!(matches!(node.look(new, &at(5, 1)), Err(Absence::Out(_))));
        assert_eq!(node.highest(new, &at(5, 1)), Ok(41), "it took no part");
        assert!(
            node.highest(new, &at(5, 2)).is_err(),
            "it may be an old copy"
        );
        let _ = node.look(new, &at(5, 1));
        let end = 5 + keep_out_us(MAX_TTL_US);
        assert!(node.adopt(&writing, &at(end - 1, 1)).is_err());
        node.adopt(&writing, &at(end, 1)).expect("in time");
        assert_eq!(node.look(new, &at(end, 1)).expect("it is in").floor, 51);
    }

    #[test]
    fn a_member_that_was_written_is_not_written_again() {
        let mut node = opened();
        node.reserve(4);
        assert!(node.open(&writing(2, 40), 4, &at(1, 2)).is_err());
        assert_eq!(node.close(ID, 8, &at(1, 2)), Ok((8, None)), "it is out");
    }

    #[test]
    fn a_server_is_written_by_the_run_that_reserved_it_last() {
        let mut node = Node::blank();
        assert!(node.open(&writing(1, 40), 3, &at(0, 1)).is_err());
        node.reserve(3);
        node.reserve(4);
        assert!(node.open(&writing(1, 40), 3, &at(0, 1)).is_err());
        assert_eq!(node.open(&writing(1, 40), 4, &at(0, 1)), Ok(()));
    }
}
