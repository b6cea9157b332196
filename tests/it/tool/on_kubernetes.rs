//! The tool on a namespace of Kubernetes. `faults::kubernetes` has the server, and calls this.

use super::Sandbox;

pub(crate) fn a_namespace_that_is_not_there_is_78(url: &str) {
    let sandbox = Sandbox::new();
    let said = sandbox.fails(&["--store", url], 78).stderr;
    assert!(said.contains("the namespace does not exist"), "{said}");
}

#[test]
fn a_machine_without_credentials_for_a_cluster_is_told_so() {
    let sandbox = Sandbox::new();
    for (kubeconfig, words) in [
        ("", "no credentials for a cluster were found"),
        ("/absent/config", "/absent/config"),
    ] {
        let mut run = sandbox.tool(&["run", "--store", "kubernetes:a", "x", "true"]);
        run.env("HOME", sandbox.path("home"))
            .env("KUBECONFIG", kubeconfig)
            .env_remove("KUBERNETES_SERVICE_HOST");
        let ended = sandbox.start(run).end();
        assert_eq!(ended.code, Some(78), "{ended:?}");
        assert!(ended.stderr.contains(words), "{ended:?}");
    }
}
