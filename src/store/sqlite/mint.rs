//! Mints the next token: from the one counter of the file, and above what a power cut may have taken back.
//!
//! The counter is as durable as the leases: the last commits may be gone after a power cut. Where the clock is right it
//! carries the tokens on; but a machine whose clock begins in 1970 would give out the same tokens twice. So the file
//! has a mark that is never below a token that was given out, and that is synced whenever it is lifted.

use std::time::Duration;

use rusqlite::{Connection, params};

use super::database::Tx;
use super::failure::Failure;
use crate::clock;
use crate::token::Token;

/// The time by which the mark is lifted ahead. One grant in this time is synced, which takes some milliseconds; and a
/// machine that restarts within this time mints ahead of its clock for the rest of it.
const LIFT: Duration = Duration::from_secs(10);

/// The numbers that a new token has to exceed.
struct Marks {
    last: Option<Token>,
    mark: Option<Token>,
}

impl Tx<'_> {
    /// The next token of the file. `None` asks for the same again in a transaction whose commit is synced.
    pub(super) fn next_token(&self, floor: Option<Token>) -> Result<Option<Token>, Failure> {
        let Marks { last, mark } = self.marks()?;
        let token = Token::mint(last, floor, clock::wall_clock_us())?;
        if Some(token) > mark {
            if !is_synced(self.db)? {
                return Ok(None);
            }
            let lifted = lifted(token);
            self.db
                .prepare_cached("UPDATE mark SET token = ?1, boot = ?2 WHERE one = 1")?
                .execute(params![as_stored(lifted), self.boot.id()])?;
        }
        self.db
            .prepare_cached("UPDATE counter SET token = ?1 WHERE one = 1")?
            .execute([as_stored(token)])?;
        Ok(Some(token))
    }

    fn marks(&self) -> Result<Marks, Failure> {
        let mut find = self.db.prepare_cached(
            "SELECT counter.token, mark.token, mark.boot = ?1
            FROM counter, mark",
        )?;
        let found = find.query_row([self.boot.id()], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get::<_, bool>(2)?))
        });
        let (last, mark, is_ours) = found?;
        let (last, mark) = (read(last)?, read(mark)?);
        // Some grants of an earlier boot may be gone.
        let last = if is_ours { last } else { last.max(mark) };
        Ok(Marks { last, mark })
    }
}

/// Returns whether the next commit survives a power cut.
fn is_synced(db: &Connection) -> Result<bool, Failure> {
    const FULL: i64 = 2;
    let level: i64 = db.query_row("PRAGMA synchronous", (), |row| row.get(0))?;
    Ok(level >= FULL)
}

fn lifted(token: Token) -> Token {
    let ahead = u64::try_from(LIFT.as_micros()).expect("seconds fit");
    Token::new(token.get() + ahead).unwrap_or(Token::MAX)
}

fn read(stored: i64) -> Result<Option<Token>, Failure> {
    let damaged = Failure::Damaged("its highest token is out of range");
    match u64::try_from(stored) {
        Ok(0) => Ok(None),
        Ok(token) => Token::new(token).map(Some).map_err(|_| damaged),
        Err(_) => Err(damaged),
    }
}

/// A token as the file keeps it.
pub(super) fn as_stored(token: Token) -> i64 {
    i64::try_from(token.get()).expect("a token is below 2^53")
}
