//! The effect of a key. Pure.

use leasehold::Name;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::model::{Mode, Model};

/// Effect of a key in addition to drawing.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    None,
    Quit,
    /// Confirmed by the operator.
    Evict(Name),
}

/// Acts on a key.
pub fn press(model: &mut Model, key: KeyEvent) -> Action {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c' | 'd') => Action::Quit,
            _ => Action::None,
        };
    }
    match model.mode.clone() {
        Mode::Table => in_table(model, key.code),
        Mode::Filter => {
            in_filter(model, key.code);
            Action::None
        }
        Mode::Confirm(name) => {
            model.mode = Mode::Table;
            match key.code {
                KeyCode::Char('y') => Action::Evict(name),
                _ => Action::None,
            }
        }
    }
}

fn in_table(model: &mut Model, key: KeyCode) -> Action {
    model.message = None;
    match key {
        KeyCode::Char('q') => return Action::Quit,
        // Out of what is open, the innermost first.
        KeyCode::Esc if model.has_detail => model.has_detail = false,
        KeyCode::Esc if !model.order.filter.is_empty() => model.set_filter(String::new()),
        KeyCode::Esc => return Action::Quit,
        KeyCode::Up | KeyCode::Char('k') => model.up(1),
        KeyCode::Down | KeyCode::Char('j') => model.down(1),
        KeyCode::PageUp => model.up(model.page),
        KeyCode::PageDown | KeyCode::Char(' ') => model.down(model.page),
        KeyCode::Home | KeyCode::Char('g') => model.up(usize::MAX),
        KeyCode::End | KeyCode::Char('G') => model.down(usize::MAX),
        KeyCode::Char('s') => model.next_sort(),
        KeyCode::Char('r') => model.reverse(),
        KeyCode::Char('/') => model.mode = Mode::Filter,
        KeyCode::Enter => model.has_detail = !model.has_detail,
        KeyCode::Char('p') => model.turn_pools(),
        KeyCode::Char('e') if model.selected_row().is_some_and(|row| row.len() > 1) => {
            let message = "p shows the permits of this pool, of which one can be evicted";
            model.message = Some(message.into());
        }
        KeyCode::Char('e') => {
            if let Some(seen) = model.selection() {
                model.mode = Mode::Confirm(seen.held.name.clone());
            }
        }
        _ => {}
    }
    Action::None
}

fn in_filter(model: &mut Model, key: KeyCode) {
    let mut filter = model.order.filter.clone();
    if matches!(key, KeyCode::Enter | KeyCode::Esc) {
        model.mode = Mode::Table;
    }
    match key {
        KeyCode::Esc => filter.clear(),
        KeyCode::Backspace => drop(filter.pop()),
        KeyCode::Char(character) => filter.push(character),
        _ => return,
    }
    model.set_filter(filter);
}

#[cfg(test)]
mod tests {
    use leasehold::clock::Instant;
    use leasehold::store::Held;

    use super::*;

    fn model() -> Model {
        let mut model = Model::new();
        let leases = ["a", "b", "c"].map(|name| Held::new(Name::new(name).expect("valid")));
        model.listed(leases.to_vec(), Instant::from_nanos(1));
        model
    }

    /// Presses a key for each character; `<` is Escape, `>` Enter, `-` Backspace.
    fn type_in(model: &mut Model, keys: &str) -> Action {
        let mut last = Action::None;
        for key in keys.chars() {
            let code = match key {
                '<' => KeyCode::Esc,
                '>' => KeyCode::Enter,
                '-' => KeyCode::Backspace,
                other => KeyCode::Char(other),
            };
            last = press(model, code.into());
        }
        last
    }

    #[test]
    fn an_eviction_has_to_be_confirmed() {
        let b = Name::new("b").expect("valid");
        assert_eq!(type_in(&mut model(), "jey"), Action::Evict(b));
        for refusal in ["jen", "je<", "je>", "jeq", "jee"] {
            let mut model = model();
            assert_eq!(type_in(&mut model, refusal), Action::None, "{refusal}");
            assert_eq!(model.mode, Mode::Table);
        }
        assert_eq!(type_in(&mut Model::new(), "ey"), Action::None);
    }

    #[test]
    fn a_filter_is_typed_edited_kept_and_given_up() {
        let mut model = model();
        type_in(&mut model, "/qx-");
        assert_eq!(
            (model.order.filter.as_str(), &model.mode),
            ("q", &Mode::Filter)
        );
        type_in(&mut model, "-c>");
        assert_eq!(
            (model.order.filter.as_str(), &model.mode),
            ("c", &Mode::Table)
        );
        let said = |model: &Model| model.summary(Instant::from_nanos(1));
        assert!(said(&model).starts_with("3 leases, 1 shown"));
        type_in(&mut model, "<");
        assert!(said(&model).starts_with("3 leases, 0 waiting"));
        type_in(&mut model, "/b<");
        assert_eq!(
            (model.order.filter.as_str(), &model.mode),
            ("", &Mode::Table)
        );
    }

    #[test]
    fn escape_leaves_the_innermost_first_and_then_the_program() {
        let mut model = model();
        assert_eq!(type_in(&mut model, "/a>>"), Action::None);
        assert!(model.has_detail);
        assert_eq!(type_in(&mut model, "<"), Action::None);
        assert!(!model.has_detail && !model.order.filter.is_empty());
        assert_eq!(type_in(&mut model, "<"), Action::None);
        assert_eq!(type_in(&mut model, "<"), Action::Quit);
    }

    #[test]
    fn control_c_quits_from_everywhere() {
        let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for keys in ["", "/", "e"] {
            let mut model = model();
            type_in(&mut model, keys);
            assert_eq!(press(&mut model, key), Action::Quit, "{keys}");
        }
    }
}
