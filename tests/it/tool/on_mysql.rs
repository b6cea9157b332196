//! The tool on a database of MySQL or MariaDB. `faults::mysql` has the server, and calls this.

use super::Sandbox;

pub(crate) fn init_makes_the_table_and_no_run_shows_the_password(url: &str) {
    let sandbox = Sandbox::new();
    let said = sandbox.fails(&["--store", url], 78).stderr;
    assert!(said.contains("leasehold init"), "{said}");
    let max_ttl = ["init", "--store", url, "--max-ttl", "1min"];
    let ended = sandbox.start(sandbox.tool(&max_ttl)).end();
    assert_eq!(ended.code, Some(64), "{ended:?}");
    for _ in 0..2 {
        let ended = sandbox.start(sandbox.tool(&["init", "--store", url])).end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(!format!("{ended:?}").contains("s3cret"), "{ended:?}");
    }
    let ended = sandbox
        .run(&["--store", url, "-v"], "echo $LEASEHOLD_TOKEN")
        .end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.trim().parse::<u64>().is_ok(), "{ended:?}");
    assert!(!format!("{ended:?}").contains("s3cret"), "{ended:?}");
    assert!(!said.contains("s3cret"), "{said}");
    let wrong = url.replace("s3cret", "wr0ng");
    let said = sandbox.fails(&["--store", &wrong], 77).stderr;
    assert!(!said.contains("wr0ng"), "{said}");
}

/// Returns the SQL that an administrator runs instead of `init`.
pub(crate) fn printed_sql(url: &str) -> String {
    let sandbox = Sandbox::new();
    let print = ["init", "--print", "--store", url];
    let printed = sandbox.start(sandbox.tool(&print)).end();
    assert_eq!(printed.code, Some(0), "{printed:?}");
    printed.stdout
}

#[test]
fn bad_input_is_64_and_a_server_that_is_not_there_69() {
    let sandbox = Sandbox::new();
    for (url, code, words) in [
        ("mysql://a/b", 64, "it names no user"),
        ("mysql://me:s3cret@a", 64, "it names no database"),
        ("mysql://me:s3cret@a/b?table=x", 64, "unknown parameter"),
        (
            "mysql://me:s3cret@127.0.0.1/b?ca=x.pem",
            64,
            "sslmode=require does",
        ),
        (
            "mariadb://me:s3cret@a/b?ca=/absent.pem",
            64,
            "the file cannot be read",
        ),
        (
            "jdbc:mysql://a/b?password=s3cret",
            64,
            "mysql://USER:PASSWORD@HOST/DATABASE",
        ),
        (
            "mysql://me:s3cret@127.0.0.1:9/b",
            69,
            "no server listens at 127.0.0.1:9",
        ),
    ] {
        let said = sandbox.fails(&["-n", "--store", url], code).stderr;
        assert!(said.contains(words), "{url}: {said}");
        assert!(!said.contains("s3cret"), "{said}");
    }
}
