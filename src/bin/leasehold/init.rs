//! `leasehold init`: makes the tables and functions of a store in Postgres.

use std::io::Write;

use leasehold::store::{self, TableSettings};

use crate::args;
use crate::config::StoreSetting;
use crate::exit::{Exit, Failure};
use crate::say;
use crate::store::{Choice, first_contact};

/// Makes the tables and functions, or prints the SQL.
pub fn main(
    arguments: args::InitOptions,
    configured: Option<StoreSetting>,
) -> Result<Exit, Failure> {
    let Choice::Url(url) = Choice::of(&arguments.store, configured)? else {
        return Err(Failure::usage(
            "init refused: no store was named, and the default store needs no tables; expected --store postgres://...",
        ));
    };
    let mut settings = TableSettings::default();
    settings.max_ttl = arguments.max_ttl;
    settings.is_unlogged = arguments.unlogged;
    if arguments.print {
        let sql = store::init_sql(&url, settings)?;
        return match std::io::stdout().write_all(sql.as_bytes()) {
            Ok(()) => Ok(Exit::Success),
            Err(error) => Err(Failure::internal("cannot write the SQL", &error)),
        };
    }
    let limit = arguments.store.connect_timeout;
    crate::block_on(async {
        first_contact(limit, store::init(&url, settings, limit)).await?;
        let store = first_contact(limit, store::open(&url)).await?;
        // The store learns the limit from its server. If it does not, the tables are there all the same.
        let _ = store.members(limit).await;
        let limited = store.facts().max_ttl;
        let limited = limited.map(|most| format!("; the longest ttl is {most:?}"));
        store.close().await;
        say::note(
            "init",
            format_args!(
                "tables and functions are there{}",
                limited.unwrap_or_default()
            ),
        );
        Ok(Exit::Success)
    })
}
