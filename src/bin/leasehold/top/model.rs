//! The live view as plain data: rows, order, filter, selection and rates. Pure: `now` is an argument.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use leasehold::Name;
use leasehold::clock::Instant;
use leasehold::store::{Held, Member, MemberState};

use crate::row;
use crate::seen::{self, Seen};
use crate::table::Column;

/// The leases of a store, and what the operator looks at.
#[derive(Debug)]
pub struct Model {
    /// In name order.
    rows: Vec<Seen>,
    /// Places in `rows`: those that pass the filter, in the chosen order.
    shown: Vec<usize>,
    /// The permits of each pool, and its door, as places in `rows`.
    pools: HashMap<String, Vec<usize>>,
    /// The pools whose permits have a row each. A filter shows all rows.
    unfolded: HashSet<String>,
    /// The place in `shown` that is selected, and the name there: the selection stays with its name.
    cursor: usize,
    selected: Option<Name>,
    /// The place in `shown` of the first row on the screen, and how many rows the screen has.
    top: usize,
    page: usize,
    pub sort: Column,
    pub is_reversed: bool,
    pub filter: String,
    pub mode: Mode,
    pub has_detail: bool,
    listed_at: Option<Instant>,
    rate: Option<f64>,
    /// Why the last request failed, until one succeeds.
    pub fault: Option<String>,
    /// Result of an eviction.
    pub message: Option<String>,
    /// The servers of the store as they were last looked at, and when.
    members: Vec<Member>,
    looked_at: Instant,
}

/// The columns by which the rows can be ordered, as the key goes through them: what needs a look first.
pub const SORTS: [Column; 6] = [
    Column::Left,
    Column::Name,
    Column::Held,
    Column::Waiting,
    Column::Token,
    Column::Holder,
];

/// Meaning of the next key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Moving about in the table.
    Table,
    /// Typing the filter.
    Filter,
    /// Confirming that the holder of this name is evicted.
    Confirm(Name),
}

/// Returns whether a text of the lease has this part, in small letters.
fn has(row: &Seen, needle: &str) -> bool {
    let texts = [row.held.name.as_str(), &row.held.info.host];
    let mut texts = texts.into_iter().chain(row.held.info.label.as_deref());
    texts.any(|text| text.to_lowercase().contains(needle))
}

/// The most urgent row comes first: the soonest end, the longest hold, the most waiting clients.
fn compare(by: Column, a: &Seen, b: &Seen) -> Ordering {
    let (held, other) = (&a.held, &b.held);
    match by {
        Column::Left => known_first(a.ends_at(), b.ends_at()),
        Column::Held => known_first(held.since, other.since),
        Column::Waiting => other.waiting.cmp(&held.waiting),
        Column::Token => other.token.cmp(&held.token),
        Column::Holder => {
            let hosts = held.info.host.cmp(&other.info.host);
            hosts.then_with(|| held.info.pid.cmp(&other.info.pid))
        }
        _ => Ordering::Equal,
    }
}

fn known_first<T: Ord>(a: Option<T>, b: Option<T>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.cmp(&b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

impl Model {
    pub fn new() -> Self {
        Self {
            rows: Vec::new(),
            shown: Vec::new(),
            pools: HashMap::new(),
            unfolded: HashSet::new(),
            cursor: 0,
            selected: None,
            top: 0,
            page: 1,
            sort: Column::Left,
            is_reversed: false,
            filter: String::new(),
            mode: Mode::Table,
            has_detail: false,
            listed_at: None,
            rate: None,
            fault: None,
            message: None,
            members: Vec::new(),
            looked_at: Instant::ZERO,
        }
    }

    /// Takes a look at the servers of the store.
    pub fn looked(&mut self, members: Vec<Member>, now: Instant) {
        self.members = members;
        self.looked_at = now;
    }

    /// The servers, with what is left of the time for which they grant nothing.
    pub fn members(&self, now: Instant) -> impl Iterator<Item = Member> {
        let passed = now.since(self.looked_at);
        self.members.iter().map(move |member| {
            let mut member = member.clone();
            if let MemberState::Away { remaining } = &mut member.state {
                *remaining = remaining.saturating_sub(passed);
            }
            member
        })
    }

    /// Takes a list of all leases, which is in name order.
    pub fn listed(&mut self, leases: Vec<Held>, now: Instant) {
        let changed = self.changed(&leases);
        if let Some(before) = self.listed_at
            && now > before
        {
            self.rate = Some(changed / now.since(before).as_secs_f64());
        }
        self.listed_at = Some(now);
        self.rows = seen::listed(leases, &self.rows, now);
        self.fault = None;
        self.arrange();
    }

    /// Number of names with another token than in the list before: at least this many grants were made.
    fn changed(&self, leases: &[Held]) -> f64 {
        let tokens = self.rows.iter();
        let tokens = tokens.map(|row| (&row.held.name, row.listed_token));
        let tokens: HashMap<_, _> = tokens.collect();
        let changed = leases
            .iter()
            .filter(|held| held.token.is_some() && tokens.get(&held.name) != Some(&held.token));
        f64::from(u32::try_from(changed.count()).unwrap_or(u32::MAX))
    }

    /// Takes a look at one name. Its row keeps its place until the next list.
    pub fn seen(&mut self, name: &Name, held: Option<Held>, now: Instant) {
        self.fault = None;
        if let Some(place) = seen::find(&self.rows, name) {
            self.rows[place].look(held, now);
        }
    }

    /// Filters and sorts again, and finds the selected name.
    fn arrange(&mut self) {
        let needle = self.filter.to_lowercase();
        let rows = &self.rows;
        let passes = |place: &usize| needle.is_empty() || has(&rows[*place], &needle);
        self.shown = (0..rows.len()).filter(passes).collect();
        let sort = self.sort;
        // Stable, so that equal rows stay in name order.
        self.shown
            .sort_by(|a, b| compare(sort, &rows[*a], &rows[*b]));
        if self.is_reversed {
            self.shown.reverse();
        }
        self.fold();
        let rows = &self.rows;
        let found = self.selected.as_ref().and_then(|selected| {
            let mut shown = self.shown.iter();
            shown.position(|place| rows[*place].held.name == *selected)
        });
        self.select(found.unwrap_or(self.cursor));
    }

    /// Leaves one row for each pool that is folded.
    fn fold(&mut self) {
        let names = || self.rows.iter().map(|row| row.held.name.as_str());
        let pools: HashSet<_> = names().filter_map(row::permit).map(|it| it.0).collect();
        let mut groups: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, name) in names().enumerate() {
            let pool = row::pool_of(name, |pool| pools.contains(pool));
            if pools.contains(pool) {
                groups.entry(pool.into()).or_default().push(place);
            }
        }
        groups.retain(|_, places| places.len() > 1);
        self.pools = groups;
        let mut seen = HashSet::new();
        let mut shown = std::mem::take(&mut self.shown);
        shown.retain(|place| {
            self.folded(&self.rows[*place])
                .is_none_or(|pool| seen.insert(pool))
        });
        self.shown = shown;
    }

    /// Returns the pool that this row stands for, if it is one that is folded.
    pub fn folded(&self, row: &Seen) -> Option<&str> {
        let pool = row::pool_of(row.held.name.as_str(), |pool| self.pools.contains_key(pool));
        let (pool, _) = self.pools.get_key_value(pool)?;
        (self.filter.is_empty() && !self.unfolded.contains(pool)).then_some(pool)
    }

    /// Folds or unfolds the pool of the selected row. Returns whether there is one.
    pub fn turn_pool(&mut self) -> bool {
        let name = self.selection().map(|row| row.held.name.as_str());
        let is_pool = |pool: &str| self.pools.contains_key(pool);
        let pool = name
            .map(|name| row::pool_of(name, is_pool))
            .filter(|pool| is_pool(pool));
        let Some(pool) = pool.map(str::to_owned) else {
            return false;
        };
        if !self.unfolded.remove(&pool) {
            self.unfolded.insert(pool);
        }
        self.arrange();
        true
    }

    /// Describes a row as it is now, or the pool that it stands for.
    pub fn described(&self, row: &Seen, now: Instant, wall_clock: SystemTime) -> row::Row {
        let places = self
            .folded(row)
            .map_or(&[][..], |pool| self.pools[pool].as_slice());
        let rows = places.iter().map(|place| &self.rows[*place]);
        let held = rows.filter(|row| !row.is_free);
        let held: Vec<_> = held.map(|row| row.row(now, wall_clock)).collect();
        match held.is_empty() {
            true => row.row(now, wall_clock),
            false => row::Row::of_pool(held),
        }
    }

    /// Selects this place, or the nearest that is there, and brings it onto the screen.
    fn select(&mut self, place: usize) {
        self.cursor = place.min(self.shown.len().saturating_sub(1));
        self.selected = self.selection().map(|row| row.held.name.clone());
        self.top = self.top.min(self.cursor);
        self.top = self.top.max((self.cursor + 1).saturating_sub(self.page));
        // No empty lines below the last row while there are rows above.
        self.top = self.top.min(self.shown.len().saturating_sub(self.page));
    }

    /// The rows on the screen, and whether each is selected.
    pub fn screen(&self) -> impl Iterator<Item = (&Seen, bool)> {
        let places = self.shown.iter().enumerate().skip(self.top).take(self.page);
        places.map(|(at, place)| (&self.rows[*place], at == self.cursor))
    }

    /// The row that is selected, if any is shown.
    pub fn selection(&self) -> Option<&Seen> {
        self.shown.get(self.cursor).map(|place| &self.rows[*place])
    }

    /// Sets how many rows the screen has.
    pub fn fit(&mut self, page: usize) {
        if self.page != page {
            self.page = page.max(1);
            self.select(self.cursor);
        }
    }

    pub fn up(&mut self, by: usize) {
        self.select(self.cursor.saturating_sub(by));
    }

    pub fn down(&mut self, by: usize) {
        self.select(self.cursor.saturating_add(by));
    }

    pub const fn page(&self) -> usize {
        self.page
    }

    pub fn next_sort(&mut self) {
        let place = SORTS.iter().position(|sort| *sort == self.sort);
        self.sort = SORTS[place.map_or(0, |place| place + 1) % SORTS.len()];
        self.arrange();
    }

    pub fn reverse(&mut self) {
        self.is_reversed = !self.is_reversed;
        self.arrange();
    }

    pub fn set_filter(&mut self, filter: String) {
        self.filter = filter;
        self.arrange();
    }

    /// Number of leases, and number of those that pass the filter.
    pub const fn counts(&self) -> (usize, usize) {
        (self.rows.len(), self.shown.len())
    }

    /// The clients in all queues.
    pub fn waiting(&self) -> usize {
        self.rows.iter().filter_map(|row| row.held.waiting).sum()
    }

    /// Grants a second, at least: those that two lists show.
    pub const fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// Age of the list.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.listed_at.map(|at| now.since(at))
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Token;

    use super::*;

    const START: Instant = Instant::from_nanos(3_600_000_000_000);

    fn held(name: &str, token: u64) -> Held {
        let mut held = Held::new(Name::new(name).expect("valid"));
        held.token = Some(Token::new(token).expect("valid"));
        held.remaining = Some(Duration::from_secs(token));
        held
    }

    fn model(names: &[&str]) -> Model {
        let mut model = Model::new();
        model.fit(3);
        let leases = names.iter().zip(1..).map(|(name, token)| held(name, token));
        model.listed(leases.collect(), START);
        model
    }

    fn names(model: &Model) -> Vec<String> {
        let shown = model.screen();
        shown.map(|(row, _)| row.held.name.to_string()).collect()
    }

    fn selected(model: &Model) -> &str {
        model.selection().expect("a row").held.name.as_str()
    }

    fn later(seconds: u64) -> Instant {
        START.after(Duration::from_secs(seconds))
    }

    #[test]
    fn the_selection_stays_with_its_name_through_lists_and_sorts() {
        let mut model = model(&["a", "b", "c", "d"]);
        model.down(2);
        assert_eq!(selected(&model), "c");
        model.listed(vec![held("aa", 9), held("c", 3), held("d", 4)], later(1));
        assert_eq!(selected(&model), "c");
        model.reverse();
        assert_eq!(selected(&model), "c");
        // Its lease ended: the row that took its place is selected.
        model.listed(vec![held("a", 1), held("b", 2)], later(2));
        assert_eq!(selected(&model), "a");
        model.listed(Vec::new(), later(3));
        assert!(model.selection().is_none());
    }

    #[test]
    fn the_screen_follows_the_selection_and_shows_no_emptiness() {
        let mut model = model(&["a", "b", "c", "d", "e"]);
        model.down(3);
        assert_eq!(names(&model), ["b", "c", "d"]);
        model.up(1);
        assert_eq!(names(&model), ["b", "c", "d"]);
        model.down(usize::MAX);
        assert_eq!(names(&model), ["c", "d", "e"]);
        model.listed(vec![held("a", 1), held("b", 2)], later(1));
        assert_eq!(names(&model), ["a", "b"]);
        model.up(usize::MAX);
        assert_eq!(selected(&model), "a");
    }

    #[test]
    fn rows_are_sorted_by_what_is_worth_a_look_and_equals_by_name() {
        let mut model = model(&["a", "b", "c"]);
        let mut busy = held("c", 3);
        busy.waiting = Some(2);
        model.listed(vec![held("a", 1), held("b", 2), busy], later(1));
        let mut seen = Vec::new();
        for _ in SORTS {
            seen.push((model.sort, names(&model).concat()));
            model.next_sort();
        }
        let expected = [
            (Column::Left, "abc"),
            (Column::Name, "abc"),
            (Column::Held, "abc"),
            (Column::Waiting, "cab"),
            (Column::Token, "cba"),
            (Column::Holder, "abc"),
        ];
        assert_eq!(seen, expected.map(|(sort, rows)| (sort, rows.into())));
        assert_eq!(model.sort, Column::Left);
    }

    #[test]
    fn a_pool_is_one_row_until_it_is_unfolded_or_filtered() {
        let mut model = model(&["gpu#1", "gpu#2", "x"]);
        assert_eq!(names(&model), ["gpu#1", "x"]);
        let shown = |model: &Model| {
            let row = model.selection().expect("a row");
            model.described(row, START, SystemTime::UNIX_EPOCH)
        };
        assert_eq!(
            (&*shown(&model).name, &*shown(&model).state),
            ("gpu", "2 held")
        );
        assert!(model.turn_pool());
        assert_eq!(names(&model), ["gpu#1", "gpu#2", "x"]);
        assert_eq!(shown(&model).name, "gpu#1");
        assert!(model.turn_pool());
        model.set_filter("#2".into());
        assert_eq!(names(&model), ["gpu#2"]);
        model.set_filter("x".into());
        assert!(!model.turn_pool());
    }

    #[test]
    fn a_pool_that_looks_found_empty_is_free() {
        let mut model = model(&["gpu#1", "gpu#2"]);
        for name in ["gpu#1", "gpu#2"] {
            model.seen(&held(name, 1).name, None, later(1));
        }
        let row = model.selection().expect("a row");
        let shown = model.described(row, later(1), SystemTime::UNIX_EPOCH);
        assert_eq!((&*shown.name, &*shown.state), ("gpu#1", "free"));
    }

    #[test]
    fn a_filter_looks_at_name_label_and_host_in_any_case() {
        let mut model = model(&["nightly", "hourly"]);
        let mut labelled = held("hourly", 2);
        labelled.info.label = Some("The Report".into());
        let mut hosted = held("nightly", 1);
        hosted.info.host = "db-7".into();
        model.listed(vec![labelled, hosted], later(1));
        model.next_sort();
        for (filter, expected) in [
            ("LY", vec!["hourly", "nightly"]),
            ("report", vec!["hourly"]),
            ("db-", vec!["nightly"]),
            ("x", vec![]),
        ] {
            model.set_filter(filter.into());
            assert_eq!(names(&model), expected, "{filter}");
        }
    }

    #[test]
    fn the_rate_counts_tokens_that_changed_between_two_lists() {
        let mut model = model(&["a", "b", "c"]);
        assert_eq!(model.rate(), None);
        // A look in between takes nothing from the rate. One was granted anew, one is new, one ended.
        model.seen(&held("a", 7).name, Some(held("a", 7)), later(2));
        model.listed(vec![held("a", 7), held("b", 2), held("d", 4)], later(4));
        assert_eq!(model.rate(), Some(0.5));
        model.listed(vec![held("a", 7), held("b", 2), held("d", 4)], later(6));
        assert_eq!(model.rate(), Some(0.0));
    }

    #[test]
    fn a_look_moves_the_end_and_tells_a_free_name() {
        let mut model = model(&["a"]);
        let left = |model: &Model, now| model.selection().expect("a row").left(now);
        assert_eq!(left(&model, later(5)), Some(Duration::ZERO));
        model.seen(&held("a", 1).name, Some(held("a", 30)), later(5));
        assert_eq!(left(&model, later(15)), Some(Duration::from_secs(20)));
        model.seen(&held("a", 1).name, None, later(16));
        assert!(model.selection().expect("a row").is_free);
        // One that no list has shown.
        model.seen(&held("z", 1).name, Some(held("z", 1)), later(16));
        assert_eq!(model.counts(), (1, 1));
    }

    #[test]
    fn ten_thousand_rows_are_filtered_sorted_and_scrolled_through() {
        let mut model = Model::new();
        model.fit(40);
        let leases = (0..10_000).map(|i| held(&format!("job-{i:05}"), i + 1));
        model.listed(leases.collect(), START);
        model.down(usize::MAX);
        assert_eq!(selected(&model), "job-09999");
        assert_eq!(model.screen().count(), 40);
        model.set_filter("99".into());
        assert_eq!(model.counts(), (10_000, 280));
        assert_eq!(selected(&model), "job-09999");
    }
}
