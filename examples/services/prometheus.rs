//! Shows the metrics of a lease as Prometheus sees them. Needs no server.
//!
//! ```text
//! cargo run -p leasehold-examples --example prometheus
//! ```
//! A service would not print them but serve them: with its feature `http-listener`, the exporter does so itself
//! (`builder.with_http_listener(([127, 0, 0, 1], 9000)).install()`).

use std::error::Error;

use leasehold::Client;
use leasehold::store::memory::Memory;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

/// Installs the exporter. Without the buckets it would show summaries, which cannot be added up over processes.
fn install() -> Result<PrometheusHandle, BuildError> {
    let mut builder = PrometheusBuilder::new();
    for (name, bounds) in leasehold::metrics::buckets() {
        builder = builder.set_buckets_for_metric(Matcher::Full(name.into()), bounds)?;
    }
    builder.install_recorder()
}

/// Holds a lease, releases another, and returns what a scrape would get.
pub(crate) async fn scraped() -> Result<String, Box<dyn Error>> {
    let exporter = install()?;
    let builder = Client::builder().store(Memory::new()).group("reports");
    let client = builder.build().await?;
    client.acquire("weekly").await?.release().await;
    let _held = client.acquire("nightly").await?;
    // Counters and gauges are told once a second; this program ends before.
    leasehold::metrics::update();
    exporter.run_upkeep();
    Ok(exporter.render())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    print!("{}", scraped().await?);
    Ok(())
}
