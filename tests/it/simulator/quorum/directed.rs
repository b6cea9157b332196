//! The sequences of events that chance seldom brings about, each with the rule that keeps its promise and without it.

use std::sync::Arc;
use std::time::Duration;

use leasehold::store::quorum::planted::{Planted, QuorumBug};
use leasehold::store::quorum::{
    Decision, Extension, LocalNode, Proposal, Purpose, Round, Rules, TakenBack, Tally, keep_out,
};
use leasehold::store::{Info, Renewal};
use leasehold::{ClientId, Holder, Name, Token};

const TTL: Duration = Duration::from_secs(10);
/// What the members' clocks show at first.
const BEGIN_US: u64 = 1_795_000_000_000_000;
/// Half of what a token may be in front of the clocks.
const HOUR_US: u64 = 3_600_000_000;

/// Three members on one clock.
struct Three {
    nodes: Vec<LocalNode>,
    now_us: u64,
    planted: Planted,
}

impl Three {
    fn new(bug: Option<QuorumBug>) -> Self {
        let planted = Planted::new(bug);
        let rules = Rules {
            max_ttl: TTL,
            planted,
            ..Rules::default()
        };
        Self {
            nodes: vec![LocalNode::settled(rules); 3],
            now_us: BEGIN_US,
            planted,
        }
    }

    fn sleep(&mut self, duration: Duration) {
        self.now_us += u64::try_from(duration.as_micros()).expect("short");
    }

    /// The claim reaches these members only, and is decided by their votes.
    fn claim(&mut self, by: u64, above: u64, members: &[usize]) -> Decision {
        let proposal = Proposal {
            holder: holder(by),
            token: token(above),
            ttl: TTL,
            purpose: Purpose::Claim,
        };
        let mut round = Round::new(proposal.holder, proposal.token, 3, self.planted);
        for member in members {
            let info = Arc::new(Info::default());
            let vote = self.nodes[*member].hold(&name(), &proposal, &info, self.now_us);
            round.count(*member, vote);
        }
        round.close()
    }

    /// A taking back of this holder's proposals up to this one reaches a member.
    fn take_back(&mut self, of: u64, above: u64, member: usize) {
        let taken = TakenBack::up_to(token(above));
        self.nodes[member].take_back(&name(), holder(of), taken, self.now_us);
    }

    /// The renewal reaches these members only, and they are answered in time.
    fn renew(&mut self, of: u64, above: u64, members: &[usize]) -> Extension {
        let renewal = Renewal::new(name(), holder(of), token(above), TTL);
        let mut tally = Tally::new(3, self.planted);
        for member in members {
            let said = self.nodes[*member].renew(std::slice::from_ref(&renewal), self.now_us);
            tally.count(*member, said[0]);
        }
        tally.close()
    }
}

fn name() -> Name {
    Name::new("n").expect("a valid name")
}

fn holder(number: u64) -> Holder {
    Holder::new(ClientId::from_u128(1), number)
}

/// In front of the clocks, as after a loss of data.
fn token(above: u64) -> Token {
    Token::new(BEGIN_US + HOUR_US + above).expect("within the limits")
}

fn is_granted(decision: Decision) -> bool {
    matches!(decision, Decision::Granted(_))
}

/// A member comes back empty, keeps out until all that it granted is over, and is then asked for a lower token than the
/// last that was granted. Returns whether a majority takes it.
fn grants_a_lower_token(bug: Option<QuorumBug>) -> bool {
    let mut three = Three::new(bug);
    assert!(is_granted(three.claim(1, 200, &[0, 1])));
    three.nodes[0].restart_empty();
    // The first question after its return, of whatever claim.
    three.claim(9, 300, &[0]);
    three.sleep(keep_out(TTL));
    is_granted(three.claim(2, 100, &[0, 2]))
}

#[test]
fn a_member_that_comes_back_empty_lets_no_lower_token_be_granted() {
    assert!(!grants_a_lower_token(None));
    assert!(grants_a_lower_token(Some(QuorumBug::LossWithoutFloor)));
}

/// A member has an older try of the holder, whose taking back is late; the renewal reaches it and one member of the grant.
/// Returns whether the renewal is confirmed and a rival is granted the name after it.
fn renews_what_is_being_freed(bug: Option<QuorumBug>) -> bool {
    let mut three = Three::new(bug);
    assert!(!is_granted(three.claim(1, 100, &[0])));
    assert!(is_granted(three.claim(1, 200, &[1, 2])));
    three.sleep(TTL * 2 / 3);
    let renewed = three.renew(1, 200, &[0, 1]);
    three.take_back(1, 100, 0);
    // Where the renewal did not arrive, the lease is over.
    three.sleep(TTL / 2);
    renewed == Extension::Renewed && is_granted(three.claim(2, 300, &[0, 2]))
}

#[test]
fn a_renewal_does_not_count_what_is_still_being_taken_back() {
    assert!(!renews_what_is_being_freed(None));
    let bug = QuorumBug::RenewalIgnoresTheToken;
    assert!(renews_what_is_being_freed(Some(bug)));
}

/// A member of a grant comes back empty, and a rival asks it at once. Returns whether the rival is granted the name.
fn grants_what_is_held(bug: Option<QuorumBug>) -> bool {
    let mut three = Three::new(bug);
    assert!(is_granted(three.claim(1, 200, &[0, 1])));
    three.nodes[0].restart_empty();
    assert!(!is_granted(three.claim(2, 300, &[0, 2])));
    three.sleep(TTL / 10);
    // Above the floor of the member, so that only the wait is in the way.
    is_granted(three.claim(2, HOUR_US + 1, &[0, 2]))
}

#[test]
fn a_member_that_comes_back_empty_lets_no_rival_in_before_all_it_granted_is_over() {
    assert!(!grants_what_is_held(None));
    assert!(grants_what_is_held(Some(QuorumBug::LossWithoutKeepOut)));
}
