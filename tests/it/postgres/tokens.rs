//! Tokens rise though the rows are gone.

use leasehold::{ErrorKind, Token};

use super::store;
use crate::harness::asking::{asked, claim, granted, next_token, released};
use crate::harness::times::{LIMIT, LONG};

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

#[tokio::test]
async fn a_floor_that_the_last_token_reached_has_no_effect_however_far_ahead() {
    let (database, store) = store().await;
    let seen = next_token(&*store, "a").await.get() + 2 * 86_400_000_000;
    let stranger = database.connect().await;
    let ahead = format!("UPDATE leasehold.lease SET token = {seen}");
    stranger.batch_execute(&ahead).await.expect("updated");
    let seen = Token::new(seen).expect("a token");
    let claim_above = |floor: u64| claim("a", LONG).with_floor(Token::new(floor).expect("a token"));
    let claim = claim_above(seen.get());
    let token = granted(&*store, &claim).await;
    assert_eq!(token.get(), seen.get() + 1);
    released(&*store, &claim).await;
    let refused = asked(&*store, &claim_above(token.get() + 1), LIMIT).await;
    assert_eq!(refused.expect_err("too far").kind(), ErrorKind::Invalid);
}
