//! The table of results: stores by faults, as Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::checker::{Holds, Leads, quantile};
use crate::fault::Fault;
use crate::grounds::Site;
use crate::history::{Event, Operation, Phase};
use crate::run::Run;

/// What happened from the beginning of each fault of one kind until the next fault.
#[derive(Debug, Default)]
struct Row {
    struck: usize,
    grants: usize,
    losses: usize,
    leads: Leads,
    refused: usize,
    lost: usize,
}

/// Prints the rows of these runs and their sums, by sites. Of the runs without a fence the rows have what was lost.
pub(crate) fn table(runs: &[Run], unfenced: &[Run]) -> String {
    let by_site = by_site(runs);
    let unfenced = self::by_site(unfenced);
    let mut text = String::from(
        "| store | fault | struck | grants | told | before the rival's grant: p50, worst (ms) | stale writes refused | \
         writes lost | without a fence |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for (site, runs) in &by_site {
        let without = unfenced
            .get(site)
            .map_or_else(BTreeMap::new, |runs| rows(runs));
        for (fault, row) in rows(runs) {
            let lost = without.get(&fault).map(|row| row.lost.to_string());
            let lost = lost.unwrap_or_else(|| String::from("–"));
            let (fault, cells) = (fault.title(), row.cells());
            let _ = writeln!(text, "| {site:?} | {fault} | {cells} | {lost} |");
        }
    }
    text.push_str(&sums(&by_site));
    text
}

fn by_site(runs: &[Run]) -> BTreeMap<Site, Vec<&Run>> {
    let mut by_site: BTreeMap<Site, Vec<&Run>> = BTreeMap::new();
    for run in runs {
        by_site.entry(run.plan.site).or_default().push(run);
    }
    by_site
}

fn rows(runs: &[&Run]) -> BTreeMap<Fault, Row> {
    let mut rows = BTreeMap::new();
    runs.iter().for_each(|run| add(&mut rows, run));
    rows
}

/// One line a site: what the verdicts counted.
fn sums(by_site: &BTreeMap<Site, Vec<&Run>>) -> String {
    let mut text = String::from(
        "\n| store | faults | grants | told | cancelled after the deadline: p50, p99, worst (ms), how many; and while the machine stood still | writes | refused | lost | \
         overlaps, all in faults that suspend the promise | falls of a token, likewise |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (site, runs) in by_site {
        let mut leads = Leads::default();
        let mut sums = [0; 8];
        for run in runs {
            let figures = &run.verdict.figures;
            leads.merge(&figures.leads);
            let faults = run.events.iter().filter(|event| is_fault(event)).count();
            for (sum, more) in sums.iter_mut().zip([
                faults,
                figures.grants,
                figures.losses,
                figures.acknowledged,
                figures.refused,
                figures.lost_us.len(),
                figures.excused,
                figures.falls,
            ]) {
                *sum += more;
            }
        }
        let [
            faults,
            grants,
            losses,
            writes,
            refused,
            lost,
            excused,
            falls,
        ] = sums;
        let late = &leads.after_deadline_us;
        let (count, stalled) = (late.len(), leads.stalled);
        let late = [0.5, 0.99, 1.0].map(|share| ms(quantile(late, share)));
        let _ = writeln!(
            text,
            "| {site:?} | {faults} | {grants} | {losses} | {}, {count}; {stalled} | {writes} | {refused} | {lost} | {excused} | {falls} |",
            late.join(", ")
        );
    }
    text
}

/// What the same stores lose without a fence.
pub(crate) fn unfenced_table(runs: &[Run]) -> String {
    let mut text =
        String::from("\n| store, without a fence | faults | writes | lost |\n|---|---|---|---|\n");
    for run in runs {
        let figures = &run.verdict.figures;
        let _ = writeln!(
            text,
            "| {:?} | {} | {} | {} |",
            run.plan.site,
            run.plan.faults,
            figures.acknowledged,
            figures.lost_us.len()
        );
    }
    text
}

fn is_fault(event: &Event) -> bool {
    event.operation == Operation::Fault && event.phase == Phase::Invoke
}

fn add(rows: &mut BTreeMap<Fault, Row>, run: &Run) {
    let events = &run.events;
    let struck: Vec<(u64, Fault)> = events
        .iter()
        .filter(|event| is_fault(event))
        .filter_map(|event| Some((event.at_us, fault_of(event)?)))
        .collect();
    // The fault that had begun last.
    let at = |at_us: u64| {
        let index = struck.partition_point(|(begun_us, _)| *begun_us <= at_us);
        index.checked_sub(1).map(|index| struck[index].1)
    };
    for (_, fault) in &struck {
        rows.entry(*fault).or_default().struck += 1;
    }
    let holds = Holds::of(events);
    for hold in holds.contended() {
        if let Some(fault) = hold.believed_us.and_then(at) {
            rows.entry(fault).or_default().grants += 1;
        }
        if let Some(fault) = hold.told_us.and_then(at) {
            rows.entry(fault).or_default().losses += 1;
        }
    }
    for (told_us, lead_us) in holds.leads() {
        if let Some(fault) = at(told_us) {
            let leads = &mut rows.entry(fault).or_default().leads;
            leads.before_rival_us.push(lead_us);
        }
    }
    let refused = events
        .iter()
        .filter(|event| event.operation == Operation::Write && event.phase == Phase::Refused);
    for fault in refused.filter_map(|event| at(event.at_us)) {
        rows.entry(fault).or_default().refused += 1;
    }
    let lost = run.verdict.figures.lost_us.iter();
    for fault in lost.filter_map(|lost_us| at(*lost_us)) {
        rows.entry(fault).or_default().lost += 1;
    }
}

fn fault_of(event: &Event) -> Option<Fault> {
    let mut all = Fault::ALL.into_iter();
    all.find(|fault| fault.title() == event.facts.detail)
}

impl Row {
    fn cells(mut self) -> String {
        let leads = &mut self.leads.before_rival_us;
        leads.sort_unstable();
        let (middle, worst) = (quantile(leads, 0.5), leads.first().copied());
        format!(
            "{} | {} | {} | {}, {} | {} | {}",
            self.struck,
            self.grants,
            self.losses,
            ms(middle),
            ms(worst),
            self.refused,
            self.lost
        )
    }
}

fn ms(us: Option<i64>) -> String {
    us.map_or_else(
        || String::from("–"),
        |us| format!("{:.1}", us as f64 / 1_000.0),
    )
}
