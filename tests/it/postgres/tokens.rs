//! Tokens rise though the rows are gone.

use super::store;
use crate::harness::asking::next_token;

#[tokio::test]
async fn tokens_rise_though_the_rows_were_deleted() {
    let (database, store) = store().await;
    let first = next_token(&*store, "a").await;
    let stranger = database.connect().await;
    for sql in ["TRUNCATE leasehold.lease", "DELETE FROM leasehold.lease"] {
        stranger.batch_execute(sql).await.expect(sql);
        let next = next_token(&*store, "a").await;
        assert!(next > first, "{next} after {first}");
    }
}
