//! Parses the replies of the scripts. A reply of any other form is an error; nothing is guessed.

use std::time::Duration;

use deadpool_redis::redis::{FromRedisValue, RedisError, Value, from_redis_value_ref};

use super::super::failure::{Failure, FailureCause};
use super::value;
use crate::error::ErrorKind;
use crate::name::Name;
use crate::store::kit::backend::Failing as _;
use crate::store::{Answer, Grant, Held, HeldState, Outcome, Place, Release, Sent};
use crate::token::Token;

/// Parses the reply of `acquire.lua`.
pub(crate) fn acquired(reply: &Value, name: &Name) -> Result<Answer, Failure> {
    match tagged(reply)? {
        (granted, []) => {
            let token = granted.strip_prefix("granted ");
            let token = token.and_then(|token| token.parse::<Token>().ok());
            Ok(Answer::Granted(Grant::new(
                token.ok_or_else(|| refusal(reply))?,
            )))
        }
        ("held", [left, value]) => Ok(Answer::Held(Box::new(held(name, left, value)?))),
        ("queued", [left, value, of_place @ ..]) => {
            let mut held = held(name, left, value)?;
            held.place = place(of_place)?;
            Ok(Answer::Held(Box::new(held)))
        }
        ("kept_out", [left, of_place @ ..]) => {
            let mut held = Held::new(name.clone());
            held.state = HeldState::KeepOut;
            held.remaining = Some(Duration::from_millis(number(left)?));
            held.place = place(of_place)?;
            Ok(Answer::Held(Box::new(held)))
        }
        _ => Err(refusal(reply)),
    }
}

/// Parses the end of a reply to a claim: its place, if it waits.
fn place(of_place: &[Value]) -> Result<Option<Place>, Failure> {
    match of_place {
        [] => Ok(None),
        [height, ahead] => {
            let ahead = usize::try_from(number(ahead)?).map_err(|_| odd(ahead))?;
            Ok(Some(Place::new(number(height)?, ahead)))
        }
        [other, ..] => Err(odd(other)),
    }
}

/// Parses the reply of `renew.lua` to `count` renewals: the server's clock, since 1970, and the outcomes in order.
pub(crate) fn renewed(
    reply: &Value,
    count: usize,
) -> Result<(Duration, Vec<Result<Outcome, Failure>>), Failure> {
    let ("renewed", [seconds, micros, letters, errors]) = tagged(reply)? else {
        return Err(refusal(reply));
    };
    let server_time = time_of(seconds, micros)?;
    let mut errors = items(errors)?.iter();
    let mut outcomes = Vec::with_capacity(count);
    for letter in text(letters)?.bytes() {
        outcomes.push(match letter {
            b'y' => Ok(Outcome::Renewed),
            b'n' => Ok(Outcome::Refused),
            b'e' => Ok(Outcome::Evicted),
            b'x' => Err(inner_error(errors.next().ok_or_else(|| odd(reply))?)?),
            _ => return Err(odd(reply)),
        });
    }
    if outcomes.len() != count {
        return Err(odd(reply));
    }
    Ok((server_time, outcomes))
}

/// Parses the reply of TIME: the server's clock, since 1970.
pub(crate) fn time(reply: &Value) -> Result<Duration, Failure> {
    match items(reply)? {
        [seconds, micros] => time_of(seconds, micros),
        _ => Err(odd(reply)),
    }
}

fn time_of(seconds: &Value, micros: &Value) -> Result<Duration, Failure> {
    Ok(Duration::from_secs(number(seconds)?) + Duration::from_micros(number(micros)?))
}

/// Parses the reply of `renew_one.lua`.
pub(crate) fn renewed_one(reply: &Value) -> Result<Outcome, Failure> {
    match reply {
        Value::Int(0) => Ok(Outcome::Refused),
        Value::Int(1) => Ok(Outcome::Renewed),
        Value::Int(2) => Ok(Outcome::Evicted),
        _ => Err(odd(reply)),
    }
}

/// Parses the reply of `release.lua`.
pub(crate) fn released(reply: &Value) -> Result<Release, Failure> {
    let words = [
        ("released", Release::Released),
        ("not_held", Release::NotHeld),
    ];
    one_of(&words, reply)
}

/// Parses the reply of `evict.lua`: whether any holder had the name.
pub(crate) fn evicted(reply: &Value) -> Result<bool, Failure> {
    one_of(&[("evicted", true), ("not_held", false)], reply)
}

/// Returns what the reply means, if it is one of these words alone.
fn one_of<T: Copy>(words: &[(&str, T)], reply: &Value) -> Result<T, Failure> {
    let (tag, rest) = tagged(reply)?;
    let known = |(word, meaning): &(&str, T)| (*word == tag).then_some(*meaning);
    let meant = words.iter().find_map(known).filter(|_| rest.is_empty());
    meant.ok_or_else(|| refusal(reply))
}

/// Parses the reply of `inspect.lua`: whether the name is held, or what is wrong with its key.
pub(crate) fn inspected(reply: &Value, name: &Name) -> Result<Option<Held>, Failure> {
    match tagged(reply)? {
        ("held", [left, value, Value::Int(waiting)]) => {
            let mut held = held(name, left, value)?;
            // A number below 0 means that the queue could not be read.
            held.waiting = usize::try_from(*waiting).ok();
            Ok(Some(held))
        }
        ("free", []) => Ok(None),
        ("failed", [message]) => Err(inner_error(message)?),
        _ => Err(odd(reply)),
    }
}

/// Parses a page of SCAN: the cursor of the next page, and the keys.
pub(crate) fn scanned(reply: &Value) -> Result<(u64, Vec<&str>), Failure> {
    let [cursor, keys] = items(reply)? else {
        return Err(odd(reply));
    };
    // A key that is not text is not one of ours.
    let keys = items(keys)?.iter().filter_map(|key| text(key).ok());
    Ok((number(cursor)?, keys.collect()))
}

/// Returns the failure in a reply that is neither a grant nor a refusal.
pub(crate) fn refusal(reply: &Value) -> Failure {
    read_refusal(reply).unwrap_or_else(|failure| failure)
}

fn read_refusal(reply: &Value) -> Result<Failure, Failure> {
    let time = |ms| Ok::<_, Failure>(Duration::from_millis(number(ms)?));
    let (kind, words) = match tagged(reply)? {
        ("invalid", [argument, value, clock @ ..]) => {
            let (argument, value) = (text(argument)?, text(value)?);
            let words = match clock.first().map_or(Ok("0"), text)? {
                "0" => format!("the {argument} is outside its limits {argument}={value}"),
                clock => format!(
                    "the {argument} is more than a day ahead of the store's clock {argument}={value} clock_us={clock}"
                ),
            };
            (ErrorKind::Invalid, words)
        }
        ("broken", [what, value]) if text(what)? == "mark" => {
            let words = format!(
                "the mark of the highest token is not a number, or no tokens are left below 2^53 mark={:?}",
                text(value)?
            );
            (ErrorKind::Misconfigured, words)
        }
        ("broken", [needed, error]) => {
            let (needed, why) = (text(needed)?, inner_error(error)?);
            (why.kind(), format!("keep-out needs {needed}: {why}"))
        }
        ("member", []) => {
            let words = "the server belongs to a store of another kind: open that store, or use another prefix";
            (ErrorKind::Misconfigured, words.into())
        }
        ("mismatch", [theirs, ours]) => {
            let (theirs, ours) = (time(theirs)?, time(ours)?);
            let words = format!(
                "the clients of this server have another longest ttl max_ttl={ours:?} expected={theirs:?}"
            );
            (ErrorKind::Misconfigured, words)
        }
        ("too_long", [ttl, longest]) => {
            let (ttl, longest) = (time(ttl)?, time(longest)?);
            let words = format!(
                "the ttl is longer than the longest that this server was set up with ttl={ttl:?} max_ttl={longest:?}"
            );
            (ErrorKind::Invalid, words)
        }
        _ => return Err(odd(reply)),
    };
    Ok(Failure::other(kind, Sent::Answered, words))
}

pub(crate) fn held(name: &Name, left: &Value, value: &Value) -> Result<Held, Failure> {
    let mut held = Held::new(name.clone());
    // A number below 0 means that the key has no expiry.
    held.remaining = match left {
        Value::Int(ms) => u64::try_from(*ms).ok().map(Duration::from_millis),
        _ => return Err(odd(left)),
    };
    let Value::BulkString(value) = value else {
        return Err(odd(value));
    };
    value::read(&String::from_utf8_lossy(value), &mut held);
    Ok(held)
}

/// Parses an error that a script caught and returned as text. Redis 6.2 leaves the dash of the protocol on it.
fn inner_error(message: &Value) -> Result<Failure, Failure> {
    let message = text(message)?;
    let message = message.strip_prefix('-').unwrap_or(message);
    let is_code = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_uppercase());
    let (code, text) = match message.split_once(' ') {
        Some((code, text)) if is_code(code) => (code, text),
        _ => ("ERR", message),
    };
    let (code, text) = (code.into(), text.into());
    Ok(FailureCause::Refused { code, text }.into())
}

/// Returns the tag and the elements after it. A reply that is only a tag is not an array, which would cost the server
/// more.
pub(crate) fn tagged(reply: &Value) -> Result<(&str, &[Value]), Failure> {
    match reply {
        Value::Array(items) => match items.as_slice() {
            [tag, rest @ ..] => Ok((text(tag)?, rest)),
            [] => Err(odd(reply)),
        },
        alone => Ok((text(alone)?, &[])),
    }
}

pub(crate) fn items(value: &Value) -> Result<&[Value], Failure> {
    value.as_sequence().ok_or_else(|| odd(value))
}

/// Returns text in this form. Not for numbers: the driver cuts those that do not fit.
pub(crate) fn parsed<T: FromRedisValue>(value: &Value) -> Result<T, Failure> {
    from_redis_value_ref(value).map_err(|_| odd(value))
}

/// Turns a refusal among several replies into a failure.
pub(crate) fn no_error(value: Value) -> Result<Value, Failure> {
    match value {
        Value::ServerError(error) => Err(RedisError::from(error).into()),
        value => Ok(value),
    }
}

/// Returns whether a claim was granted.
pub(crate) fn is_grant(reply: &Value) -> bool {
    text(reply).is_ok_and(|reply| reply.starts_with("granted "))
}

/// Returns whether any lease of a batch was renewed.
pub(crate) fn has_renewals(reply: &Value) -> bool {
    match items(reply) {
        Ok([_, _, _, letters, _]) => text(letters).is_ok_and(|letters| letters.contains('y')),
        _ => false,
    }
}

pub(crate) fn text(value: &Value) -> Result<&str, Failure> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).map_err(|_| odd(value)),
        Value::SimpleString(text) => Ok(text),
        _ => Err(odd(value)),
    }
}

pub(crate) fn number(value: &Value) -> Result<u64, Failure> {
    match value {
        Value::Int(number) => u64::try_from(*number).map_err(|_| odd(value)),
        _ => text(value)?.parse().map_err(|_| odd(value)),
    }
}

/// The reply is cut short in the message, because it may be anything.
pub(crate) fn odd(value: &Value) -> Failure {
    let shown = format!("{value:?}");
    Failure::odd(shown.chars().take(200).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn array<const N: usize>(items: [Value; N]) -> Value {
        Value::Array(items.into())
    }

    fn name() -> Name {
        Name::new("a").expect("a valid name")
    }

    #[test]
    fn a_grant_is_read() {
        let answer = acquired(&bulk("granted 1795174814720312"), &name()).expect("a grant");
        assert!(
            matches!(answer, Answer::Granted(Grant { token }) if token.get() == 1_795_174_814_720_312)
        );
    }

    #[test]
    fn a_lease_without_an_end_is_held_without_one() {
        let value = "00000000000000000000000000000007-0000000000000001 42 {}";
        let reply = array([bulk("held"), Value::Int(-1), bulk(value)]);
        let Ok(Answer::Held(held)) = acquired(&reply, &name()) else {
            panic!("expected held");
        };
        assert_eq!(held.remaining, None);
        assert_eq!(held.token.map(Token::get), Some(42));
    }

    #[test]
    fn a_place_in_the_queue_is_read() {
        let value = "kept 42 {}";
        let reply = array([
            bulk("queued"),
            Value::Int(7),
            bulk(value),
            bulk("1795174814720312"),
            Value::Int(3),
        ]);
        let Ok(Answer::Held(held)) = acquired(&reply, &name()) else {
            panic!("expected held");
        };
        assert_eq!(held.remaining, Some(Duration::from_millis(7)));
        assert_eq!(held.place, Some(Place::new(1_795_174_814_720_312, 3)));
        assert_eq!(held.state, HeldState::Kept);
    }

    #[test]
    fn a_server_that_keeps_out_has_no_holder_and_says_for_how_long() {
        let waits = [bulk("kept_out"), Value::Int(7), bulk("9"), Value::Int(2)];
        for (reply, place) in [
            (array([bulk("kept_out"), Value::Int(7)]), None),
            (array(waits), Some(Place::new(9, 2))),
        ] {
            let Ok(Answer::Held(held)) = acquired(&reply, &name()) else {
                panic!("expected held");
            };
            let mut expected = Held::new(name());
            expected.remaining = Some(Duration::from_millis(7));
            expected.place = place;
            expected.state = HeldState::KeepOut;
            assert_eq!(*held, expected);
        }
    }

    #[test]
    fn what_a_server_that_keeps_out_refuses_keeps_its_facts() {
        for (reply, said) in [
            (bulk("member"), "a store of another kind"),
            (
                array(["broken", "a hash at b:node", "WRONGTYPE not one"].map(bulk)),
                "keep-out needs a hash at b:node: WRONGTYPE not one",
            ),
            (
                array(["mismatch", "60000", "7000"].map(bulk)),
                "expected=60s",
            ),
            (
                array(["too_long", "90000", "60000"].map(bulk)),
                "max_ttl=60s",
            ),
        ] {
            let failure = acquired(&reply, &name()).expect_err("refused");
            assert!(failure.to_string().contains(said), "{failure}");
        }
    }

    #[test]
    fn refusals_keep_their_facts() {
        let reply = array(["invalid", "floor", "9", "7"].map(bulk));
        let failure = acquired(&reply, &name()).expect_err("refused");
        assert_eq!(
            failure.to_string(),
            "the floor is more than a day ahead of the store's clock floor=9 clock_us=7"
        );
        let reply = array(["broken", "mark", "x"].map(bulk));
        let failure = acquired(&reply, &name()).expect_err("refused");
        assert!(failure.to_string().ends_with("mark=\"x\""), "{failure}");
        let denied = "ERR The user executing the script can't run this command or subcommand";
        let reply = array(["broken", "the permission +info", denied].map(bulk));
        let failure = acquired(&reply, &name()).expect_err("refused");
        assert_eq!(
            (failure.kind(), failure.sent()),
            (ErrorKind::Denied, Sent::Answered)
        );
    }

    #[test]
    fn a_batch_is_read_in_order_with_its_errors() {
        let errors = ["WRONGTYPE wrong", "-OOM full", "odd one"].map(bulk);
        let reply = array([
            bulk("renewed"),
            bulk("1795174814"),
            bulk("5"),
            bulk("xynexx"),
            array(errors),
        ]);
        let (server_time, outcomes) = renewed(&reply, 6).expect("a batch");
        assert_eq!(server_time, Duration::new(1_795_174_814, 5_000));
        let shown: Vec<_> = outcomes.iter().map(|m| format!("{m:?}")).collect();
        assert!(shown[0].contains("WRONGTYPE"), "{shown:?}");
        assert_eq!(shown[1..4], ["Ok(Renewed)", "Ok(Refused)", "Ok(Evicted)"]);
        assert!(shown[4].contains("\"OOM\""), "{shown:?}");
        assert!(shown[5].contains("\"ERR\""), "{shown:?}");
        assert!(renewed(&reply, 5).is_err(), "a batch of another length");
    }

    #[test]
    fn odd_replies_are_errors() {
        for reply in [
            Value::Nil,
            Value::Int(1),
            array([]),
            bulk("granted"),
            bulk("granted 0"),
            bulk("granted 7 8"),
            array([bulk("held"), bulk("1"), bulk("")]),
            array([bulk("held"), Value::Int(1), array([])]),
            bulk("else"),
            array([bulk("else")]),
        ] {
            let failure = acquired(&reply, &name()).expect_err("odd");
            assert!(failure.to_string().starts_with("unexpected"), "{failure}");
            assert!(released(&reply).is_err());
            assert!(evicted(&reply).is_err());
            assert!(renewed(&reply, 1).is_err());
        }
    }
}
