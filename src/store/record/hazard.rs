//! The hazard of every storage with a clock.

use std::time::Duration;

use super::register::{Failure, Register};
use crate::clock::wall_clock_us;
use crate::store::{Hazard, Severity};

/// Difference of the clocks above which the hazard is reported: storages report their time in whole seconds.
const APART: Duration = Duration::from_secs(2);

/// Returns the hazard of a storage whose clock is off ours, under this identifier.
pub(in crate::store) async fn clock_apart(
    register: &impl Register,
    id: &'static str,
) -> Result<Option<Hazard>, Failure> {
    let ours = || Duration::from_micros(wall_clock_us());
    let before = ours();
    let Some(time) = register.time().await? else {
        return Ok(None);
    };
    // Between the two it is right, however slow the answer was.
    let apart = before.saturating_sub(time).max(time.saturating_sub(ours()));
    let hazard = || {
        Hazard::new(
            id,
            Severity::Warning,
            format!("the clock of the server is {} s from ours", apart.as_secs()),
            "Tokens can fall when an object is lost, or its name moves to another store",
            "Run a time daemon on the server and on this machine",
        )
    };
    Ok((apart > APART).then(hazard))
}
