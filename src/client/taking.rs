//! Leads a caller to a permit of a pool, or to holding alone a name that others share: [`take`] decides the next
//! request from the answers so far. Pure: it knows no runtime and no clock; a [`Pool`] sends the requests.
//!
//! A pool has a *door*, the lease on its own name, and permits, the leases on `name#1`, `name#2` and so on. Each side
//! writes its own and then reads the other's:
//!
//! ```text
//!  fast     claim a permit, then check the door: free, it counts; taken, give the permit back and queue at the door
//!  behind   take the door, claim a permit that is free, then release the door: it counts if the door was still held
//!  alone    take the door, then check each permit: holds the name alone once each was seen free
//! ```
//!
//! # Invariants
//! 1. One request at a time: a check is sent after the answer that it has to follow was heard.
//! 2. A permit that was taken on the fast path counts only after a check of the door that followed its grant and showed
//!    it free. Every lease of the door counts as taken, another taker's too.
//! 3. Behind the door, where a name may be held alone, a permit counts only if the release of the door says that this
//!    very grant was held until then.
//! 4. Checks of permits count only for the grant of the door that they followed, and all of them are needed.
//! 5. A caller that does not wait, or whose client knows that others wait, checks the door before each claim; so it
//!    takes no permit from a client that waits.

use std::collections::BTreeSet;

use crate::error::Error;

/// The most permits of a pool. Each is a name of its own, and a caller that finds none free checks all of them.
pub const MAX_PERMITS: u16 = 256;

/// The permits of a name that is shared, and so the most that can share it at once. It is part of the wire: who checks
/// fewer does not see the others. A newer version may check more, but may take more only once all others check
/// them.
pub const SHARED_PERMITS: u16 = 64;

/// The part of a name that a caller takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// One of this many permits. No caller ever holds the name alone.
    Permit(u16),
    /// A share of the name, together with others.
    Shared,
    /// Shared, but always through the door, whose token it returns.
    SharedFenced,
    /// The name alone.
    Exclusive,
}

/// Sends the requests of one acquisition, and holds what was granted. It must not send a request before it is polled.
pub trait Pool {
    /// Returns whether this client found the door taken and has not seen it free since.
    fn is_door_taken(&self) -> bool;

    /// Returns whether the deadline of the claimed permit is still ahead.
    fn is_permit_held(&self) -> bool;

    /// Checks whether the door is free: no client has it, or is offered it.
    fn is_door_free(&mut self) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Claims this permit. Returns whether it was granted.
    fn claim(&mut self, permit: u16) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Releases the permit.
    fn give_back(&mut self) -> impl Future<Output = ()> + Send;

    /// Claims the door; if the caller waits, in its queue.
    fn take_door(&mut self) -> impl Future<Output = Result<DoorAnswer, Error>> + Send;

    /// Checks all permits once. Returns those that are free, or `None` if the door was lost meanwhile.
    fn survey(&mut self) -> impl Future<Output = Result<Option<Vec<u16>>, Error>> + Send;

    /// Polls the permits until some are free that were not returned since the door was granted, or that were claimed
    /// in vain since. Returns `None` once the door is lost.
    fn await_free(&mut self) -> impl Future<Output = Result<Option<Vec<u16>>, Error>> + Send;

    /// Releases the door; these permits seemed free and are left. Returns whether the store confirmed that this very
    /// grant of the door was held until then.
    fn leave_door(&mut self, others: &[u16]) -> impl Future<Output = bool> + Send;
}

/// The answer to a claim of the door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoorAnswer {
    /// It was granted.
    Granted,
    /// Another holder has it, and the caller does not wait.
    Taken,
    /// Another task of this client had it, and handed over a permit that counts.
    Given,
}

impl Access {
    /// Returns the number of permits.
    pub const fn permits(self) -> u16 {
        match self {
            Self::Permit(count) => count,
            _ => SHARED_PERMITS,
        }
    }

    /// Returns the number of permits that are tried before all are checked. Checking all takes a request for each,
    /// so a larger pool is worth more guesses: with five for 64 permits, half of them taken, one is free 31 times of
    /// 32.
    pub const fn guesses(self) -> u16 {
        1 + self.permits() / 16
    }
}

/// Takes a permit, or the name alone. Returns whether what was granted counts; `false` only to a caller that does not
/// wait, if others have it. `guesses` are the permits that are tried first, the last one first.
///
/// # Errors
/// The first error of a request. The caller gives up what was granted until then.
pub async fn take(
    pool: &mut impl Pool,
    access: Access,
    waits: bool,
    guesses: Vec<u16>,
) -> Result<bool, Error> {
    let is_by_door = matches!(access, Access::SharedFenced | Access::Exclusive);
    if !is_by_door {
        let is_careful = !waits || pool.is_door_taken();
        if take_outside(pool, is_careful, guesses).await? {
            return Ok(true);
        }
        if !waits {
            return Ok(false);
        }
    }
    loop {
        match pool.take_door().await? {
            DoorAnswer::Granted => {}
            DoorAnswer::Taken => return Ok(false),
            DoorAnswer::Given => return Ok(true),
        }
        let is_taken = match access {
            Access::Exclusive => be_alone(pool, access.permits(), waits).await?,
            _ => take_behind(pool, access, waits).await?,
        };
        if is_taken || !waits {
            return Ok(is_taken);
        }
    }
}

/// Takes a permit without the door. Returns `false` where the caller is to queue at the door.
async fn take_outside(
    pool: &mut impl Pool,
    is_careful: bool,
    mut candidates: Vec<u16>,
) -> Result<bool, Error> {
    let mut has_surveyed = false;
    loop {
        let Some(permit) = candidates.pop() else {
            if has_surveyed {
                return Ok(false);
            }
            has_surveyed = true;
            candidates = pool.survey().await?.unwrap_or_default();
            continue;
        };
        if is_careful && !pool.is_door_free().await? {
            return Ok(false);
        }
        if pool.claim(permit).await? {
            let counts = pool.is_door_free().await? && pool.is_permit_held();
            if !counts {
                pool.give_back().await;
            }
            return Ok(counts);
        }
    }
}

/// Takes a permit while the door is held, and releases the door. Returns `false` if it has to begin again at the door,
/// or if there is none for a caller that does not wait.
async fn take_behind(pool: &mut impl Pool, access: Access, waits: bool) -> Result<bool, Error> {
    while let Some(mut free) = poll_permits(pool, waits).await? {
        while let Some(permit) = free.pop() {
            if pool.claim(permit).await? {
                let was_held = pool.leave_door(&free).await;
                // Where no caller is ever alone, the door is for the order only.
                let is_in_order = was_held || matches!(access, Access::Permit(_));
                let counts = is_in_order && pool.is_permit_held();
                if !counts {
                    pool.give_back().await;
                }
                return Ok(counts);
            }
        }
        if !waits {
            pool.leave_door(&[]).await;
            break;
        }
    }
    Ok(false)
}

/// Polls the permits while the door is held, until each was seen free. Returns as [`take_behind`] does.
async fn be_alone(pool: &mut impl Pool, permits: u16, waits: bool) -> Result<bool, Error> {
    let mut seen_free = BTreeSet::new();
    while let Some(free) = poll_permits(pool, waits).await? {
        seen_free.extend(free);
        if seen_free.len() == usize::from(permits) {
            return Ok(true);
        }
        if !waits {
            pool.leave_door(&[]).await;
            break;
        }
    }
    Ok(false)
}

/// Polls which permits are free while the door is held. Returns `None` if the door was lost.
async fn poll_permits(pool: &mut impl Pool, waits: bool) -> Result<Option<Vec<u16>>, Error> {
    if waits {
        pool.await_free().await
    } else {
        pool.survey().await
    }
}
