//! The bounds of the normal run: the rules hold, and each that is replaced is refuted as far away as `README.md` says.

use super::{Fault, Kind, Setup, Wrong};
use crate::search::search;
use crate::verdict::judged;

/// More states than any search of the normal run has.
const MOST: usize = 3_000_000;

/// Two clients with a waiter each; the first has two; three clients.
pub(super) const PAIR: [u8; 3] = [1, 1, 0];
pub(super) const THREE_WAITERS: [u8; 3] = [2, 1, 0];
pub(super) const THREE_CLIENTS: [u8; 3] = [1, 1, 1];

/// All states are seen, and none breaks a promise.
pub(super) fn holds_for(setup: &Setup, most: usize) {
    let Setup {
        waiters,
        ttl,
        term,
        kind,
        can,
        ..
    } = setup;
    let calm = if setup.doubts { "" } else { ", calm" };
    let wrong = setup
        .wrong
        .map_or_else(String::new, |wrong| format!(", {wrong:?}"));
    let what = format!("{waiters:?}, ttl {ttl}, term {term}{calm}, {kind:?}{wrong}, {can:?}");
    judged(&what, search(setup, most)).holds();
}

fn holds(setup: &Setup) {
    holds_for(setup, MOST);
}

mod sound {
    use super::*;

    #[test]
    fn waiters_are_served_in_turn() {
        for (ttl, term) in [(2, 2), (3, 2), (3, 3)] {
            let setup = Setup::new(PAIR).lasting(ttl, term);
            holds(&Setup {
                served_of: 1,
                ..setup
            });
        }
        let tries = true;
        holds(&Setup {
            tries,
            ..Setup::new(PAIR)
        });
    }

    #[test]
    fn a_clients_next_waiter_takes_over_its_place() {
        let setup = Setup::new(THREE_WAITERS);
        holds(&Setup {
            doubts: false,
            ..setup.clone()
        });
        holds(&setup.lasting(2, 2));
    }

    #[test]
    fn three_clients_are_served_in_turn() {
        holds(&Setup::new(THREE_CLIENTS).lasting(2, 2).calm());
        let tries = true;
        let setup = Setup::new(THREE_CLIENTS).lasting(2, 2).calm();
        holds(&Setup { tries, ..setup });
    }

    #[test]
    fn a_fault_costs_no_more_than_it_must() {
        for fault in [
            &[Fault::Die] as &[_],
            &[Fault::Disconnect],
            &[Fault::SeesToken],
            &[Fault::EvictNow],
            &[Fault::EvictMarked],
            &[Fault::Flush],
        ] {
            let gains = 1;
            let setup = Setup::new(PAIR).calm().with(fault);
            holds(&Setup { gains, ..setup });
        }
        holds(&Setup::new(PAIR).of(Kind::Plain).with(&[Fault::Die]));
    }

    #[test]
    fn a_long_term_costs_nothing_where_the_dead_are_known() {
        let local = || Setup::new(PAIR).of(Kind::Local).lasting(3, 3);
        holds(&local());
        holds(&local().with(&[Fault::Die]).calm());
        holds(&local().with(&[Fault::EvictNow]).calm());
        holds(
            &Setup::new(THREE_WAITERS)
                .of(Kind::Local)
                .lasting(3, 3)
                .calm(),
        );
    }

    #[test]
    fn a_store_that_forgets_costs_the_order_at_most() {
        let calm = || Setup::new(PAIR).calm();
        for kind in [
            Kind::Plain,
            Kind::KeepsOut,
            Kind::KeepsOutAsked,
            Kind::Sentinel,
            Kind::Acknowledged,
        ] {
            holds(&calm().of(kind).with(&[Fault::Failover]));
            holds(&calm().of(kind).with(&[Fault::Flush]));
        }
        // Left to the stores, as `Kind::KeepsOutAsked` is.
        let keeps_out = calm().of(Kind::KeepsOut).with(&[Fault::Failover]);
        holds(&keeps_out.wrong(Wrong::OwnInKeepOut));
        // Two polls of one term, of which the replica has the first.
        let long = calm().lasting(3, 3).of(Kind::Plain);
        holds(&long.with(&[Fault::Failover]));
    }
}

mod refuted {
    use super::Wrong::*;
    use super::*;

    /// The promise of the row is broken, in as many steps as it says.
    fn refutes(wrong: Wrong, setup: Setup) {
        let setup = Setup {
            served_of: 0,
            ..setup.wrong(wrong)
        };
        let found = search(&setup, MOST);
        let promise = found.broken.as_ref().map_or("nothing", |broken| broken.0);
        judged(&format!("{wrong:?}, {promise}"), found).breaks_as_the_page_says();
    }

    fn pair() -> Setup {
        Setup::new(PAIR)
    }

    fn three_waiters() -> Setup {
        Setup::new(THREE_WAITERS)
    }

    /// Where a notice that comes a tick later finds some of its term left.
    fn long() -> Setup {
        pair().lasting(3, 3)
    }

    #[test]
    fn how_long_a_grant_counts() {
        refutes(NoMargin, pair());
        refutes(NoticeTerm, long());
        refutes(NoticeTtl, pair().lasting(4, 3));
        refutes(NoticeExtends, long());
        refutes(FullTtl, pair());
        let local = || long().of(Kind::Local);
        refutes(HandsForLong, local());
        refutes(EndUntold, local());
        refutes(HandsToTheDead, local().with(&[Fault::Die]));
    }

    #[test]
    fn which_notices_count() {
        refutes(AnyJoin, pair());
        refutes(JoinsRepeat, pair());
        let keeps_out = pair().calm().lasting(2, 2).of(Kind::KeepsOut);
        refutes(ByJoin, keeps_out.with(&[Fault::Failover]));
        refutes(AnyHolder, three_waiters());
        refutes(AnyToken, pair().calm().with(&[Fault::SeesToken]));
        refutes(UnansweredCounts, long());
    }

    #[test]
    fn what_a_failover_leaves() {
        let can = &[Fault::Failover];
        let plain = || long().calm().of(Kind::Plain).with(can);
        refutes(ReconnectKeeps, plain());
        refutes(OldAnswerConfirms, plain());
        refutes(NotConfirmed, pair().calm().of(Kind::Sentinel).with(can));
        refutes(NotConfirmed, pair().calm().of(Kind::Acknowledged).with(can));
        let keeps_out = Setup::new([1, 2, 0])
            .calm()
            .lasting(2, 2)
            .of(Kind::KeepsOut);
        refutes(GrantsInKeepOut, keeps_out.with(can));
    }

    #[test]
    fn what_is_left_behind() {
        refutes(ReleaseLeaseOnly, pair());
        refutes(ReleaseEither, pair().with(&[Fault::EvictMarked]));
        refutes(RefreshAdds, pair());
        refutes(DoubtOneTerm, pair());
    }

    #[test]
    fn whose_turn_it_is() {
        refutes(ReleaseDropsPlace, three_waiters());
        let four = Setup::new([2, 2, 0]).calm().lasting(2, 2);
        refutes(DropsVacant, four);
        refutes(LeaveByClient, three_waiters());
        let three_clients = Setup::new(THREE_CLIENTS).calm().lasting(2, 2);
        refutes(RefreshMoves, three_clients);
        refutes(Overtakes, pair());
        refutes(StaysQueued, pair());
        refutes(DropsUnheard, pair().with(&[Fault::Disconnect]));
        let short = three_waiters().calm().lasting(2, 2);
        refutes(PassesAsker, short.with(&[Fault::Disconnect]));
        refutes(JoinIsToken, pair().with(&[Fault::Disconnect]));
    }
}
