//! What metrics cost: the same work with a Prometheus exporter installed and without.
//!
//! ```text
//! cargo bench -p leasehold-benches --bench exporter
//! ```
//! The exporter cannot be taken out again, so it sits behind a switch: switched off, every metric goes where it goes in a
//! program without an exporter, into a handle that does nothing. Blocks with and without alternate.
//!
//! The parts are `check`, `pairs` and `renewals`.

#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures with the clock that stands still in no suspend it would survive"
)]

use leasehold_benches as yardstick;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Attempt, Client, Lease};
use leasehold_benches::many;
use leasehold_benches::stores;
use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    set_global_recorder,
};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};

use self::many::take_many;
use self::stores::{Gated, Yes};
use self::yardstick::{Server, case, median, seconds};

const RUNS: usize = 7;

static IS_ON: AtomicBool = AtomicBool::new(false);

/// The exporter behind its switch.
struct Switched(PrometheusRecorder);

impl Switched {
    fn install() {
        let mut builder = PrometheusBuilder::new();
        for (name, bounds) in leasehold::metrics::buckets() {
            let matcher = Matcher::Full(name.into());
            builder = builder
                .set_buckets_for_metric(matcher, bounds)
                .expect("there are some");
        }
        set_global_recorder(Self(builder.build_recorder())).expect("there is none yet");
    }

    fn switch(is_on: bool) {
        IS_ON.store(is_on, Ordering::SeqCst);
    }

    fn on(&self) -> Option<&PrometheusRecorder> {
        IS_ON.load(Ordering::Relaxed).then_some(&self.0)
    }
}

impl Recorder for Switched {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
        self.0.describe_counter(key, unit, help);
    }
    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
        self.0.describe_gauge(key, unit, help);
    }
    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
        self.0.describe_histogram(key, unit, help);
    }
    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        let on = self.on();
        on.map_or_else(Counter::noop, |on| on.register_counter(key, metadata))
    }
    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        let on = self.on();
        on.map_or_else(Gauge::noop, |on| on.register_gauge(key, metadata))
    }
    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        let on = self.on();
        on.map_or_else(Histogram::noop, |on| on.register_histogram(key, metadata))
    }
}

async fn held(client: &Client, name: &str) -> Lease {
    match client.try_acquire(name).await.expect("the store answers") {
        Attempt::Acquired(lease) => lease,
        other => panic!("{other:?}"),
    }
}

async fn check() {
    const CHECKS: u32 = 1_000_000;
    let builder = Client::builder().store(Yes::store());
    let client = builder.build().await.expect("valid");
    let lease = held(&client, "a").await;
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let ns = [true, false].map(|is_on| {
            Switched::switch(is_on);
            let started = Instant::now();
            for _ in 0..CHECKS {
                black_box(&lease).check().expect("held");
            }
            seconds(started) * 1e9 / f64::from(CHECKS)
        });
        runs.push(ns.into());
    }
    case("check_ns_with_exporter_vs_without", "ns", &runs);
}

/// Pairs of acquire and release, one after the other.
async fn pairs(server: &Server) {
    const BLOCKS: usize = 20;
    const BLOCK: usize = 50;
    let client = Client::open(server.url()).await.expect("the store opens");
    held(&client, "warm").await.release().await;
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let mut times = [Vec::new(), Vec::new()];
        for block in 0..2 * BLOCKS {
            Switched::switch(block % 2 == 0);
            for _ in 0..BLOCK {
                let started = Instant::now();
                held(&client, "ours").await.release().await;
                times[block % 2].push(seconds(started) * 1e6);
            }
        }
        runs.push(times.map(median).into());
    }
    let name = "acquire_release_1_task_p50_with_exporter_vs_without";
    case(name, "us", &runs);
}

/// Renewals a second when everything is due at once.
async fn renewals(server: &Server) {
    const TTL: Duration = Duration::from_secs(6);
    let url = server.url();
    let store = leasehold::store::open(&url).await.expect("the store opens");
    let (store, gate) = Gated::new(store);
    let builder = Client::builder().store(store.clone()).ttl(TTL);
    let client = builder.build().await.expect("valid");
    let leases = take(&client).await;
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let mut rates = (0.0, 0.0);
        for is_on in [true, false] {
            Switched::switch(is_on);
            let rate = store.burst(&gate, LEASES, TTL).await;
            *(if is_on { &mut rates.0 } else { &mut rates.1 }) = rate;
        }
        runs.push(rates);
    }
    let name = "renewals_per_s_with_exporter_vs_without";
    case(name, "renewals/s", &runs);
    for lease in &leases {
        lease.check().expect("none is lost");
    }
}

const LEASES: usize = 50_000;

async fn take(client: &Client) -> Vec<Lease> {
    take_many(client, LEASES, |client, index| async move {
        held(&client, &format!("renewed-{index:012}")).await
    })
    .await
}

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let is_wanted = |part: &str| wanted.is_empty() || wanted.iter().any(|word| word == part);
    Switched::install();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let server = Server::start().await;
        if is_wanted("check") {
            check().await;
        }
        if is_wanted("pairs") {
            pairs(&server).await;
        }
        if is_wanted("renewals") {
            renewals(&server).await;
        }
    });
}
