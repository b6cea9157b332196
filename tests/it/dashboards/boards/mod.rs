//! The boards: the source of the JSON files in `dashboards`.
//!
//! A board in Grafana's JSON repeats itself some fifty lines a panel. Here a panel is its title, its unit, what it tells,
//! and its queries; `<group>` in a query stands for the filters by the choices at the head of the board. A test writes the
//! files (`dashboards::files`).

mod board;
mod jobs;
mod overview;
mod panel;
mod store;

use self::board::Board;

/// All of them.
pub(super) fn all() -> [Board; 3] {
    [overview::board(), store::board(), jobs::board()]
}
