//! What the tool does alike on each store. The modules of the stores, and `faults`, have the servers, and call this.

use super::{HOLDER, Sandbox, operators, top};

pub(crate) fn one_of_two_runs_has_the_name_and_an_evicted_job_ends_with_79(url: &str) {
    let sandbox = Sandbox::new();
    let store = ["--store", url];
    let mut job = sandbox.run(&[&store[..], &["--ttl", "4s"]].concat(), HOLDER);
    sandbox.mark("first");
    let held = sandbox.run(&[&store[..], &["-n"]].concat(), "true").end();
    assert_eq!(held.code, Some(75), "{held:?}");
    let evict = [&["evict"], &store[..], &["x"]].concat();
    assert_eq!(sandbox.start(sandbox.tool(&evict)).end().code, Some(0));
    let ended = job.end();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(ended.stderr.contains("reason=evicted"), "{ended:?}");
}

pub(crate) fn operators_see_and_evict_what_is_held([one, other]: [&str; 2]) {
    operators::evict_and_ask(one);
    top::see_and_evict(other);
}

/// Expects all these words in what the doctor says of this store.
pub(crate) fn the_doctor_says(url: &str, words: &[&str]) {
    let sandbox = Sandbox::new();
    let told = sandbox
        .start(sandbox.tool(&["doctor", "--store", url]))
        .end();
    for words in words {
        assert!(told.stdout.contains(words), "{words}: {told:?}");
    }
}
