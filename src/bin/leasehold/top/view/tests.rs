//! Screens as text.

use std::time::Duration;

use leasehold::store::{Held, HeldState};
use leasehold::{Name, Token};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;

const NOW: Instant = Instant::from_nanos(3_600_000_000_000);

fn context() -> Context {
    Context {
        store: "redis://db/0".into(),
        has_colours: true,
        now: NOW,
        wall_clock: SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000),
    }
}

fn held(name: &str, token: u64, held_for: u64, left: u64) -> Held {
    let mut held = Held::new(Name::new(name).expect("valid"));
    held.token = Some(Token::new(token).expect("valid"));
    held.since = Some(context().wall_clock - Duration::from_secs(held_for));
    held.remaining = Some(Duration::from_secs(left));
    held.info.host = "web-1".into();
    held.info.pid = 4_711;
    held
}

/// Leases in each state.
fn model() -> Model {
    let mut model = Model::new();
    let mut nightly = held("nightly", 1_795_334_400_123_456, 3_725, 28);
    nightly.info.label = Some("the report".into());
    nightly.waiting = Some(2);
    let mut evicted = held("billing", 1_795_334_400_000_007, 65, 12);
    evicted.state = HeldState::Evicted;
    let mut kept = held("mail/queue", 9, 9, 1);
    kept.state = HeldState::Kept;
    kept.info.host = String::new();
    let stuck = held("stuck", 17, 400_000, 2);
    model.listed(vec![evicted, kept, nightly, stuck], NOW);
    // By name.
    model.next_sort();
    model.up(usize::MAX);
    model
}

/// Draws it on a screen of this size.
fn drawn(model: &mut Model, context: &Context, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("no real one");
    terminal
        .draw(|frame| draw(frame, model, context))
        .expect("in memory");
    terminal
}

/// The screen as text, without the spaces at the ends of its lines.
fn text(model: &mut Model, context: &Context, width: u16, height: u16) -> String {
    let terminal = drawn(model, context, width, height);
    let screen = terminal.backend().to_string();
    let lines = screen.lines().map(|line| line.trim_matches('"').trim_end());
    lines.collect::<Vec<_>>().join("\n")
}

/// Fails unless the screen is the one in this file.
fn is_like(screen: &str, expected: &str) {
    assert!(
        screen == expected.trim_end_matches('\n'),
        "drawn:\n{screen}\nexpected:\n{expected}"
    );
}

#[test]
fn each_state_has_a_word_and_the_selection_a_sign() {
    let screen = text(&mut model(), &context(), 110, 9);
    is_like(&screen, include_str!("screens/table.txt"));
}

#[test]
fn the_detail_is_that_of_the_selection() {
    let mut model = model();
    model.has_detail = true;
    model.down(2);
    let screen = text(&mut model, &context(), 110, 17);
    is_like(&screen, include_str!("screens/detail.txt"));
}

#[test]
fn a_time_that_no_calendar_has_is_left_out_of_the_detail() {
    let mut odd = held("odd", 1, 0, 9);
    odd.since = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(300_000_000_000));
    let mut model = Model::new();
    model.listed(vec![odd], NOW);
    model.has_detail = true;
    let screen = text(&mut model, &context(), 110, 17);
    assert!(
        screen.contains("detail") && !screen.contains("since"),
        "{screen}"
    );
}

#[test]
fn an_eviction_is_asked_about_over_everything_else() {
    let mut model = model();
    model.mode = Mode::Confirm(Name::new("nightly").expect("valid"));
    let screen = text(&mut model, &context(), 90, 12);
    is_like(&screen, include_str!("screens/confirm.txt"));
}

#[test]
fn a_filter_is_shown_while_it_is_typed_and_afterwards() {
    let mut model = model();
    model.mode = Mode::Filter;
    model.set_filter("LING".into());
    let typed = text(&mut model, &context(), 70, 7);
    is_like(&typed, include_str!("screens/filter.txt"));
    model.mode = Mode::Table;
    assert!(text(&mut model, &context(), 70, 7).contains("filter: LING  (Esc clears it)"));
}

#[test]
fn an_empty_store_and_a_small_screen_are_drawn() {
    let screen = text(&mut Model::new(), &context(), 80, 5);
    is_like(&screen, include_str!("screens/empty.txt"));
    for (width, height) in [(1, 1), (10, 3), (56, 2), (200, 60)] {
        for has_detail in [false, true] {
            let mut model = model();
            model.has_detail = has_detail;
            model.mode = Mode::Confirm(Name::new("nightly").expect("valid"));
            text(&mut model, &context(), width, height);
        }
    }
}

#[test]
fn a_store_that_does_not_answer_is_told_and_its_rows_stay() {
    let mut model = model();
    model.fault = Some("list failed:\n\x1b[2Jstore unavailable".into());
    let screen = text(&mut model, &context(), 110, 9);
    assert!(
        screen.contains("! list failed:\\n\\u{1b}[2Jstore unavailable"),
        "{screen}"
    );
    assert!(screen.contains("nightly"));
}

#[test]
fn servers_that_keep_out_or_are_down_have_a_line_with_the_time_left() {
    let mut model = model();
    let remaining = Duration::from_secs(41);
    let away = Member::new("b:6379", MemberState::Away { remaining });
    let down = Member::new("c:6379", MemberState::Down);
    let up = Member::new("a:6379", MemberState::Up);
    model.read_servers(vec![up.clone(), away, down], NOW);
    let mut context = context();
    context.now = NOW.after(Duration::from_secs(11));
    let screen = text(&mut model, &context, 110, 10);
    is_like(&screen, include_str!("screens/servers.txt"));
    let head = screen.lines().next().expect("a line");
    assert!(text(&mut model, &context, 80, 10).starts_with(head));
    model.set_filter("nightly".into());
    model.reverse();
    let screen = text(&mut model, &context, 80, 10);
    assert!(screen.contains("1 of 3 servers well"), "{screen}");
    // All are well: no line, and the table has the room. A single one is not even counted.
    model.read_servers(vec![up.clone(), up.clone(), up.clone()], NOW);
    let screen = text(&mut model, &context, 110, 10);
    assert!(screen.contains("3 of 3 servers well"), "{screen}");
    assert!(!screen.contains("6379"), "{screen}");
    model.read_servers(vec![up], NOW);
    assert!(!text(&mut model, &context, 110, 10).contains("servers"));
}

#[test]
fn a_lease_that_is_late_in_its_renewal_has_a_sign_and_a_colour() {
    let mut model = model();
    let mut context = context();
    context.now = NOW.after(Duration::from_secs(15));
    let screen = text(&mut model, &context, 80, 9);
    assert!(screen.contains("\n !nightly     late"), "{screen}");
    assert!(
        screen.lines().all(|line| line.chars().count() <= 80),
        "{screen}"
    );
}

#[test]
fn without_colours_the_text_is_the_same() {
    let with = context();
    let without = Context {
        has_colours: false,
        ..context()
    };
    assert_eq!(
        text(&mut model(), &with, 110, 9),
        text(&mut model(), &without, 110, 9)
    );
    let has_colour = |context| {
        let terminal = drawn(&mut model(), context, 110, 9);
        let cells = terminal.backend().buffer().content.clone();
        cells.iter().any(|cell| cell.fg != Color::Reset)
    };
    assert!(has_colour(&with));
    assert!(!has_colour(&without));
}
