//! The table of leases: the columns that fit, their widths, and their content.
//!
//! The content sets the widths. If there is too little room, names, holders and labels are first cut in the middle, the
//! widest first; then whole columns are left out in a fixed order.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::row::Row;

/// The space between two columns.
const GAP: usize = 2;

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    Name,
    State,
    Holder,
    Held,
    Left,
    Waiting,
    Progress,
    Label,
    Token,
}

/// The columns that are shown, with their widths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table(Vec<(Column, usize)>);

impl Column {
    /// All columns, from left to right.
    pub const ALL: [Self; 9] = [
        Self::Name,
        Self::State,
        Self::Holder,
        Self::Held,
        Self::Left,
        Self::Waiting,
        Self::Progress,
        Self::Label,
        Self::Token,
    ];

    pub fn title(self) -> String {
        format!("{self:?}").to_uppercase()
    }

    /// The name of the column in a query and a sentence.
    pub fn key(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// The width to which the column may be cut.
    const fn least(self) -> usize {
        match self {
            Self::Name => 24,
            Self::Holder => 12,
            Self::Label => 10,
            _ => usize::MAX,
        }
    }

    /// True if the column is left out when it is empty.
    const fn is_optional(self) -> bool {
        matches!(self, Self::Waiting | Self::Progress | Self::Label)
    }
}

impl Table {
    /// Fits these columns of these rows into a width.
    pub fn fit(columns: &[Column], rows: &[Row], width: usize) -> Self {
        let natural = |column: Column| {
            let cells = rows.iter().map(|row| row.cell(column).width());
            cells.max().unwrap_or_default()
        };
        let with_width = columns.iter().map(|column| (*column, natural(*column)));
        let mut wanted: Vec<_> = with_width
            .filter(|(column, natural)| !column.is_optional() || *natural > 0)
            .map(|(column, natural)| (column, natural.max(column.title().len())))
            .collect();
        let least = |(column, natural): &(Column, usize)| (*natural).min(column.least());
        let needed = |columns: &[(Column, usize)]| {
            columns.iter().map(least).sum::<usize>() + GAP * columns.len().saturating_sub(1)
        };
        // The last column is left out first. Name and time left always stay.
        let may_go = |column: &Column| !matches!(column, Column::Name | Column::Left);
        for dropped in Column::ALL.into_iter().rev().filter(may_go) {
            if needed(&wanted) <= width {
                break;
            }
            wanted.retain(|(column, _)| *column != dropped);
        }
        let all: usize = wanted.iter().map(|(_, natural)| natural + GAP).sum();
        let mut excess = all.saturating_sub(width + GAP);
        while excess > 0
            && let Some((_, widest)) = wanted
                .iter_mut()
                .filter(|(column, width)| *width > column.least())
                .max_by_key(|(_, width)| *width)
        {
            *widest -= 1;
            excess -= 1;
        }
        if let Some((_, name)) = wanted.first_mut() {
            *name = name.saturating_sub(excess).max(1);
        }
        Self(wanted)
    }

    /// Returns the line of titles.
    pub fn head(&self) -> String {
        self.line(Column::title)
    }

    /// Returns the line of a lease.
    pub fn row(&self, row: &Row) -> String {
        self.line(|column| row.cell(column).into())
    }

    fn line(&self, cell: impl Fn(Column) -> String) -> String {
        let cells = self.0.iter().map(|(column, width)| {
            let text = cut(&cell(*column), *width);
            let fill = width - text.width() + GAP;
            text + &" ".repeat(fill)
        });
        cells.collect::<String>().trim_end().into()
    }
}

/// Cuts a text to a width in the middle, where names that begin and end alike differ the least.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.into();
    }
    let room = width.saturating_sub(1);
    let end = start(text.chars().rev(), room / 2);
    let start = start(text.chars(), room - room / 2);
    start
        .into_iter()
        .chain(['…'])
        .chain(end.into_iter().rev())
        .collect()
}

/// Cuts a text to a width at its end.
pub fn cut_end(text: &str, width: usize) -> String {
    match text.width() <= width {
        true => text.into(),
        false => start(text.chars(), width.saturating_sub(1))
            .into_iter()
            .chain(['…'])
            .collect(),
    }
}

/// As much of the text as fits.
fn start(text: impl Iterator<Item = char>, width: usize) -> Vec<char> {
    let mut room = width;
    let fits = text.take_while(|character| {
        let width = character.width().unwrap_or_default();
        let is_fit = width <= room;
        room = room.saturating_sub(width);
        is_fit
    });
    fits.collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use leasehold::clock::Instant;
    use leasehold::store::Held;
    use leasehold::{Name, Token};

    use super::*;
    use crate::seen::{described, listed};

    fn row(name: &str, label: &str) -> Row {
        let mut held = Held::new(Name::new(name).expect("valid"));
        held.info.host = "build-machine-17.example.com".into();
        held.info.pid = 123_456;
        held.info.label = Some(label.into());
        held.token = Token::new(1_795_334_400_123_456).ok();
        held.since = Some(SystemTime::UNIX_EPOCH);
        held.remaining = Some(Duration::from_secs(28));
        held.waiting = Some(2);
        let wall_clock = SystemTime::UNIX_EPOCH + Duration::from_secs(3_725);
        let leases = listed(vec![held], &[], Instant::ZERO);
        described(&leases, &[0], Instant::ZERO, wall_clock)
    }

    fn titles(width: usize) -> String {
        let rows = [row(
            &"team-a/nightly-report-".repeat(3),
            "the monthly report of all",
        )];
        let table = Table::fit(&Column::ALL, &rows, width);
        for line in [table.head(), table.row(&rows[0])] {
            assert!(line.width() <= width, "{width} {line}");
        }
        table.head()
    }

    #[test]
    fn columns_are_left_out_in_an_order_and_no_line_is_too_long() {
        let of = |width| {
            titles(width)
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(of(200), "NAME STATE HOLDER HELD LEFT WAITING LABEL TOKEN");
        assert_eq!(of(80), "NAME STATE HOLDER HELD LEFT WAITING LABEL");
        assert_eq!(of(70), "NAME STATE HOLDER HELD LEFT WAITING");
        assert_eq!(of(40), "NAME STATE LEFT");
        for width in 1..200 {
            titles(width.max(7));
        }
    }

    #[test]
    fn names_that_begin_alike_can_be_told_apart() {
        let names = ["a", "b"].map(|end| row(&format!("team-a/nightly-report-of-{end}"), ""));
        let table = Table::fit(&Column::ALL, &names, 60);
        assert_ne!(table.row(&names[0]), table.row(&names[1]));
        assert_eq!(cut("team-a/nightly-a", 8), "team…y-a");
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("日本語の名前", 7), "日…名前".replace("名前", "前"));
        assert_eq!(cut_end("waiting 12s", 8), "waiting…");
    }

    #[test]
    fn one_long_name_does_not_take_the_room_of_the_labels() {
        let rows = [
            row(
                &"team-a/nightly-report-".repeat(4),
                "the monthly report of all shops",
            ),
            row("short", "the daily report of all"),
        ];
        let line = Table::fit(&Column::ALL, &rows, 140).row(&rows[1]);
        assert!(line.contains("the daily report of all"), "{line}");
    }

    #[test]
    fn what_no_row_has_takes_no_room() {
        let mut plain = row("x", "");
        plain.cells[Column::Waiting as usize].clear();
        let head = Table::fit(&Column::ALL, &[plain], 200).head();
        assert!(
            !head.contains("LABEL") && !head.contains("WAITING"),
            "{head}"
        );
        assert!(!head.contains("PROGRESS"), "{head}");
    }
}
