//! How long the commands of the tool take to give up on each store, one after the other.

use crate::tool::times;

#[tokio::test]
async fn every_limit_ends_within_half_a_second_of_itself_on_every_store() {
    times::on_every_store().await;
}
