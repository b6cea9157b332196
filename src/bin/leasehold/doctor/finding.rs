//! The output of `doctor`: one finding per check, as text and as JSON.

use std::collections::HashSet;
use std::fmt::{self, Write};

use leasehold::store::{Hazard, Severity};
use serde::Serialize;

use crate::exit::Exit;
use crate::row::printable;

/// The verdict of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// it is as it should be
    Ok,
    /// a fault, a restart or load can break a promise, or it could not be checked
    Warning,
    /// a promise can break, or something does not work, without any fault
    Failure,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Finding {
    /// The identifier of this finding, by which programs select it: it stays the same from version to version.
    pub id: &'static str,
    pub verdict: Verdict,
    /// The finding, with the facts. Its text may change.
    pub what: String,
    /// The promise that it endangers, and when; absent if it is as it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endangers: Option<String>,
    /// The remedy, as a sentence without its full stop; absent if there is none to give.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    pub fn new(id: &'static str, verdict: Verdict, what: impl Into<String>) -> Self {
        Self {
            id,
            verdict,
            what: what.into(),
            endangers: None,
            fix: None,
        }
    }

    /// Makes a finding without a fault.
    pub fn ok(id: &'static str, what: impl Into<String>) -> Self {
        Self::new(id, Verdict::Ok, what)
    }

    /// Adds what it endangers, unless there is no fault.
    pub fn endangers(mut self, what: impl Into<String>) -> Self {
        self.endangers = (self.verdict != Verdict::Ok).then(|| what.into());
        self
    }

    /// Adds a remedy, unless there is no fault.
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = (self.verdict != Verdict::Ok).then(|| fix.into());
        self
    }
}

impl From<Hazard> for Finding {
    fn from(hazard: Hazard) -> Self {
        let verdict = match hazard.severity {
            Severity::Critical => Verdict::Failure,
            _ => Verdict::Warning,
        };
        Self::new(hazard.id, verdict, hazard.what)
            .endangers(hazard.endangers)
            .fix(hazard.fix)
    }
}

impl Verdict {
    /// Judges a figure that is good below one limit and a failure from another one on.
    pub fn of<T: PartialOrd>(figure: T, good: T, bad: T) -> Self {
        match figure {
            figure if figure >= bad => Self::Failure,
            figure if figure >= good => Self::Warning,
            _ => Self::Ok,
        }
    }

    /// Returns a warning, unless the condition holds.
    pub const fn warn_unless(is_good: bool) -> Self {
        if is_good { Self::Ok } else { Self::Warning }
    }

    /// The text in the colour of the verdict, for a terminal.
    fn paint(self, text: &str) -> String {
        let code = match self {
            Self::Ok => 32,
            Self::Warning => 33,
            Self::Failure => 31,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for Finding {
    /// Prints one line. It can contain a server's own text, so control characters are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = format!("{:<8} {}: {}", self.verdict, self.id, self.what);
        if let Some(endangers) = &self.endangers {
            let _ = write!(line, ": {endangers}");
        }
        if let Some(fix) = &self.fix {
            let _ = write!(line, ". {fix}.");
        }
        f.write_str(&printable(&line))
    }
}

/// All findings about one store.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Diagnosis {
    /// Version of this format.
    version: u32,
    /// The URL of the store, or the path of its file, without secrets.
    store: String,
    /// Number of the findings that are failures.
    failures: usize,
    /// Number of the findings that are warnings.
    warnings: usize,
    /// One finding for each check, the worst last.
    findings: Vec<Finding>,
}

impl Diagnosis {
    /// Sorts the findings by verdict, and leaves out the second one of the same cause.
    pub fn new(store: String, mut findings: Vec<Finding>) -> Self {
        let mut causes = HashSet::new();
        findings.retain(|one| one.verdict == Verdict::Ok || causes.insert(one.what.clone()));
        findings.sort_by_key(|one| one.verdict);
        let count = |verdict| {
            let of_it = findings.iter().filter(|one| one.verdict == verdict);
            of_it.count()
        };
        Self {
            version: 1,
            store,
            failures: count(Verdict::Failure),
            warnings: count(Verdict::Warning),
            findings,
        }
    }

    /// Returns the exit code: warnings count only if the caller is strict.
    pub const fn exit(&self, is_strict: bool) -> Exit {
        match (self.failures, self.warnings, is_strict) {
            (1.., _, _) => Exit::Unsound,
            (0, 1.., true) => Exit::Warned,
            _ => Exit::Success,
        }
    }

    /// Returns the findings as text: the worst last, where the reader looks first.
    pub fn text(&self, has_colours: bool) -> String {
        let mut text = format!("store: {}\n", self.store);
        for finding in &self.findings {
            let mut line = finding.to_string();
            if has_colours {
                let word = finding.verdict.to_string();
                line = line.replacen(&word, &finding.verdict.paint(&word), 1);
            }
            let _ = writeln!(text, "{line}");
        }
        let of = |count: usize, what: &str| match count {
            1 => format!("1 {what}"),
            _ => format!("{count} {what}s"),
        };
        let (failures, warnings) = (of(self.failures, "failure"), of(self.warnings, "warning"));
        let _ = writeln!(text, "\n{failures}, {warnings}");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnosis(verdicts: &[Verdict]) -> Diagnosis {
        let finding = |verdict: &Verdict| Finding::new("x", *verdict, verdict.to_string());
        Diagnosis::new("s".into(), verdicts.iter().map(finding).collect())
    }

    #[test]
    fn the_worst_is_last_in_its_colour_and_each_cause_is_told_once() {
        use Verdict::{Failure, Ok, Warning};
        let text = diagnosis(&[Failure, Warning, Ok, Failure]).text(false);
        let words: Vec<_> = text
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert_eq!(
            words,
            ["store:", "ok", "warning", "failure", "", "1"],
            "{text}"
        );
        let text = diagnosis(&[Warning, Ok]).text(true);
        assert!(
            text.contains("\x1b[33mwarning\x1b[0m  x: warning"),
            "{text:?}"
        );
    }

    #[test]
    fn failures_are_2_and_warnings_1_only_if_strict() {
        use Verdict::{Failure, Ok, Warning};
        for (verdicts, plain, strict) in [
            (&[Ok][..], 0, 0),
            (&[Ok, Warning], 0, 1),
            (&[Warning, Failure], 2, 2),
        ] {
            let diagnosis = diagnosis(verdicts);
            assert_eq!(diagnosis.exit(false).code(), plain, "{verdicts:?}");
            assert_eq!(diagnosis.exit(true).code(), strict, "{verdicts:?}");
        }
    }

    #[test]
    fn a_finding_is_one_line_whatever_a_server_says() {
        let finding = Finding::new("trial", Verdict::Failure, "ERR \n\x1b[2J");
        let line = finding.endangers("b").fix("C").to_string();
        assert_eq!(line, "failure  trial: ERR \\n\\u{1b}[2J: b. C.");
    }
}
