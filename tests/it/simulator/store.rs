//! The store as its contract has it: rows with holders, tokens and ends on a clock of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold::clock::Instant;
use leasehold::internals::{Queue, Waiting};
use leasehold::store::{HeldState, MAX_KEEP, Renewal};
use leasehold::{Error, Holder, Name, Token};

use super::planted::Bug;
use super::time::{Drifting, Real};

/// What the store says of one renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Verdict {
    Renewed,
    Refused,
    Evicted,
    Unknown,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) holder: Holder,
    pub(super) token: Token,
    pub(super) ends_at: Instant,
    /// When it was granted.
    pub(super) since: Real,
    pub(super) state: HeldState,
}

/// What goes with a name that moves.
#[derive(Debug)]
pub(super) struct Moved {
    row: Option<(Row, Duration)>,
    last: Option<Token>,
    is_poisoned: bool,
}

/// What an acquire brought.
#[derive(Debug, Clone, Copy)]
pub(super) enum Taken {
    /// A new grant.
    Fresh(Token),
    /// The holder's own, again.
    Again(Token),
    Held(Duration),
    /// The name may be free, but the store grants nothing for that long.
    KeptOut(Duration),
}

#[derive(Debug)]
pub(super) struct ModelStore {
    pub(super) clock: Drifting,
    pub(super) rows: BTreeMap<Name, Row>,
    counters: BTreeMap<Name, Token>,
    /// They are lost with a failover, and where a name moves.
    pub(super) queues: BTreeMap<Name, Queue>,
    /// Names whose ids make every script fail.
    pub(super) poisoned: BTreeSet<Name>,
    /// It mints by its own counters and clock alone: where it forgot both, tokens fall.
    pub(super) ignores_floors: bool,
    /// How long it grants nothing after it came back without its data, or was promoted; at least the longest ttl.
    pub(super) keep_out: Option<Duration>,
    /// Until when it grants nothing, by its own clock.
    keeps_out_until: Instant,
    /// What its replica has, once that gets no more writes.
    replica: Option<(BTreeMap<Name, Row>, BTreeMap<Name, Token>)>,
    bug: Option<Bug>,
}

impl ModelStore {
    pub(super) fn new(clock: Drifting, bug: Option<Bug>) -> Self {
        Self {
            clock,
            rows: BTreeMap::new(),
            counters: BTreeMap::new(),
            queues: BTreeMap::new(),
            poisoned: BTreeSet::new(),
            ignores_floors: false,
            keep_out: None,
            keeps_out_until: Instant::from_nanos(0),
            replica: None,
            bug,
        }
    }

    /// The row that holds the name now, if it has not run out.
    pub(super) fn row(&self, name: &Name, now: Real) -> Option<&Row> {
        let shown = self.clock.at(now);
        self.rows.get(name).filter(|row| row.ends_at > shown)
    }

    /// Whether only this holder can have the name now.
    pub(super) fn is_kept_for(&self, name: &Name, holder: Holder, now: Real) -> bool {
        self.row(name, now).is_some_and(|row| row.holder == holder)
    }

    pub(super) fn acquire(
        &mut self,
        name: &Name,
        holder: Holder,
        ttl: Duration,
        floor: Option<Token>,
        now: Real,
    ) -> Taken {
        let shown = self.clock.at(now);
        if let Some(row) = self.rows.get_mut(name).filter(|row| row.ends_at > shown) {
            if row.holder != holder || row.state != HeldState::Leased {
                return Taken::Held(row.ends_at.since(shown));
            }
            if self.bug != Some(Bug::ReanswerKeepsTheOldEnd) {
                row.ends_at = shown.after(ttl);
            }
            return Taken::Again(row.token);
        }
        if shown < self.keeps_out_until {
            return Taken::KeptOut(self.keeps_out_until.since(shown));
        }
        Taken::Fresh(self.grant(name, holder, floor, shown.after(ttl), now))
    }

    fn grant(
        &mut self,
        name: &Name,
        holder: Holder,
        floor: Option<Token>,
        ends_at: Instant,
        now: Real,
    ) -> Token {
        let token = self.mint(name, floor, now).expect("tokens are left");
        self.counters.insert(name.clone(), token);
        let row = Row {
            holder,
            token,
            ends_at,
            since: now,
            state: HeldState::Leased,
        };
        self.rows.insert(name.clone(), row);
        token
    }

    /// Grants a name to the first live place of its queue, for the rest of its term, unless it is taken or kept out.
    pub(super) fn grant_next(
        &mut self,
        name: &Name,
        is_deaf: impl Fn(&Waiting) -> bool,
        now: Real,
    ) -> Option<(Holder, Token)> {
        if self.row(name, now).is_some() || self.is_keeping_out(now) {
            return None;
        }
        let shown = self.clock.at(now);
        let next = self.queues.get_mut(name)?.take_next(shown, is_deaf)?;
        let claim = next.claim.expect("a claim waits in its place");
        let token = self.grant(name, claim.holder, claim.floor, next.until, now);
        Some((claim.holder, token))
    }

    /// The highest token that can have been granted for this name.
    pub(super) fn height(&self, name: &Name, now: Real) -> u64 {
        let last = self.counters.get(name).map_or(0, |token| token.get());
        last.max(self.clock.at(now).as_nanos() / 1_000)
    }

    /// The token of a grant that is made now.
    pub(super) fn mint(
        &self,
        name: &Name,
        floor: Option<Token>,
        now: Real,
    ) -> Result<Token, Error> {
        let floor = floor.filter(|_| !self.ignores_floors);
        let last = self.counters.get(name).copied();
        Token::mint(last, floor, self.clock.at(now).as_nanos() / 1_000)
    }

    pub(super) fn renew(&mut self, renewal: &Renewal, now: Real) -> Verdict {
        let shown = self.clock.at(now);
        if self.poisoned.contains(&renewal.name) {
            return Verdict::Unknown;
        }
        if self.bug == Some(Bug::KeepOutRefusesRenewals) && self.is_keeping_out(now) {
            return Verdict::Refused;
        }
        let ends_at = shown.after(renewal.ttl);
        let is_blind = self.bug == Some(Bug::RenewalIgnoresTheToken);
        let is_ours =
            |row: &Row| row.holder == renewal.holder && (row.token == renewal.token || is_blind);
        let row = self.rows.get_mut(&renewal.name);
        match row.filter(|row| row.ends_at > shown) {
            None if self.bug == Some(Bug::RenewalCreates) => {
                let row = Row {
                    holder: renewal.holder,
                    token: renewal.token,
                    ends_at,
                    since: now,
                    state: HeldState::Leased,
                };
                self.rows.insert(renewal.name.clone(), row);
                Verdict::Renewed
            }
            Some(row) if is_ours(row) => match row.state {
                HeldState::Leased => {
                    row.ends_at = ends_at;
                    Verdict::Renewed
                }
                HeldState::Evicted => Verdict::Evicted,
                _ => Verdict::Refused,
            },
            _ => Verdict::Refused,
        }
    }

    /// Frees the name, or keeps it taken for that long. Returns whether this holder had it.
    pub(super) fn release(
        &mut self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
        now: Real,
    ) -> bool {
        let shown = self.clock.at(now);
        let row = self.rows.get_mut(name).filter(|row| row.ends_at > shown);
        let row = row.filter(|row| row.holder == holder && row.state != HeldState::Kept);
        match (row, keep_for) {
            (None, _) => false,
            // An evicted holder keeps nothing.
            (Some(row), Some(rest)) if row.state == HeldState::Leased => {
                (row.state, row.ends_at) = (HeldState::Kept, shown.after(rest.min(MAX_KEEP)));
                true
            }
            (Some(_), _) => {
                self.rows.remove(name);
                true
            }
        }
    }

    /// Forgets a name. Returns its lease with what is left of it, its last token, and whether it is poisoned.
    pub(super) fn give_away(&mut self, name: &Name, now: Real) -> Moved {
        let shown = self.clock.at(now);
        self.queues.remove(name);
        let row = self.rows.remove(name);
        Moved {
            row: row.map(|row| (row, row.ends_at.since(shown))),
            last: self.counters.remove(name),
            is_poisoned: self.poisoned.remove(name),
        }
    }

    /// Takes in what another server gave away.
    pub(super) fn take_over(&mut self, name: Name, moved: Moved, now: Real) {
        if let Some((mut row, left)) = moved.row {
            row.ends_at = self.clock.at(now).after(left);
            self.rows.insert(name.clone(), row);
        }
        if let Some(last) = moved.last {
            self.counters.insert(name.clone(), last);
        }
        if moved.is_poisoned {
            self.poisoned.insert(name);
        }
    }

    pub(super) fn mark_evicted(&mut self, name: &Name) {
        if let Some(row) = self.rows.get_mut(name)
            && row.state == HeldState::Leased
        {
            row.state = HeldState::Evicted;
        }
    }

    /// Whether this holder has it, and not only the rest of a hold that it gave up.
    pub(super) fn is_live(&self, name: &Name, holder: Holder, now: Real) -> bool {
        let row = self.row(name, now);
        row.is_some_and(|row| row.holder == holder && row.state != HeldState::Kept)
    }

    /// Everything is gone, the counters too. Returns whose lease it has forgotten.
    pub(super) fn restart_empty(&mut self, now: Real) -> Vec<Holder> {
        let forgotten = self.rows.values().map(|row| row.holder).collect();
        self.rows.clear();
        self.counters.clear();
        self.queues.clear();
        self.replica = None;
        self.keep_out_from(now);
        forgotten
    }

    /// Its replica gets no more writes from now on.
    pub(super) fn stop_replica(&mut self) {
        self.replica = Some((self.rows.clone(), self.counters.clone()));
    }

    /// Its replica replaces it, without the writes that it missed. Returns whose lease, or whose last renewal, it has
    /// never heard of; `None` if there is no replica any more.
    pub(super) fn fail_over(&mut self, now: Real) -> Option<Vec<Holder>> {
        let (mut rows, counters) = self.replica.take()?;
        let is_unknown = |(name, row): &(&Name, &Row)| {
            let known = rows.get(*name).filter(|known| known.holder == row.holder);
            known.is_none_or(|known| known.ends_at < row.ends_at)
        };
        let forgotten = self.rows.iter().filter(is_unknown);
        let forgotten = forgotten.map(|(_, row)| row.holder).collect();
        for (name, row) in &mut rows {
            let last = self.rows.get(name);
            if last.is_none_or(|last| (last.since, last.state) != (row.since, row.state)) {
                // It was given up, and is there again.
                row.since = now;
            }
        }
        (self.rows, self.counters) = (rows, counters);
        self.queues.clear();
        self.keep_out_from(now);
        Some(forgotten)
    }

    fn keep_out_from(&mut self, now: Real) {
        let Some(keep_out) = self.keep_out else {
            return;
        };
        let lasts = match self.bug {
            Some(Bug::NoKeepOut) => Duration::ZERO,
            Some(Bug::KeepOutShorterThanATtl) => keep_out / 2,
            _ => keep_out,
        };
        self.keeps_out_until = self.clock.at(now).after(lasts);
    }

    pub(super) fn is_keeping_out(&self, now: Real) -> bool {
        self.clock.at(now) < self.keeps_out_until
    }

    /// When it grants again, unless its clock is moved or it forgets something else.
    pub(super) fn grants_again_at(&self) -> Real {
        self.clock.real_at(self.keeps_out_until)
    }
}

#[test]
fn a_promoted_store_grants_nothing_for_a_ttl_but_renews_and_releases_what_it_knows() {
    let ttl = Duration::from_secs(10);
    let at = |seconds: u64| seconds * 1_000_000_000;
    let name = |name| Name::new(name).expect("valid");
    let holder = |number| Holder::new(leasehold::ClientId::from_u128(1), number);
    let mut store = ModelStore::new(Drifting::new(at(1_000), 1.0), None);
    store.keep_out = Some(ttl);
    let Taken::Fresh(token) = store.acquire(&name("a"), holder(1), ttl, None, at(0)) else {
        panic!("the name is free");
    };
    store.stop_replica();
    let missed = store.acquire(&name("b"), holder(2), ttl, None, at(1));
    assert!(matches!(missed, Taken::Fresh(_)), "{missed:?}");
    assert_eq!(store.fail_over(at(2)), Some(vec![holder(2)]));
    let mut asked = |name, second| store.acquire(&name, holder(3), ttl, None, at(second));
    for free in [name("b"), name("never used")] {
        let kept_out = asked(free, 5);
        assert!(matches!(kept_out, Taken::KeptOut(left) if left == ttl - Duration::from_secs(3)));
    }
    let taken = asked(name("a"), 5);
    assert!(matches!(taken, Taken::Held(_)), "{taken:?}");
    let renewal = Renewal::new(name("a"), holder(1), token, ttl);
    assert_eq!(store.renew(&renewal, at(6)), Verdict::Renewed);
    assert!(store.release(&name("a"), holder(1), None, at(7)));
    let mut asked = |name, second| store.acquire(&name, holder(3), ttl, None, at(second));
    let kept_out = asked(name("a"), 11);
    assert!(matches!(kept_out, Taken::KeptOut(_)), "{kept_out:?}");
    for free in [name("a"), name("b")] {
        let granted = asked(free, 12);
        assert!(matches!(granted, Taken::Fresh(_)), "{granted:?}");
    }
}
