//! The durable gate, on files.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::fence::gate::{Gate, Journal};
use leasehold::fence::{Blocked, Pass, Refusal};
use leasehold::{BoxFuture, Error, ErrorKind};
use tempfile::TempDir;
use tokio::sync::{RwLock, Semaphore};
use tokio::time::timeout;

use super::{Guard, keeps_the_contract, pass};
use crate::harness::times::PATIENCE;
use crate::harness::wait::until;

/// A service with a register for each resource, behind a gate that can be restarted.
#[derive(Debug)]
struct Service {
    gate: RwLock<Option<Gate>>,
    registers: Mutex<HashMap<String, String>>,
    path: PathBuf,
    _folder: TempDir,
}

impl Service {
    async fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let path = folder.path().join("fences");
        Self {
            gate: RwLock::new(Some(Gate::open(&path).await.expect("opened"))),
            registers: Mutex::default(),
            path,
            _folder: folder,
        }
    }

    async fn gate(&self) -> Gate {
        let gate = self.gate.read().await;
        gate.clone().expect("it is open")
    }
}

impl Guard for Service {
    async fn raise(&self, resource: &str, shown: Option<&Pass>) -> Result<(), Error> {
        self.gate()
            .await
            .raise(resource, Pass::required(shown)?)
            .await
    }

    async fn write(&self, resource: &str, shown: Option<&Pass>, value: &str) -> Result<(), Error> {
        let gate = self.gate().await;
        let entry = gate.enter(resource, Pass::required(shown)?).await?;
        // A handler takes its time.
        tokio::task::yield_now().await;
        let mut registers = self.registers.lock().unwrap();
        registers.insert(resource.into(), value.into());
        drop(entry);
        Ok(())
    }

    async fn read(&self, resource: &str) -> Option<String> {
        self.registers.lock().unwrap().get(resource).cloned()
    }

    async fn row(&self, resource: &str) -> Option<Pass> {
        self.gate().await.row(resource).await
    }

    async fn restart(&self) {
        let mut gate = self.gate.write().await;
        *gate = None;
        // A raise that is being made durable has the file until it is.
        let free = async {
            loop {
                match Gate::open(&self.path).await {
                    Ok(gate) => return gate,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        };
        *gate = Some(
            timeout(PATIENCE, free)
                .await
                .expect("the file is free soon"),
        );
    }
}

/// A journal that keeps a row only when it is let, and can be told to fail.
#[derive(Debug, Clone, Default)]
struct Held {
    kept: Arc<Mutex<Vec<(String, Pass)>>>,
    lets: Arc<Mutex<HashMap<String, Arc<Semaphore>>>>,
}

impl Held {
    fn lets(&self, resource: &str) -> Arc<Semaphore> {
        let mut lets = self.lets.lock().unwrap();
        let let_through = lets.entry(resource.into());
        let_through
            .or_insert_with(|| Arc::new(Semaphore::new(0)))
            .clone()
    }

    fn kept(&self) -> Vec<(String, Pass)> {
        self.kept.lock().unwrap().clone()
    }
}

impl Journal for Held {
    fn load(&self) -> BoxFuture<'_, Result<Vec<(String, Pass)>, Error>> {
        let kept = self.kept();
        Box::pin(async { Ok(kept) })
    }

    fn keep<'a>(&'a self, resource: &'a str, pass: &'a Pass) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let Ok(permit) = self.lets(resource).acquire_owned().await else {
                return Err(Error::new(ErrorKind::Unavailable, "keep failed: as told"));
            };
            permit.forget();
            let mut kept = self.kept.lock().unwrap();
            kept.push((resource.into(), pass.clone()));
            Ok(())
        })
    }
}

const AT_ONCE: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gate_keeps_the_contract() {
    keeps_the_contract(Service::new().await).await;
}

#[tokio::test]
async fn no_entry_is_admitted_before_the_raise_is_durable() {
    let journal = Held::default();
    let gate = Gate::with_journal(journal.clone()).await.expect("opened");
    let first = pass(1, 1);
    let mut enter = Box::pin(gate.enter("a", &first));
    assert!(timeout(AT_ONCE, &mut enter).await.is_err());
    assert_eq!(journal.kept(), []);
    journal.lets("a").add_permits(1);
    let entry = enter.await.expect("let in");
    assert_eq!(entry.pass(), &first);
    assert_eq!(journal.kept(), [("a".into(), first)]);
}

#[tokio::test]
async fn a_raise_that_is_dropped_while_it_is_made_durable_counts() {
    let journal = Held::default();
    let gate = Gate::with_journal(journal.clone()).await.expect("opened");
    let (first, second) = (pass(1, 1), pass(2, 2));
    let entering = timeout(AT_ONCE, gate.enter("a", &second)).await;
    assert!(entering.is_err());
    journal.lets("a").add_permits(1);
    let error = gate.enter("a", &first).await.expect_err("refused");
    assert_eq!(
        Refusal::of(&error),
        Some(&Refusal::Stale {
            stored: second.token
        })
    );
}

#[tokio::test]
async fn a_journal_that_fails_admits_no_entry() {
    let journal = Held::default();
    let gate = Gate::with_journal(journal.clone()).await.expect("opened");
    journal.lets("a").close();
    let error = gate.enter("a", &pass(1, 1)).await.expect_err("not durable");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(gate.row("a").await, None);
}

/// A client that invents resources must not fill the memory of a service whose journal lets none of them in.
#[tokio::test]
async fn a_resource_that_was_never_raised_leaves_no_row() {
    let journal = Held::default();
    let gate = Gate::with_journal(journal.clone()).await.expect("opened");
    for resource in ["a", "b"] {
        journal.lets(resource).close();
        let error = gate.enter(resource, &pass(1, 1)).await;
        error.expect_err("not durable");
    }
    let entering = timeout(AT_ONCE, gate.enter("dropped", &pass(1, 1))).await;
    assert!(entering.is_err());
    assert!(format!("{gate:?}").contains("resources: 1,"), "{gate:?}");
    journal.lets("dropped").close();
    until("the rows to go", async || {
        format!("{gate:?}").contains("resources: 0,").then_some(())
    })
    .await;
}

#[tokio::test]
async fn entries_of_one_pass_run_at_once_and_resources_do_not_wait() {
    let journal = Held::default();
    let gate = Gate::with_journal(journal.clone()).await.expect("opened");
    journal.lets("a").add_permits(1);
    let first = pass(1, 1);
    let one = gate.enter("a", &first).await.expect("let in");
    let two = gate.enter("a", &first).await.expect("let in beside it");
    // While `b` is being made durable, `a` goes on.
    let gate_b = gate.clone();
    let raising = tokio::spawn(async move { gate_b.raise("b", &pass(1, 1)).await });
    until("the journal to be asked for b", async || {
        let lets = journal.lets.lock().unwrap();
        lets.contains_key("b").then_some(())
    })
    .await;
    drop((one, two));
    drop(gate.enter("a", &first).await.expect("let in again"));
    journal.lets("b").add_permits(1);
    raising.await.expect("no panic").expect("raised");
}

#[tokio::test]
async fn a_raise_waits_for_older_entries_and_is_blocked_and_typed_in_the_end() {
    let folder = TempDir::new().expect("a temporary folder");
    let gate = Gate::open(folder.path().join("fences"))
        .await
        .expect("opened");
    let gate = gate.with_patience(AT_ONCE);
    let (older, successor) = (pass(1, 1), pass(2, 2));
    let entry = gate.enter("a", &older).await.expect("let in");
    let error = gate.raise("a", &successor).await.expect_err("blocked");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(Blocked::of(&error).is_some());
    drop(entry);
    gate.raise("a", &successor).await.expect("raised");
    assert!(gate.enter("a", &older).await.is_err());
}

/// A gate on a file in a folder of its own.
async fn opened() -> (TempDir, PathBuf, Gate) {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("fences");
    let gate = Gate::open(&path).await.expect("opened");
    (folder, path, gate)
}

#[tokio::test]
async fn one_process_at_a_time_has_the_file() {
    let (_folder, path, gate) = opened().await;
    let error = Gate::open(&path).await.expect_err("taken");
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    drop(gate);
    Gate::open(&path).await.expect("free again");
}

#[tokio::test]
async fn a_removed_lock_file_or_a_hard_link_lets_no_second_gate_in() {
    let folder = TempDir::new().expect("a temporary folder");
    let (path, link) = (folder.path().join("fences"), folder.path().join("link"));
    let gate = Gate::open(&path).await.expect("opened");
    gate.raise("a", &pass(1, 1)).await.expect("raised");
    fs::remove_file(folder.path().join("fences.lock")).expect("it is there");
    fs::hard_link(&path, &link).expect("linked");
    for other in [&path, &link] {
        let error = Gate::open(other).await.expect_err("taken");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{other:?}");
    }
    drop(gate);
    Gate::open(&path).await.expect("free again");
}

/// A cleaner of old files removes it, or an operator puts another one there: a row in it would be gone after a restart.
#[tokio::test]
async fn a_raise_into_a_file_that_is_no_longer_at_its_path_is_refused() {
    let (_folder, path, gate) = opened().await;
    gate.raise("a", &pass(2, 2)).await.expect("raised");
    let copy = fs::read(&path).expect("read");
    fs::remove_file(&path).expect("it is there");
    for token in 3..6 {
        let error = gate.raise("a", &pass(3, token)).await.expect_err("gone");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        // Also after something is there again.
        fs::write(&path, &copy).expect("written");
    }
    assert_eq!(gate.row("a").await, Some(pass(2, 2)));
    drop(gate);
    let gate = Gate::open(&path).await.expect("opened");
    assert_eq!(gate.row("a").await, Some(pass(2, 2)));
}

#[tokio::test]
async fn one_changed_bit_at_any_place_is_damage() {
    let (_folder, path, gate) = opened().await;
    gate.raise("a", &pass(1, 41)).await.expect("raised");
    gate.raise("b", &pass(2, 42)).await.expect("raised");
    drop(gate);
    let whole = fs::read(&path).expect("read");
    // Without its last end of line the file is one that was being written.
    for at in 0..(whole.len() - 1) * 8 {
        let mut changed = whole.clone();
        changed[at / 8] ^= 1 << (at % 8);
        fs::write(&path, &changed).expect("written");
        let opened = Gate::open(&path).await;
        let text = String::from_utf8_lossy(&changed);
        let error = opened.expect_err(&text);
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{text}");
    }
}

#[tokio::test]
async fn a_file_without_checksums_is_read_and_written_anew_with_them() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("fences");
    let record = |resource: &str, pass: &Pass| {
        let pass = serde_json::to_string(pass).expect("plain fields");
        format!("{{\"resource\":\"{resource}\",\"pass\":{pass}}}\n")
    };
    let rows = record("a", &pass(1, 1)) + &record("b", &pass(2, 2));
    fs::write(&path, format!("leasehold gate 1\n{rows}")).expect("written");
    for _ in 0..2 {
        let gate = Gate::open(&path).await.expect("opened");
        assert_eq!(gate.row("a").await, Some(pass(1, 1)));
        assert_eq!(gate.row("b").await, Some(pass(2, 2)));
        let text = fs::read_to_string(&path).expect("read");
        assert!(text.starts_with("leasehold gate 2\n"), "{text}");
    }
}

#[tokio::test]
async fn an_unfinished_last_line_is_cut_off_and_what_follows_is_kept() {
    let (_folder, path, gate) = opened().await;
    gate.raise("a", &pass(1, 1)).await.expect("raised");
    gate.raise("b", &pass(2, 2)).await.expect("raised");
    drop(gate);
    let whole = fs::read(&path).expect("read");
    for end in 0..whole.len() {
        fs::write(&path, &whole[..end]).expect("written");
        let gate = Gate::open(&path).await.expect("opened");
        let rows = [gate.row("a").await, gate.row("b").await];
        let finished = whole[..end].iter().filter(|byte| **byte == b'\n').count();
        let expected = [pass(1, 1), pass(2, 2)];
        for (index, row) in rows.into_iter().enumerate() {
            let is_kept = index + 2 <= finished;
            assert_eq!(
                row,
                is_kept.then(|| expected[index].clone()),
                "cut at {end}"
            );
        }
        gate.raise("c", &pass(3, 3)).await.expect("raised");
        drop(gate);
        let gate = Gate::open(&path).await.expect("opened");
        assert_eq!(gate.row("c").await, Some(pass(3, 3)), "cut at {end}");
    }
}

#[tokio::test]
async fn a_damaged_file_is_refused_and_left_alone() {
    let (_folder, path, gate) = opened().await;
    gate.raise("a", &pass(1, 1)).await.expect("raised");
    gate.raise("b", &pass(2, 2)).await.expect("raised");
    drop(gate);
    let whole = fs::read_to_string(&path).expect("read");
    for damaged in [
        whole.replacen("\"token\":1", "\"token\":x", 1),
        whole.replacen("gate 2", "gate 3", 1),
        "somebody else's\n".into(),
        "somebody else's".into(),
    ] {
        fs::write(&path, &damaged).expect("written");
        let error = Gate::open(&path).await.expect_err(&damaged);
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{damaged}");
        assert_eq!(fs::read_to_string(&path).expect("read"), damaged);
    }
}

#[tokio::test]
async fn the_file_does_not_grow_without_end() {
    let (_folder, path, gate) = opened().await;
    for token in 1..=3_000 {
        gate.raise("a", &pass(1, token)).await.expect("raised");
    }
    let lines = fs::read_to_string(&path).expect("read").lines().count();
    assert!(lines < 1_200, "{lines}");
    drop(gate);
    let gate = Gate::open(&path).await.expect("opened");
    assert_eq!(gate.row("a").await, Some(pass(1, 3_000)));
}
