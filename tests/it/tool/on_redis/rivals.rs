//! The job of a tool that lost its store, its time or its life is gone before the next one's starts.

use rustix::process::Signal;

use super::Site;
use super::contest::Contest;
use crate::harness::wait::at;

#[tokio::test]
async fn a_killed_tools_job_is_gone_before_its_name_can_be_granted() {
    let mut contest = Contest::begin(Site::start().await);
    let grantable = contest.next_renewal().await;
    contest.first.signal(Signal::KILL);
    let gone = contest.first_job_gone();
    contest.assert_handed_over(gone, grantable).await;
}

#[tokio::test]
async fn a_stopped_tools_job_is_gone_before_its_name_can_be_granted() {
    let mut contest = Contest::begin(Site::start().await);
    let grantable = contest.next_renewal().await;
    contest.first.signal(Signal::STOP);
    let gone = contest.first_job_gone();
    contest.assert_handed_over(gone, grantable).await;
    contest.first.signal(Signal::CONT);
    contest.assert_first_lost();
    contest.site.server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_job_is_gone_before_a_hung_server_can_grant_its_name() {
    let mut contest = Contest::begin(Site::start().await);
    let grantable = contest.next_renewal().await;
    contest.site.server.pause();
    let gone = contest.first_job_gone();
    // All that was sent meanwhile is carried out in one go, as soon as the name may be granted.
    at(grantable).await;
    contest.site.server.resume();
    contest.assert_handed_over(gone, grantable).await;
    contest.assert_first_lost();
    contest.site.server.assert_all_keys_run_out().await;
}

#[tokio::test]
async fn a_job_whose_server_died_is_gone_before_its_name_can_be_granted() {
    let mut contest = Contest::begin(Site::start().await);
    // Before, since it may take longer than until the renewal after.
    let snapshot = contest.site.server.snapshot().await;
    let grantable = contest.next_renewal().await;
    contest.site.server.kill();
    let gone = contest.first_job_gone();
    contest.assert_first_lost();
    contest.site.server.restart_from(&snapshot).await;
    contest.assert_handed_over(gone, grantable).await;
}

// The proxy works on while the test blocks.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_job_behind_a_black_hole_is_gone_before_its_name_can_be_granted() {
    let site = Site::start().await;
    let proxy = site.server.proxy().await;
    let mut contest = Contest::begin_on(site, &proxy.url());
    let grantable = contest.next_renewal().await;
    proxy.stall();
    let gone = contest.first_job_gone();
    contest.assert_handed_over(gone, grantable).await;
    contest.assert_first_lost();
    // What the first tool sent into the hole arrives now, and neither takes the name nor leaves anything.
    proxy.flow();
    let ended = contest.site.run(&["-n"], "true").end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    contest.site.server.assert_all_keys_run_out().await;
}
