//! Files that the user names may be devices, pipes and links: they are written to or refused, never replaced, and never
//! waited for.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, makedev, mknodat};

use super::Sandbox;

const NODE: Mode = Mode::RUSR.union(Mode::WUSR);

fn make_pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, NODE, 0).expect("made");
}

/// Opens a pipe for reading, without a writer.
fn reader(path: &Path) -> File {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("low bits");
    let mut options = File::options();
    options.read(true).custom_flags(flags);
    options.open(path).expect("opened")
}

fn is_report(text: &str) -> bool {
    let report: serde_json::Value = serde_json::from_str(text).expect("JSON");
    report["outcome"] == "ended" && report["exit_code"] == 3
}

#[test]
fn a_report_to_a_device_leaves_it_a_device() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("null");
    let null = makedev(1, 3);
    // Only root makes devices, and only on a disk that is mounted with them.
    let made = mknodat(CWD, &path, FileType::CharacterDevice, NODE, null);
    if made.is_err() || File::options().write(true).open(&path).is_err() {
        assert!(!rustix::process::geteuid().is_root() || made.is_ok());
        return;
    }
    let ended = sandbox.run(&["--report", "null"], "exit 3").end();
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let there = fs::symlink_metadata(&path).expect("there").file_type();
    assert!(there.is_char_device(), "{there:?}");
}

#[test]
fn a_report_goes_through_a_pipe_to_its_reader() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("pipe");
    make_pipe(&path);
    let mut reader = reader(&path);
    let ended = sandbox.run(&["--report", "pipe"], "exit 3").end();
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("text");
    assert!(is_report(&text), "{text}");
    assert!(
        fs::symlink_metadata(&path)
            .expect("there")
            .file_type()
            .is_fifo()
    );
}

#[test]
fn a_report_through_a_link_is_written_to_its_target() {
    let sandbox = Sandbox::new();
    symlink("target.json", sandbox.path("link")).expect("linked");
    let ended = sandbox.run(&["--report", "link"], "exit 3").end();
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(sandbox.path("link").is_symlink());
    let text = fs::read_to_string(sandbox.path("target.json")).expect("written");
    assert!(is_report(&text), "{text}");
}

#[test]
fn a_report_to_the_standard_output_follows_the_output_of_the_job() {
    let sandbox = Sandbox::new();
    // As /dev/stdout is, which a test must not put at risk.
    symlink("/proc/self/fd/1", sandbox.path("stdout")).expect("linked");
    let script = "echo of the job; exit 3";
    let ended = sandbox.run(&["--report", "stdout"], script).end();
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(sandbox.path("stdout").is_symlink());
    let report = ended
        .stdout
        .strip_prefix("of the job\n")
        .expect("it is first");
    assert!(is_report(report), "{ended:?}");
}

#[test]
fn a_pipe_that_nobody_reads_is_refused_before_the_job_and_never_waited_for() {
    let sandbox = Sandbox::new();
    make_pipe(&sandbox.path("pipe.prom"));
    for options in [
        &["--report", "pipe.prom"][..],
        &["--metrics-file", "pipe.prom"],
        &["--config", "pipe.prom"],
    ] {
        let said = sandbox.fails(options, 64);
        assert!(said.stderr.contains("pipe.prom"), "{said:?}");
    }
    let there = fs::symlink_metadata(sandbox.path("pipe.prom")).expect("there");
    assert!(there.file_type().is_fifo());
}

#[test]
fn a_metrics_file_through_a_link_is_its_target() {
    let sandbox = Sandbox::new();
    symlink("other.prom", sandbox.path("job.prom")).expect("linked");
    let ended = sandbox.run(&["--metrics-file", "job.prom"], "true").end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(sandbox.path("job.prom").is_symlink() && sandbox.has("other.prom"));
}

#[test]
fn a_configuration_that_is_too_long_is_refused_without_reading_it_all() {
    let sandbox = Sandbox::new();
    let file = File::create(sandbox.path("long.toml")).expect("made");
    // Of zeros, which take no space.
    file.set_len(3 << 30).expect("sparse");
    let said = sandbox.fails(&["--config", "long.toml"], 64);
    assert!(said.stderr.contains("1 MiB"), "{said:?}");
}
