//! Another process on the same file, told line by line what to do.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::store::sqlite::Sqlite;
use leasehold::store::{Answer, Outcome, Release, Store};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::{Asking, LIMIT, LONG, asked, claim, held, open, pass_time, queued};
use crate::harness::subprocess::{self, Subprocess, say};

/// A child, as its parent sees it.
#[derive(Debug)]
pub(super) struct Child(Subprocess);

impl Child {
    /// Starts one on this file.
    pub(super) fn start(file: &Path) -> Self {
        Self::start_under(&[], file)
    }

    /// Starts one on this file under a command that makes its surroundings, such as `unshare`.
    pub(super) fn start_under(surroundings: &[&str], file: &Path) -> Self {
        let test = "sqlite::child::a_child_process_contends_for_the_same_names";
        let own = subprocess::own();
        let own = own.to_str().expect("a path in UTF-8");
        let words = [surroundings, &[own]].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        let file = file.to_str().expect("a path in UTF-8");
        Self(Subprocess::start_by(command, test, file))
    }

    /// Gives an order and waits for its answer.
    pub(super) fn ask(&mut self, order: &str) -> String {
        self.order(order);
        self.0.answer()
    }

    /// Gives an order.
    pub(super) fn order(&mut self, order: &str) {
        self.0.order(order);
    }

    /// The next answer, if the child lives long enough to give one.
    pub(super) fn answer(&mut self) -> Option<String> {
        self.0.next_answer()
    }

    /// What it says though it is told nothing: why it does not start. `None` if it does.
    pub(super) fn refusal(&mut self) -> Option<String> {
        self.0.end_orders();
        self.answer()
    }

    /// Lets it end by itself.
    pub(super) fn finish(&mut self) {
        self.0.finish();
    }

    /// Ends it as `kill -9` does.
    pub(super) fn kill(&mut self) {
        self.0.kill();
    }
}

#[test]
fn a_child_process_contends_for_the_same_names() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    if let Some(file) = subprocess::task() {
        runtime.block_on(obey_on_file(Path::new(&file)));
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("leases.sqlite");
    let mut child = Child::start(&file);
    assert!(child.ask("acquire a 60000").starts_with("granted "));
    runtime.block_on(async {
        let ours = claim("a", LONG);
        let found = held(&open(&file).await, &ours).await;
        assert_ne!(found.info.pid, ours.info.pid);
    });
}

/// The child: opens the file, then does as told until there are no more orders.
async fn obey_on_file(file: &Path) {
    let store = match Sqlite::open(file).await {
        Ok(store) => store,
        Err(error) => return say(format_args!("refused {:?}: {error}", error.kind())),
    };
    let mut claims = HashMap::new();
    for order in std::io::stdin().lines() {
        let order = order.expect("UTF-8");
        let words: Vec<_> = order.split(' ').collect();
        match words[..] {
            ["acquire", name, ttl_ms] => say(acquire(&store, &mut claims, name, ttl_ms).await),
            ["stand", name] => say(stand(&store, &mut claims, name).await),
            ["stay", name] => say(stay(&store, &claims[&queued_key(name)]).await),
            ["renew", name] => say(answer_renewal(&store, &claims[name]).await),
            ["release", name] => say(answer_release(&store, &claims[name]).await),
            ["default"] => say(open_default().await),
            ["fill", path] => say(fill_disk(path)),
            ["rename", from] => say(rename_without_replacing(from)),
            ["make", count, folder] => {
                say(make_files(count.parse().expect("a count"), folder).await)
            }
            ["contend", count] => {
                enter_in_turn(&store, file, count.parse().expect("a count")).await
            }
            ["churn"] => churn(&store).await,
            _ => panic!("unknown order {order:?}"),
        }
    }
}

async fn acquire(
    store: &Sqlite,
    claims: &mut HashMap<String, Asking>,
    name: &str,
    ttl_ms: &str,
) -> String {
    let ttl = Duration::from_millis(ttl_ms.parse().expect("milliseconds"));
    let claim = claim(name, ttl);
    let answer = match asked(store, &claim, LIMIT).await {
        Ok(Answer::Granted(grant)) => format!("granted {}", grant.token),
        Ok(Answer::Held(held)) => {
            let remaining = held.remaining.expect("a claim learns how long");
            return format!("held {}", remaining.as_millis());
        }
        Err(error) => return format!("error {:?}: {error}", error.kind()),
    };
    claims.insert(name.to_owned(), claim);
    answer
}

/// Has a client of its own stand in line.
async fn stand(store: &Sqlite, claims: &mut HashMap<String, Asking>, name: &str) -> String {
    let claim = queued(name, LONG);
    let answer = stay(store, &claim).await;
    claims.insert(queued_key(name), claim);
    answer
}

/// Under which the claim is kept that stands in line for this name.
fn queued_key(name: &str) -> String {
    format!("line for {name}")
}

/// Has it claim again.
async fn stay(store: &Sqlite, claim: &Asking) -> String {
    match asked(store, claim, LIMIT).await {
        Ok(Answer::Held(held)) => match held.place.map(|place| place.ahead) {
            Some(ahead) => format!("ahead {ahead}"),
            None => "held".into(),
        },
        other => format!("{other:?}"),
    }
}

async fn answer_renewal(store: &Sqlite, claim: &Asking) -> String {
    match &store.renew(&[claim.renewal()], LIMIT).await.outcomes[..] {
        [Outcome::Renewed] => "renewed".into(),
        other => format!("{other:?}"),
    }
}

async fn answer_release(store: &Sqlite, claim: &Asking) -> String {
    let released = store.release(&claim.name, claim.holder, None, LIMIT).await;
    format!("{released:?}")
}

async fn open_default() -> String {
    let opened = Sqlite::open_default().await;
    opened.map_or_else(|error| error.to_string(), |store| store.location())
}

/// Writes zeros until the disk has no room.
fn fill_disk(path: &str) -> String {
    let mut file = std::fs::File::create(path).expect("a file");
    while file.write_all(&[0; 4_096]).is_ok() {}
    while file.write_all(&[0]).is_ok() {}
    "full".into()
}

fn rename_without_replacing(from: &str) -> String {
    let to = format!("{from}.renamed");
    format!(
        "{:?}",
        renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)
    )
}

/// Opens so many new files, each at several times at once. Answers of how many of them this process has no lock then.
async fn make_files(count: u32, folder: &str) -> usize {
    let mut unlocked = 0;
    for round in 0..count {
        let file = Path::new(folder).join(round.to_string());
        let opening = (0..8).map(|_| Sqlite::open(&file));
        let opened: Vec<_> = join_all(opening).await;
        let stores: Vec<_> = opened
            .into_iter()
            .map(|store| store.expect("it opens"))
            .collect();
        let inode = std::fs::metadata(&file).expect("it is there").ino();
        // Others take and give up locks while it is read, and a reading may miss one.
        unlocked += usize::from(!(0..5).any(|_| is_locked(inode)));
        for store in stores {
            store.close().await;
        }
    }
    unlocked
}

/// Returns whether this process has a lock on the file of this number.
fn is_locked(inode: u64) -> bool {
    let locks = std::fs::read_to_string("/proc/locks").expect("the kernel tells");
    let (pid, inode) = (std::process::id().to_string(), format!(":{inode}"));
    locks.lines().any(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.contains(&&*pid) && words.iter().any(|word| word.ends_with(&inode))
    })
}

/// Works so many times under one lease. The work shows an overlap if there is one, and the order of the grants.
async fn enter_in_turn(store: &Sqlite, file: &Path, count: usize) {
    let inside = file.with_extension("inside");
    let order = OpenOptions::new()
        .append(true)
        .create(true)
        .open(file.with_extension("order"));
    let mut order = order.expect("a file");
    let mut done = 0;
    while done < count {
        let claim = claim("contended", LONG);
        match asked(store, &claim, LIMIT)
            .await
            .expect("the store answers")
        {
            Answer::Granted(grant) => {
                let alone = OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .open(&inside);
                alone.expect("nobody else is inside");
                writeln!(order, "{}", grant.token).expect("it is written");
                std::fs::remove_file(&inside).expect("we are inside");
                let released = store.release(&claim.name, claim.holder, None, LIMIT).await;
                assert_eq!(released.expect("the store answers"), Release::Released);
                done += 1;
            }
            _ => pass_time(Duration::from_micros(fastrand::u64(50..500))).await,
        }
    }
    say("done");
}

/// Writes without end, and says what it was granted.
async fn churn(store: &Sqlite) {
    loop {
        let claim = claim(
            &format!("churn/{}", fastrand::u8(..)),
            Duration::from_millis(5),
        );
        if let Ok(Answer::Granted(grant)) = asked(store, &claim, LIMIT).await {
            say(grant.token);
            answer_renewal(store, &claim).await;
            if fastrand::bool() {
                answer_release(store, &claim).await;
            }
        }
    }
}
