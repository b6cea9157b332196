//! Permits, shared names, leaders, and jobs that run once.

use std::time::{Duration, SystemTime};

use crate::harness::kubernetes_server::Namespace;
use crate::harness::leases::client_at;
use crate::harness::times::{LONG, PATIENCE};
use crate::harness::wait::soon;
use crate::pools::stores;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_keep_apart() {
    stores::pools_keep_apart(stores::clients_at(&Namespace::make().await.url()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fire_runs_once_also_for_a_process_that_comes_late() {
    let url = Namespace::make().await.url();
    let fire_at = |hour: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(3_600 * hour);
    let one = client_at(&url, LONG).await;
    let fire = one
        .request("report")
        .once(fire_at(2))
        .await
        .expect("answered");
    fire.expect("it is new").done().await;
    for (hour, is_new) in [(2, false), (3, true)] {
        let late = client_at(&url, LONG).await;
        let fire = late
            .request("report")
            .once(fire_at(hour))
            .await
            .expect("answered");
        assert_eq!(fire.is_some(), is_new, "{hour}");
        late.shutdown(PATIENCE).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_see_each_leader_and_its_label_and_the_next_one_leads() {
    let url = Namespace::make().await.url();
    let (one, other) = (client_at(&url, LONG).await, client_at(&url, LONG).await);
    let leads = one
        .request("leader")
        .label("blue")
        .acquire()
        .await
        .expect("free");
    let mut holders = other.holders("leader").expect("a name");
    let seen = soon(holders.next())
        .await
        .expect("answered")
        .expect("one leads");
    assert_eq!(
        (seen.info.label.as_deref(), seen.token),
        (Some("blue"), Some(leads.token()))
    );
    let next = tokio::spawn(other.request("leader").lead(async |lease| lease.token()));
    let token = leads.token();
    leads.release().await;
    let next = soon(next).await.expect("no panic").expect("it led");
    assert!(next > token, "{next} after {token}");
}
