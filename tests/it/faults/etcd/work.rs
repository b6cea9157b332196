//! Jobs that run once, leaders and those who follow them.

use crate::harness::etcd_server::EtcdServer;
use crate::pools::stores;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fire_runs_once_also_for_a_process_that_comes_late() {
    stores::a_fire_runs_once(&EtcdServer::shared().await.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_see_each_leader_and_its_label_and_the_next_one_leads() {
    stores::followers_see_each_leader(&EtcdServer::shared().await.url()).await;
}
