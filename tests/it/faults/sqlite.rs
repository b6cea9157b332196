//! Crowds on one file: many processes that wait, and what one of them costs.

use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};
use leasehold::store::sqlite::Sqlite;

use crate::harness::asking::{claim, granted, renewed};
use crate::harness::times::LONG;
use crate::sqlite::bells::{AT_ONCE, Bench, Ear, told_of};

/// More than a user may have of some other kinds of events.
const CROWD: usize = 150;

#[tokio::test]
async fn each_of_150_waiting_processes_of_one_user_has_its_event() {
    let bench = Bench::new();
    let store = Sqlite::open(bench.file()).await.expect("it opens");
    let names: Vec<_> = (0..CROWD).map(|index| format!("crowd/{index}")).collect();
    let holders: Vec<_> = names.iter().map(|name| claim(name, LONG)).collect();
    for holder in &holders {
        granted(&store, holder).await;
    }
    let ears = names.iter().map(|name| Ear::start(&bench.file(), name));
    let ears: Vec<_> = ears.collect();
    let mut took = Vec::new();
    for (holder, ear) in holders.iter().zip(&ears) {
        took.push(told_of(&store, ear, holder).await);
    }
    took.sort_unstable();
    println!(
        "half within {:?}, all within {:?}",
        took[CROWD / 2],
        took[CROWD - 1]
    );
    // A few may look by time at that moment. Without an event a tenth of them would be later.
    assert!(took[CROWD * 9 / 10] < AT_ONCE, "{took:?}");
}

#[tokio::test]
async fn a_waiting_process_costs_next_to_nothing_beside_200_renewals_a_second_as_well() {
    let bench = Bench::new();
    let store = Sqlite::open(bench.file()).await.expect("it opens");
    granted(&store, &claim("a", LONG)).await;
    let ear = Ear::start(&bench.file(), "a");
    let other = claim("b", LONG);
    granted(&store, &other).await;
    for renewals in [0, 1_000] {
        let (began, before) = (Monotonic.now(), ear.ran());
        for round in 0..renewals {
            renewed(&store, &other).await;
            let next = began.after(Duration::from_millis(5) * round);
            Monotonic.sleep_until(next).await;
        }
        Monotonic
            .sleep_until(began.after(Duration::from_secs(10)))
            .await;
        let share = (ear.ran() - before).as_secs_f64() / 10.0;
        println!("{renewals} renewals: {:.3} % of a core", share * 100.0);
        assert!(share < 0.003, "{renewals} renewals: {share}");
    }
}
