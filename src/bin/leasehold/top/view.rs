//! Draws the live view: the model in, cells out.
//!
//! Everything with a colour also has a word or a sign, so that the view can be read without colours.

use std::time::SystemTime;

use leasehold::clock::Instant;
use leasehold::store::{Member, MemberState};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph};
use unicode_width::UnicodeWidthStr;

use super::model::{Mode, Model};
use crate::members;
use crate::row::{Tone, printable, rfc3339};
use crate::table::{Column, Table, cut_end};

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
    /// How long leases are held.
    pub wall_clock: SystemTime,
}

/// Draws everything, and tells the model how many rows fit.
pub fn draw(frame: &mut Frame<'_>, model: &mut Model, context: &Context) {
    let detail = model.has_detail.then(|| detail(model, context));
    let detail_lines = detail.as_ref().map_or(0, |lines| lines.len() + 2);
    let missing = missing(model, context);
    let [head, servers, note, table, pane, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(u16::from(missing.is_some())),
        Constraint::Length(1),
        Constraint::Min(2),
        Constraint::Length(u16::try_from(detail_lines).unwrap_or(u16::MAX)),
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
    if let Some(detail) = detail {
        boxed(frame, pane, "detail", detail);
    }
    let keys = Line::styled(KEYS, Style::new().add_modifier(Modifier::DIM));
    frame.render_widget(keys, foot);
    if let Mode::Confirm(name) = &model.mode {
        boxed(frame, frame.area(), "evict", question(name.as_str()));
    }
}

fn summary<'a>(model: &Model, context: &Context, width: u16) -> Line<'a> {
    let order = &model.order;
    let direction = if order.is_reversed { " reversed" } else { "" };
    let members = model.members(context.now);
    let mut text = String::new();
    // First, so that it is on every screen.
    if members::are_notable(&members) {
        let (well, all) = (members.iter().filter(is_well).count(), members.len());
        text = format!("  {well} of {all} servers well");
    }
    let list = model.summary(context.now);
    text.push_str(&format!("  {list}  by {}{direction}", order.sort.key()));
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
        let (word, facts) = (
            members::ServerState::from(member.state),
            members::facts(member),
        );
        format!("{word} {}", printable(&facts))
    });
    let text = format!(" ! {}", shown.collect::<Vec<_>>().join("; "));
    let colour = if is_down { Color::Red } else { Color::Magenta };
    (!missing.is_empty()).then(|| Line::styled(text, context.colour(colour)))
}

/// The line for the filter, a fault or a message; the first of them that there is.
fn notice<'a>(model: &Model, context: &Context) -> Line<'a> {
    let filter = printable(&model.order.filter);
    match (&model.mode, &model.fault, &model.message) {
        (Mode::Filter, ..) => Line::raw(format!(" filter: {filter}_")),
        (_, Some(fault), _) => {
            let text = format!(" ! {}", printable(fault));
            Line::styled(text, context.colour(Color::Red))
        }
        (_, _, Some(message)) => Line::raw(format!(" {}", printable(message))),
        _ if filter.is_empty() => Line::default(),
        _ => Line::raw(format!(" filter: {filter}  (Esc clears it)")),
    }
}

/// The table, with a mark before the selected row and a sign before one that needs attention.
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

/// The lines of the detail pane: all columns of the selected row, and what the table has no room for.
fn detail(model: &Model, context: &Context) -> Vec<String> {
    let (Some(row), Some(first)) = (model.selected_row(), model.selection()) else {
        return vec!["no lease is selected".into()];
    };
    let row = model.described(row, context.now, context.wall_clock);
    let held = Some(&first.held).filter(|_| !row.is_pool);
    let since = held.and_then(|held| rfc3339(held.since?));
    let claim = held.and_then(|held| Some(held.by?.to_string()));
    let columns = Column::ALL.map(|column| (column.key(), row.cell(column).to_owned()));
    let more = [("since", since), ("identity", claim)];
    let more = more.map(|(key, text)| (key.to_owned(), text.unwrap_or_default()));
    let told = columns.into_iter().chain(more);
    told.filter(|(_, text)| !text.is_empty())
        .map(|(key, text)| format!("{key:<9}{text}"))
        .collect()
}

fn question(name: &str) -> Vec<String> {
    vec![
        format!("Evict the holder of {}?", printable(name)),
        "It is told at its next renewal, and the name is free when its ttl is over.".into(),
        "y: evict   any other key: leave it".into(),
    ]
}

/// Draws these lines in a box in the middle of this area, over everything else.
fn boxed(frame: &mut Frame<'_>, area: Rect, title: &str, lines: Vec<String>) {
    let width = lines.iter().map(|line| line.width()).max();
    let framed = |inside: usize| u16::try_from(inside + 2).unwrap_or(u16::MAX);
    let width = Constraint::Length(framed(width.unwrap_or_default()));
    let centered = area.centered(width, Constraint::Length(framed(lines.len())));
    let lines: Vec<_> = lines.into_iter().map(Line::raw).collect();
    let block = Block::bordered().title(title);
    frame.render_widget(Clear, centered);
    frame.render_widget(Paragraph::new(lines).block(block), centered);
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
