//! Parses the value of a lease's key, in the forms that `lease.lua` lists.

use std::time::{Duration, SystemTime};

use serde::Deserialize;

use crate::holder::Holder;
use crate::store::{Held, HeldState, Info};
use crate::token::Token;

/// The facts about the holder, and what the script added.
#[derive(Deserialize, Default)]
struct StoredInfo {
    /// The server's clock at the grant in microseconds, if the token is not the same number.
    since: Option<u64>,
    #[serde(flatten)]
    info: Info,
}

/// Fills in the facts from the value. Unreadable facts stay unknown: the name is taken all the same.
pub(crate) fn read(value: &str, held: &mut Held) {
    let (state, lease) = match value.split_once(' ') {
        Some(("kept", lease)) => (HeldState::Kept, Some(lease)),
        Some(("evicted", lease)) => (HeldState::Evicted, Some(read_holder(lease, held))),
        Some(_) => (HeldState::Leased, Some(read_holder(value, held))),
        // There is no lease while a claim still drops dead clients from the queue ahead of the client whose turn it is.
        None if value.is_empty() => (HeldState::Kept, None),
        None => (HeldState::Leased, None),
    };
    held.state = state;
    let Some(lease) = lease else {
        return;
    };
    let (token, told) = lease.split_once(' ').unwrap_or((lease, ""));
    held.token = token.parse().ok();
    read_info(told, held);
}

/// Fills in the facts about the holder, and since when it has the lease: from the token, unless the facts have it.
pub(crate) fn read_info(told: &str, held: &mut Held) {
    let told: StoredInfo = serde_json::from_str(told).unwrap_or_default();
    let since = told.since.or(held.token.map(Token::get));
    held.since = since.and_then(|us| SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(us)));
    held.info = told.info;
}

/// Takes the holder off the front of the value.
fn read_holder<'a>(lease: &'a str, held: &mut Held) -> &'a str {
    let (holder, rest) = lease.split_once(' ').unwrap_or((lease, ""));
    held.by = holder.parse::<Holder>().ok();
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;

    const HOLDER: &str = "00000000000000000000000000000007-0000000000000001";

    fn held(value: &str) -> Held {
        let mut held = Held::new(Name::new("a").expect("a valid name"));
        read(value, &mut held);
        held
    }

    fn since_us(held: &Held) -> Option<u128> {
        let since = held.since?.duration_since(SystemTime::UNIX_EPOCH);
        Some(since.expect("after 1970").as_micros())
    }

    #[test]
    fn a_lease_tells_its_holder_token_and_info() {
        for state in ["", "evicted "] {
            let held = held(&format!(
                r#"{state}{HOLDER} 42 {{"host":"h","pid":7,"label":"a b","more":[]}}"#
            ));
            assert_eq!(held.by.map(|by| by.to_string()).as_deref(), Some(HOLDER));
            assert_eq!(held.token.map(Token::get), Some(42));
            assert_eq!((&*held.info.host, held.info.pid), ("h", 7));
            assert_eq!(held.info.label.as_deref(), Some("a b"));
            assert_eq!(since_us(&held), Some(42), "the token is the clock");
        }
    }

    #[test]
    fn a_lifted_token_does_not_tell_the_time() {
        let held = held(&format!(
            r#"{HOLDER} 1795174814720999 {{"since":1795174814720312,"host":"h","pid":7}}"#
        ));
        assert_eq!(since_us(&held), Some(1_795_174_814_720_312));
    }

    #[test]
    fn a_name_that_is_kept_has_no_holder() {
        let held = held(r#"kept 42 {"host":"h","pid":7}"#);
        assert_eq!(held.by, None);
        assert_eq!(held.token.map(Token::get), Some(42));
        assert_eq!(&*held.info.host, "h");
    }

    #[test]
    fn what_cannot_be_read_is_unknown() {
        let nothing = Held::new(Name::new("a").expect("a valid name"));
        for (value, state) in [
            ("", HeldState::Kept),
            ("x", HeldState::Leased),
            ("x many {", HeldState::Leased),
            ("kept", HeldState::Leased),
            ("kept x", HeldState::Kept),
            ("evicted", HeldState::Leased),
            ("evicted x y z", HeldState::Evicted),
        ] {
            let mut nothing = nothing.clone();
            nothing.state = state;
            assert_eq!(held(value), nothing, "{value:?}");
        }
    }
}
