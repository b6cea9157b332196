//! The example that shows the metrics of a lease.

#[expect(dead_code, reason = "the test runs all of it but `main`")]
#[path = "../../../examples/services/prometheus.rs"]
mod example;

use crate::harness::alone::alone;
use crate::metrics::text::check_text;

#[test]
fn the_example_shows_histograms_and_what_is_held() {
    alone(|| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let text = runtime.block_on(example::scraped()).unwrap();
        check_text(&text);
        for line in [
            "leasehold_held_leases{group=\"reports\"} 1\n",
            "leasehold_acquisitions_total{group=\"reports\",outcome=\"acquired\"} 2\n",
            "leasehold_hold_duration_seconds_bucket{group=\"reports\",end=\"released\",le=\"+Inf\"} 1\n",
        ] {
            assert!(text.contains(line), "no {line} in {text}");
        }
    });
}
