//! The promises that are checked in every state.

use leasehold::store::quorum::protocol::MemberAnswer;

use super::library::{OTHER, record, request};
use super::node::NameState;
use super::setup::Setup;
use super::world::{Server, World};

impl Setup {
    /// P4: once what is there has expired, a claim above all marks is granted, if a majority is in.
    pub(super) fn is_granted_in_the_end(&self, world: &World) -> bool {
        let inside = || {
            self.servers
                .iter()
                .map(|server| &world.members[usize::from(*server)])
                .filter(|server| server.data.came_in == server.incarnation)
        };
        let above = inside()
            .map(|server| server.data.mark.max(server.data.floor))
            .max()
            .unwrap_or(0);
        let takes = |server: &&Server| {
            let at = self.at(world, server);
            let mut free = NameState {
                mark: server.data.mark.into(),
                lease: None,
            };
            let asked = request(OTHER, above + 1);
            self.rules
                .claim(&mut self.node(server), &mut free, &asked, &at)
                == MemberAnswer::Yes
        };
        inside().count() <= self.servers.len() / 2
            || inside().filter(takes).count() > self.servers.len() / 2
    }

    /// R: a holder that believes puts its lease on each member that is in and has the name free.
    pub(super) fn is_repaired(&self, world: &World) -> bool {
        let is_repaired = |holder: usize, server: &Server| {
            let name = usize::from(self.names[holder]);
            if server.data.leases[name].by != 0 || server.data.came_in != server.incarnation {
                return true;
            }
            let at = self.at(world, server);
            let (mut node, mut record) = (self.node(server), record(&server.data, name));
            let asked = request(holder as u64, world.holders[holder].token());
            match self.rules.renew(&mut node, &mut record, &asked, None, &at) {
                MemberAnswer::Low(mark) => {
                    self.rules
                        .renew(&mut node, &mut record, &asked, Some(mark), &at)
                        == MemberAnswer::Yes
                }
                answer => answer == MemberAnswer::Yes,
            }
        };
        (0..self.names.len())
            .filter(|holder| self.believes(world, *holder))
            .all(|holder| {
                let is_evicted = world.holders[holder].is_evicted;
                is_evicted
                    || world
                        .members
                        .iter()
                        .all(|server| is_repaired(holder, server))
            })
    }
}
