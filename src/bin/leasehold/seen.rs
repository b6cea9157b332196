//! The leases of a store as they were last read, which of them are late in their renewal, and the rows of a table of
//! them. Pure: `now` is an argument.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use leasehold::Name;
use leasehold::clock::{Instant, Timing};
use leasehold::store::{Held, HeldState};

use crate::progress;
use crate::row::{Row, Taken, Tone, held_for, holder, permit, pool_of, printable, schedule, span};
use crate::table::Column;

/// The longest pause between two lists of a store, however long one takes.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// One lease of a store that is read repeatedly.
#[derive(Debug, Clone)]
pub struct Seen {
    pub held: Held,
    seen_at: Instant,
    /// The most time seen left of this grant, which is about its ttl.
    most: Duration,
    /// The name was free when it was last read; the next list leaves it out.
    pub is_free: bool,
}

impl Seen {
    /// Makes a reading of a lease, which inherits the ttl of an earlier reading of the same grant.
    fn new(held: Held, earlier: Option<&Self>, seen_at: Instant) -> Self {
        let left = held.remaining.unwrap_or_default();
        let same = earlier.filter(|earlier| earlier.held.token == held.token);
        Self {
            most: same.map_or(left, |earlier| earlier.most.max(left)),
            held,
            seen_at,
            is_free: false,
        }
    }

    /// Takes in a reading of this lease alone.
    pub fn update(&mut self, held: Option<Held>, now: Instant) {
        match held {
            Some(held) => *self = Self::new(held, Some(self), now),
            None => self.is_free = true,
        }
    }

    /// The time left unless it is renewed. `None` if the store knows no end.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        Some(self.ends_at()?.since(now))
    }

    fn ends_at(&self) -> Option<Instant> {
        Some(self.seen_at.after(self.held.remaining?))
    }

    /// Whether its renewal is late.
    pub fn is_late(&self, now: Instant) -> bool {
        let left = self.left(now);
        left.is_some_and(|left| left < Timing::LATE_AFTER.rest_of(self.most))
    }

    /// The state in words, and its tone.
    fn state(&self, now: Instant) -> (&'static str, Tone) {
        match Taken::from(self.held.state).shown() {
            _ if self.is_free => ("free", Tone::Faint),
            (_, Tone::Plain) if self.is_late(now) => ("late", Tone::Late),
            shown => shown,
        }
    }
}

/// Takes a list, with what an earlier one in name order knows of the same leases.
pub fn listed(leases: Vec<Held>, earlier: &[Seen], now: Instant) -> Vec<Seen> {
    let seen = leases.into_iter().map(|held| {
        let earlier = find(earlier, &held.name).map(|index| &earlier[index]);
        Seen::new(held, earlier, now)
    });
    seen.collect()
}

/// Finds a name in a list in name order.
pub fn find(seen: &[Seen], name: &Name) -> Option<usize> {
    seen.binary_search_by(|seen| seen.held.name.cmp(name)).ok()
}

/// Returns whether the name has a holder: a name that is kept or kept out is taken, but there is no lease.
pub const fn is_lease(held: &Held) -> bool {
    matches!(held.state, HeldState::Leased | HeldState::Evicted)
}

/// Returns the summary line: leases, rows after the filter (if their number differs), waiting clients, and the age of
/// the list.
pub fn summary(leases: &[Seen], shown: usize, listed_at: Option<Instant>, now: Instant) -> String {
    let Some(listed_at) = listed_at else {
        return "listing ...".into();
    };
    let waiting: usize = leases.iter().filter_map(|seen| seen.held.waiting).sum();
    let (all, age) = (leases.len(), span(now.since(listed_at)));
    let held = leases.iter().filter(|seen| is_lease(&seen.held)).count();
    let shown = (shown != all).then(|| format!(", {shown} shown"));
    let shown = shown.unwrap_or_default();
    format!("{held} leases{shown}, {waiting} waiting; listed {age} ago")
}

/// The rows of a table, and their order.
#[derive(Debug)]
pub struct Order {
    /// The text that a name, a holder or a label contains, in any case.
    pub filter: String,
    pub sort: Column,
    pub is_reversed: bool,
    /// Pools have one row each, and not their permits, and so have the kept fires of a schedule. A filter shows all
    /// rows.
    pub is_folded: bool,
}

impl Order {
    /// The leases in the order of this column.
    pub const fn by(sort: Column) -> Self {
        Self {
            filter: String::new(),
            sort,
            is_reversed: false,
            is_folded: true,
        }
    }

    /// Returns which row a lease is in: rows are in name order, and permits by their numbers.
    pub fn row_of<'a>(&self, held: &'a Held) -> (&'a str, u16) {
        let (pool, number) = pool_of(held);
        let is_one = self.is_folded && self.filter.is_empty();
        let is_kept = is_one && held.state == HeldState::Kept;
        let kept = schedule(held.name.as_str()).filter(|_| is_kept);
        (kept.unwrap_or(pool), if is_one { 0 } else { number })
    }

    /// Returns the rows of a table of these leases, each as the indices of its leases: one, or all of a folded pool.
    pub fn rows(&self, leases: &[Seen]) -> Vec<Vec<usize>> {
        let needle = self.filter.to_lowercase();
        let mut rows: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (index, seen) in leases.iter().enumerate() {
            if needle.is_empty() || has(&seen.held, &needle) {
                let row = self.row_of(&seen.held);
                rows.entry(row).or_default().push(index);
            }
        }
        let mut rows: Vec<_> = rows.into_values().collect();
        let urgency = |index: &usize| urgency(self.sort, &leases[*index]);
        // Stable, so that equal rows stay in name order.
        rows.sort_by_cached_key(|row| row.iter().map(urgency).min());
        if self.is_reversed {
            rows.reverse();
        }
        rows
    }
}

/// Describes a row of these leases as it is now: one, or all of a pool or of a schedule's kept fires, with the longest
/// time held and the least time left. A permit that was found free is left out, unless all were.
pub fn described(leases: &[Seen], row: &[usize], now: Instant, wall_clock: SystemTime) -> Row {
    let all = row.iter().map(|index| &leases[*index]);
    let mut leases: Vec<_> = all.clone().filter(|seen| !seen.is_free).collect();
    if leases.is_empty() {
        leases.extend(all.take(1));
    }
    let is_pool = leases.len() > 1;
    let fires = schedule(leases[0].held.name.as_str()).filter(|_| is_pool);
    let is_whole = !is_pool || fires.is_some();
    let is_permit = |seen: &&Seen| is_whole || permit(&seen.held).is_some();
    let (permits, doors): (Vec<_>, Vec<_>) = leases.iter().copied().partition(is_permit);
    let (first, held) = (leases[0], &leases[0].held);
    let name = held.name.as_str();
    let queue = |seen: &Seen| seen.held.waiting.unwrap_or_default();
    let (name, state, waiting) = match fires {
        Some(fires) => (fires, format!("{} kept", permits.len()), 0),
        // The holder of the door waits for a permit, or for all of them.
        None if is_pool => (
            pool_of(held).0,
            format!("{} held", permits.len()),
            doors.iter().map(|door| queue(door) + 1).sum(),
        ),
        None => (name, first.state(now).0.into(), queue(first)),
    };
    let of_one = |text: Option<String>| text.filter(|_| !is_pool).unwrap_or_default();
    let spans = |spans: Option<Duration>| spans.map(span).unwrap_or_default();
    let since = permits
        .iter()
        .filter_map(|seen| held_for(&seen.held, wall_clock));
    let left = permits.iter().filter_map(|seen| seen.left(now));
    let tone = permits.iter().map(|seen| seen.state(now).1).max();
    Row {
        tone: tone.unwrap_or_default(),
        is_pool,
        cells: [
            printable(name),
            state,
            of_one(Some(holder(held))),
            spans(since.max()),
            spans(left.min()),
            match waiting {
                0 => String::new(),
                _ => waiting.to_string(),
            },
            of_one(progress::of(held).map(span)),
            of_one(held.info.label.as_deref().map(printable)),
            of_one(held.token.map(|token| token.to_string())),
        ],
    }
}

/// Returns whether a text of the lease has this part, in small letters.
fn has(held: &Held, needle: &str) -> bool {
    let label = held.info.label.as_deref().unwrap_or_default();
    let has = |text: &str| text.to_lowercase().contains(needle);
    has(held.name.as_str()) || has(label) || has(&holder(held))
}

/// Returns what the rows are ordered by, a text before a number. The most urgent row comes first: the soonest end, the
/// longest hold, the most waiting clients, the longest time without progress. What is not known comes last.
fn urgency(by: Column, seen: &Seen) -> (String, u128) {
    let held = &seen.held;
    let age = |at: SystemTime| {
        at.duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
    };
    let least = |number: Option<u128>| (String::new(), number.unwrap_or(u128::MAX));
    let most = |number: Option<u128>| (String::new(), u128::MAX - number.unwrap_or_default());
    match by {
        Column::Name => least(None),
        Column::Left => least(seen.ends_at().map(|at| at.as_nanos().into())),
        Column::Held => least(held.since.map(|since| age(since).as_nanos())),
        Column::Waiting => most(held.waiting.map(|waiting| waiting as u128)),
        Column::Progress => most(progress::of(held).map(|ago| ago.as_nanos())),
        Column::Token => most(held.token.map(|token| token.get().into())),
        Column::State => (seen.state(seen.seen_at).0.into(), 0),
        Column::Label => (held.info.label.clone().unwrap_or_default(), 0),
        Column::Holder => (held.info.host.clone(), held.info.pid.into()),
    }
}

/// The pauses between the lists of a store, so that they take at most one part in `share` of the server's time.
#[derive(Debug)]
pub struct Pauses {
    share: u32,
    shortest: Duration,
    before: Duration,
}

impl Pauses {
    pub const fn new(share: u32, shortest: Duration) -> Self {
        let before = Duration::MAX;
        Self {
            share,
            shortest,
            before,
        }
    }

    /// Returns the time from the beginning of a list that took this long to the next list. The shorter of the last two
    /// counts: one can have met a server that stood still, and a large store takes long each time. The way there and
    /// back costs the server nothing, and a list makes it twice at least.
    pub fn after(&mut self, took: Duration, round_trip: Duration, is_listed: bool) -> Duration {
        let took = took.saturating_sub(round_trip.saturating_mul(2));
        let cost = took.min(std::mem::replace(&mut self.before, took));
        match is_listed {
            true => cost
                .saturating_mul(self.share)
                .clamp(self.shortest, LONGEST_PAUSE),
            // It cost the store little, and the end of an outage is to be seen soon.
            false => self.shortest,
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold::clock::{Boottime, Clock};
    use leasehold::{ClientId, Holder, Token};

    use super::*;
    use crate::status_file::{self, State, Status, StatusFile};

    fn later(seconds: u64) -> Instant {
        Instant::from_nanos((3_600 + seconds) * 1_000_000_000)
    }

    fn held(token: u64, left: u64) -> Held {
        let mut held = Held::new(Name::new("a").expect("valid"));
        held.token = Token::new(token).ok();
        held.remaining = Some(Duration::from_secs(left));
        held
    }

    fn named(name: &str, state: HeldState) -> Held {
        let mut held = held(1, 10);
        held.name = Name::new(name).expect("valid");
        held.state = state;
        held
    }

    #[test]
    fn a_lease_that_was_not_renewed_for_half_of_its_ttl_is_late() {
        let first = listed(vec![held(1, 30)], &[], later(0));
        assert!(!first[0].is_late(later(15)) && first[0].is_late(later(16)));
        let row = described(&first, &[0], later(16), SystemTime::UNIX_EPOCH);
        assert_eq!((row.cell(Column::State), row.tone.sign()), ("late", "!"));
        // The next list knows what the earlier readings found, but only of the same grant.
        let second = listed(vec![held(1, 12)], &first, later(18));
        assert!(second[0].is_late(later(18)));
        let third = listed(vec![held(2, 12)], &second, later(19));
        assert!(!third[0].is_late(later(19)));
    }

    #[test]
    fn a_short_lease_that_is_renewed_in_time_is_not_late() {
        let seen = Seen::new(held(1, 2), None, later(0));
        assert_eq!(seen.state(later(0)), ("held", Tone::Plain));
    }

    #[test]
    fn a_list_that_failed_through_an_outage_is_made_again_soon() {
        let shortest = Duration::from_secs(15);
        let pauses = || Pauses::new(50, shortest);
        let limit = Duration::from_secs(30);
        let after = |took, is_listed| pauses().after(took, Duration::ZERO, is_listed);
        assert_eq!(after(limit, false), shortest);
        assert_eq!(after(limit, true), LONGEST_PAUSE);
        let second = Duration::from_secs(1);
        assert_eq!(after(second, true), second * 50);
        assert_eq!(after(Duration::ZERO, true), shortest);
    }

    #[test]
    fn one_slow_list_of_a_small_store_leaves_the_table_old_for_no_minutes() {
        let mut pauses = Pauses::new(50, Duration::from_secs(15));
        let quick = Duration::from_millis(5);
        for took in [quick, Duration::from_secs(5), quick] {
            let pause = pauses.after(took, Duration::ZERO, true);
            assert_eq!(pause, Duration::from_secs(15));
        }
    }

    #[test]
    fn a_small_store_far_away_is_listed_as_often_as_a_near_one() {
        let [second, far, list] = [1_000, 50, 100].map(Duration::from_millis);
        let after = |took, round_trip| Pauses::new(150, second).after(took, round_trip, true);
        assert_eq!(after(list, far), second);
        assert_eq!(after(second, far), second * 135);
        // The way there is not known.
        assert_eq!(after(list, Duration::MAX), second);
    }

    fn sorted(by: Column, leases: &[Seen]) -> String {
        let rows = Order::by(by).rows(leases).into_iter();
        rows.map(|indices| leases[indices[0]].held.name.as_str())
            .collect()
    }

    #[test]
    fn a_table_is_sorted_by_the_state_that_is_shown() {
        let states = [
            ("a", HeldState::Leased),
            ("b", HeldState::Leased),
            ("c", HeldState::Kept),
            ("d", HeldState::KeepOut),
        ];
        let mut leases = listed(
            states.map(|(name, state)| named(name, state)).into(),
            &[],
            later(0),
        );
        leases[0].most = Duration::from_secs(30);
        // Late, held, done and kept, keeps out.
        assert_eq!(sorted(Column::State, &leases), "cbda");
    }

    #[tokio::test]
    async fn a_table_is_sorted_by_the_time_without_progress() {
        let now_ms = status_file::milliseconds(Boottime.now());
        let mut leases = Vec::new();
        let mut files = Vec::new();
        for (name, ago_ms) in [("a", Some(1)), ("b", None), ("c", Some(60_000))] {
            let holder = Holder::draw(ClientId::draw()).expect("random");
            let mut held = named(name, HeldState::Leased);
            held.by = Some(holder);
            held.info.pid = std::process::id();
            held.info.host = rustix::system::uname().nodename().to_string_lossy().into();
            leases.push(Seen::new(held, None, later(0)));
            let file = StatusFile::create(Status {
                version: 1,
                name: name.into(),
                token: 1,
                holder: holder.to_string(),
                ttl_ms: 1,
                state: State::Held,
                deadline_ms: 0,
                clock: "CLOCK_BOOTTIME".into(),
                boot_id: String::new(),
                pid: std::process::id(),
                permit: None,
                progress_ms: ago_ms.map(|ago_ms| now_ms.saturating_sub(ago_ms)),
                denied: Vec::new(),
                outer: Vec::new(),
            });
            let (file, why_not) = file.await;
            assert!(why_not.is_none(), "{why_not:?}");
            files.push(file);
        }
        assert_eq!(sorted(Column::Progress, &leases), "cab");
        for file in files {
            file.remove().await;
        }
    }

    #[test]
    fn the_kept_fires_of_a_schedule_are_one_row_apart_from_one_that_runs() {
        let list = [
            ("report", HeldState::Leased),
            ("report@3600", HeldState::Kept),
            ("report@7200", HeldState::Kept),
            ("report@10800", HeldState::Leased),
            ("weekly@7200", HeldState::Kept),
        ];
        let leases = listed(
            list.map(|(name, state)| named(name, state)).into(),
            &[],
            later(0),
        );
        let cells = |order: &Order| {
            let rows = order.rows(&leases).into_iter();
            let rows = rows.map(|row| described(&leases, &row, later(0), SystemTime::UNIX_EPOCH));
            rows.map(|row| format!("{} {}", row.cell(Column::Name), row.cell(Column::State)))
                .collect::<Vec<_>>()
        };
        let mut order = Order::by(Column::Name);
        assert_eq!(
            cells(&order),
            [
                "report held",
                "report@ 2 kept",
                "report@10800 held",
                "weekly@7200 done, kept"
            ]
        );
        order.is_folded = false;
        assert_eq!(cells(&order).len(), 5);
    }

    #[test]
    fn the_permits_of_a_pool_are_one_row_and_a_name_like_one_stays_itself() {
        let list = [
            ("build#7", 9, 0, Some(7)),
            ("gpu", 3, 2, None),
            ("gpu!", 9, 0, None),
            ("gpu#1", 20, 0, Some(1)),
            ("gpu#10", 5, 0, Some(10)),
            ("gpu#42", 9, 0, None),
        ];
        let held = list.map(|(name, left, waiting, permit)| {
            let mut held = held(1, left);
            held.name = Name::new(name).expect("valid");
            held.info.host = "vm".into();
            held.info.permit = permit;
            held.waiting = Some(waiting);
            held
        });
        let leases = listed(held.into(), &[], later(0));
        let rows = |order: &Order| {
            let rows = order.rows(&leases);
            let rows = rows.iter();
            rows.map(|row| described(&leases, row, later(0), SystemTime::UNIX_EPOCH))
                .collect::<Vec<_>>()
        };
        let folded = rows(&Order::by(Column::Name));
        let names: Vec<_> = folded.iter().map(|row| row.cell(Column::Name)).collect();
        assert_eq!(names, ["build#7", "gpu", "gpu!", "gpu#42"]);
        let pool = &folded[1];
        let cells = [Column::State, Column::Waiting, Column::Left, Column::Holder];
        assert_eq!(
            cells.map(|column| pool.cell(column)),
            ["2 held", "3", "5s", ""]
        );
        assert_eq!(folded[0].cell(Column::Holder), "vm:0");
        let mut order = Order::by(Column::Name);
        order.filter = "GPU#1".into();
        assert_eq!(rows(&order).len(), 2);
        // Also in reverse by what the row shows, which is the least time left.
        let mut order = Order::by(Column::Left);
        order.is_reversed = true;
        let left = rows(&order);
        let left: Vec<_> = left.iter().map(|row| row.cell(Column::Left)).collect();
        assert_eq!(left, ["9s", "9s", "9s", "5s"]);
    }
}
