//! The tool on a server behind TLS. Apart from its other tests on servers, since not every one is built with it.

use super::{Ended, Sandbox};
use crate::harness::postgres_server::PostgresServer;
use crate::harness::redis_server::Setup;
use crate::harness::tls::{Authority, TlsServer};

/// What became of the tool with these arguments, in an environment with these variables besides.
fn in_environment(arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    let sandbox = Sandbox::new();
    let mut tool = sandbox.tool(arguments);
    // The machine's own would be read besides.
    tool.env_remove("SSL_CERT_DIR");
    tool.envs(variables.iter().copied());
    sandbox.start(tool).end()
}

/// A run on this store that must fail so, before its command is started.
fn fails_over_tls(url: &str, code: i32) -> Ended {
    Sandbox::new().fails(&["--store", url], code)
}

#[tokio::test]
async fn runs_on_a_server_behind_tls_exclude_each_other() {
    let server = TlsServer::start().await;
    let sandbox = Sandbox::new();
    let url = server.trusting_url();
    let script = "echo $LEASEHOLD_TOKEN > first; until test -e go; do sleep 0.02; done; exit 4";
    let mut first = sandbox.run(&["--store", &url], script);
    let token = sandbox.numbers("first")[0];
    let tried = sandbox.run(&["--store", &url, "-n"], "true").end();
    assert_eq!(tried.code, Some(75), "{tried:?}");
    let mut second = sandbox.run(&["--store", &url], "echo $LEASEHOLD_TOKEN > second");
    second.wait_to_say("waiting for");
    sandbox.let_go();
    assert_eq!(first.end().code, Some(4));
    assert_eq!(second.end().code, Some(0));
    assert!(sandbox.numbers("second")[0] > token);
}

#[tokio::test]
async fn a_certificate_that_no_authority_signed_is_78_and_said() {
    let server = TlsServer::start().await;
    let ended = fails_over_tls(&server.url(), 78);
    assert!(ended.stderr.contains("certificate"), "{ended:?}");
    assert!(
        ended.stderr.contains(&server.port().to_string()),
        "{ended:?}"
    );
}

#[tokio::test]
async fn a_certificate_of_another_host_is_78_and_said() {
    let server = TlsServer::start().await;
    let url = server.trusting_url().replace("localhost", "127.0.0.1");
    let ended = fails_over_tls(&url, 78);
    assert!(ended.stderr.contains("certificate"), "{ended:?}");
}

#[test]
fn a_file_of_certificates_that_is_not_there_is_64() {
    let ended = fails_over_tls("rediss://localhost:1?ca=/no/such/file", 64);
    assert!(ended.stderr.contains("/no/such/file"), "{ended:?}");
}

#[tokio::test]
async fn a_client_or_a_server_without_tls_is_a_failure_that_names_the_store() {
    let server = TlsServer::start().await;
    let ended = fails_over_tls(&server.url().replace("rediss", "redis"), 69);
    assert!(
        ended.stderr.contains(&server.port().to_string()),
        "{ended:?}"
    );
    let server = Setup::default().with_port().start().await;
    let port = server.port().to_string();
    // To the server our first words are the beginning of a long line, whose end it waits for.
    let ended = fails_over_tls(&format!("rediss://localhost:{port}"), 69);
    assert!(ended.stderr.contains(&port), "{ended:?}");
}

#[tokio::test]
async fn a_store_behind_tls_takes_from_the_environment_what_its_url_leaves_open() {
    let authority = Authority::new();
    let redis = TlsServer::with(authority.issue("db.example"), true).await;
    let postgres = PostgresServer::start_for_known_clients(&authority.issue("db.example")).await;
    let port = postgres.port();
    let postgres = format!("postgres://postgres@localhost:{port}/postgres?sslmode=require");
    let client = authority.issue("worker");
    let [ca, certificate, key] =
        [authority.path(), client.path(), client.key()].map(|path| path.display().to_string());
    let all = [
        ("LEASEHOLD_TLS_CA", &*ca),
        ("LEASEHOLD_TLS_CERT", &certificate),
        ("LEASEHOLD_TLS_KEY", &key),
        ("LEASEHOLD_TLS_SERVER_NAME", "db.example"),
    ];
    let ended = in_environment(&["init", "--store", &postgres], &all);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for url in [&redis.url(), &postgres] {
        let run = ["run", "--store", url, "x", "--", "true"];
        let ended = in_environment(&run, &all);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        // Without any one of them it fails; half of a certificate is found before anything is sent.
        for missing in 0..all.len() {
            let mut some = all.to_vec();
            let (variable, _) = some.remove(missing);
            let ended = in_environment(&run, &some);
            let expected = match variable {
                "LEASEHOLD_TLS_CERT" | "LEASEHOLD_TLS_KEY" => 64,
                _ => 78,
            };
            assert_eq!(ended.code, Some(expected), "{variable} {ended:?}");
        }
    }
}

#[tokio::test]
async fn a_parameter_of_the_url_is_used_instead_of_a_variable() {
    let server = TlsServer::start().await;
    let url = server.trusting_url();
    let status = ["status", "--store", &url];
    let ended = in_environment(&status, &[("LEASEHOLD_TLS_CA", "/nowhere")]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[tokio::test]
async fn an_unusable_tls_variable_is_64_and_named_only_for_a_tls_store() {
    let plain = Setup::default().with_port().start().await;
    let url = format!("redis://localhost:{}", plain.port());
    let secure = format!("rediss://localhost:{}", plain.port());
    for (variable, value) in [
        ("LEASEHOLD_TLS_CA", "/nowhere"),
        ("LEASEHOLD_TLS_SERVER_NAME", "not a name"),
        ("LEASEHOLD_TLS_KEY", "/nowhere"),
    ] {
        let status = |url| in_environment(&["status", "--store", url], &[(variable, value)]);
        let ended = status(&url);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let ended = status(&secure);
        assert_eq!(ended.code, Some(64), "{ended:?}");
        assert!(ended.stderr.contains(variable), "{ended:?}");
    }
}

#[tokio::test]
async fn the_roots_of_the_operating_system_are_trusted_when_asked_for() {
    let authority = Authority::new();
    let server = TlsServer::with(authority.issue("localhost"), false).await;
    let roots = authority.path().display().to_string();
    // What OpenSSL reads instead of the certificates of the machine.
    let installed = ("SSL_CERT_FILE", &*roots);
    let url = server.url();
    let status =
        |url: &str, variables: &[_]| in_environment(&["status", "--store", url], variables);
    let system = format!("{url}?ca=system");
    let ended = status(&system, &[installed]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let ended = status(&url, &[installed, ("LEASEHOLD_TLS_CA", "system")]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // By default the web roots are trusted, whatever the system has.
    let ended = status(&url, &[installed]);
    assert_eq!(ended.code, Some(78), "{ended:?}");
    let ended = status(&system, &[("SSL_CERT_FILE", "/nowhere")]);
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(ended.stderr.contains("SSL_CERT_FILE"), "{ended:?}");
}
