//! A lease as people see it: in `status` and `top`, on the page of `export`, and while a run waits for its name.

use std::time::{Duration, SystemTime};

use leasehold::clock::wall_clock;
use leasehold::store::{Held, HeldState};
use serde::Serialize;

use crate::table::Column;

/// One line of a table, ready to be printed: it has no control characters.
#[derive(Debug, Clone)]
pub struct Row {
    pub tone: Tone,
    /// It is the row of a whole pool.
    pub is_pool: bool,
    /// The texts of all columns, in their order.
    pub cells: [String; Column::ALL.len()],
}

impl Row {
    pub fn cell(&self, column: Column) -> &str {
        &self.cells[column as usize]
    }
}

/// Meaning of a row's colour, in rising order of urgency. The state has it as a word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tone {
    /// It is held and renewed in time.
    #[default]
    Plain,
    /// It is free.
    Faint,
    /// No holder has it, and it is free soon.
    Calm,
    /// The store grants nothing for a while.
    Away,
    /// It is late in its renewal.
    Late,
    /// Its holder loses it.
    Bad,
}

/// Returns the pool and the number of a permit, or else the name itself, which may be the door of a pool, and zero.
pub fn pool_of(held: &Held) -> (&str, u16) {
    permit(held).unwrap_or((held.name.as_str(), 0))
}

/// Returns the schedule of a fire, with the sign before its time: `report@` of `report@7200`.
pub fn schedule(name: &str) -> Option<&str> {
    let (job, time) = name.rsplit_once('@')?;
    let is_fire = !job.is_empty() && time.parse::<u64>().is_ok_and(|at| at.to_string() == time);
    is_fire.then(|| &name[..=job.len()])
}

/// Returns the pool and the number of a permit: `gpu` and 2 of `gpu#2`. Its holder says that it is one: a name of this
/// form can be a lease of its own.
pub fn permit(held: &Held) -> Option<(&str, u16)> {
    let number = held.info.permit?;
    Some((pool(held.name.as_str(), Some(number))?, number))
}

/// Returns the pool of the permit with this name and number, if it is one.
pub fn pool(name: &str, permit: Option<u16>) -> Option<&str> {
    name.strip_suffix(&permit?.to_string())?.strip_suffix('#')
}

impl Tone {
    /// The sign in front of a row that needs attention.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Late | Self::Bad => "!",
            _ => "",
        }
    }

    /// The text in this colour, for a terminal.
    pub fn paint(self, text: &str) -> String {
        let code = match self {
            Self::Plain => return text.into(),
            Self::Late => "33",
            Self::Bad => "31",
            Self::Calm => "36",
            Self::Away => "35",
            Self::Faint => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// How a name is taken, in one word for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Taken {
    /// a holder has it
    Held,
    /// an operator evicted its holder, and the name stays taken for the rest of the ttl
    Evicted,
    /// its job is done, and `--hold-at-least` or `once` keeps the name taken
    Kept,
    /// the store grants nothing for a while, because it is new, lost its data or was promoted
    KeepOut,
}

impl From<HeldState> for Taken {
    fn from(state: HeldState) -> Self {
        match state {
            HeldState::Evicted => Self::Evicted,
            HeldState::Kept => Self::Kept,
            HeldState::KeepOut => Self::KeepOut,
            _ => Self::Held,
        }
    }
}

impl Taken {
    /// Returns it in words for people, and the tone of it.
    pub const fn shown(self) -> (&'static str, Tone) {
        match self {
            Self::Held => ("held", Tone::Plain),
            Self::Evicted => ("evicted", Tone::Bad),
            Self::Kept => ("done, kept", Tone::Calm),
            Self::KeepOut => ("keeps out", Tone::Away),
        }
    }
}

/// Returns in a clause how the name is taken: what a waiting run prints after the name.
pub fn in_words(held: &Held) -> String {
    let left = |before: &str| match held.remaining {
        Some(left) => format!("{before} {}", span(left)),
        None => String::new(),
    };
    let since = held_for(held, wall_clock());
    let for_span = since.map_or_else(String::new, |time| format!(" for {}", span(time)));
    let who = match holder(held) {
        who if who.is_empty() => "an unknown holder".into(),
        who => who,
    };
    let what = permit(held);
    let what = what.map_or_else(|| "it".into(), |(_, number)| format!("permit {number}"));
    let mut text = match held.state {
        HeldState::KeepOut => format!(
            "{NEW_STORE}: it grants nothing{}; if it is new, `leasehold init` ends that",
            left(" for")
        ),
        HeldState::Kept => format!("its job is done, and the name stays taken{}", left(" for")),
        HeldState::Evicted => format!("{who} was evicted, and it is free{}", left(" within")),
        _ => format!("{who} has {what}{for_span}"),
    };
    let ahead = held.place.map(|place| place.ahead);
    if let Some(ahead) = ahead.filter(|ahead| *ahead > 0) {
        text.push_str(&format!(", {ahead} before you"));
    }
    if let Some(label) = &held.info.label {
        text.push_str(&format!(", {label:?}"));
    }
    text
}

/// Why a store can keep out. It cannot tell these apart, and the first is the most usual.
pub const NEW_STORE: &str = "the store is new to leasehold, or lost its data or was promoted";

/// Returns the host and the process of a holder, if there is one.
pub fn holder(held: &Held) -> String {
    match held.info.host.as_str() {
        "" => String::new(),
        host => format!("{}:{}", printable(host), held.info.pid),
    }
}

/// Time for which it has been held. A server's clock can be ahead of ours.
pub fn held_for(held: &Held, now: SystemTime) -> Option<Duration> {
    let since = held.since?;
    Some(now.duration_since(since).unwrap_or_default())
}

/// Text of strangers: no control character gets to the terminal, and none that breaks a line or turns its direction.
/// Letters that combine with the one before are left alone, but for the first.
pub fn printable(text: &str) -> String {
    let is_odd = |letter: char| {
        letter.is_control()
            // Separators of lines and paragraphs, marks and embeddings of direction, the byte order mark.
            || matches!(letter, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{feff}')
            || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        // A letter that combines is escaped where it stands alone, and so where it is the first.
        match is_odd(letter)
            || (shown.is_empty() && letter.escape_debug().len() > 1 && !letter.is_ascii())
        {
            true => shown.extend(letter.escape_debug()),
            false => shown.push(letter),
        }
    }
    shown
}

/// Formats a time as in RFC 3339. Returns `None` before 1970 and after 9999.
pub fn rfc3339(time: SystemTime) -> Option<String> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let sane = since < Duration::from_secs(253_402_300_800);
    sane.then(|| humantime::format_rfc3339_millis(time).to_string())
}

/// A time in at most six characters.
pub fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{minutes}m{:02}s", seconds % 60),
        3_600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Name;
    use leasehold::clock::Instant;

    use leasehold::store::spi::Place;

    use super::*;
    use crate::seen::{described, listed};

    #[test]
    fn a_strangers_text_cannot_break_a_line_or_turn_its_direction() {
        for (text, shown) in [
            ("job é 中 👩\u{200d}🔬", "job é 中 👩\u{200d}🔬"),
            ("a\u{1b}[31m\n", "a\\u{1b}[31m\\n"),
            (
                "a\u{202e}b\u{2066}c\u{2028}",
                "a\\u{202e}b\\u{2066}c\\u{2028}",
            ),
            ("\u{301}e", "\\u{301}e"),
            ("e\u{301}", "e\u{301}"),
            ("\"quoted\"", "\"quoted\""),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    fn held(state: HeldState) -> Held {
        let mut held = Held::new(Name::new("x").expect("valid"));
        held.info.host = "vm".into();
        held.info.pid = 2_104;
        held.since = Some(wall_clock() - Duration::from_secs(25));
        held.remaining = Some(Duration::from_secs(12));
        held.state = state;
        held
    }

    #[test]
    fn who_has_a_name_is_said_in_a_clause() {
        let mut queued = held(HeldState::Leased);
        queued.place = Some(Place::new(7, 2));
        assert_eq!(in_words(&queued), "vm:2104 has it for 25s, 2 before you");
        let evicted = in_words(&held(HeldState::Evicted));
        assert_eq!(evicted, "vm:2104 was evicted, and it is free within 12s");
        let kept = in_words(&held(HeldState::Kept));
        assert!(kept.ends_with("stays taken for 12s"), "{kept}");
        let new = in_words(&held(HeldState::KeepOut));
        assert!(new.starts_with("the store is new"), "{new}");
        assert!(!new.contains("vm"), "{new}");
    }

    #[test]
    fn a_permit_is_what_its_holder_says_and_its_name_has() {
        let pool = |name, number| {
            let mut held = Held::new(Name::new(name).expect("valid"));
            held.info.permit = number;
            permit(&held).map(|(pool, number)| (pool.to_owned(), number))
        };
        assert_eq!(pool("gpu#10", Some(10)), Some(("gpu".into(), 10)));
        assert_eq!(pool("gpu#x#1", Some(1)), Some(("gpu#x".into(), 1)));
        assert_eq!(pool("deploy#42", None), None);
        for name in ["gpu#1", "gpu#010", "gpu10", "gpu"] {
            assert_eq!(pool(name, Some(10)), None, "{name}");
        }
    }

    #[test]
    fn a_fire_has_a_time_as_it_is_written() {
        assert_eq!(schedule("a@b@7200"), Some("a@b@"));
        for name in [
            "report@",
            "report@07",
            "report@+7",
            "report@x",
            "@7",
            "report",
        ] {
            assert_eq!(schedule(name), None, "{name}");
        }
    }

    #[test]
    fn text_of_other_clients_cannot_move_the_cursor() {
        let mut odd = held(HeldState::Leased);
        odd.info.host = "evil\x1b[2J".into();
        odd.info.label = Some("a\nb\x1b".into());
        assert!(!in_words(&odd).contains(char::is_control));
        let seen = listed(vec![odd], &[], Instant::ZERO);
        let row = described(&seen, &[0], Instant::ZERO, wall_clock());
        assert!(!row.cells.concat().contains(char::is_control));
    }

    #[test]
    fn a_time_takes_at_most_six_characters() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (61, "1m01s"),
            (3_725, "1h02m"),
            (400_000, "4d15h"),
        ] {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
    }
}
