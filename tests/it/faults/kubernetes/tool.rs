//! The tool on it.

use crate::harness::kubernetes_server::{ACCOUNT, Namespace};
use crate::tool::{any_store, on_kubernetes};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_runs_has_the_name_and_an_evicted_job_ends_with_79() {
    let url = Namespace::make().await.url();
    any_store::one_of_two_runs_has_the_name_and_an_evicted_job_ends_with_79(&url);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_see_and_evict_what_is_held() {
    let urls = [Namespace::make().await.url(), Namespace::make().await.url()];
    any_store::operators_see_and_evict_what_is_held(urls.each_ref().map(String::as_str));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_tries_the_store_and_names_the_rights_that_are_missing() {
    let namespace = Namespace::make().await;
    any_store::the_doctor_says(&namespace.url(), &["ok       trial: "]);
    let missing = [
        "kubernetes-right",
        "may not patch leases in the namespace",
        "Bind a role",
    ];
    any_store::the_doctor_says(&namespace.url_as(ACCOUNT), &missing);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_is_not_there_is_78() {
    let mut namespace = Namespace::make().await;
    namespace.name = "absent".into();
    on_kubernetes::a_namespace_that_is_not_there_is_78(&namespace.url());
}
