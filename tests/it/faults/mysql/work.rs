//! The contract, pools, jobs that run once, and leaders.

use crate::conformance::check_at;
use crate::harness::mysql_server::MysqlServer;
use crate::pools::stores::{
    a_fire_runs_once, clients_at, followers_see_each_leader, pools_keep_apart,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_keeps_the_contract() {
    check_at(MysqlServer::shared().await.url().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_readers_and_writers_keep_apart() {
    let url = format!("{}?poll=20ms", MysqlServer::shared().await.url().await);
    pools_keep_apart(clients_at(&url).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fire_runs_once_also_for_a_process_that_comes_late() {
    a_fire_runs_once(&MysqlServer::shared().await.url().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_see_each_leader_and_its_label_and_the_next_one_leads() {
    followers_see_each_leader(&MysqlServer::shared().await.url().await).await;
}
