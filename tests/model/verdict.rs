//! What a test asks of a search: a row of the table of verdicts, which is printed, and what it has to be.

use crate::search::Found;

/// A row.
pub(crate) struct Verdict {
    what: String,
    found: Found,
}

/// Prints what was found, with the way to a broken promise.
pub(crate) fn judged(what: &str, found: Found) -> Verdict {
    println!("{what:<72} {found}");
    if let Some((_, way)) = &found.broken {
        println!("    {}", way.join("; "));
    }
    let what = what.to_owned();
    Verdict { what, found }
}

impl Verdict {
    /// All states were seen, and none breaks a promise.
    pub(crate) fn holds(self) {
        let Self { what, found } = self;
        assert!(found.is_whole, "{what}: {found:#?}");
    }

    /// No state that was seen breaks a promise.
    pub(crate) fn finds_nothing(self) {
        let Self { what, found } = self;
        assert!(found.broken.is_none(), "{what}: {found:#?}");
    }

    /// Some state breaks a promise.
    pub(crate) fn breaks(self) {
        let Self { what, found } = self;
        assert!(found.broken.is_some(), "{what}: nothing was found: {found}");
    }

    /// Some state breaks a promise, as many steps away as a row of `README.md` says.
    pub(crate) fn breaks_as_the_page_says(self) {
        let Self { what, found } = self;
        let steps = found.broken.map_or(0, |(_, way)| way.len());
        let mut rows = include_str!("README.md").lines().map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            (cells.get(1).copied() == Some(&format!("`{what}`")))
                .then(|| cells[cells.len() - 2].to_owned())
        });
        let said = rows.find_map(|steps| steps);
        let said = said.unwrap_or_else(|| panic!("no row of README.md: {what}, {steps} steps"));
        let mut each = said.split(", ");
        assert!(
            each.any(|said| said == steps.to_string()),
            "{what}: {steps} steps, README.md says {said}"
        );
    }

    /// The nearest state that breaks a promise breaks this one, and lies this number of steps away.
    pub(crate) fn breaks_in(self, promise: &str, steps: usize) {
        let Self { what, found } = self;
        let broken = found.broken.map(|(broken, way)| (broken, way.len()));
        assert_eq!(broken, Some((promise, steps)), "{what}");
    }
}
