//! The contract, pools, jobs that run once, and leaders.

use std::time::{Duration, SystemTime};

use crate::conformance::check_at;
use crate::harness::leases::client_at;
use crate::harness::mysql_server::MysqlServer;
use crate::harness::times::{LONG, PATIENCE};
use crate::harness::wait::soon;
use crate::pools::stores::{clients_at, pools_keep_apart};

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
    let url = MysqlServer::shared().await.url().await;
    let fire_at = |hour: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(3_600 * hour);
    for (hour, is_new) in [(2, true), (2, false), (3, true)] {
        let late = client_at(&url, LONG).await;
        let fire = late.request("report").once(fire_at(hour)).await;
        let fire = fire.expect("answered");
        assert_eq!(fire.is_some(), is_new, "{hour}");
        if let Some(fire) = fire {
            fire.done().await;
        }
        late.shutdown(PATIENCE).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_see_each_leader_and_its_label_and_the_next_one_leads() {
    let url = MysqlServer::shared().await.url().await;
    let (one, other) = (client_at(&url, LONG).await, client_at(&url, LONG).await);
    let leads = one.request("leader").label("blue").acquire().await;
    let leads = leads.expect("free");
    let mut holders = other.holders("leader").expect("a name");
    let seen = soon(holders.next()).await;
    let seen = seen.expect("answered").expect("one leads");
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
