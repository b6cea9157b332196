//! One kernel that looks like two, and processes whose clocks differ: no live lease is taken, and dead ones end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};
use leasehold::store::Store;

use super::child::Child;
use super::{LIMIT, LONG, asked, claim, granted, held, name, open, pass_time, surroundings};
use crate::harness::asking::chain;

const TTL: Duration = Duration::from_millis(1_500);

const OTHER: &str = "00000000-1111-4222-8333-444444444444";
const THIRD: &str = "ffffffff-1111-4222-8333-444444444444";

/// A file of leases, and a boot id to be seen in its stead.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let bench = Self::of_one_kernel();
        // Two kernels that share the file and its locks: no FIFO says that they are one, because none can be made.
        let own = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("read");
        for id in [own.trim(), OTHER, THIRD] {
            let path = bench.folder.path().join(format!("leases.sqlite-boot-{id}"));
            std::fs::write(path, "").expect("a file");
        }
        bench
    }

    fn of_one_kernel() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for (file, id) in [("other", OTHER), ("third", THIRD)] {
            std::fs::write(folder.path().join(file), format!("{id}\n")).expect("a file");
        }
        Self { folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("leases.sqlite")
    }

    /// A child under another boot id.
    fn child(&self, id: &str) -> Child {
        Child::start_under(
            &surroundings::boot(&self.folder.path().join(id)),
            &self.file(),
        )
    }
}

pub(super) fn told_token(answer: &str) -> u64 {
    let token = answer
        .strip_prefix("granted ")
        .unwrap_or_else(|| panic!("no grant: {answer}"));
    token.parse().expect("a token")
}

/// What is left of the lease of another holder.
fn told_left(answer: &str) -> Duration {
    let left = answer.strip_prefix("held ").expect(answer);
    Duration::from_millis(left.parse().expect("ms"))
}

/// Takes this name for [`TTL`]. Returns the token.
fn takes(child: &mut Child, name: &str) -> u64 {
    told_token(&child.ask(&format!("acquire {name} {}", TTL.as_millis())))
}

/// What one short-lived process is told. It ends, so it cannot watch the lease.
fn told_once(file: &Path, order: &str) -> String {
    Child::start(file).ask(order)
}

#[tokio::test]
async fn a_lease_of_another_boot_ends_after_short_processes_watched_one_ttl() {
    if !surroundings::are_allowed() {
        return;
    }
    let bench = Bench::new();
    let first = takes(&mut bench.child("other"), "a");
    // By its own clock it runs out meanwhile; but that clock may be any.
    pass_time(TTL).await;
    let watched_from = Monotonic.now();
    let answer = told_once(&bench.file(), "acquire a 1000");
    assert!(told_left(&answer) > TTL / 2, "{answer}");
    let second = loop {
        let answer = told_once(&bench.file(), "acquire a 1000");
        if !answer.starts_with("held ") {
            break told_token(&answer);
        }
    };
    let waited = Monotonic.now().since(watched_from);
    assert!(waited >= TTL, "void after {waited:?}");
    assert!(second > first, "{second} after {first}");
}

#[tokio::test]
async fn a_live_lease_of_another_boot_is_kept_and_two_kernels_are_told_apart() {
    if !surroundings::are_allowed() {
        return;
    }
    let bench = Bench::new();
    let mut holder = bench.child("other");
    takes(&mut holder, "a");
    let store = open(&bench.file()).await;
    held(&store, &claim("a", TTL)).await;
    let end = Monotonic.now().after(TTL * 2);
    let mut refusals = 0;
    while Monotonic.now() < end {
        assert_eq!(holder.ask("renew a"), "renewed");
        let error = asked(&store, &claim("a", TTL), LIMIT)
            .await
            .expect_err("refused");
        assert_eq!(error.kind(), leasehold::ErrorKind::Misconfigured);
        assert!(
            error.to_string().contains("two kernels share this file"),
            "{error}"
        );
        refusals += 1;
        pass_time(TTL / 5).await;
    }
    assert!(refusals > 5);
    // Once the other is gone for good, a whole ttl without a sign of life frees the name.
    holder.kill();
    let last = held(&store, &claim("a", TTL)).await;
    pass_time(last.remaining.expect("watched")).await;
    granted(&store, &claim("a", TTL)).await;
}

#[tokio::test]
async fn a_third_boot_begins_its_own_watch() {
    if !surroundings::are_allowed() {
        return;
    }
    let bench = Bench::new();
    takes(&mut bench.child("other"), "a");
    told_left(&bench.child("third").ask("acquire a 1000"));
    pass_time(TTL).await;
    // The watch of the third boot is over; ours has not begun.
    let store = open(&bench.file()).await;
    let found = held(&store, &claim("a", TTL)).await;
    assert!(found.remaining.expect("watched") > TTL / 2, "{found}");
}

/// As with containers whose boot ids are their own: each of them asks again and again.
#[tokio::test]
async fn boots_that_watch_at_once_do_not_end_each_others_watch() {
    if !surroundings::are_allowed() {
        return;
    }
    for watchers in [&["other"] as &[&str], &["other", "third"]] {
        let bench = Bench::new();
        // The holder is dead, and of the boot of this process.
        takes(&mut Child::start(&bench.file()), "a");
        let mut children: Vec<_> = watchers.iter().map(|id| bench.child(id)).collect();
        let end = Monotonic.now().after(TTL * 4);
        'asking: loop {
            assert!(Monotonic.now() < end, "still taken for {watchers:?}");
            for child in &mut children {
                let answer = child.ask("acquire a 1000");
                if answer.starts_with("granted ") {
                    break 'asking;
                }
                told_left(&answer);
            }
            pass_time(TTL / 5).await;
        }
    }
}

/// As containers of one kernel have them.
#[tokio::test]
async fn boot_ids_of_one_kernel_are_one_boot_for_live_and_for_dead_holders() {
    if !surroundings::are_allowed() {
        return;
    }
    let bench = Bench::of_one_kernel();
    let mut holder = bench.child("other");
    takes(&mut holder, "a");
    let mut third = bench.child("third");
    let store = open(&bench.file()).await;
    for _ in 0..8 {
        pass_time(TTL / 4).await;
        assert_eq!(holder.ask("renew a"), "renewed");
        let left = held(&store, &claim("a", TTL)).await.remaining;
        assert!(left.expect("known") <= TTL, "{left:?}");
        told_left(&third.ask("acquire a 1000"));
    }
    drop(holder);
    pass_time(TTL).await;
    granted(&store, &claim("a", TTL)).await;
    assert_eq!(store.hazards(LIMIT).await.expect("answered"), []);
}

/// A FIFO is a file for another kernel too, and opens there for no writer: its reader is here.
#[tokio::test]
async fn a_fifo_without_a_reader_on_this_kernel_makes_no_boot_ids_one() {
    if !surroundings::are_allowed() {
        return;
    }
    let bench = Bench::of_one_kernel();
    let mut holder = bench.child("other");
    takes(&mut holder, "a");
    let fifo = bench
        .folder
        .path()
        .join(format!("leases.sqlite-boot-{OTHER}"));
    std::fs::remove_file(&fifo).expect("it is there");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("coreutils").success());
    let store = open(&bench.file()).await;
    held(&store, &claim("a", TTL)).await;
    assert_eq!(holder.ask("renew a"), "renewed");
    let error = asked(&store, &claim("a", TTL), LIMIT).await;
    let error = error.expect_err("two kernels share the file");
    assert!(chain(&error).contains("two kernels"), "{error:?}");
}

#[tokio::test]
async fn leases_of_another_boot_are_shown_and_are_a_hazard() {
    if !surroundings::are_allowed() {
        return;
    }
    let bench = Bench::new();
    let store = open(&bench.file()).await;
    assert_eq!(store.hazards(LIMIT).await.expect("answered"), []);
    let mut holder = bench.child("other");
    told_token(&holder.ask("acquire a 60000"));
    let found = store
        .inspect(&name("a"), LIMIT)
        .await
        .expect("answered")
        .expect("taken");
    assert_eq!(found.remaining, None, "nobody watches it yet");
    held(&store, &claim("a", LONG)).await;
    let listed = store.list("", LIMIT).await.expect("answered");
    assert!(
        listed[0].remaining.is_some_and(|left| left <= LONG),
        "{listed:?}"
    );
    let hazards = store.hazards(LIMIT).await.expect("answered");
    assert!(hazards[0].what.contains("leases=1"), "{hazards:?}");
}

#[tokio::test]
async fn leases_of_dead_names_of_another_boot_are_swept() {
    if !surroundings::are_allowed() {
        return;
    }
    let bench = Bench::new();
    let mut gone = bench.child("other");
    for index in 0..20 {
        told_token(&gone.ask(&format!("acquire gone/{index} 300")));
    }
    drop(gone);
    let store = open(&bench.file()).await;
    pass_time(Duration::from_millis(400)).await;
    for index in 0..5 {
        granted(&store, &claim(&format!("new/{index}"), LONG)).await;
    }
    let count =
        super::raw(&bench.file()).query_row("SELECT count(*) FROM lease", (), |row| row.get(0));
    assert_eq!(count, Ok(5));
}

#[tokio::test]
async fn a_live_lease_of_another_boot_is_not_swept() {
    if !surroundings::are_allowed() {
        return;
    }
    let bench = Bench::new();
    let mut holder = bench.child("other");
    takes(&mut holder, "a");
    let store = open(&bench.file()).await;
    let watched_until = Monotonic.now().after(TTL);
    while Monotonic.now() < watched_until.after(TTL / 2) {
        pass_time(TTL / 5).await;
        assert_eq!(holder.ask("renew a"), "renewed");
        granted(&store, &claim("b", Duration::from_nanos(1))).await;
    }
    let found = store.inspect(&name("a"), LIMIT).await.expect("answered");
    assert!(found.is_some());
}

/// It is renewed under our eyes: the watch has run out, and it lives all the same.
#[tokio::test]
async fn a_live_lease_of_another_boot_is_not_swept_with_a_dead_one() {
    let bench = Bench::new();
    let mut other = bench.child("other");
    takes(&mut other, "alive");
    takes(&mut other, "dead");
    let store = open(&bench.file()).await;
    assert_eq!(other.ask("renew alive"), "renewed");
    pass_time(TTL).await;
    granted(&store, &claim("b", LONG)).await;
    let mut left = super::raw(&bench.file());
    let left = left.transaction().expect("it reads");
    let mut left = left.prepare("SELECT name FROM lease").expect("it reads");
    let left = left.query_map((), |row| row.get::<_, String>(0));
    let left: Vec<_> = left.expect("it reads").map(Result::unwrap).collect();
    assert_eq!(left, ["alive", "b"]);
}

#[tokio::test]
async fn a_time_namespace_does_not_shift_a_lease() {
    if !surroundings::are_allowed() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("leases.sqlite");
    let store = open(&file).await;
    let ttl = Duration::from_secs(20);
    granted(&store, &claim("ours", ttl)).await;
    let mut ahead = Child::start_under(&surroundings::clock_ahead("100000"), &file);
    let left = told_left(&ahead.ask("acquire ours 1000"));
    assert!((ttl / 2..=ttl).contains(&left), "{left:?}");
    assert!(ahead.ask("acquire theirs 20000").starts_with("granted "));
    let left = held(&store, &claim("theirs", ttl))
        .await
        .remaining
        .expect("an end");
    assert!(left > ttl / 2 && left <= ttl, "{left:?}");
    assert!(ahead.ask("acquire short 400").starts_with("granted "));
    held(&store, &claim("short", ttl)).await;
    pass_time(Duration::from_millis(400)).await;
    granted(&store, &claim("short", ttl)).await;
}
