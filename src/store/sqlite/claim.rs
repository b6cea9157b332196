//! How a claim is answered, within one transaction.

use std::time::Duration;

use rusqlite::Connection;

use super::boot::Boot;
use super::failure::Failure;
use super::queue::{Queue, stored_client};
use super::row::{self, Fresh, Row, RowState, Validity};
use super::{headroom, mint, sweep};
use crate::clock::{self, Instant};
use crate::store::{Answer, Ask, Claim, Grant, Held, HeldState, Queued};

/// What a claim came to, apart from errors that must not undo the transaction.
pub(super) enum Claimed {
    Answered(Answer),
    /// The file has to grow first.
    NoRoom,
    /// Its token needs a commit that is synced.
    Unsynced,
    /// Two kernels share the file; the watch of this row was begun anew.
    Shared(String),
}

/// Who has it, if it certainly is another holder of this boot; everything else needs the writer's place to be told.
pub(super) fn held_by_other(
    db: &Connection,
    boot: &Boot,
    claim: &Claim,
    ask: Ask,
) -> Result<Option<Held>, Failure> {
    let Some(row) = Row::find(db, &claim.name)? else {
        return Ok(None);
    };
    match row.judge(boot, boot.now()) {
        Validity::Taken(remaining) if !is_for(&row, claim, ask) => {
            Ok(Some(row.held(claim.name.clone(), Some(remaining))))
        }
        _ => Ok(None),
    }
}

/// What to tell a claim that found no room, if it is not its turn: who waits goes on waiting, also without a place.
pub(super) fn held_without_room(
    db: &Connection,
    boot: &Boot,
    claim: &Claim,
    ask: Ask,
) -> Result<Option<Held>, Failure> {
    let now = boot.now();
    if Row::counting(db, boot, &claim.name, now)?.is_some() {
        return held_by_other(db, boot, claim, ask);
    }
    let first = first_before(&Queue::new(db, boot, &claim.name, now), claim, ask)?;
    Ok(first.map(|_| offered(claim)))
}

/// Whether it is the claim's own lease, or kept for its client.
fn is_for(row: &Row, claim: &Claim, ask: Ask) -> bool {
    row.holder == claim.holder.to_string()
        || client_in_line(claim, ask).is_some_and(|client| row.is_offered_to(&client))
}

/// Takes the name, or says who has it.
pub(super) fn take(
    db: &Connection,
    boot: &Boot,
    claim: &Claim,
    ask: Ask,
    info: &str,
) -> Result<Claimed, Failure> {
    let now = boot.now();
    let Some(row) = Row::find(db, &claim.name)? else {
        return take_free(db, boot, claim, ask, info, now);
    };
    let verdict = row.judge(boot, now);
    if verdict == Validity::Void {
        return take_free(db, boot, claim, ask, info, now);
    }
    if row.holder == claim.holder.to_string() && row.standing == RowState::Live {
        row::write_term(db, boot, &claim.name, now, claim.ttl, RowState::Live)?;
        let again = Grant::new(row.token()?);
        return Ok(Claimed::Answered(Answer::Granted(again)));
    }
    if client_in_line(claim, ask).is_some_and(|client| row.is_offered_to(&client)) {
        return grant(db, boot, claim, ask, info, now);
    }
    let remaining = match verdict {
        Validity::Void => Duration::ZERO,
        Validity::Taken(remaining) => remaining,
        Validity::Unwatched | Validity::Shared => {
            sweep::watch(db, boot, &claim.name, now)?;
            row.ttl()
        }
    };
    if verdict == Validity::Shared {
        return Ok(Claimed::Shared(row.boot));
    }
    let held = row.held(claim.name.clone(), Some(remaining));
    refuse(
        db,
        &Queue::new(db, boot, &claim.name, now),
        claim,
        ask,
        held,
    )
}

/// Takes a name that no holder has, unless another client is before this one in the queue: then it is offered to that one.
fn take_free(
    db: &Connection,
    boot: &Boot,
    claim: &Claim,
    ask: Ask,
    info: &str,
    now: Instant,
) -> Result<Claimed, Failure> {
    let queue = Queue::new(db, boot, &claim.name, now);
    let Some(first) = first_before(&queue, claim, ask)? else {
        return grant(db, boot, claim, ask, info, now);
    };
    if headroom::is_enough(db)? {
        queue.offer(&first)?;
        return refuse(db, &queue, claim, ask, offered(claim));
    }
    if let Some(client) = client_in_line(claim, ask) {
        queue.stay(&client)?;
    }
    Ok(Claimed::NoRoom)
}

/// The client that is first in line, unless it is the one that claims.
fn first_before(queue: &Queue<'_>, claim: &Claim, ask: Ask) -> Result<Option<String>, Failure> {
    let first = queue.first_live()?;
    Ok(first.filter(|first| client_in_line(claim, ask).as_ref() != Some(first)))
}

/// A name that was free, and is kept for the first in line.
fn offered(claim: &Claim) -> Held {
    let mut held = Held::new(claim.name.clone());
    held.remaining = Some(Queued::OFFER);
    held.state = HeldState::Offered;
    held
}

/// Says no, and gives the claim its place in line if it wants one. Who has one needs no room to keep it.
fn refuse(
    db: &Connection,
    queue: &Queue<'_>,
    claim: &Claim,
    ask: Ask,
    mut held: Held,
) -> Result<Claimed, Failure> {
    if let Some(client) = client_in_line(claim, ask) {
        held.ahead = queue.stay(&client)?;
        if held.ahead.is_none() {
            if !headroom::is_enough(db)? {
                return Ok(Claimed::NoRoom);
            }
            held.ahead = Some(queue.join(&client)?);
        }
    }
    Ok(Claimed::Answered(Answer::Held(Box::new(held))))
}

fn grant(
    db: &Connection,
    boot: &Boot,
    claim: &Claim,
    ask: Ask,
    info: &str,
    now: Instant,
) -> Result<Claimed, Failure> {
    if !headroom::is_enough(db)? {
        return Ok(Claimed::NoRoom);
    }
    let Some(token) = mint::next_token(db, boot, ask.floor)? else {
        return Ok(Claimed::Unsynced);
    };
    // In the place of an offer, too: one that outlived its acceptance would be accepted twice.
    let fresh = Fresh {
        name: &claim.name,
        holder: &claim.holder.to_string(),
        token: mint::as_stored(token),
        info,
        since_us: i64::try_from(clock::wall_clock_us()).unwrap_or_default(),
        standing: RowState::Live,
        ttl: claim.ttl,
    };
    row::put(db, boot, now, &fresh)?;
    leave_and_rejoin(&Queue::new(db, boot, &claim.name, now), claim, ask)?;
    sweep::sweep(db, boot, now)?;
    Ok(Claimed::Answered(Answer::Granted(Grant::new(token))))
}

/// A claim was granted: its client's place in line is used up, and it joins again if it has more waiters.
fn leave_and_rejoin(queue: &Queue<'_>, claim: &Claim, ask: Ask) -> Result<(), Failure> {
    let Some(queued) = ask.queued else {
        return Ok(());
    };
    let client = stored_client(claim.holder.client());
    queue.leave(&client)?;
    if queued.more > 0 {
        queue.join(&client)?;
    }
    Ok(())
}

/// The client, as the file keeps it, of a claim that stands in line.
fn client_in_line(claim: &Claim, ask: Ask) -> Option<String> {
    ask.queued.map(|_| stored_client(claim.holder.client()))
}
