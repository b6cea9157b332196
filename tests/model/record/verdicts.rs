//! The bounds of the normal run: the rules hold, and each that is replaced is refuted as far away as `README.md` says.

use super::{Careless, Evict, Kind, Removal, Setup, Wrong};
use crate::search::search;
use crate::serving::search_serving;
use crate::verdict::judged;

/// More states than any search of the normal run has.
const MOST: usize = 3_000_000;

/// A store whose servers' clocks are a tick apart.
pub(super) const DATED: Kind = Kind::Dated { apart: 1 };
/// What an operator may do.
pub(super) const EVICTS: &[Evict] = &[Evict::Now, Evict::Fresh(false), Evict::Observed(false)];
/// The same by either server.
pub(super) const DATED_EVICTS: &[Evict] = &[
    Evict::Now,
    Evict::Fresh(true),
    Evict::Observed(false),
    Evict::Observed(true),
];

/// All states are seen, and none breaks a promise.
pub(super) fn holds_for(setup: &Setup, most: usize) {
    judged(&setup.title(), search(setup, most)).holds();
}

/// The same, and each client that waits can be served from each of them.
pub(super) fn serves_for(setup: &Setup, most: usize) {
    judged(&setup.title(), search_serving(setup, most)).holds();
}

/// The same of removal, where each record can be removed.
pub(super) fn clears_for(removal: &Removal, most: usize) {
    judged(&removal.title(), search_serving(removal, most)).holds();
}

impl Setup {
    fn title(&self) -> String {
        let Self {
            clients,
            kind,
            evicts,
            keep,
            others_ttl,
            ..
        } = self;
        let wrong = self
            .wrong
            .map_or_else(String::new, |wrong| format!(", {wrong:?}"));
        let also: String = [
            (self.doubts, ", doubts"),
            (self.rounds, ", again"),
            (self.deaths, ", deaths"),
            (self.is_fresh, ", fresh"),
            (self.stamps_early, ", early stamps"),
            (self.keeps_by_stamp, ", keeps by stamp"),
        ]
        .map(|(is_so, what)| if is_so { what } else { "" })
        .concat();
        format!(
            "{clients} clients, {kind:?}, ttl of others {others_ttl}, keep {keep}{also}{wrong}, {evicts:?}"
        )
    }
}

impl Removal {
    fn title(&self) -> String {
        let Self {
            names,
            claimers,
            removers,
            ..
        } = self;
        let how = if self.empties { "emptied" } else { "deleted" };
        format!("{how}: {names} names, {claimers} claimers, {removers} removers")
    }
}

fn pair() -> Setup {
    Setup::new(2)
}

mod sound {
    use super::*;

    fn holds(setup: &Setup) {
        holds_for(setup, MOST);
    }

    fn serves(setup: &Setup) {
        serves_for(setup, MOST);
    }

    #[test]
    fn one_holds_whatever_replies_are_lost() {
        holds(&pair());
        let others_ttl = 2;
        holds(&Setup {
            others_ttl,
            ..pair()
        });
        holds(&Setup::new(3).calm());
        // Left to the stores.
        holds(&pair().wrong(Wrong::AgainMintsOver));
        holds(&pair().wrong(Wrong::ReleaseInDoubt));
        holds(&pair().of(DATED).once().wrong(Wrong::ReleaseInDoubt));
    }

    #[test]
    fn the_stores_clock_ends_a_lease_no_sooner() {
        holds(&pair().of(DATED).once());
        let stamps_early = true;
        holds(&Setup {
            stamps_early,
            ..pair().of(DATED).once()
        });
    }

    #[test]
    fn a_record_that_ends_by_itself_has_one_holder() {
        holds(&pair().of(Kind::Ending));
        holds(&pair().of(Kind::Ending).once().evicting(EVICTS));
    }

    #[test]
    fn an_eviction_overlaps_with_no_holder() {
        holds(&pair().once().evicting(EVICTS));
        holds(&pair().of(DATED).calm().evicting(DATED_EVICTS));
    }

    #[test]
    fn a_kept_name_stays_kept() {
        let keeps_by_stamp = true;
        holds(&Setup {
            keeps_by_stamp,
            ..pair().of(DATED).calm().keeping(2)
        });
        holds(&pair().of(DATED).calm().keeping(2));
        holds(&pair().once().keeping(2));
        holds(&pair().of(Kind::Ending).once().keeping(2));
    }

    #[test]
    fn a_new_process_takes_what_a_dead_holder_or_a_keep_left() {
        serves(&pair().of(DATED).once().fresh());
        let kept = || pair().of(DATED).calm().once().fresh().keeping(2);
        serves(&kept());
        let keeps_by_stamp = true;
        serves(&Setup {
            keeps_by_stamp,
            ..kept()
        });
        let evicted = pair().of(DATED).calm().fresh();
        serves(&evicted.evicting(DATED_EVICTS));
        serves(&pair().of(Kind::Ending).once().fresh().keeping(2));
        // Without any clock of the store a client that stays does.
        serves(&pair().dying());
    }

    #[test]
    fn removal_lets_no_token_fall_and_leaves_nothing() {
        for removal in [
            Removal::new(2, 2),
            Removal::new(2, 1).of_two(),
            Removal::new(2, 2).emptying(),
        ] {
            clears_for(&removal, MOST);
        }
    }
}

mod refuted {
    use super::Careless::*;
    use super::Wrong::*;
    use super::*;
    use crate::search::Found;

    /// The promise of the row is broken, in as many steps as it says.
    fn refutes(wrong: impl std::fmt::Debug, found: Found) {
        let promise = found.broken.as_ref().map_or("nothing", |broken| broken.0);
        judged(&format!("{wrong:?}, {promise}"), found).breaks_as_the_page_says();
    }

    fn refuted(wrong: Wrong, setup: Setup) {
        refutes(wrong, search(&setup.wrong(wrong), MOST));
    }

    /// Some client can never be served.
    fn starves(wrong: Wrong, setup: Setup) {
        refutes(wrong, search_serving(&setup.wrong(wrong), MOST));
    }

    fn careless(wrong: Careless, removal: Removal) {
        refutes(wrong, search(&removal.wrong(wrong), MOST));
    }

    #[test]
    fn from_when_a_holder_counts() {
        refuted(WithoutMargin, pair());
        refuted(DeadlineFromReply, pair());
        refuted(PollGrants, pair());
        refuted(AnyReplyCounts, pair());
        refuted(RenewsShorter, pair());
        refuted(EndsBeforePut, pair().of(Kind::Ending));
    }

    #[test]
    fn when_a_record_has_run_out() {
        refuted(SeenFromSend, pair());
        refuted(ObservationKept, pair());
        refuted(NoBeat, pair());
        let others_ttl = 2;
        refuted(
            OwnTtl,
            Setup {
                others_ttl,
                ..pair()
            },
        );
        refuted(SmallSkew, pair().of(DATED));
        refuted(ClientsClock, pair().of(DATED));
        refuted(ClockFromSend, pair().of(DATED));
        refuted(StampUnmatched, pair().of(DATED));
        refuted(ObservesEnding, pair().of(Kind::Ending));
    }

    #[test]
    fn what_a_new_process_never_sees() {
        let fresh = || pair().of(DATED).calm().once().fresh();
        starves(FirstRuleOnly, fresh());
        starves(KeepIsLength, fresh().keeping(2));
        refuted(KeepUnskewed, pair().of(DATED).keeping(2));
    }

    #[test]
    fn what_is_not_put_on_its_version() {
        refuted(ClaimsAnyVersion, pair());
        refuted(ReleasesAnyVersion, pair());
        refuted(RenewsAnyVersion, pair());
        refuted(SameToken, pair());
        refuted(AgainMints, pair());
    }

    #[test]
    fn what_a_release_leaves() {
        refuted(ReleaseUnpoisoned, pair());
        refuted(ReleaseLeavesOver, pair().of(DATED));
        refuted(PoisonsAnyVersion, pair());
        refuted(StalePoll, pair());
    }

    #[test]
    fn what_an_eviction_means() {
        let marked = || pair().evicting(&[Evict::Fresh(false), Evict::Observed(false)]);
        refuted(RenewsEvicted, marked());
        refuted(ReclaimsEvicted, marked());
        refuted(EvictsFromSend, marked());
        refuted(EvictsShort, marked());
    }

    #[test]
    fn what_a_removal_forgets() {
        let both = || Removal::new(2, 2);
        careless(MarkFirst, both());
        careless(MintsFromNothing, both());
        careless(NotRaised, both());
        careless(RaisedLater, both());
        careless(RaisedAnyVersion, both());
        careless(DeletesAnyVersion, both());
        careless(RemovesEarly, both());
        careless(PoisonsWithNothing, both());
        careless(ClearsAny, both().emptying());
        careless(MarkFirst, both().emptying());
        careless(MintsFromNothing, both().emptying());
    }
}
