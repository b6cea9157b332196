//! Mints the next token: from the one counter of the file, and above what a power cut may have taken back.
//!
//! The counter is as durable as the leases: the last commits may be gone after a power cut. Where the clock is right it
//! carries the tokens on; but a machine whose clock begins in 1970 would give out the same tokens twice. So the file
//! has a mark that is never below a token that was given out, and that is synced whenever it is lifted.

use std::time::Duration;

use rusqlite::params;

use super::failure::Failure;
use super::transaction::Tx;
use crate::clock;
use crate::token::Token;

/// How far ahead the mark is lifted. One grant in this time is synced, which takes some milliseconds; a machine that
/// restarts within this time mints ahead of its clock for the rest of it.
const LIFT: Duration = Duration::from_secs(10);

/// SQLite's number for commits that survive a power cut.
const FULL: i64 = 2;

impl Tx<'_> {
    /// The highest token that the file can have given out.
    pub(super) fn last_token(&self) -> Result<Option<Token>, Failure> {
        self.tokens().map(|(last, _)| last)
    }

    /// The same, and the mark.
    fn tokens(&self) -> Result<(Option<Token>, Option<Token>), Failure> {
        // Some grants of another boot may be gone.
        let mut find = self.db.prepare_cached(
            "SELECT iif(mark.boot = ?1, counter.token, max(counter.token, mark.token)), mark.token
            FROM counter, mark",
        )?;
        let found = find.query_row([self.boot.id()], |row| Ok((row.get(0)?, row.get(1)?)));
        let (last, mark) = found?;
        Ok((read(last)?, read(mark)?))
    }

    /// The next token of the file.
    pub(super) fn next_token(&self, floor: Option<Token>) -> Result<Token, Failure> {
        let (last, mark) = self.tokens()?;
        let token = Token::mint(last, floor, clock::wall_clock_us())?;
        if Some(token) > mark {
            let synchronous: i64 =
                (self.db).query_row("PRAGMA synchronous", (), |row| row.get(0))?;
            if synchronous < FULL {
                return Err(Failure::Unsynced);
            }
            let lifted = Token::new(token.get() + LIFT.as_micros() as u64);
            let lifted = lifted.unwrap_or(Token::MAX);
            self.run(
                "UPDATE mark
                SET token = ?1, boot = ?2
                WHERE one = 1",
                params![as_stored(lifted), self.boot.id()],
            )?;
        }
        self.run(
            "UPDATE counter
            SET token = ?1
            WHERE one = 1",
            [as_stored(token)],
        )?;
        Ok(token)
    }
}

fn read(stored: i64) -> Result<Option<Token>, Failure> {
    if stored == 0 {
        return Ok(None);
    }
    let token = Token::new(stored.cast_unsigned());
    let token = token.map_err(|_| Failure::damaged("its highest token is out of range"))?;
    Ok(Some(token))
}

/// A token as the file keeps it.
pub(super) const fn as_stored(token: Token) -> i64 {
    token.get().cast_signed()
}
