//! Checks at guarded storage, in a process that has no client.

use leasehold::fence::Pass;
use leasehold::fence::gate::Gate;
use leasehold::{ClientId, Holder, Name, Token};

use super::exporter::Exporter;
use crate::harness::alone::alone;

fn pass(claim: u64, token: u64) -> Pass {
    let holder = Holder::new(ClientId::from_u128(7), claim);
    Pass::new(Name::new("a").unwrap(), holder, Token::new(token).unwrap())
}

#[test]
fn each_outcome_of_a_check_is_counted_and_timed() {
    alone(
        "metrics::fences::each_outcome_of_a_check_is_counted_and_timed",
        || {
            let seen = Exporter::install();
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let folder = tempfile::tempdir().unwrap();
                let gate = Gate::open(folder.path().join("fences")).await.unwrap();
                drop(gate.enter("ledger", &pass(1, 5)).await.unwrap());
                gate.enter("ledger", &pass(1, 4)).await.unwrap_err();
                gate.enter("ledger", &pass(2, 5)).await.unwrap_err();
                let inside = gate.enter("ledger", &pass(1, 5)).await.unwrap();
                let hasty = gate.clone().with_patience(std::time::Duration::ZERO);
                hasty.enter("ledger", &pass(3, 6)).await.unwrap_err();
                drop(inside);
                for (outcome, count) in [
                    ("admitted", 2.0),
                    ("stale", 1.0),
                    ("conflict", 1.0),
                    ("failed", 1.0),
                ] {
                    let labels = ["fence=\"gate\"", &format!("outcome=\"{outcome}\"")];
                    let value = seen.value("leasehold_fence_checks_total", &labels);
                    assert_eq!(value, Some(count), "{outcome}");
                }
                let timed = "leasehold_fence_check_duration_seconds_count";
                assert_eq!(seen.value(timed, &["fence=\"gate\""]), Some(5.0));
            });
        },
    );
}
