//! The text that an exporter serves.

use std::io::Write;
use std::process::{Command, Stdio};

use leasehold::Client;
use leasehold::store::memory::Memory;

use super::exporter::run;

/// Fails with the complaint of `promtool`, if it has one.
pub(crate) fn check_text(text: &str) {
    let started = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = started
        .expect("promtool is missing: apt-get install -y --no-install-recommends prometheus");
    let mut input = promtool.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    let output = promtool.wait_with_output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}\n{text}");
}

#[test]
fn promtool_has_no_complaint_about_the_exporters_text() {
    run(async |exporter| {
        let builder = Client::builder().store(Memory::new());
        let client = builder.names_in_metrics(5).build().await.unwrap();
        client.acquire("a").await.unwrap().release().await;
        let _held = client.acquire("b").await.unwrap();
        leasehold::metrics::update();
        let text = exporter.text();
        check_text(&text);
        for kind in ["gauge", "counter", "histogram"] {
            assert!(text.contains(&format!(" {kind}\n")), "{text}");
        }
        assert!(!text.contains(" summary\n"), "{text}");
        let features =
            "features=\"bucket,etcd,kubernetes,mysql,postgres,quorum,redis,sqlite,zookeeper\"";
        let built = exporter.value("leasehold_build_info", &["version=\"", features]);
        assert_eq!(built, Some(1.0));
    });
}
