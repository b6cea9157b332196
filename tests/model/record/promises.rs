//! The promises that are checked in every state.

use super::setup::{Setup, Wrong};
use super::world::{Phase, Promise, World, has, holder_of};

impl Promise {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::OneHolder => "OneHolder",
            Self::TokensRise => "TokensRise",
            Self::LeftIsLeft => "LeftIsLeft",
            Self::EvictedIsNotRenewed => "EvictedIsNotRenewed",
            Self::KeptIsKept => "KeptIsKept",
        }
    }
}

impl Setup {
    pub(super) fn broken_promise(&self, world: &World) -> Option<Promise> {
        if world.broken.is_some() {
            return world.broken;
        }
        let record = world.store.record;
        for (at, client) in world.clients.iter().enumerate() {
            let has_it = has(record, holder_of(at, client));
            let believes = client.phase == Phase::Held && client.left > 0;
            let is_forgiven = client.token <= world.forgiven;
            if believes && !is_forgiven && !(has_it && record.token == client.token) {
                return Some(Promise::OneHolder);
            }
            let is_told = !self.has(Wrong::ReleaseInDoubt);
            if client.phase == Phase::Left && is_told && has_it {
                return Some(Promise::LeftIsLeft);
            }
        }
        None
    }
}
