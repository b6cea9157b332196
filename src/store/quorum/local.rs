//! A member in memory: the rules of the scripts without a server, for tests and the simulator.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{
    Extension, Freed, Incarnation, Proposal, Register, Rules, TakenBack, Tenure, Vote, micros,
};
use crate::holder::Holder;
use crate::name::Name;
use crate::store::{Eviction, Info, Renewal};

/// One run of a member's process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunNumber(pub u64);

/// A member in memory. `now_us` is its own clock in every call.
#[derive(Debug, Clone)]
pub struct LocalNode {
    run: RunNumber,
    rules: Rules,
    row: Option<Incarnation<RunNumber>>,
    names: BTreeMap<Name, Leasing>,
}

/// What the member keeps of one name.
#[derive(Debug, Clone, Default)]
struct Leasing {
    register: Register,
    info: Arc<Info>,
}

impl LocalNode {
    /// Returns a member that was never asked anything.
    pub const fn new(rules: Rules) -> Self {
        Self {
            run: RunNumber(0),
            rules,
            row: None,
            names: BTreeMap::new(),
        }
    }

    /// Returns a member that has been in use for a long time: it takes part in claims at once.
    pub fn settled(rules: Rules) -> Self {
        Self {
            row: Some(Incarnation::settled(RunNumber(0), &rules)),
            ..Self::new(rules)
        }
    }

    /// Takes the proposed token, or refuses it.
    pub fn hold(
        &mut self,
        name: &Name,
        proposal: &Proposal,
        info: &Arc<Info>,
        now_us: u64,
    ) -> Vote {
        let mut register = self.register(name);
        let vote = hold_at(
            &mut self.row,
            self.run,
            &mut register,
            proposal,
            &self.rules,
            now_us,
        );
        if matches!(vote, Vote::Yes(_)) {
            self.leasing(name).info = info.clone();
        }
        self.put(name, register);
        vote
    }

    /// Takes back what this holder took.
    pub fn take_back(
        &mut self,
        name: &Name,
        holder: Holder,
        taken: TakenBack,
        now_us: u64,
    ) -> Freed {
        let planted = self.rules.planted;
        self.with(name, |register| {
            register.take_back(holder, taken, now_us, planted)
        })
    }

    /// Releases the name if this holder has it.
    pub fn release(
        &mut self,
        name: &Name,
        holder: Holder,
        keep_for: Option<Duration>,
        now_us: u64,
    ) -> Freed {
        self.with(name, |register| register.release(holder, keep_for, now_us))
    }

    /// Extends the leases of these grants.
    pub fn renew(&mut self, batch: &[Renewal], now_us: u64) -> Vec<Extension> {
        let planted = self.rules.planted;
        let renew = |renewal: &Renewal| {
            self.with(&renewal.name, |register| {
                register.renew(renewal.holder, renewal.token, renewal.ttl, now_us, planted)
            })
        };
        batch.iter().map(renew).collect()
    }

    /// Evicts the holder. Returns whether the name was held.
    pub fn evict(&mut self, name: &Name, how: Eviction, now_us: u64) -> bool {
        let planted = self.rules.planted;
        self.with(name, |register| register.evict(how, now_us, planted))
    }

    /// Returns the lease of this name.
    pub fn inspect(&self, name: &Name, now_us: u64) -> Option<(Tenure, Arc<Info>)> {
        let leasing = self.names.get(name)?;
        Some((leasing.register.tenure(now_us)?, leasing.info.clone()))
    }

    /// Returns the names with this prefix that are taken here, in order.
    pub fn list(&self, prefix: &str, now_us: u64) -> Vec<Name> {
        let taken = self.names.iter().filter(|(name, leasing)| {
            name.as_str().starts_with(prefix) && leasing.register.tenure(now_us).is_some()
        });
        taken.map(|(name, _)| name.clone()).collect()
    }

    /// Returns what is kept of this name.
    pub fn register(&self, name: &Name) -> Register {
        self.names
            .get(name)
            .map_or_else(Register::default, |leasing| leasing.register)
    }

    /// Returns for how long the member grants nothing, if it does not.
    pub fn away(&self, now_us: u64) -> Option<Duration> {
        match &self.row {
            Some(row) => row.away(now_us),
            None => Some(self.rules.keep_out()),
        }
    }

    /// Starts the process again, with all its data.
    pub fn restart(&mut self) {
        self.run.0 += 1;
    }

    /// Starts the process again, without any data.
    pub fn restart_empty(&mut self) {
        self.restart();
        self.row = None;
        self.names.clear();
    }

    /// Starts the process again, with a copy of its data that was made earlier.
    pub fn restart_with(&mut self, copy: Self) {
        let run = RunNumber(self.run.0 + 1);
        *self = Self { run, ..copy };
    }

    /// Loses all data without a restart, as by FLUSHALL.
    pub fn flush(&mut self) {
        self.row = None;
        self.names.clear();
    }

    fn leasing(&mut self, name: &Name) -> &mut Leasing {
        self.names.entry(name.clone()).or_default()
    }

    fn put(&mut self, name: &Name, register: Register) {
        if register == Register::default() {
            self.names.remove(name);
        } else {
            self.leasing(name).register = register;
        }
    }

    fn with<T>(&mut self, name: &Name, act: impl FnOnce(&mut Register) -> T) -> T {
        let mut register = self.register(name);
        let outcome = act(&mut register);
        self.put(name, register);
        outcome
    }
}

/// What a member does with a proposal, from the first rule to the last.
pub fn hold_at<R: PartialEq>(
    row: &mut Option<Incarnation<R>>,
    run: R,
    register: &mut Register,
    proposal: &Proposal,
    rules: &Rules,
    now_us: u64,
) -> Vote {
    let floor = match Incarnation::admit(row, run, rules, now_us) {
        Ok(floor) => floor,
        Err(refusal) => return refusal,
    };
    if proposal.token.get() > now_us.saturating_add(micros(rules.ahead)) {
        return Vote::Ahead;
    }
    register.hold(proposal, floor, rules.memory, now_us, rules.planted)
}

#[cfg(test)]
mod tests {
    use super::super::{AHEAD, Purpose};
    use super::*;
    use crate::holder::ClientId;
    use crate::token::Token;

    const NOW: u64 = 1_795_000_000_000_000;
    const TTL: Duration = Duration::from_secs(10);

    fn name() -> Name {
        Name::new("a").expect("a valid name")
    }

    fn claim(holder: u64, token: u64) -> Proposal {
        Proposal {
            holder: Holder::new(ClientId::from_u128(7), holder),
            token: Token::new(token).expect("within the limits"),
            ttl: TTL,
            purpose: Purpose::Claim,
        }
    }

    fn ask(node: &mut LocalNode, proposal: &Proposal, now: u64) -> Vote {
        node.hold(&name(), proposal, &Arc::default(), now)
    }

    fn settled() -> LocalNode {
        LocalNode::settled(Rules::default())
    }

    fn back(now: u64) -> u64 {
        now + micros(Rules::default().keep_out())
    }

    #[test]
    fn a_token_more_than_two_hours_ahead_is_refused() {
        let mut node = settled();
        let most = NOW + micros(AHEAD);
        assert_eq!(ask(&mut node, &claim(1, most + 1), NOW), Vote::Ahead);
        assert!(matches!(ask(&mut node, &claim(1, most), NOW), Vote::Yes(_)));
    }

    #[test]
    fn a_member_that_restarted_empty_votes_for_no_one_until_all_it_granted_is_over() {
        let mut node = settled();
        ask(&mut node, &claim(1, NOW + 5), NOW);
        node.restart_empty();
        let rival = claim(2, NOW + 6);
        assert!(matches!(ask(&mut node, &rival, NOW), Vote::Away(_)));
        assert_eq!(node.away(NOW), Some(Rules::default().keep_out()));
        // And then it takes no token that it may have taken before.
        let floor = NOW + micros(AHEAD);
        let low = Vote::Low {
            floor,
            of_server: floor,
        };
        assert_eq!(ask(&mut node, &rival, back(NOW)), low);
        let above = claim(2, floor + 1);
        assert!(matches!(ask(&mut node, &above, back(NOW)), Vote::Yes(_)));
    }

    #[test]
    fn a_member_that_was_flushed_keeps_out_too() {
        let mut node = settled();
        ask(&mut node, &claim(1, NOW + 5), NOW);
        node.flush();
        assert!(matches!(
            ask(&mut node, &claim(2, NOW + 6), NOW),
            Vote::Away(_)
        ));
    }

    #[test]
    fn a_member_with_an_old_copy_keeps_out_and_renews_what_the_copy_has() {
        let mut node = settled();
        ask(&mut node, &claim(1, NOW + 5), NOW);
        let copy = node.clone();
        let holder = claim(1, NOW + 5).holder;
        node.release(&name(), holder, None, NOW);
        ask(&mut node, &claim(2, NOW + 9), NOW);
        node.restart_with(copy);
        assert!(matches!(
            ask(&mut node, &claim(3, NOW + 7), NOW),
            Vote::Away(_)
        ));
        let renewal = Renewal::new(name(), holder, claim(1, NOW + 5).token, TTL);
        assert_eq!(node.renew(&[renewal], NOW), [Extension::Renewed]);
    }

    #[test]
    fn a_member_that_keeps_out_frees_and_evicts_and_shows_what_it_has() {
        let mut node = settled();
        ask(&mut node, &claim(1, NOW + 5), NOW);
        node.restart();
        assert!(matches!(
            ask(&mut node, &claim(2, NOW + 6), NOW),
            Vote::Away(_)
        ));
        assert!(node.inspect(&name(), NOW).is_some());
        assert_eq!(node.list("", NOW), [name()]);
        let holder = claim(1, NOW + 5).holder;
        assert_eq!(
            node.take_back(
                &name(),
                holder,
                TakenBack::up_to(claim(1, NOW + 5).token),
                NOW
            ),
            Freed::Freed
        );
        assert!(!node.evict(&name(), Eviction::Now, NOW));
    }

    #[test]
    fn a_repair_waits_for_the_end_of_the_keep_out_and_is_not_bound_by_the_floor() {
        let mut node = settled();
        ask(&mut node, &claim(1, NOW + 5), NOW);
        node.restart_empty();
        let repair = Proposal {
            purpose: Purpose::Repair,
            ..claim(1, NOW + 5)
        };
        assert!(matches!(ask(&mut node, &repair, NOW), Vote::Away(_)));
        assert_eq!(ask(&mut node, &repair, back(NOW)), Vote::Yes(repair.token));
    }

    #[test]
    fn the_info_shown_is_that_of_the_holder() {
        let mut node = settled();
        let info = |label: &str| {
            Arc::new(Info {
                label: Some(label.into()),
                ..Info::default()
            })
        };
        node.hold(&name(), &claim(1, NOW + 5), &info("one"), NOW);
        node.hold(&name(), &claim(2, NOW + 6), &info("two"), NOW);
        let (tenure, shown) = node.inspect(&name(), NOW).expect("held");
        assert_eq!(tenure.holder, Some(claim(1, 1).holder));
        assert_eq!(shown.label.as_deref(), Some("one"));
        assert!(node.inspect(&name(), NOW + micros(TTL)).is_none());
    }
}
