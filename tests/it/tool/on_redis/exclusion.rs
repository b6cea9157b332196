//! Runs of one name on a server, at the same time.

use super::Site;

#[tokio::test]
async fn runs_exclude_each_other_and_tokens_rise() {
    let site = Site::start().await;
    let script = "mkdir busy || echo overlap > overlap
        sleep 0.2; echo $LEASEHOLD_TOKEN >> tokens; rmdir busy";
    let mut runs: Vec<_> = (0..3)
        .map(|_| site.run(&["--ttl", "10s"], script))
        .collect();
    for run in &mut runs {
        let ended = run.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    let tokens = site.sandbox.numbers("tokens");
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    assert!(!site.sandbox.has("overlap"));
}
