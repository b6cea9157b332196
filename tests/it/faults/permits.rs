//! Takers of a pool in processes of their own, which are stopped between two requests while a writer comes in, and
//! writers that are stopped before they write.

use std::path::Path;
use std::time::Duration;

use leasehold::clock::Instant;
use leasehold::fence::Pass;
use leasehold::fence::rusqlite::Fence;
use leasehold::{Client, Lease, LeaseRequest, Name, OutagePolicy, store};
use tokio::runtime::Runtime;

use crate::harness::faulty_store::{Call, Fault, FaultyStore};
use crate::harness::leases::{client_at, until_free};
use crate::harness::redis_server::RedisServer;
use crate::harness::subprocess::{self, Subprocess, say};
use crate::harness::times::{LIMIT, STORED_TTL};
use crate::harness::wait::{at, now, soon, until_so};

const TEST: &str = "faults::permits::a_process_does_what_it_is_told";
const POOL: &str = "config";
/// Names that a writer has at once: so many writes are late after one pause.
const WRITES: usize = 20;

/// The request before which a taker stands still.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stand {
    /// Its permit was granted, and the check of the door is not sent.
    Check,
    /// It has the door, and the claim of a permit is not sent.
    Claim,
    /// It has the door and a permit, and the release of the door is not sent.
    Release,
}

impl Stand {
    const ALL: [Self; 3] = [Self::Check, Self::Claim, Self::Release];

    /// The calls that it is held back at, one after the other. It stands at the last one.
    const fn calls(self) -> &'static [Call] {
        match self {
            Self::Check => &[Call::Inspect],
            Self::Claim => &[Call::Inspect, Call::Acquire],
            Self::Release => &[Call::Release],
        }
    }

    fn request(self, client: &Client) -> LeaseRequest {
        match self {
            Self::Check => client.shared(POOL),
            Self::Claim | Self::Release => client.request(POOL).shared_fenced(),
        }
    }
}

fn start_process(kind: &str, location: &str, more: &str) -> Subprocess {
    Subprocess::start(TEST, &format!("{kind} {location} {more}"))
}

#[test]
fn a_process_does_what_it_is_told() {
    let Some(task) = subprocess::task() else {
        // In the suite itself there is no server, and a process can be started.
        drop(start_process("Check", "memory:", "-"));
        return;
    };
    let words: Vec<_> = task.split(' ').collect();
    let [kind, location, more] = words[..] else {
        panic!("{task}");
    };
    let mut stands = Stand::ALL.into_iter();
    match stands.find(|stand| format!("{stand:?}") == kind) {
        Some(stand) => take_haltingly(stand, location),
        None => write_late(location, Path::new(more)),
    }
}

fn new_runtime() -> Runtime {
    Runtime::new().expect("a runtime")
}

/// Waits for an order, or for the end of its parent. On this thread: the runtime may be held back.
fn ordered() {
    std::io::stdin().lines().next();
}

/// Takes a share, and stands still on the way until it is told to go on.
#[expect(clippy::disallowed_methods, reason = "its runtime may be held back")]
fn take_haltingly(stand: Stand, url: &str) {
    let runtime = new_runtime();
    let (store, client) = runtime.block_on(async {
        let store = FaultyStore::over(store::open(url).await.expect("a URL in order"));
        let client = Client::builder().store(store.clone()).ttl(STORED_TTL);
        (store, client.build().await.expect("settings in order"))
    });
    let faults = &store.faults;
    let mut held_back = None;
    let mut taking = None;
    for call in stand.calls() {
        let met = faults.met();
        faults.plan_always(*call, Fault::Block);
        if let Some(before) = held_back.replace(*call) {
            faults.heal(before);
        }
        taking.get_or_insert_with(|| runtime.spawn(patiently(stand.request(&client)).acquire()));
        while faults.met() == met {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    say("stands");
    ordered();
    faults.heal(held_back.expect("it stands somewhere"));
    let lease = runtime.block_on(taking.expect("it was begun"));
    say(format_args!("granted {}", now().as_nanos()));
    ordered();
    drop(lease);
}

/// A process that was stopped finds its requests overdue when it wakes.
fn patiently(request: LeaseRequest) -> LeaseRequest {
    request.on_outage(OutagePolicy::WaitOut)
}

/// A writer comes in while this taker stands still, for longer than its ttl or as long as its request may take.
async fn a_writer_is_alone_beside_a_paused_taker(stand: Stand, is_past_ttl: bool) {
    let server = RedisServer::start().await;
    let client = client_at(&server.url(), STORED_TTL).await;
    let mut taker = start_process(&format!("{stand:?}"), &server.url(), "-");
    assert_eq!(taker.answer(), "stands");
    taker.pause();
    let mut writing = tokio::spawn(patiently(client.exclusive(POOL)).acquire());
    let mut writer = None;
    if is_past_ttl {
        writer = Some(soon(&mut writing).await);
    } else {
        let door = Name::new(POOL).unwrap();
        until_so("the writer to have the door", async || {
            client
                .store()
                .inspect(&door, LIMIT)
                .await
                .unwrap()
                .is_some()
        })
        .await;
        assert!(
            !writing.is_finished(),
            "{stand:?}: the share counts until its reader checks"
        );
    }
    taker.order("go");
    taker.resume();
    let writer = match writer {
        Some(writer) => writer,
        None => soon(writing).await,
    };
    let writer = writer.unwrap().unwrap();
    at(now().after(STORED_TTL / 2)).await;
    assert_eq!(
        taker.answered(),
        None,
        "{stand:?}: a reader beside a writer"
    );
    writer.check().unwrap();
    let released_at = now();
    writer.release().await;
    let granted_at = answered_at(&taker);
    assert!(granted_at > released_at, "{stand:?}");
    taker.finish();
}

fn answered_at(taker: &Subprocess) -> Instant {
    let answer = taker.answer();
    let (said, at) = answer.split_once(' ').expect("two words");
    assert_eq!(said, "granted");
    Instant::from_nanos(at.parse().expect("a number"))
}

#[tokio::test]
async fn a_reader_that_was_paused_before_its_check_gives_way_to_a_writer() {
    a_writer_is_alone_beside_a_paused_taker(Stand::Check, false).await;
    a_writer_is_alone_beside_a_paused_taker(Stand::Check, true).await;
}

#[tokio::test]
async fn a_doors_holder_that_was_paused_past_its_ttl_gives_way_to_a_writer() {
    a_writer_is_alone_beside_a_paused_taker(Stand::Claim, true).await;
    a_writer_is_alone_beside_a_paused_taker(Stand::Release, true).await;
}

fn register_name(number: usize) -> String {
    format!("register-{number}")
}

fn fence(number: usize) -> Fence {
    Fence::new(register_name(number)).expect("a valid name")
}

/// Takes each name alone, draws its pass, and writes once it is told to.
fn write_late(url: &str, file: &Path) {
    let runtime = new_runtime();
    let client = runtime.block_on(client_at(url, STORED_TTL));
    let mut held: Vec<(Lease, Pass)> = Vec::new();
    for number in 0..WRITES {
        let acquiring = patiently(client.exclusive(register_name(number))).acquire();
        let lease = runtime.block_on(acquiring).expect("it is free");
        let pass = lease.pass().expect("it is held");
        held.push((lease, pass));
    }
    say("stands");
    ordered();
    let mut database = rusqlite::Connection::open(file).expect("the file");
    let mut landed = 0;
    for (number, (_, pass)) in held.iter().enumerate() {
        if let Ok(transaction) = fence(number).begin(&mut database, pass) {
            let update = "UPDATE registers SET value = 'late' WHERE name = ?1";
            transaction
                .execute(update, [register_name(number)])
                .expect("written");
            transaction.commit().expect("committed");
            landed += 1;
        }
    }
    say(landed);
    ordered();
}

/// A writer of many names is paused past its ttl, readers take them, and it wakes. Returns how many writes it made, and
/// how many readers saw the register change under their share.
async fn late_writes(
    share: impl AsyncFn(LeaseRequest) -> Lease,
    is_fenced: bool,
) -> (usize, usize) {
    let server = RedisServer::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("registers.sqlite");
    let mut database = rusqlite::Connection::open(&file).unwrap();
    fence(0).create_table(&database).unwrap();
    database
        .execute_batch("PRAGMA busy_timeout = 5000; CREATE TABLE registers (name TEXT, value TEXT)")
        .unwrap();
    for number in 0..WRITES {
        let insert = "INSERT INTO registers VALUES (?1, 'first')";
        database.execute(insert, [register_name(number)]).unwrap();
    }
    let mut writer = start_process("writer", &server.url(), file.to_str().unwrap());
    assert_eq!(writer.answer(), "stands");
    writer.pause();
    let client = client_at(&server.url(), STORED_TTL).await;
    let mut readers = Vec::new();
    for number in 0..WRITES {
        until_free(&**client.store(), &register_name(number)).await;
        let reader = share(patiently(client.request(register_name(number)))).await;
        if is_fenced {
            let raised = fence(number).begin(&mut database, &reader).unwrap();
            raised.commit().unwrap();
        }
        readers.push(reader);
    }
    writer.order("go");
    writer.resume();
    let landed = writer.answer().parse().expect("a number");
    let changed = readers.iter().enumerate().filter(|(number, reader)| {
        let select = "SELECT value FROM registers WHERE name = ?1";
        let value = database.query_row(select, [register_name(*number)], |row| {
            row.get::<_, String>(0)
        });
        reader.check().is_ok() && value.unwrap() == "late"
    });
    (landed, changed.count())
}

#[tokio::test]
async fn late_writers_are_refused_behind_readers_with_a_fence_and_write_under_those_without() {
    let fenced = async |request: LeaseRequest| request.shared_fenced().acquire().await.unwrap();
    assert_eq!(late_writes(fenced, true).await, (0, 0));
    let plain = async |request: LeaseRequest| request.shared().acquire().await.unwrap();
    assert_eq!(late_writes(plain, false).await, (WRITES, WRITES));
}
