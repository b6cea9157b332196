//! A fence's row in a SQL database, as it is read back.

use std::error::Error as StdError;

use super::{Bearer, Pass, judge, refuse};
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::token::Token;

/// Token, holder and name, as the database gives them.
pub(super) type Columns = (i64, String, String);

/// The pass in the row of this resource.
pub(super) fn pass(resource: &str, (token, holder, name): Columns) -> Result<Pass, Error> {
    let token = Token::new(token.cast_unsigned()).map_err(|error| damaged(resource, error))?;
    let holder = holder.parse();
    let holder = holder.map_err(|error: Error| damaged(resource, error))?;
    let name = Name::new(name).map_err(|error| damaged(resource, error))?;
    Ok(Pass::new(name, holder, token))
}

/// The error of a raise that changed no row, where this is the row.
pub(super) fn refusal(
    resource: &str,
    bearer: &dyn Bearer,
    shown: &Pass,
    row: Option<Columns>,
) -> Error {
    let stored = match row.map(|row| pass(resource, row)).transpose() {
        Ok(stored) => stored,
        Err(damaged) => return damaged,
    };
    match judge(stored.as_ref(), shown) {
        Err(refusal) => refuse(bearer, resource, shown, refusal),
        Ok(_) => damaged(
            resource,
            "it admits the pass now and refused it a moment ago",
        ),
    }
}

fn damaged(resource: &str, what: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
    let text = format!("raise failed: the fence's row is damaged resource={resource:?}");
    Error::new(ErrorKind::Misconfigured, text).with_source(what)
}
