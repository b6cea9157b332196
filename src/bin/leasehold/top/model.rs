//! The live view as plain data: rows, order, selection. Pure: `now` is an argument.

use std::time::SystemTime;

use leasehold::Name;
use leasehold::clock::Instant;
use leasehold::store::{Held, HeldState, Member, MemberState};

use crate::row::Row;
use crate::seen::{self, Order, Seen};
use crate::table::Column;

/// The leases of a store, and what the operator sees of them.
#[derive(Debug)]
pub struct Model {
    /// In name order.
    leases: Vec<Seen>,
    /// The rows of the table, each as indices in `leases`.
    rows: Vec<Vec<usize>>,
    /// The row that is selected, and the first name there: the selection stays with its name, or its folded pool.
    cursor: usize,
    selected: Option<Held>,
    /// The first row on the screen, and how many rows the screen has.
    top: usize,
    pub page: usize,
    pub order: Order,
    pub mode: Mode,
    pub has_detail: bool,
    listed_at: Option<Instant>,
    /// Why the last request failed, until one succeeds.
    pub fault: Option<String>,
    /// Result of an eviction.
    pub message: Option<String>,
    /// The servers of the store as they were last read, and when.
    members: Vec<Member>,
    servers_read_at: Instant,
}

/// The sort orders, in the order of the key that changes them, most urgent first.
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

impl Model {
    pub fn new() -> Self {
        Self {
            leases: Vec::new(),
            rows: Vec::new(),
            cursor: 0,
            selected: None,
            top: 0,
            page: 1,
            order: Order::by(Column::Left),
            mode: Mode::Table,
            has_detail: false,
            listed_at: None,
            fault: None,
            message: None,
            members: Vec::new(),
            servers_read_at: Instant::ZERO,
        }
    }

    /// Takes in the states of the servers of the store.
    pub fn read_servers(&mut self, members: Vec<Member>, now: Instant) {
        (self.members, self.servers_read_at) = (members, now);
    }

    /// The servers, with the time left until they grant again.
    pub fn members(&self, now: Instant) -> Vec<Member> {
        let mut members = self.members.clone();
        for member in &mut members {
            if let MemberState::Away { remaining } = &mut member.state {
                *remaining = remaining.saturating_sub(now.since(self.servers_read_at));
            }
        }
        members
    }

    /// Takes a list of all leases, which is in name order.
    pub fn listed(&mut self, leases: Vec<Held>, now: Instant) {
        self.listed_at = Some(now);
        self.leases = seen::listed(leases, &self.leases, now);
        self.fault = None;
        self.arrange();
    }

    /// Takes in what was read of one name. Its row stays where it is until the next list.
    pub fn seen(&mut self, name: &Name, held: Option<Held>, now: Instant) {
        self.fault = None;
        if let Some(index) = seen::find(&self.leases, name) {
            self.leases[index].update(held, now);
        }
    }

    /// Filters and sorts again, and finds the selected name.
    fn arrange(&mut self) {
        self.rows = self.order.rows(&self.leases);
        let found = self.selected.as_ref().and_then(|selected| {
            let index = seen::find(&self.leases, &selected.name);
            let mut gone = selected.clone();
            // A fire that has gone was done.
            gone.state = HeldState::Kept;
            let selected = index.map_or(&gone, |index| &self.leases[index].held);
            let wanted = self.order.row_of(selected);
            let mut firsts = self.rows.iter().map(|row| &self.leases[row[0]].held);
            firsts.position(|held| self.order.row_of(held) == wanted)
        });
        self.select(found.unwrap_or(self.cursor));
    }

    /// Folds or unfolds the pools.
    pub fn turn_pools(&mut self) {
        self.order.is_folded = !self.order.is_folded;
        self.arrange();
    }

    /// Describes a row as it is now.
    pub fn described(&self, row: &[usize], now: Instant, wall_clock: SystemTime) -> Row {
        seen::described(&self.leases, row, now, wall_clock)
    }

    /// Selects this row, or the nearest that is there, and brings it onto the screen.
    fn select(&mut self, row: usize) {
        self.cursor = row.min(self.rows.len().saturating_sub(1));
        self.selected = self.selection().map(|seen| seen.held.clone());
        self.top = self.top.min(self.cursor);
        self.top = self.top.max((self.cursor + 1).saturating_sub(self.page));
        // No empty lines below the last row while there are rows above.
        self.top = self.top.min(self.rows.len().saturating_sub(self.page));
    }

    /// The rows on the screen, and whether each is selected.
    pub fn screen(&self) -> impl Iterator<Item = (&[usize], bool)> {
        let rows = self.rows.iter().enumerate().skip(self.top).take(self.page);
        rows.map(|(at, row)| (row.as_slice(), at == self.cursor))
    }

    /// The names of the rows on the screen, of a pool that of its first permit.
    pub fn names(&self) -> Vec<Name> {
        let first = |(row, _): (&[usize], bool)| self.leases[row[0]].held.name.clone();
        self.screen().map(first).collect()
    }

    /// The row that is selected, if any is shown.
    pub fn selected_row(&self) -> Option<&[usize]> {
        self.rows.get(self.cursor).map(Vec::as_slice)
    }

    /// The lease that is selected, or the first of a pool.
    pub fn selection(&self) -> Option<&Seen> {
        self.selected_row().map(|row| &self.leases[row[0]])
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

    pub fn next_sort(&mut self) {
        let index = SORTS.iter().position(|sort| *sort == self.order.sort);
        self.order.sort = SORTS[index.map_or(0, |index| index + 1) % SORTS.len()];
        self.arrange();
    }

    pub fn reverse(&mut self) {
        self.order.is_reversed = !self.order.is_reversed;
        self.arrange();
    }

    pub fn set_filter(&mut self, filter: String) {
        self.order.filter = filter;
        self.arrange();
    }

    /// Describes the list in a line.
    pub fn summary(&self, now: Instant) -> String {
        seen::summary(&self.leases, self.rows.len(), self.listed_at, now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold::Token;

    use super::*;

    const START: Instant = Instant::from_nanos(3_600_000_000_000);

    fn held(name: &str, token: u64) -> Held {
        let mut held = Held::new(Name::new(name).expect("valid"));
        held.token = Some(Token::new(token).expect("valid"));
        held.remaining = Some(Duration::from_secs(token));
        let number = name.strip_prefix("gpu#");
        held.info.permit = number.map(|number| number.parse().expect("a number"));
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
        model.names().iter().map(Name::to_string).collect()
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
        // Its lease ended: the row that follows is selected.
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
    fn rows_are_sorted_by_urgency_and_equals_by_name() {
        let mut model = model(&["a", "b", "c"]);
        let mut busy = held("c", 3);
        busy.waiting = Some(2);
        model.listed(vec![held("a", 1), held("b", 2), busy], later(1));
        let mut seen = Vec::new();
        for _ in SORTS {
            seen.push((model.order.sort, names(&model).concat()));
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
        assert_eq!(model.order.sort, Column::Left);
    }

    #[test]
    fn a_pool_is_one_row_until_it_is_unfolded_or_filtered() {
        let mut model = model(&["gpu#1", "gpu#2", "x"]);
        assert_eq!(names(&model), ["gpu#1", "x"]);
        let shown = |model: &Model| {
            let row = model.selected_row().expect("a row");
            model.described(row, START, SystemTime::UNIX_EPOCH)
        };
        assert_eq!(shown(&model).cells[..2], ["gpu", "2 held"]);
        model.turn_pools();
        assert_eq!(names(&model), ["gpu#1", "gpu#2", "x"]);
        assert_eq!(shown(&model).cells[0], "gpu#1");
        model.turn_pools();
        assert_eq!(names(&model), ["gpu#1", "x"]);
        model.set_filter("#2".into());
        assert_eq!(names(&model), ["gpu#2"]);
    }

    #[test]
    fn the_selection_stays_with_a_pool_whose_first_lease_goes() {
        let mut model = model(&["gpu", "gpu#1", "x"]);
        assert_eq!(selected(&model), "gpu");
        model.listed(vec![held("gpu#1", 9), held("x", 3)], later(1));
        assert_eq!(
            (names(&model)[0].as_str(), selected(&model)),
            ("x", "gpu#1")
        );
    }

    #[test]
    fn a_pool_that_readings_found_empty_is_free() {
        let mut model = model(&["gpu#1", "gpu#2"]);
        for name in ["gpu#1", "gpu#2"] {
            model.seen(&held(name, 1).name, None, later(1));
        }
        let row = model.selected_row().expect("a row");
        let shown = model.described(row, later(1), SystemTime::UNIX_EPOCH);
        assert_eq!(shown.cells[..2], ["gpu#1", "free"]);
    }

    #[test]
    fn a_filter_covers_name_label_and_host_in_any_case() {
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
    fn a_reading_moves_the_end_and_tells_a_free_name() {
        let mut model = model(&["a"]);
        let left = |model: &Model, now| model.selection().expect("a row").left(now);
        assert_eq!(left(&model, later(5)), Some(Duration::ZERO));
        model.seen(&held("a", 1).name, Some(held("a", 30)), later(5));
        assert_eq!(left(&model, later(15)), Some(Duration::from_secs(20)));
        model.seen(&held("a", 1).name, None, later(16));
        assert!(model.selection().expect("a row").is_free);
        // A name that no list has shown.
        model.seen(&held("z", 1).name, Some(held("z", 1)), later(16));
        assert_eq!(model.leases.len(), 1);
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
        assert!(model.summary(START).starts_with("10000 leases, 280 shown"));
        assert_eq!(selected(&model), "job-09999");
    }
}
