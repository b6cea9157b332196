//! The proof: a fleet of real processes, a real Prometheus, and one fault after the other.

use std::fmt::Write as _;
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};
use serde_json::Value;

use self::fleet::conductor::{Fleet, Setup};
use self::fleet::faults::Fault;
use self::fleet::{member, scrape};
use super::{Panel, filled_in};
use crate::harness::prometheus_server::PrometheusServer;

#[expect(dead_code, reason = "the test does without `main`")]
#[path = "../../../examples/fleet/main.rs"]
mod fleet;

/// How long a fleet may take to start, and to be well again after a fault.
const DATA_WITHIN: Duration = Duration::from_secs(90);

/// How soon a fault has to be seen.
const SEEN_WITHIN: Duration = Duration::from_secs(30);

/// The alerts that are meant for each fault. Those of a `for` of less than [`SEEN_WITHIN`] must fire, the others be
/// pending.
const EXPECTED: [(Fault, &str); 7] = [
    (
        Fault::FailedJob,
        r#"ALERTS{alertname="LeaseholdJobFailed", alertstate="firing", reason="failure"}"#,
    ),
    (
        Fault::Eviction,
        r#"ALERTS{alertname="LeaseholdHoldCutShort", alertstate="firing", reason="evicted"}"#,
    ),
    (
        Fault::PausedWriter,
        r#"ALERTS{alertname="LeaseholdWriteRefused", alertstate="firing", outcome="stale"}"#,
    ),
    (
        Fault::PausedWriter,
        r#"ALERTS{alertname="LeaseholdToldLate", alertstate="firing", group="ledger"}"#,
    ),
    (
        Fault::StoppedServer,
        r#"ALERTS{alertname="LeaseholdStoreUnavailable", store="redis"}"#,
    ),
    (
        Fault::StoppedServer,
        r#"ALERTS{alertname="LeaseholdLeaseExpired", alertstate="firing", group="shards"}"#,
    ),
    (
        Fault::Flush,
        r#"ALERTS{alertname="LeaseholdLeaseRefused", alertstate="firing", group="shards"}"#,
    ),
];

/// Waits until there is something to see, and fails with what could not be seen.
#[expect(
    clippy::disallowed_methods,
    reason = "other processes send no event; polled within a limit"
)]
fn poll_within<T>(limit: Duration, mut look: impl FnMut() -> Result<T, String>) -> T {
    let end = Monotonic.now().after(limit);
    loop {
        match look() {
            Ok(seen) => return seen,
            Err(unseen) => assert!(Monotonic.now() < end, "waited {limit:?} in vain: {unseen}"),
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A fleet that is scraped once a second.
struct Stage {
    fleet: Fleet,
    prometheus: PrometheusServer,
    began: f64,
    report: String,
    // After the others, which have their files in it.
    _folder: tempfile::TempDir,
}

impl Stage {
    fn set() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap().into_os_string();
        let role = "dashboards::live::a_member_of_the_fleet_plays_its_role";
        let arguments = [
            "--exact",
            role,
            "--quiet",
            "--nocapture",
            "--test-threads=1",
        ];
        let mut member = vec![own.into_string().unwrap()];
        member.extend(arguments.map(Into::into));
        let fleet = Fleet::start(Setup {
            folder: folder.path().to_owned(),
            tool: env!("CARGO_BIN_EXE_leasehold").into(),
            member,
            store: None,
            seed: 1,
        });
        let prometheus = PrometheusServer::start(&scrape::config(folder.path(), 1));
        Self {
            fleet: fleet.unwrap(),
            began: prometheus.time(),
            prometheus,
            report: String::new(),
            _folder: folder,
        }
    }

    /// Whether this query has a result now.
    fn sees(&self, expression: &str) -> bool {
        !self.prometheus.query(expression).is_empty()
    }

    /// Waits until every process is scraped and works.
    fn wait_until_well(&self) {
        let count = self.fleet.instances();
        poll_within(DATA_WITHIN, || {
            for expression in [
                &format!("sum(up) == {count}"),
                r#"min(leasehold_store_connected{purpose="requests"}) == 1"#,
                r#"sum(rate(leasehold_renewals_total{outcome="renewed"}[10s])) > 0"#,
                r#"sum(rate(leasehold_acquisitions_total{group="turnstile", outcome="acquired"}[10s])) > 0"#,
                r#"sum(rate(leasehold_fence_checks_total{outcome="admitted"}[10s])) > 0"#,
                r#"min(increase(leasehold_run_exits_total{reason="success", name!="worker"}[20s])) > 0"#,
                r#"sum(leasehold_lease_held{name="leader"}) == 1"#,
                "leasehold_store_leases > 0",
            ] {
                if !self.sees(expression) {
                    return Err(expression.to_owned());
                }
            }
            Ok(())
        });
    }

    /// Waits for each alert that is meant for this fault, which began at this moment.
    fn wait_for_alerts(&mut self, fault: Fault, at: leasehold::clock::Instant) {
        for (_, alert) in EXPECTED.iter().filter(|(of, _)| *of == fault) {
            poll_within(SEEN_WITHIN, || match self.sees(alert) {
                true => Ok(()),
                false => Err(format!("{alert} after {fault:?}")),
            });
            let took = Monotonic.now().since(at).as_secs_f64();
            writeln!(self.report, "{took:5.1} s  {fault:?}  {alert}").unwrap();
        }
    }

    /// Fails if one of the alerts that are meant for this fault fires before it.
    fn assert_quiet_before(&self, fault: Fault) {
        for (_, alert) in EXPECTED.iter().filter(|(of, _)| *of == fault) {
            let states = self.prometheus.query(alert).into_iter();
            let mut states = states.map(|series| series["metric"]["alertstate"].clone());
            let fires = states.any(|state| state == "firing");
            assert!(!fires, "{alert} before {fault:?}");
        }
    }

    fn stage(&mut self, fault: Fault) {
        self.assert_quiet_before(fault);
        // Of a paused writer the fault is its waking.
        if fault == Fault::PausedWriter {
            self.fleet.pause_writer("writer-1").unwrap();
        }
        let at = Monotonic.now();
        match fault {
            Fault::PausedWriter => self.fleet.resume_writer("writer-1").unwrap(),
            Fault::StoppedServer => self.fleet.stop_server().unwrap(),
            _ => self.fleet.stage(fault).unwrap(),
        }
        self.wait_for_alerts(fault, at);
        if fault == Fault::StoppedServer {
            self.fleet.resume_server().unwrap();
            self.wait_until_well();
        }
    }

    /// How many values this panel's queries have had since the begin; each must have some.
    fn values(&self, panel: &Panel) -> Result<Vec<usize>, String> {
        let counts = panel.expressions().into_iter().map(|expression| {
            let values = self
                .prometheus
                .values_since(&filled_in(expression), self.began);
            match values.iter().filter(|value| !value.is_nan()).count() {
                0 => Err(format!("{} has no data: {expression}", panel.location())),
                count => Ok(count),
            }
        });
        counts.collect()
    }
}

#[test]
fn every_panel_has_data_and_every_fault_its_alert() {
    let mut stage = Stage::set();
    stage.wait_until_well();
    let critical = r#"ALERTS{severity="critical", alertstate="firing"}"#;
    let early = stage.prometheus.values_since(critical, stage.began);
    let active = stage.prometheus.data("alerts");
    assert!(early.is_empty(), "before the first fault: {active}");

    for fault in Fault::ALL {
        stage.stage(fault);
    }
    for panel in Panel::all() {
        let counts = poll_within(DATA_WITHIN, || stage.values(&panel));
        writeln!(stage.report, "{}: {counts:?}", panel.location()).unwrap();
    }
    assert_texts_are_filled_in(&stage.prometheus.data("alerts"));
    println!("{}", stage.report);
}

fn assert_texts_are_filled_in(alerts: &Value) {
    let alerts = alerts["alerts"].as_array().unwrap();
    assert!(!alerts.is_empty());
    for alert in alerts {
        let text = alert["annotations"].to_string();
        for fault in ["<no value>", "error", "{{"] {
            assert!(!text.contains(fault), "{text}");
        }
    }
}

/// A process of the fleet is this test binary, started again for this test with a variable set.
#[test]
fn a_member_of_the_fleet_plays_its_role() {
    match member::role() {
        Some(role) => member::run(&role).unwrap(),
        // In the suite itself there is no fleet: only that a role comes through its text as it was.
        None => assert!(std::env::var_os(member::ROLE).is_none()),
    }
}
