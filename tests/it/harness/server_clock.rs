//! The wall clock of one server, moved by the test while the server runs.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// An offset that a preloaded library adds to each reading of the wall clock. (libfaketime cannot be used: servers
/// built with jemalloc do not start under it.)
#[derive(Debug)]
pub(crate) struct ServerClock {
    file: PathBuf,
}

impl ServerClock {
    /// A true clock, kept in this folder.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        let clock = Self {
            file: folder.join("clock"),
        };
        clock.set_ahead_ms(0);
        clock
    }

    /// Puts the clock ahead of the true one by this much, or behind it.
    pub(crate) fn set_ahead_ms(&self, ms: i64) {
        let us = ms.checked_mul(1_000).expect("less than 300,000 years");
        // In place, because the server has this file mapped.
        let mut file = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&self.file)
            .expect("the folder can be written");
        file.write_all(&us.to_ne_bytes()).expect("eight bytes fit");
    }

    /// Makes this program run by the clock.
    pub(crate) fn rule(&self, command: &mut Command) {
        command.env("LD_PRELOAD", library());
        command.env("LEASEHOLD_TEST_CLOCK", &self.file);
    }
}

/// Compiled once for each run of the tests.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("server_clock.so");
        // Moved into place, so that two runs at once never load half a library.
        let fresh = target.with_extension(std::process::id().to_string());
        let mut compiler = Command::new("cc")
            .args([
                "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-x", "c", "-", "-o",
            ])
            .arg(&fresh)
            .stdin(Stdio::piped())
            .spawn()
            .expect("cc starts; to install it: apt-get install -y gcc libc6-dev");
        let source = include_bytes!("server_clock.c");
        let mut input = compiler.stdin.take().expect("a pipe");
        input.write_all(source).expect("cc reads");
        drop(input);
        assert!(compiler.wait().expect("cc ends").success(), "cc failed");
        fs::rename(&fresh, &target).expect("the same folder");
        target
    })
}

#[tokio::test]
async fn a_servers_clock_is_moved_while_it_runs() {
    let server = super::redis_server::Setup::default()
        .with_clock()
        .start()
        .await;
    let seconds = async || server.told::<(i64, i64)>("TIME").await.0;
    let start = seconds().await;
    server.clock().set_ahead_ms(120_000);
    assert!((119..130).contains(&(seconds().await - start)));
    server.clock().set_ahead_ms(-120_000);
    assert!((-121..-110).contains(&(seconds().await - start)));
}
