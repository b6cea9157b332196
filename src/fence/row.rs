//! A fence's row in a SQL database, as it is read back.

use std::error::Error as StdError;

use super::Pass;
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::token::Token;

/// Token, holder and name, as the database gives them.
pub(super) type Columns = (i64, String, String);

/// The pass in the row of this resource.
pub(super) fn pass(resource: &str, row: Option<Columns>) -> Result<Option<Pass>, Error> {
    let pass = |(token, holder, name): Columns| {
        let token = Token::new(token.cast_unsigned())?;
        Ok(Pass::new(Name::new(name)?, holder.parse()?, token))
    };
    let read = row.map(pass).transpose();
    read.map_err(|error: Error| damaged(resource, error))
}

/// The error of a raise that changed no row, given the row in storage.
#[cfg(any(feature = "rusqlite", feature = "sqlx", feature = "tokio-postgres"))]
pub(super) fn refusal(resource: &str, shown: &super::Shown<'_>, row: Option<Columns>) -> Error {
    let judged = pass(resource, row).and_then(|row| shown.judge(resource, row.as_ref()));
    judged.err().unwrap_or_else(|| {
        damaged(
            resource,
            "it admits the pass now and refused it a moment ago",
        )
    })
}

pub(super) fn damaged(resource: &str, what: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
    let text = format!("raise failed: the fence's row is damaged resource={resource:?}");
    Error::new(ErrorKind::Misconfigured, text).with_source(what)
}
