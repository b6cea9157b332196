//! Draws the live view: the model in, cells out.
//!
//! Each thing that a colour tells is told by a word or a sign as well, so that it can be read without colours.

use std::time::{Duration, SystemTime};

use leasehold::clock::Instant;
use leasehold::store::{Held, HeldState, Member, MemberState};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table};

use super::model;
use super::model::{Mode, Model, Sort};
use crate::members;
use crate::status::word;

/// A lease with less left than this is close to its end.
const SOON: Duration = Duration::from_secs(3);

/// The lines of the detail pane, its frame included.
const DETAIL_LINES: u16 = 9;

const KEYS: &str = " q quit  / filter  s sort  r reverse  Enter detail  e evict  arrows, PgUp, PgDn, Home, End move";

/// What the drawing depends on beside the model.
#[derive(Debug, Clone)]
pub struct Scene {
    /// The store, without secrets.
    pub store: String,
    pub has_colours: bool,
    /// On the clock of the model.
    pub now: Instant,
    /// For how long leases are held.
    pub wall_clock: SystemTime,
}

/// Draws everything, and tells the model how many rows fit.
pub fn draw(frame: &mut Frame<'_>, model: &mut Model, scene: &Scene) {
    let detail = if model.has_detail { DETAIL_LINES } else { 0 };
    let missing = missing(model, scene);
    let [head, servers, note, table, pane, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(u16::from(missing.is_some())),
        Constraint::Length(1),
        Constraint::Min(2),
        Constraint::Length(detail),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    model.fit(usize::from(table.height.saturating_sub(1)));
    frame.render_widget(summary(model, scene), head);
    if let Some(missing) = missing {
        frame.render_widget(missing, servers);
    }
    frame.render_widget(notice(model, scene), note);
    frame.render_widget(rows(model, scene, table.width), table);
    if model.has_detail {
        frame.render_widget(detail_pane(model, scene), pane);
    }
    let keys = Line::styled(KEYS, Style::new().add_modifier(Modifier::DIM));
    frame.render_widget(keys, foot);
    if let Mode::Confirm(name) = &model.mode {
        confirm(frame, name.as_str());
    }
}

fn summary<'a>(model: &Model, scene: &Scene) -> Line<'a> {
    let (all, shown) = model.counts();
    let mut text = format!(" {}  {all} leases", printable(&scene.store));
    if shown != all {
        text.push_str(&format!(", {shown} shown"));
    }
    // Before what a long address of the store may push off the screen.
    let direction = if model.is_reversed { " reversed" } else { "" };
    text.push_str(&format!("  by {}{direction}", model.sort.in_words()));
    text.push_str(&format!("  {} waiting", model.waiting()));
    let members: Vec<_> = model.members(scene.now).collect();
    if members::are_notable(&members) {
        let (well, all) = (members.iter().filter(is_well).count(), members.len());
        text.push_str(&format!("  {well} of {all} servers well"));
    }
    if let Some(rate) = model.rate() {
        text.push_str(&format!("  {rate:.1} grants/s"));
    }
    match model.age(scene.now) {
        Some(age) => text.push_str(&format!("  listed {} ago", span(age))),
        None => text.push_str("  listing ..."),
    }
    Line::styled(text, Style::new().add_modifier(Modifier::BOLD))
}

/// Whether a server takes part, or would once it is promoted.
fn is_well(member: &&Member) -> bool {
    matches!(member.state, MemberState::Up | MemberState::Standby)
}

/// The line for the servers that do not take part, if there are any.
fn missing<'a>(model: &Model, scene: &Scene) -> Option<Line<'a>> {
    let members: Vec<_> = model.members(scene.now).collect();
    let missing: Vec<_> = members.iter().filter(|member| !is_well(member)).collect();
    let is_down = missing.iter().any(|one| one.state == MemberState::Down);
    let shown = missing.iter().map(|member| {
        let (word, facts) = (members::word(member.state), members::facts(member));
        format!("{word} {}", printable(&facts))
    });
    let text = format!(" ! {}", shown.collect::<Vec<_>>().join("; "));
    let colour = if is_down { Color::Red } else { Color::Magenta };
    (!missing.is_empty()).then(|| Line::styled(text, scene.colour(colour)))
}

/// The line for the filter, a fault or a message; the first of them that there is.
fn notice<'a>(model: &Model, scene: &Scene) -> Line<'a> {
    if model.mode == Mode::Filter {
        return Line::raw(format!(" filter: {}_", printable(&model.filter)));
    }
    if let Some(fault) = &model.fault {
        let text = format!(" ! {}", printable(fault));
        return Line::styled(text, scene.colour(Color::Red));
    }
    if let Some(message) = &model.message {
        return Line::raw(format!(" {}", printable(message)));
    }
    match model.filter.is_empty() {
        true => Line::default(),
        false => Line::raw(format!(
            " filter: {}  (Esc clears it)",
            printable(&model.filter)
        )),
    }
}

/// A column: its title, its width, and the order that sorts by it.
type Column = (&'static str, Constraint, Option<Sort>);

const COLUMNS: [Column; 8] = [
    ("NAME", Constraint::Fill(3), Some(Sort::Name)),
    ("STATE", Constraint::Length(8), None),
    ("HOLDER", Constraint::Fill(2), Some(Sort::Holder)),
    ("LABEL", Constraint::Fill(2), None),
    ("TOKEN", Constraint::Length(16), Some(Sort::Token)),
    ("HELD FOR", Constraint::Length(8), Some(Sort::Held)),
    ("LEFT", Constraint::Length(6), Some(Sort::Left)),
    ("WAITING", Constraint::Length(7), Some(Sort::Waiting)),
];

/// Whether a screen of this width has room for the column; what is left out is in the detail.
fn has_room(title: &str, width: u16) -> bool {
    match title {
        "LABEL" => width >= 100,
        "TOKEN" => width >= 80,
        "HOLDER" | "HELD FOR" => width >= 56,
        _ => true,
    }
}

fn rows<'a>(model: &Model, scene: &Scene, width: u16) -> Table<'a> {
    let columns = COLUMNS.iter().filter(|column| has_room(column.0, width));
    let title = |(title, _, sort): &Column| {
        let style = match *sort == Some(model.sort) {
            true => Modifier::UNDERLINED | Modifier::BOLD,
            false => Modifier::UNDERLINED,
        };
        Cell::new(*title).style(Style::new().add_modifier(style))
    };
    let mut titles: Vec<_> = columns.clone().map(title).collect();
    titles.insert(0, Cell::new(""));
    let widths = [Constraint::Length(1)];
    let widths = widths.into_iter().chain(columns.map(|column| column.1));
    let rows: Vec<_> = model
        .screen()
        .map(|(row, is_selected)| line(row, is_selected, scene, width))
        .collect();
    Table::new(rows, widths).header(Row::new(titles))
}

fn line<'a>(row: &model::Row, is_selected: bool, scene: &Scene, width: u16) -> Row<'a> {
    let left = row.left(scene.now);
    let (state, style) = state(row, left, scene);
    let columns = COLUMNS.iter().filter(|column| has_room(column.0, width));
    let cells = columns.map(|column| cell(column.0, &row.held, state, left, scene));
    let mark = if is_selected { ">" } else { "" };
    let style = match is_selected {
        true => style.add_modifier(Modifier::REVERSED),
        false => style,
    };
    Row::new([String::from(mark)].into_iter().chain(cells)).style(style)
}

fn cell(title: &str, held: &Held, state: &str, left: Option<Duration>, scene: &Scene) -> String {
    let label = held.info.label.as_deref().map(printable);
    let token = held.token.map(|token| token.to_string());
    match title {
        "NAME" => printable(held.name.as_str()),
        "STATE" => state.into(),
        "HOLDER" => holder(held),
        "LABEL" => label.unwrap_or_default(),
        "TOKEN" => token.unwrap_or_default(),
        "HELD FOR" => held_for(held, scene),
        "LEFT" => left.map(span).unwrap_or_default(),
        _ => waiting(held),
    }
}

/// The state in a word, and its colour.
fn state(row: &model::Row, left: Option<Duration>, scene: &Scene) -> (&'static str, Style) {
    if row.is_free {
        return ("free", Style::new().add_modifier(Modifier::DIM));
    }
    let word = word(row.held.state);
    let colour = match row.held.state {
        HeldState::Evicted => Color::Red,
        HeldState::Kept | HeldState::Offered => Color::Cyan,
        HeldState::KeepOut => Color::Magenta,
        _ if left.is_some_and(|left| left < SOON) => {
            return ("ending", scene.colour(Color::Yellow));
        }
        _ => return (word, Style::new()),
    };
    (word, scene.colour(colour))
}

fn detail_pane<'a>(model: &Model, scene: &Scene) -> Paragraph<'a> {
    let lines = match model.selection() {
        None => vec![Line::raw("no lease is selected")],
        Some(row) => {
            let held = &row.held;
            let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "unknown".into());
            let left = row.left(scene.now);
            let since = held.since.map(|since| {
                let since = humantime::format_rfc3339_seconds(since).to_string();
                format!("{since}, {} ago", held_for(held, scene))
            });
            [
                format!("name     {}", printable(held.name.as_str())),
                format!("state    {}", state(row, left, scene).0),
                format!("holder   {}", or_unknown(held.by.map(|by| by.to_string()))),
                format!("process  {}", holder(held)),
                format!(
                    "label    {}",
                    held.info
                        .label
                        .as_deref()
                        .map_or_else(|| "none".into(), printable)
                ),
                format!(
                    "token    {}   waiting {}",
                    or_unknown(held.token.map(|token| token.to_string())),
                    or_unknown(held.waiting.map(|waiting| waiting.to_string()))
                ),
                format!(
                    "since    {}   left {}",
                    or_unknown(since),
                    or_unknown(left.map(span))
                ),
            ]
            .map(Line::raw)
            .to_vec()
        }
    };
    Paragraph::new(lines).block(Block::bordered().title("detail"))
}

/// A box in the middle, over everything else.
fn confirm(frame: &mut Frame<'_>, name: &str) {
    let text = [
        format!("Evict the holder of {}?", printable(name)),
        "It is told at its next renewal, and the name is free when its ttl is over.".into(),
        "y: evict   any other key: leave it".into(),
    ];
    let area = frame.area();
    let width = text.iter().map(|line| line.chars().count()).max();
    let width = u16::try_from(width.unwrap_or_default() + 4).unwrap_or(u16::MAX);
    let (width, height) = (width.min(area.width), 5.min(area.height));
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    let lines: Vec<_> = text.into_iter().map(Line::raw).collect();
    frame.render_widget(Clear, place);
    frame.render_widget(
        Paragraph::new(lines).block(Block::bordered().title("evict")),
        place,
    );
}

impl Scene {
    fn colour(&self, colour: Color) -> Style {
        match self.has_colours {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }
}

fn holder(held: &Held) -> String {
    match held.info.host.as_str() {
        "" => String::new(),
        host => format!("{}:{}", printable(host), held.info.pid),
    }
}

fn held_for(held: &Held, scene: &Scene) -> String {
    let since = held
        .since
        .map(|since| scene.wall_clock.duration_since(since));
    // A server whose clock is ahead of ours.
    let since = since.map(Result::unwrap_or_default);
    since.map(span).unwrap_or_default()
}

fn waiting(held: &Held) -> String {
    let waiting = held.waiting.filter(|waiting| *waiting > 0);
    waiting
        .map(|waiting| waiting.to_string())
        .unwrap_or_default()
}

/// Text of strangers: no control character gets to the terminal.
fn printable(text: &str) -> String {
    let shown = text.chars().map(|character| match character.is_control() {
        true => character.escape_debug().to_string(),
        false => character.to_string(),
    });
    shown.collect()
}

/// A time in at most six characters.
fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0..10 => format!("{:.1}s", time.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{minutes}m{:02}s", seconds % 60),
        3_600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests;
