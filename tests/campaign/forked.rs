//! A worker that forks while it has a lease. The child has the memory of its parent, but of its runtime only the thread that
//! forked. It asks what it inherited, and writes under the pass that was drawn before, when the lease is long over.
//!
//! `fork` needs `unsafe`, so a library in C that is loaded before the C library does it.

use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::sync::OnceLock;

use leasehold::fence::{Bearer, Pass};
use leasehold::{Client, ErrorKind, Lease};
use rustix::process::{Signal, getpid, kill_process};

use crate::harness::preload;
use crate::history::{Facts, Operation, Phase, Scribe};
use crate::register::Register;
use crate::worker::{Role, facts_of};

/// What the child goes on with.
pub(crate) struct Unfinished<'w> {
    pub(crate) role: &'w Role,
    pub(crate) client: &'w Client,
    pub(crate) lease: &'w Lease,
    pub(crate) pass: &'w Pass,
    pub(crate) has_fence: bool,
    /// What the register had.
    pub(crate) previous: Option<String>,
    /// Tells this child from others of the worker.
    pub(crate) number: u64,
}

/// The library, which makes a program fork where it asks for its parent.
pub(crate) fn fork_library() -> &'static PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| preload::compiled("fork", include_bytes!("fork.c")))
}

/// Forks. Returns in the parent only. The note of the fork is there until the child has done all that it should.
pub(crate) fn leave_a_child(unfinished: &Unfinished<'_>) {
    std::fs::write(unfinished.role.note_of_fork(), "").expect("the folder is ours");
    if parent_id() != 0 {
        return;
    }
    // This thread belongs to a runtime of which nothing else is here.
    let end = std::thread::scope(|scope| scope.spawn(|| unfinished.finish()).join());
    if end.is_ok() {
        // A child that panics here would live on, and take events from the parent's runtime.
        let _ = std::fs::remove_file(unfinished.role.note_of_fork());
    }
    // Not an orderly end, which would run what the parent has registered.
    kill_process(getpid(), Signal::KILL).expect("it is this process");
}

impl Unfinished<'_> {
    fn finish(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a thread").block_on(async {
            let process = format!("{}.fork{}", self.role.process, self.number);
            let scribe = Scribe::in_folder(&self.role.folder, &process);
            let refused = self.client.try_acquire(self.lease.name().as_str()).await;
            assert_eq!(refused.expect_err("not its own").kind(), ErrorKind::Closed);
            let refused = self.lease.pass();
            assert_eq!(refused.expect_err("not its own").kind(), ErrorKind::Closed);
            self.check(&scribe);
            // Long enough for others to have had the name.
            tokio::time::sleep(2 * self.role.ttl).await;
            self.check(&scribe);
            self.write(&scribe).await;
        });
    }

    /// The copy of the lease counts until the deadline that it had at the fork.
    fn check(&self, scribe: &Scribe) {
        let phase = match self.lease.check() {
            Ok(()) => Phase::Answer,
            Err(_) => Phase::Refused,
        };
        scribe.note(Operation::Check, phase, facts_of(self.lease));
    }

    async fn write(&self, scribe: &Scribe) {
        let facts = Facts {
            value: Some(format!("{}-1", scribe.process())),
            previous: self.previous.clone(),
            ..facts_of(self.lease)
        };
        let fence = self.has_fence.then_some(self.pass as &dyn Bearer);
        // The parent's connection is served by its runtime.
        let mut register = Register::new(&self.role.storage, self.lease.name().as_str());
        register.write_noted(scribe, fence, facts).await;
    }
}
