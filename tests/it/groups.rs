//! What is counted is counted under the client's group.

use std::sync::{Arc, Mutex};

use leasehold::store::memory::Memory;
use leasehold::{Client, ErrorKind};
use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};

use crate::harness::alone::alone;

/// Keeps every metric that was touched, with its group.
#[derive(Default)]
struct Touched(Mutex<Vec<(String, Option<String>)>>);

impl Touched {
    fn note(&self, key: &Key) {
        let group = key.labels().find(|label| label.key() == "group");
        let group = group.map(|label| label.value().to_owned());
        self.0.lock().unwrap().push((key.name().to_owned(), group));
    }

    fn has(&self, name: &str, group: &str) -> bool {
        let touched = self.0.lock().unwrap();
        touched.contains(&(name.to_owned(), Some(group.to_owned())))
    }
}

impl Recorder for Touched {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.note(key);
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.note(key);
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.note(key);
        Histogram::noop()
    }
}

/// Acquires and releases once, on this thread, and answers what was counted here.
fn counted(group: Option<&str>) -> Touched {
    let touched = Touched::default();
    with_local_recorder(&touched, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let builder = Client::builder().store(Memory::new());
            let builder = match group {
                Some(group) => builder.group(group),
                None => builder,
            };
            let client = builder.build().await.unwrap();
            client.acquire("a").await.unwrap().release().await;
        });
    });
    touched
}

const COUNTED: [&str; 4] = [
    "leasehold_acquisitions_total",
    "leasehold_held_leases",
    "leasehold_hold_duration_seconds",
    "leasehold_releases_total",
];

/// In a process of its own: a new client touches the gauges of its group only while no other client of that group lives,
/// and most other tests use the default group.
#[test]
fn leases_are_counted_under_the_group_of_their_client() {
    alone(|| {
        let named = counted(Some("nightly"));
        let plain = counted(None);
        for name in COUNTED {
            assert!(named.has(name, "nightly"), "{name}");
            assert!(!named.has(name, "default"), "{name}");
            assert!(plain.has(name, "default"), "{name}");
        }
    });
}

#[tokio::test]
async fn a_bad_group_is_refused_before_the_store_is_opened() {
    let store = Arc::new(Memory::new());
    let builder = Client::builder().shared_store(store).group("a\nb");
    let error = builder.build().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("a\\nb"), "{error}");
}
