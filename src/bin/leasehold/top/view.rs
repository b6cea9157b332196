//! Draws the live view: the model in, cells out.
//!
//! Whatever has a colour has a word or a sign as well, so that the view can be read without colours.

use std::time::SystemTime;

use leasehold::clock::Instant;
use leasehold::store::{Held, Member, MemberState};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph};
use unicode_width::UnicodeWidthStr;

use super::model::{Mode, Model};
use crate::members;
use crate::row::{Row, Tone, printable, span};
use crate::table::{Column, Table, cut_end};

/// The lines of the detail pane, its frame included.
const DETAIL_LINES: u16 = 9;

/// In 80 columns.
const KEYS: &str = " q quit  / filter  s sort  r reverse  p permits  Enter detail  e evict";

/// State of the view in addition to the model.
#[derive(Debug, Clone)]
pub struct Context {
    /// The store, without secrets.
    pub store: String,
    pub has_colours: bool,
    /// On the clock of the model.
    pub now: Instant,
    /// For how long leases are held.
    pub wall_clock: SystemTime,
}

/// Draws everything, and tells the model how many rows fit.
pub fn draw(frame: &mut Frame<'_>, model: &mut Model, context: &Context) {
    let detail_lines = if model.has_detail { DETAIL_LINES } else { 0 };
    let missing = missing(model, context);
    let [head, servers, note, table, pane, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(u16::from(missing.is_some())),
        Constraint::Length(1),
        Constraint::Min(2),
        Constraint::Length(detail_lines),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    model.fit(usize::from(table.height.saturating_sub(1)));
    frame.render_widget(summary(model, context, head.width), head);
    if let Some(missing) = missing {
        frame.render_widget(missing, servers);
    }
    frame.render_widget(notice(model, context), note);
    frame.render_widget(rows(model, context, table.width), table);
    if model.has_detail {
        let (lines, width) = detail(model, context);
        let pane = Rect {
            width: width.min(pane.width),
            ..pane
        };
        let framed = Paragraph::new(lines).block(Block::bordered().title("detail"));
        frame.render_widget(framed, pane);
    }
    let keys = Line::styled(KEYS, Style::new().add_modifier(Modifier::DIM));
    frame.render_widget(keys, foot);
    if let Mode::Confirm(name) = &model.mode {
        confirm(frame, name.as_str());
    }
}

fn summary<'a>(model: &Model, context: &Context, width: u16) -> Line<'a> {
    let (all, shown) = model.counts();
    let mut text = format!("  {all} leases");
    if shown != all {
        text.push_str(&format!(", {shown} shown"));
    }
    let order = &model.order;
    let direction = if order.is_reversed { " reversed" } else { "" };
    text.push_str(&format!("  by {}{direction}", order.sort.key()));
    text.push_str(&format!("  {} waiting", model.waiting()));
    let members = model.members(context.now);
    if members::are_notable(&members) {
        let (well, all) = (members.iter().filter(is_well).count(), members.len());
        text.push_str(&format!("  {well} of {all} servers well"));
    }
    match model.age(context.now) {
        Some(age) => text.push_str(&format!("  listed {} ago", span(age))),
        None => text.push_str("  listing ..."),
    }
    // A long address of the store pushes nothing off the screen.
    let room = usize::from(width).saturating_sub(text.len() + 1).max(12);
    let text = format!(" {}{text}", cut_end(&printable(&context.store), room));
    Line::styled(text, Style::new().add_modifier(Modifier::BOLD))
}

/// Returns true if a server takes part, or would once it is promoted.
fn is_well(member: &&Member) -> bool {
    matches!(member.state, MemberState::Up | MemberState::Standby)
}

/// The line for the servers that do not take part, if there are any.
fn missing<'a>(model: &Model, context: &Context) -> Option<Line<'a>> {
    let members = model.members(context.now);
    let missing: Vec<_> = members.iter().filter(|member| !is_well(member)).collect();
    let is_down = missing.iter().any(|one| one.state == MemberState::Down);
    let shown = missing.iter().map(|member| {
        let (word, facts) = (members::word(member.state), members::facts(member));
        format!("{word} {}", printable(&facts))
    });
    let text = format!(" ! {}", shown.collect::<Vec<_>>().join("; "));
    let colour = if is_down { Color::Red } else { Color::Magenta };
    (!missing.is_empty()).then(|| Line::styled(text, context.colour(colour)))
}

/// The line for the filter, a fault or a message; the first of them that there is.
fn notice<'a>(model: &Model, context: &Context) -> Line<'a> {
    if model.mode == Mode::Filter {
        return Line::raw(format!(" filter: {}_", printable(&model.order.filter)));
    }
    if let Some(fault) = &model.fault {
        let text = format!(" ! {}", printable(fault));
        return Line::styled(text, context.colour(Color::Red));
    }
    if let Some(message) = &model.message {
        return Line::raw(format!(" {}", printable(message)));
    }
    match model.order.filter.is_empty() {
        true => Line::default(),
        false => Line::raw(format!(
            " filter: {}  (Esc clears it)",
            printable(&model.order.filter)
        )),
    }
}

/// The table, with a mark before the selected row and a sign before one that needs a look.
fn rows<'a>(model: &Model, context: &Context, width: u16) -> Paragraph<'a> {
    let shown: Vec<_> = model.screen().collect();
    let rows: Vec<_> = shown
        .iter()
        .map(|(row, _)| model.described(row, context.now, context.wall_clock))
        .collect();
    let table = Table::fit(&Column::ALL, &rows, usize::from(width).saturating_sub(2));
    let head = Line::styled(format!("  {}", table.head()), Modifier::UNDERLINED);
    let lines = rows.iter().zip(&shown).map(|(row, (_, is_selected))| {
        let mark = if *is_selected { ">" } else { " " };
        let text = format!("{mark}{:1}{}", row.tone.sign(), table.row(row));
        let style = context.style(row.tone);
        match is_selected {
            true => Line::styled(format!("{text:<0$}", usize::from(width)), style.reversed()),
            false => Line::styled(text, style),
        }
    });
    Paragraph::new([head].into_iter().chain(lines).collect::<Vec<_>>())
}

/// The lines of the detail pane, and the width that it needs with its frame.
fn detail<'a>(model: &Model, context: &Context) -> (Vec<Line<'a>>, u16) {
    let lines = match (model.selected_row(), model.selection()) {
        (Some(row), Some(first)) => {
            let row = model.described(row, context.now, context.wall_clock);
            facts(&row, &first.held)
        }
        _ => vec!["no lease is selected".into()],
    };
    let widest = lines.iter().map(|line| line.width()).max();
    let width = u16::try_from(widest.unwrap_or_default() + 2).unwrap_or(u16::MAX);
    (lines.into_iter().map(Line::raw).collect(), width)
}

fn facts(row: &Row, held: &Held) -> Vec<String> {
    let or = |text: String, other: &str| match text.is_empty() {
        true => other.to_owned(),
        false => text,
    };
    let by = held.by.map(|by| by.to_string()).unwrap_or_default();
    let since = held.since.map(humantime::format_rfc3339_seconds);
    let since = since.map(|since| since.to_string()).unwrap_or_default();
    let cell = |column: Column| or(column.cell(row), "unknown");
    vec![
        format!("name     {}", row.name),
        format!("state    {}", row.state),
        format!("holder   {}", or(by, "unknown")),
        format!("process  {}", row.holder),
        format!("label    {}", or(row.label.clone(), "none")),
        format!(
            "token    {}   waiting {}   progress {}",
            cell(Column::Token),
            row.waiting,
            cell(Column::Progress)
        ),
        format!(
            "since    {}, {} ago   left {}",
            or(since, "unknown"),
            cell(Column::Held),
            cell(Column::Left)
        ),
    ]
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
    let place = area.centered(Constraint::Length(width), Constraint::Length(5));
    let lines: Vec<_> = text.into_iter().map(Line::raw).collect();
    frame.render_widget(Clear, place);
    frame.render_widget(
        Paragraph::new(lines).block(Block::bordered().title("evict")),
        place,
    );
}

impl Context {
    fn colour(&self, colour: Color) -> Style {
        match self.has_colours {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    fn style(&self, tone: Tone) -> Style {
        match tone {
            Tone::Plain => Style::new(),
            Tone::Late => self.colour(Color::Yellow),
            Tone::Bad => self.colour(Color::Red),
            Tone::Calm => self.colour(Color::Cyan),
            Tone::Away => self.colour(Color::Magenta),
            Tone::Faint => Style::new().add_modifier(Modifier::DIM),
        }
    }
}

#[cfg(test)]
mod tests;
