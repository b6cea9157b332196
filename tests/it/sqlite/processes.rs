//! Several processes on one file, and what a kill leaves of it.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};

use super::child::Child;
use super::{LONG, claim, granted, integrity, open, pass_time};

#[test]
fn four_processes_get_2000_contended_grants_one_after_the_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("leases.sqlite");
    let mut children: Vec<_> = (0..4).map(|_| Child::start(&file)).collect();
    let began = Monotonic.now();
    for child in &mut children {
        child.order("contend 500");
    }
    for child in &mut children {
        assert_eq!(child.answer().as_deref(), Some("done"));
    }
    let order = std::fs::read_to_string(file.with_extension("order")).expect("a file");
    let tokens: Vec<u64> = order
        .lines()
        .map(|line| line.parse().expect("a token"))
        .collect();
    assert_eq!(tokens.len(), 2_000);
    assert!(tokens.is_sorted(), "a token fell");
    assert_eq!(
        tokens.iter().collect::<BTreeSet<_>>().len(),
        2_000,
        "a token came twice"
    );
    let took = Monotonic.now().since(began);
    println!("2000 contended grants by 4 processes took {took:?}");
}

#[tokio::test]
async fn a_hundred_kills_in_mid_write_leave_the_file_whole_and_tokens_rising() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("leases.sqlite");
    let store = open(&file).await;
    let seed = fastrand::u64(..);
    println!("seed={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut last = 0;
    for _ in 0..25 {
        let mut children: Vec<_> = (0..4).map(|_| Child::start(&file)).collect();
        for child in &mut children {
            child.order("churn");
            let token = child.answer().expect("a grant");
            let token: u64 = token.parse().expect("a token");
            assert!(token > last, "{token} after {last}");
        }
        for child in &mut children {
            pass_time(Duration::from_micros(random.u64(..3_000))).await;
            child.kill();
            while let Some(token) = child.answer() {
                last = last.max(token.parse().expect("a token"));
            }
        }
        assert_eq!(integrity(&file), "ok");
        let token = granted(&store, &claim("between", Duration::from_nanos(1)))
            .await
            .get();
        assert!(token > last, "{token} after {last}");
        last = token;
    }
    granted(&store, &claim("after", LONG)).await;
}
