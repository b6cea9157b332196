//! The log: at debug it tells the whole life of a lease, and above debug nothing of a healthy one.

use std::io::{Result, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::fence::gate::Gate;
use leasehold::store::Eviction;
use leasehold::store::memory::Memory;
use leasehold::{Client, Name};
use serde_json::Value;
use tracing_subscriber::filter::LevelFilter;

use crate::harness::alone::alone;
use crate::harness::wait::until;

const LIMIT: Duration = Duration::from_secs(10);

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Log {
    /// Logs everything of this process from this level on.
    fn from(level: LevelFilter) -> Self {
        let log = Self::default();
        let writer = log.clone();
        tracing_subscriber::fmt()
            .json()
            .with_max_level(level)
            .with_writer(move || writer.clone())
            .init();
        log
    }

    /// The fields of each event of this library.
    fn events(&self) -> Vec<Value> {
        let bytes = self.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let is_ours = |event: &Value| event["target"].as_str().unwrap().starts_with("leasehold");
        let ours = lines.filter(is_ours);
        ours.map(|event: Value| event["fields"].clone()).collect()
    }

    /// Waits for an event with this message, about this name.
    async fn tells(&self, name: &str, message: &str) -> Value {
        let told = async || {
            let mut events = self.events().into_iter();
            events.find(|event| event["message"] == message && event["name"] == name)
        };
        until(message, told).await
    }
}

fn run(test: &str, level: LevelFilter, body: impl AsyncFnOnce(Log)) {
    alone(&format!("metrics::log::{test}"), || {
        let log = Log::from(level);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(body(log));
    });
}

async fn client(store: &Memory) -> Client {
    let builder = Client::builder().store(store.clone()).group("logged");
    let (ttl, margin) = (Duration::from_millis(600), Duration::from_millis(60));
    builder.ttl(ttl).margin(margin).build().await.unwrap()
}

/// One client has the name, another waits for it, gets it, has it renewed, writes through a fence, and releases it.
async fn hand_over(store: &Memory) {
    let [first, second] = [client(store).await, client(store).await];
    let lease = first.acquire("a").await.unwrap();
    let waiting = tokio::spawn(async move { second.acquire("a").await.unwrap() });
    tokio::time::sleep(Duration::from_millis(100)).await;
    lease.release().await;
    let lease = waiting.await.unwrap();
    let term = lease.term().unwrap();
    let renewed = lease.renewed_past(term.deadline());
    tokio::time::timeout(LIMIT, renewed).await.unwrap().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::open(folder.path().join("fences")).await.unwrap();
    gate.raise("ledger", &lease).await.unwrap();
    lease.release().await;
}

#[test]
fn debug_tells_the_whole_life_of_a_lease() {
    run(
        "debug_tells_the_whole_life_of_a_lease",
        LevelFilter::DEBUG,
        async |log| {
            hand_over(&Memory::new()).await;
            log.tells("a", "lease renewed").await;
            log.tells("a", "release ended").await;
            let events = log.events();
            let of_name = events.iter().filter(|event| event["name"] == "a");
            let second = of_name
                .clone()
                .filter_map(|event| event["token"].as_u64())
                .max()
                .unwrap();
            let of_second = of_name.clone().filter(|event| event["token"] == second);
            let told: Vec<_> = of_second.map(|event| event["message"].clone()).collect();
            let place = |message: &str| {
                let place = told.iter().position(|told| *told == message);
                place.unwrap_or_else(|| panic!("no {message:?} in {told:?}"))
            };
            let life = [
                "lease granted",
                "lease renewed",
                "fence checked a pass",
                "release ended",
            ];
            assert!(life.map(place).is_sorted(), "{told:?}");
            place("lease ended");
            for message in [
                "acquire begins",
                "acquire waits: another holder has the name",
                "acquire ended",
            ] {
                assert!(
                    of_name.clone().any(|event| event["message"] == message),
                    "no {message:?} in {events:?}"
                );
            }
            for event in of_name.filter(|event| event["message"] != "fence checked a pass") {
                assert_eq!(event["group"], "logged", "{event}");
            }
        },
    );
}

#[test]
fn a_healthy_hand_over_is_silent_above_debug() {
    run(
        "a_healthy_hand_over_is_silent_above_debug",
        LevelFilter::INFO,
        async |log| {
            hand_over(&Memory::new()).await;
            assert_eq!(log.events(), Vec::<Value>::new());
        },
    );
}

#[test]
fn a_loss_is_a_warning_with_name_token_and_group() {
    run(
        "a_loss_is_a_warning_with_name_token_and_group",
        LevelFilter::WARN,
        async |log| {
            let client = client(&Memory::new()).await;
            let lease = client.acquire("a").await.unwrap();
            let name = Name::new("a").unwrap();
            let evicted = client.store().evict(&name, Eviction::Marked, LIMIT).await;
            assert!(evicted.unwrap());
            lease.lost().await;
            let loss = log.tells("a", "lease lost").await;
            assert_eq!(loss["token"], lease.token().get());
            assert_eq!(loss["group"], "logged");
            assert_eq!(loss["reason"], "evicted");
            assert_eq!(log.events().len(), 1);
        },
    );
}
