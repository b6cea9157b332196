//! The log: at debug it tells the whole life of a lease, and above debug nothing of a healthy one. Each event has the
//! fields `name`, `token` and `group`, as far as there is one: a call to acquire has no token before its grant.

use std::io::{Result, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::fence::gate::Gate;
use leasehold::store::memory::Memory;
use leasehold::store::{Eviction, Store};
use leasehold::{Client, Name, Token};
use serde_json::Value;
use tracing_subscriber::filter::LevelFilter;

use crate::harness::alone::{alone_as, test_of};
use crate::harness::times::PATIENCE;
use crate::harness::wait::until;

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

    /// The fields of each event of this library, and its level.
    fn events(&self) -> Vec<Value> {
        let bytes = self.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let is_ours = |event: &Value| event["target"].as_str().unwrap().starts_with("leasehold");
        let ours = lines.filter(is_ours);
        let fields = ours.map(|mut event: Value| {
            let mut fields = event["fields"].take();
            fields["level"] = event["level"].take();
            fields
        });
        fields.collect()
    }

    /// Waits for the event with this message about a lease, and fails unless it has this level and all fields.
    async fn tells_all(&self, message: &str, level: &str) -> Value {
        let event = self.tells("a", message).await;
        assert_eq!(event["level"], level, "{event}");
        assert!(event["token"].is_u64(), "{event}");
        assert_eq!(event["group"], "logged", "{event}");
        event
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

fn with_log(level: LevelFilter, body: impl AsyncFnOnce(Log)) {
    alone_as(test_of(&body), || {
        let log = Log::from(level);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(body(log));
    });
}

async fn logging_client(store: &Memory) -> Client {
    let builder = Client::builder().store(store.clone()).group("logged");
    builder.ttl(Duration::from_secs(3)).build().await.unwrap()
}

/// One client has the name, another waits for it, gets it, has it renewed, writes through a fence, and releases it.
async fn hand_over(store: &Memory) {
    let [first, second] = [logging_client(store).await, logging_client(store).await];
    let lease = first.acquire("a").await.unwrap();
    let waiting = second.request("a").acquire();
    let waiting = tokio::spawn(async move { waiting.await.unwrap() });
    let in_queue = async || {
        let held = store.inspect(lease.name(), PATIENCE).await.unwrap();
        held.filter(|held| held.waiting == Some(1))
    };
    until("a waiting client", in_queue).await;
    lease.release().await;
    let lease = waiting.await.unwrap();
    let term = lease.term().unwrap();
    let renewed = lease.renewed_past(term.deadline());
    tokio::time::timeout(PATIENCE, renewed)
        .await
        .unwrap()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::open(folder.path().join("fences")).await.unwrap();
    gate.raise("ledger", &lease).await.unwrap();
    lease.release().await;
}

#[test]
fn an_acquire_that_waits_is_told_from_its_begin_to_its_grant() {
    with_log(LevelFilter::DEBUG, async |log| {
        hand_over(&Memory::new()).await;
        for message in [
            "acquire begins",
            "acquire waits: another holder has the name",
            "acquire ended",
        ] {
            let event = log.tells("a", message).await;
            assert_eq!(event["level"], "DEBUG");
            assert_eq!(event["group"], "logged", "{event}");
        }
        log.tells_all("lease granted", "DEBUG").await;
    });
}

#[test]
fn a_batch_of_renewals_is_told_and_each_lease_in_it() {
    with_log(LevelFilter::DEBUG, async |log| {
        hand_over(&Memory::new()).await;
        log.tells_all("lease renewed", "DEBUG").await;
        let batch = async || {
            let mut events = log.events().into_iter();
            events.find(|event| event["message"] == "batch of renewals answered")
        };
        let batch = until("a batch", batch).await;
        assert_eq!(batch["level"], "DEBUG");
        assert_eq!(batch["group"], "logged");
        assert_eq!(
            (&batch["leases"], &batch["unknown"]),
            (&1.into(), &0.into())
        );
    });
}

#[test]
fn a_release_is_told_with_its_outcome() {
    with_log(LevelFilter::DEBUG, async |log| {
        hand_over(&Memory::new()).await;
        let ended = log.tells_all("lease ended", "DEBUG").await;
        assert_eq!(ended["end"], "released");
        let released = log.tells_all("release ended", "DEBUG").await;
        assert_eq!(released["outcome"], "released");
    });
}

#[test]
fn a_check_by_a_fence_is_told_with_the_group_of_the_lease() {
    with_log(LevelFilter::DEBUG, async |log| {
        hand_over(&Memory::new()).await;
        let check = log.tells_all("fence checked a pass", "DEBUG").await;
        assert_eq!(
            (&check["fence"], &check["outcome"]),
            (&"gate".into(), &"admitted".into())
        );
    });
}

#[test]
fn a_write_that_a_fence_refuses_is_a_warning() {
    with_log(LevelFilter::WARN, async |log| {
        let client = logging_client(&Memory::new()).await;
        let lease = client.acquire("a").await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let gate = Gate::open(folder.path().join("fences")).await.unwrap();
        let mut newer = lease.pass().unwrap();
        newer.token = Token::new(newer.token.get() + 1).unwrap();
        gate.raise("ledger", &newer).await.unwrap();
        gate.raise("ledger", &lease).await.unwrap_err();
        let refused = log.tells_all("a fence refused a write", "WARN").await;
        assert_eq!(refused["token"], lease.token().get());
        assert_eq!(refused["reason"], "stale");
    });
}

#[test]
fn debug_tells_the_life_of_a_lease_in_order() {
    with_log(LevelFilter::DEBUG, async |log| {
        hand_over(&Memory::new()).await;
        let life = [
            "lease granted",
            "lease renewed",
            "fence checked a pass",
            "release ended",
        ];
        let whole = async || {
            let told = of_last_token(log.events());
            life.iter()
                .all(|message| told.contains(&(*message).into()))
                .then_some(told)
        };
        let told = until("a whole life", whole).await;
        let index = |message| told.iter().position(|told| told == message);
        assert!(life.map(index).is_sorted(), "{told:?}");
    });
}

/// The messages about the last lease, in their order.
fn of_last_token(events: Vec<Value>) -> Vec<String> {
    let last = events
        .iter()
        .filter_map(|event| event["token"].as_u64())
        .max();
    let of_last = events
        .iter()
        .filter(|event| event["token"].as_u64() == last);
    let messages = of_last.filter_map(|event| event["message"].as_str());
    messages.map(Into::into).collect()
}

#[test]
fn a_healthy_hand_over_is_silent_above_debug() {
    with_log(LevelFilter::INFO, async |log| {
        hand_over(&Memory::new()).await;
        assert_eq!(log.events(), Vec::<Value>::new());
    });
}

#[test]
fn a_loss_is_a_warning_with_name_token_and_group() {
    with_log(LevelFilter::WARN, async |log| {
        let client = logging_client(&Memory::new()).await;
        let lease = client.acquire("a").await.unwrap();
        let name = Name::new("a").unwrap();
        let evicted = client
            .store()
            .evict(&name, Eviction::Marked, PATIENCE)
            .await;
        assert!(evicted.unwrap());
        lease.lost().await;
        let loss = log.tells_all("lease lost", "WARN").await;
        assert_eq!(loss["token"], lease.token().get());
        assert_eq!(loss["reason"], "evicted");
        assert_eq!(log.events().len(), 1);
    });
}
