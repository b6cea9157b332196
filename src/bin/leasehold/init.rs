//! `leasehold init`: makes the tables and functions of a store in Postgres, marks a Redis server as new, or makes
//! servers the members of a quorum.

use std::time::Duration;

use leasehold::store::{self, Member, MemberState, Store, TableSettings};

use crate::args;
use crate::choice::{Choice, first_contact};
use crate::exit::{Exit, Failure};
use crate::say;

/// Sets the store up, or prints the script that would.
pub fn main(arguments: args::InitOptions) -> Result<Exit, Failure> {
    let Choice::Url(url, _) = Choice::of(&arguments.store)? else {
        return Err(Failure::usage(
            "init refused: no store was named, and the default store needs no set-up; expected --store postgres://..., redis://... or redis+quorum://...",
        ));
    };
    let mut settings = TableSettings::default();
    settings.max_ttl = arguments.max_ttl.as_ref().map(|most| most.time);
    if arguments.print {
        let script = match &arguments.replace {
            Some(old) => store::replace_script(&url, old)?,
            None => store::init_script(&url, settings)?,
        };
        return say::output(script).map(|()| Exit::Success);
    }
    let limit = arguments.store.connect_timeout.time;
    crate::block_on(async {
        match &arguments.replace {
            Some(old) => store::replace(&url, old, arguments.from_clock, limit).await?,
            None => {
                first_contact(limit, async |left| store::init(&url, settings, left).await).await?
            }
        }
        let store = first_contact(limit, async |_| store::open(&url).await).await?;
        let facts = facts(&*store, limit).await;
        store.close().await;
        say::note("init", format_args!("the store is set up{facts}"));
        Ok(Exit::Success)
    })
}

/// Returns the longest ttl of a store that was set up, and how many of its members are not in.
async fn facts(store: &dyn Store, limit: Duration) -> String {
    // A store in Postgres learns the limit from its server. If that fails, it is set up all the same.
    let members = store.members(limit).await.unwrap_or_default();
    let is_away = |member: &&Member| matches!(member.state, MemberState::Away { .. });
    let away = match members.iter().filter(is_away).count() {
        0 => String::new(),
        away => format!(
            "; {away} of {} members are away, and come in after that time: see `leasehold status --members`",
            members.len()
        ),
    };
    let limited = store.facts().max_ttl;
    let limited = limited.map(|most| format!("; the longest ttl is {most:?}"));
    limited.unwrap_or_default() + &away
}
