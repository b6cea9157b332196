//! Each bug that is planted in the functions is seen by the scenario that is for it.

use crate::harness::postgres_server::PostgresServer;
use crate::postgres::planted::{SCENARIOS, play};

#[tokio::test]
async fn every_planted_bug_is_seen() {
    let database = PostgresServer::database().await;
    let mut unseen = Vec::new();
    for (index, (name, scenario, bugs)) in SCENARIOS.iter().enumerate() {
        for (bug_index, bug) in bugs.iter().enumerate() {
            let schema = format!("bug_{index}_{bug_index}");
            match play(&database, &schema, *scenario, Some(*bug)).await {
                Ok(()) => unseen.push((name, bug)),
                Err(seen) => println!("{name}: {seen}"),
            }
        }
    }
    assert!(unseen.is_empty(), "{unseen:#?}");
}
