//! Permits, shared names, leaders, and jobs that run once.

use crate::harness::kubernetes_server::Namespace;
use crate::pools::stores;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_keep_apart() {
    stores::pools_keep_apart(stores::clients_at(&Namespace::make().await.url()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fire_runs_once_also_for_a_process_that_comes_late() {
    stores::a_fire_runs_once(&Namespace::make().await.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_see_each_leader_and_its_label_and_the_next_one_leads() {
    stores::followers_see_each_leader(&Namespace::make().await.url()).await;
}
