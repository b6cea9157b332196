//! A quorum keeps the contract although a member is gone or hangs.

use crate::conformance::a_quorum_without_a_member_keeps_the_contract;

#[tokio::test]
async fn a_quorum_of_five_with_a_dead_member_keeps_the_contract() {
    a_quorum_without_a_member_keeps_the_contract(5, |member| member.kill()).await;
}

#[tokio::test]
async fn a_quorum_of_three_with_a_member_that_hangs_keeps_the_contract() {
    a_quorum_without_a_member_keeps_the_contract(3, |member| member.pause()).await;
}
