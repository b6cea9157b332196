//! A store that says of itself that it keeps no long ttl.

use std::time::Duration;

use leasehold::store::Facts;
use leasehold::{Client, ErrorKind};

use crate::harness::faulty_store::FaultyStore;

const MOST: Duration = Duration::from_secs(20);

async fn plain_client(ttl: Duration) -> Client {
    let facts = Facts::new("plain").with_notices().with_max_ttl(MOST);
    let store = FaultyStore::new().with_facts(facts);
    let builder = Client::builder().store(store).ttl(ttl);
    builder.build().await.expect("a client")
}

#[tokio::test]
async fn a_ttl_above_what_the_store_keeps_is_refused() {
    let client = plain_client(MOST * 2).await;
    let error = client.acquire("a").await.expect_err("it is too long");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(
        error.to_string().contains("expected at most 20s"),
        "{error}"
    );
}
