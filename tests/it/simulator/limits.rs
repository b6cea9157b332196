//! What a holder allows itself: the longest hold, and the longest time without progress.

use std::time::Duration;

use leasehold::clock::Instant;
use leasehold::internals::schedule::Limits;

use super::ledger::{Guard, Promise};
use super::process::Process;
use super::stage::{Event, Happening, Stage};

/// By how much a holder may be told later than it asked for: a timer that is late, and the turn after it.
const LAG: Duration = Duration::from_millis(5);

impl Guard {
    /// When what the holder allowed itself is used up.
    fn allowed_until(&self) -> Instant {
        let end = |since: Instant, most: Option<Duration>| {
            most.map_or(Instant::FAR_FUTURE, |most| since.after(most))
        };
        let Limits {
            max_hold,
            progress_within,
        } = self.limits;
        end(self.handed_at, max_hold).min(end(self.progressed_at, progress_within))
    }
}

impl Process {
    /// Looks after this lease once what its holder allowed itself is used up, unless there is progress until then.
    pub(super) fn watch_limits(&mut self, stage: &mut Stage, slot: usize, version: u32) {
        let holder = self.slots[slot].holder();
        let Some(guard) = stage.ledger.guards.get(&holder) else {
            return;
        };
        let until = guard.allowed_until();
        if until < Instant::FAR_FUTURE {
            // A grant may come when it is used up already.
            let told_by = until.max(stage.shown(self.id)).after(LAG);
            let at = stage.real_at(self.id, told_by);
            let used_up = Happening::UsedUp(slot, version);
            stage.agenda.add(at, Event::To(self.id, self.life, used_up));
        }
    }

    pub(super) fn check_limits(&mut self, stage: &mut Stage, slot: usize, version: u32) {
        if !self.slots[slot].is_at(version) {
            return;
        }
        let holder = self.slots[slot].holder();
        let shown = stage.shown(self.id);
        // A planted bug lets two slots be one holder; the other one may have left.
        let Some(guard) = stage.ledger.guards.get(&holder) else {
            return;
        };
        if shown < guard.allowed_until().after(LAG) && !guard.is_lost {
            self.watch_limits(stage, slot, version);
            return;
        }
        let is_told = guard.signal.is_told();
        stage.ledger.check(
            Promise::LimitsOfTheHolderAreKept,
            stage.now,
            is_told,
            || format!("{holder} holds for longer than it allowed itself"),
        );
    }
}
