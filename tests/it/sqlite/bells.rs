//! The event that wakes waiting clients: that it comes at once and alone, and what is left without it.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use leasehold::clock::{Clock, Instant, Monotonic};
use leasehold::store::sqlite::Sqlite;
use leasehold::store::{Eviction, Notice, Notices, Queued, Release, Store, Topic};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use tempfile::TempDir;

use super::child::Child;
use super::{
    Asking, LIMIT, LONG, claim, granted, held, name, open, pass_time, queued, raw, surroundings,
};
use crate::harness::asking::{released, renewed};
use crate::harness::subprocess::{self, Subprocess, say};
use crate::harness::wait::{next_notice, until_so};

/// Two names with one bell, and where it is.
const ALIKE: [&str; 2] = ["a", "Zürich"];
const THEIRS: &str = "20";
/// A name with another one.
const OTHER: &str = "b";

/// The time between two polls of a client that has its bell, and what a busy machine adds.
const PACE: Duration = Duration::from_millis(1_700);
/// An event comes long before a poll by time would.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(300);

/// A file of leases, and the folder of its bells.
#[derive(Debug)]
pub(crate) struct Bench {
    folder: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { folder }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("leases.sqlite")
    }

    fn bells(&self) -> PathBuf {
        self.folder.path().join("leases.sqlite-bells")
    }

    fn bell(&self) -> PathBuf {
        self.bells().join(THEIRS)
    }

    /// Returns once somebody listens to this name's bell.
    async fn has_listener(&self) {
        until_so("a listener", async || has_reader(&self.bell())).await;
    }
}

/// To find out rings the bell.
fn has_reader(bell: &Path) -> bool {
    opened(bell, OFlags::WRONLY).is_some()
}

fn opened(bell: &Path, way: OFlags) -> Option<File> {
    let flags = (way | OFlags::NONBLOCK).bits().cast_signed();
    let is_read = way == OFlags::RDONLY;
    let mut options = OpenOptions::new();
    options
        .read(is_read)
        .write(!is_read)
        .custom_flags(flags)
        .open(bell)
        .ok()
}

/// A process that listens, and says when it hears of a freed name.
#[derive(Debug)]
pub(crate) struct Ear(Subprocess);

impl Ear {
    pub(crate) fn start(file: &Path, names: &str) -> Self {
        Self::start_under(&[], file, names)
    }

    /// Starts one under a command that makes its surroundings. Returns once it listens to all of these names.
    fn start_under(surroundings: &[&str], file: &Path, names: &str) -> Self {
        let test = "sqlite::bells::a_child_process_listens";
        let own = subprocess::own();
        let words = [surroundings, &[own.to_str().expect("UTF-8")]].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        let task = format!("{names} {}", file.display());
        let ear = Self(Subprocess::start_by(command, test, &task));
        assert_eq!(ear.0.answer(), "listening");
        ear
    }

    /// Returns how long after this moment it heard that the name is free.
    pub(crate) fn heard_after(&self, name: &str, since: Instant) -> Duration {
        loop {
            let answer = self.0.answer();
            let (heard, at) = answer.split_once(' ').expect("a name and a moment");
            let at = Instant::from_nanos(at.parse().expect("a moment"));
            // A poll for other reasons finds a free name as well.
            if heard == name && at > since {
                return at.since(since);
            }
        }
    }

    /// How often the threads of its stores went to sleep: once for each poll, and some for other reasons.
    fn polls(&self) -> u64 {
        let tasks = format!("/proc/{}/task", self.0.id());
        let tasks = fs::read_dir(tasks).expect("it lives").flatten();
        let of_stores = tasks.filter_map(|task| {
            let name = fs::read_to_string(task.path().join("comm")).ok()?;
            name.starts_with("leasehold-sqli").then_some(task.path())
        });
        let slept = of_stores.map(|task| {
            let status = fs::read_to_string(task.join("status")).expect("it lives");
            let (_, count) = status
                .split_once("\nvoluntary_ctxt_switches:")
                .expect("Linux counts");
            let count = count.lines().next().expect("a line").trim();
            count.parse::<u64>().expect("a number")
        });
        slept.sum()
    }

    /// The processor time that it has had.
    pub(crate) fn ran(&self) -> Duration {
        let tasks = format!("/proc/{}/task", self.0.id());
        let tasks = fs::read_dir(tasks).expect("it lives").flatten();
        let ran = tasks.map(|task| {
            let told = fs::read_to_string(task.path().join("schedstat")).expect("Linux counts");
            let ran = told.split(' ').next().expect("a number");
            Duration::from_nanos(ran.parse().expect("a number"))
        });
        ran.sum()
    }

    /// How often its stores polled in the next two seconds.
    async fn polls_within_two_seconds(&self, beside: impl AsyncFnOnce()) -> u64 {
        let before = self.polls();
        let end = Monotonic.now().after(Duration::from_secs(2));
        beside().await;
        Monotonic.sleep_until(end).await;
        self.polls() - before
    }
}

#[test]
fn a_child_process_listens() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let Some(task) = subprocess::task() else {
        let bench = Bench::new();
        runtime.block_on(async {
            let store = open(&bench.file()).await;
            let ear = Ear::start(&bench.file(), "a");
            told_after(&store, &ear, "a").await;
        });
        return;
    };
    let (names, file) = task.split_once(' ').expect("names and a file");
    runtime.block_on(listen(Path::new(file), names));
}

/// The child: listens to these names, with commas between them, until its parent ends.
async fn listen(file: &Path, names: &str) {
    let store = open(file).await;
    let (notices, names) = (notices_of(&store).await, names.split(','));
    let topics: Vec<_> = names.map(|text| Topic::Freed(name(text))).collect();
    topics.iter().for_each(|topic| notices.follow(topic));
    for _ in &topics {
        next_notice(&*notices).await;
    }
    say("listening");
    let mut orders = subprocess::orders();
    loop {
        tokio::select! {
            order = orders.recv() => if order.is_none() { return },
            notice = notices.next() => match notice {
                Notice::Freed(name) => say(format_args!("{name} {}", Monotonic.now().as_nanos())),
                other => say(format_args!("{other:?} 0")),
            }
        }
    }
}

async fn notices_of(store: &Sqlite) -> Box<dyn Notices> {
    let notices = store.notices().await.expect("it listens");
    notices.expect("it has notices")
}

/// Listens to this name in this process.
async fn listening(store: &Sqlite, text: &str) -> Box<dyn Notices> {
    let notices = notices_of(store).await;
    notices.follow(&Topic::Freed(name(text)));
    assert_eq!(next_notice(&*notices).await, Notice::Freed(name(text)));
    notices
}

async fn take_and_free(store: &Sqlite, text: &str) {
    let claim = claim(text, LONG);
    granted(store, &claim).await;
    assert_eq!(released(store, &claim).await, Release::Released);
}

/// The time from the call of a release to when the ear has heard of it.
async fn told_after(store: &Sqlite, ear: &Ear, text: &str) -> Duration {
    let claim = claim(text, LONG);
    granted(store, &claim).await;
    told_of(store, ear, &claim).await
}

/// The same for a lease that is held.
pub(crate) async fn told_of(store: &Sqlite, ear: &Ear, lease: &Asking) -> Duration {
    let freed = Monotonic.now();
    assert_eq!(released(store, lease).await, Release::Released);
    ear.heard_after(lease.name.as_str(), freed)
}

/// Fails unless releases are told of by an event: half of them sooner than any poll by time allows.
async fn assert_rung(store: &Sqlite, ear: &Ear, text: &str) {
    let mut took = Vec::new();
    for _ in 0..7 {
        took.push(told_after(store, ear, text).await);
    }
    took.sort_unstable();
    assert!(took[3] < AT_ONCE, "{took:?}");
}

#[tokio::test]
async fn a_release_in_another_process_is_told_at_once() {
    let bench = Bench::new();
    let store = open(&bench.file()).await;
    let ear = Ear::start(&bench.file(), "a");
    let mut took = Vec::new();
    for _ in 0..50 {
        took.push(told_after(&store, &ear, "a").await);
        // A listener spends a tenth of its time on polls most, and each is slow on a busy machine.
        let pause = Duration::from_micros(fastrand::u64(20_000..30_000));
        pass_time(pause).await;
    }
    took.sort_unstable();
    println!("half within {:?}, all within {:?}", took[25], took[49]);
    // Polls each ten milliseconds cannot be the reason: the next test counts them.
    assert!(took[25] < AT_ONCE / 6, "{took:?}");
}

#[tokio::test]
async fn grants_and_renewals_of_others_wake_no_listener() {
    let bench = Bench::new();
    let store = open(&bench.file()).await;
    let ear = Ear::start(&bench.file(), "a");
    let others = ALIKE.map(|name| claim(name, LONG));
    let beside = async || {
        for round in 0..200 {
            granted(&store, &claim(&format!("new/{round}"), LONG)).await;
            granted(&store, &others[1]).await;
            renewed(&store, &others[1]).await;
            pass_time(Duration::from_millis(5)).await;
        }
    };
    let polls = ear.polls_within_two_seconds(beside).await;
    assert!(polls < 20, "{polls} polls");
}

#[tokio::test]
async fn a_release_wakes_the_listeners_of_its_own_bell_only() {
    let bench = Bench::new();
    let store = open(&bench.file()).await;
    let ear = Ear::start(&bench.file(), "a");
    let ours = claim("a", LONG);
    granted(&store, &ours).await;
    let releases = async |name| {
        for _ in 0..100 {
            take_and_free(&store, name).await;
            pass_time(Duration::from_millis(10)).await;
        }
    };
    let polls = ear
        .polls_within_two_seconds(async || releases(OTHER).await)
        .await;
    assert!(polls < 20, "{polls} polls");
    let polls = ear
        .polls_within_two_seconds(async || releases(ALIKE[1]).await)
        .await;
    assert!(polls > 20, "{polls} polls");
    // The first that it hears of is its own.
    told_of(&store, &ear, &ours).await;
}

#[tokio::test]
async fn no_release_falls_between_the_bell_and_the_poll() {
    let bench = Bench::new();
    let store = open(&bench.file()).await;
    let notices = listening(&store, "a").await;
    let seed = fastrand::u64(..);
    println!("seed={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..1_000 {
        let claim = claim("a", LONG);
        granted(&store, &claim).await;
        pass_time(Duration::from_micros(random.u64(..2_000))).await;
        let freed = Monotonic.now();
        assert_eq!(released(&store, &claim).await, Release::Released);
        assert_eq!(next_notice(&*notices).await, Notice::Freed(name("a")));
        let took = Monotonic.now().since(freed);
        assert!(took < AT_ONCE, "{took:?}");
    }
}

/// As if its process was killed between the two.
#[tokio::test]
async fn a_change_whose_ring_was_lost_is_found_within_a_second() {
    let bench = Bench::new();
    let store = open(&bench.file()).await;
    let ear = Ear::start(&bench.file(), "a");
    granted(&store, &claim("a", LONG)).await;
    let file = raw(&bench.file());
    let freed = Monotonic.now();
    file.execute("DELETE FROM lease", ()).expect("ours");
    let took = ear.heard_after("a", freed);
    assert!(took < PACE, "{took:?}");
}

#[tokio::test]
async fn a_process_that_stands_still_with_a_bell_open_delays_a_notice_by_a_second_at_most() {
    let bench = Bench::new();
    let store = open(&bench.file()).await;
    let ear = Ear::start(&bench.file(), "a");
    bench.has_listener().await;
    let still = opened(&bench.bell(), OFlags::WRONLY).expect("it listens");
    let took = told_after(&store, &ear, "a").await;
    assert!(took < PACE, "{took:?}");
    drop(still);
    assert_rung(&store, &ear, "a").await;
}

#[tokio::test]
async fn a_bell_that_was_deleted_or_replaced_is_made_anew_and_costs_a_second_at_most() {
    let bench = Bench::new();
    let store = open(&bench.file()).await;
    let ear = Ear::start(&bench.file(), "a");
    let (bells, bell) = (bench.bells(), bench.bell());
    let target = bench.folder.path().join("target");
    fs::write(&target, "untouched").expect("written");
    // In one step: the listener may make its bell anew meanwhile.
    let gone = bench.folder.path().join("gone");
    let remove = |path: &Path| {
        let _ = fs::remove_dir_all(&gone);
        fs::rename(path, &gone).expect("renamed");
    };
    let damages: [(&str, &dyn Fn() -> Option<PathBuf>); 7] = [
        ("deleted", &|| None),
        ("a file", &|| {
            fs::write(&bell, "").expect("written");
            Some(bell.clone())
        }),
        ("a link", &|| {
            symlink(&target, &bell).expect("linked");
            Some(bell.clone())
        }),
        ("a folder", &|| {
            fs::create_dir(&bell).expect("made");
            Some(bell.clone())
        }),
        ("the folder deleted", &|| {
            remove(&bells);
            None
        }),
        ("the folder a file", &|| {
            remove(&bells);
            fs::write(&bells, "").expect("written");
            Some(bells.clone())
        }),
        ("the folder a link", &|| {
            remove(&bells);
            symlink(bench.folder.path(), &bells).expect("linked");
            Some(bells.clone())
        }),
    ];
    for (what, damage) in damages {
        bench.has_listener().await;
        fs::remove_file(&bell).expect("it is there");
        let obstacle = damage();
        for _ in 0..3 {
            let took = told_after(&store, &ear, "a").await;
            assert!(took < PACE, "{what}: {took:?}");
        }
        if let Some(obstacle) = obstacle {
            fs::remove_file(&obstacle)
                .or_else(|_| fs::remove_dir(&obstacle))
                .expect("it is in the way");
        }
        bench.has_listener().await;
        assert_rung(&store, &ear, "a").await;
    }
    assert_eq!(fs::read(&target).expect("it is there"), b"untouched");
}

fn close_folder(folder: &Path, mode: u32) {
    fs::create_dir_all(folder).expect("made");
    fs::set_permissions(folder, fs::Permissions::from_mode(mode)).expect("set");
}

#[tokio::test]
async fn a_client_that_may_make_no_bell_polls_each_ten_milliseconds() {
    let bench = Bench::new();
    close_folder(&bench.bells(), 0o500);
    let store = open(&bench.file()).await;
    let ear = Ear::start_under(surroundings::not_root(), &bench.file(), "a");
    assert_rung(&store, &ear, "a").await;
    assert!(!bench.bell().exists());
    let polls = ear.polls_within_two_seconds(async || {}).await;
    assert!(polls > 50, "{polls} polls");
    // It tries again.
    close_folder(&bench.bells(), 0o700);
    bench.has_listener().await;
    assert_rung(&store, &ear, "a").await;
    let polls = ear.polls_within_two_seconds(async || {}).await;
    assert!(polls < 20, "{polls} polls");
}

#[tokio::test]
async fn a_release_that_may_not_ring_is_found_within_a_second() {
    let bench = Bench::new();
    let store = open(&bench.file()).await;
    let notices = listening(&store, "a").await;
    fs::set_permissions(bench.bell(), fs::Permissions::from_mode(0o400)).expect("set");
    let mut other = Child::start_under(surroundings::not_root(), &bench.file());
    for _ in 0..3 {
        assert!(other.ask("acquire a 60000").starts_with("granted"));
        let freed = Monotonic.now();
        assert_eq!(other.ask("release a"), "Ok(Released)");
        assert_eq!(next_notice(&*notices).await, Notice::Freed(name("a")));
        let took = Monotonic.now().since(freed);
        assert!(took < PACE, "{took:?}");
    }
}

#[tokio::test]
async fn a_bell_rings_through_a_mount_a_link_and_another_network() {
    let bench = Bench::new();
    let [outside, inside] = ["outside", "inside"].map(|name| bench.folder.path().join(name));
    for path in [&outside, &inside] {
        fs::create_dir(path).expect("a folder");
    }
    let file = outside.join("leases.sqlite");
    let store = open(&file).await;
    let link = bench.folder.path().join("link.sqlite");
    symlink(&file, &link).expect("linked");
    let of_link = open(&link).await;
    let ear = Ear::start(&file, "a");
    assert_rung(&of_link, &ear, "a").await;
    let mount = surroundings::bound_to(&outside, &inside);
    let mounted = Ear::start_under(&mount, &inside.join("leases.sqlite"), OTHER);
    assert_rung(&store, &mounted, OTHER).await;
    let apart = ["unshare", "--user", "--net"];
    let apart = Ear::start_under(&apart, &file, "A");
    assert_rung(&store, &apart, "A").await;
    let mut inner = Child::start_under(&mount, &inside.join("leases.sqlite"));
    assert!(inner.ask("acquire a 60000").starts_with("granted"));
    let freed = Monotonic.now();
    assert_eq!(inner.ask("release a"), "Ok(Released)");
    let took = ear.heard_after("a", freed);
    assert!(took < PACE, "{took:?}");
}

#[tokio::test]
async fn a_process_without_free_descriptors_waits_all_the_same() {
    let bench = Bench::new();
    let store = open(&bench.file()).await;
    let names: Vec<_> = (0..100).map(|index| format!("n{index}")).collect();
    let limited = ["sh", "-c", "ulimit -n 40; exec \"$0\" \"$@\""];
    let ear = Ear::start_under(&limited, &bench.file(), &names.join(","));
    let bells = fs::read_dir(bench.bells()).expect("made").flatten();
    let bells: Vec<_> = bells.map(|bell| bell.path()).collect();
    assert!(bells.iter().any(|bell| has_reader(bell)));
    assert!(
        !bells.iter().all(|bell| has_reader(bell)),
        "all were opened"
    );
    let mut took = Vec::new();
    for name in &names[..21] {
        took.push(told_after(&store, &ear, name).await);
    }
    took.sort_unstable();
    assert!(took[10] < AT_ONCE, "{took:?}");
}

/// The descriptors of this process that are bells of this file.
fn open_bells(process: u32, bench: &Bench) -> usize {
    let all = fs::read_dir(format!("/proc/{process}/fd")).expect("Linux tells");
    let paths = all
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok());
    paths.filter(|path| path.starts_with(bench.bells())).count()
}

#[tokio::test]
async fn a_client_that_waits_for_10000_names_has_64_bells() {
    let bench = Bench::new();
    let store = open(&bench.file()).await;
    let notices = notices_of(&store).await;
    for index in 0..10_000 {
        notices.follow(&Topic::Freed(name(&format!("n{index}"))));
    }
    let own = std::process::id();
    until_so("the bells", async || open_bells(own, &bench) == 64).await;
    // While the old ones are replaced there may be twice as many for a moment.
    let mut most = 0;
    for _ in 0..50 {
        most = most.max(open_bells(own, &bench));
        pass_time(Duration::from_millis(25)).await;
    }
    assert!(most <= 128, "{most}");
    drop(notices);
    until_so("their end", async || open_bells(own, &bench) == 0).await;
}

/// The bell of a client of the queue.
fn bell_of(bench: &Bench, client: &Asking) -> PathBuf {
    bench.bells().join(client.holder.client().to_string())
}

/// Waits for its turn at "a" as a client that listens.
async fn in_queue(store: &Sqlite, client: &Asking) -> Box<dyn Notices> {
    let notices = notices_of(store).await;
    notices.follow(&Topic::Queue(name("a"), client.holder.client()));
    assert_eq!(next_notice(&*notices).await, Notice::Freed(name("a")));
    held(store, client).await;
    notices
}

async fn is_granted_next(notices: &dyn Notices, client: &Asking) {
    let Notice::Granted(told) = next_notice(notices).await else {
        panic!("no grant was told of");
    };
    assert_eq!(told.holder, client.holder);
}

#[tokio::test]
async fn a_grant_wakes_its_client_alone_and_other_releases_wake_no_client_of_a_queue() {
    let bench = Bench::new();
    let store = open(&bench.file()).await;
    let (first, one, two) = (claim("a", LONG), queued("a", LONG), queued("a", LONG));
    granted(&store, &first).await;
    let of_one = in_queue(&store, &one).await;
    let _of_two = in_queue(&store, &two).await;
    let mut probes = [&one, &two].map(|client| Probe::at(bell_of(&bench, client)));
    // It has the bell of those who watch "a".
    take_and_free(&store, ALIKE[1]).await;
    assert_eq!(probes.each_mut().map(Probe::was_rung), [false, false]);
    assert_eq!(released(&store, &first).await, Release::Released);
    is_granted_next(&*of_one, &one).await;
    assert_eq!(probes.each_mut().map(Probe::was_rung), [true, false]);
    let kept = store.release(&one.name, one.holder, Some(LONG), LIMIT);
    assert_eq!(kept.await.expect("answered"), Release::Released);
    let rung = probes.each_mut().map(Probe::was_rung);
    assert_eq!(rung, [false, true], "the first waits for its end");
}

#[tokio::test]
async fn a_place_is_kept_for_long_while_its_client_has_a_bell() {
    let bench = Bench::new();
    let store = open(&bench.file()).await;
    let first = claim("a", LONG);
    let waits_for = |ttl| {
        let mut client = queued("a", ttl);
        client.ask.queued = Some(Queued::new(ttl));
        client
    };
    let (one, short) = (waits_for(LONG), waits_for(Duration::from_secs(1)));
    let kept_for = async |client| {
        let place = held(&store, client).await.place.expect("a place");
        place.kept_for.expect("it is told")
    };
    granted(&store, &first).await;
    let longest = Queued::LONGEST_TERM;
    assert_eq!(kept_for(&one).await, longest);
    let (notices, _short) = (in_queue(&store, &one).await, in_queue(&store, &short).await);
    assert!(kept_for(&one).await >= longest * 3);
    assert_eq!(kept_for(&short).await, Duration::from_secs(1));
    drop(notices);
    let bell = bell_of(&bench, &one);
    until_so("its end", async || !bell.exists()).await;
    assert_eq!(kept_for(&one).await, longest);
}

#[tokio::test]
async fn a_bell_of_a_client_that_was_deleted_costs_no_place() {
    let bench = Bench::new();
    let store = open(&bench.file()).await;
    let (first, one, two) = (claim("a", LONG), queued("a", LONG), queued("a", LONG));
    granted(&store, &first).await;
    let notices = in_queue(&store, &one).await;
    let _others = in_queue(&store, &two).await;
    fs::remove_dir_all(bench.bells()).expect("it was made");
    let freed = Monotonic.now();
    assert_eq!(released(&store, &first).await, Release::Released);
    is_granted_next(&*notices, &one).await;
    let took = Monotonic.now().since(freed);
    assert!(took < PACE, "{took:?}");
    let bell = bell_of(&bench, &one);
    until_so("a new bell", async || has_reader(&bell)).await;
}

#[tokio::test]
async fn bells_of_dead_clients_are_removed_by_those_that_come_later() {
    let bench = Bench::new();
    let store = open(&bench.file()).await;
    let live = queued("b", LONG);
    let _notices = in_queue_of_b(&store, &live).await;
    let dead: Vec<_> = (0..20)
        .map(|_| bell_of(&bench, &queued("a", LONG)))
        .collect();
    for bell in &dead {
        rustix::fs::mkfifoat(rustix::fs::CWD, bell, rustix::fs::Mode::RWXU).expect("made");
    }
    for _ in 0..8 {
        drop(in_queue_of_b(&store, &queued("b", LONG)).await);
    }
    assert!(dead.iter().all(|bell| !bell.exists()));
    assert!(has_reader(&bell_of(&bench, &live)));
}

/// Follows the queue of "b" as this client, which is not in it.
async fn in_queue_of_b(store: &Sqlite, client: &Asking) -> Box<dyn Notices> {
    let notices = notices_of(store).await;
    notices.follow(&Topic::Queue(name("b"), client.holder.client()));
    assert_eq!(next_notice(&*notices).await, Notice::Freed(name("b")));
    notices
}

/// A bell as a test hears it.
struct Probe {
    bell: PathBuf,
    reader: File,
}

impl Probe {
    fn new(bench: &Bench) -> Self {
        Self::at(bench.bell())
    }

    fn at(bell: PathBuf) -> Self {
        let reader = opened(&bell, OFlags::RDONLY).expect("it was made");
        Self { bell, reader }
    }

    /// Returns whether it was rung since the last time.
    fn was_rung(&mut self) -> bool {
        let mut polled = [PollFd::new(&self.reader, PollFlags::IN)];
        let at_once = Timespec::default();
        let ready = poll(&mut polled, Some(&at_once)).expect("polled");
        self.reader = opened(&self.bell, OFlags::RDONLY).expect("it is there");
        ready > 0
    }
}

async fn evicted(store: &Sqlite, how: Eviction) {
    let evicted = store.evict(&name("a"), how, LIMIT).await;
    assert!(evicted.expect("the store answers"));
}

#[tokio::test]
async fn what_frees_a_name_or_passes_it_on_rings_and_nothing_else_does() {
    let bench = Bench::new();
    let store = open(&bench.file()).await;
    drop(listening(&store, "a").await);
    let mut probe = Probe::new(&bench);
    let (first, one, two) = (claim("a", LONG), queued("a", LONG), queued("a", LONG));
    granted(&store, &first).await;
    renewed(&store, &first).await;
    held(&store, &claim("a", LONG)).await;
    held(&store, &one).await;
    held(&store, &one).await;
    held(&store, &two).await;
    evicted(&store, Eviction::Marked).await;
    assert_eq!(released(&store, &queued("a", LONG)).await, Release::NotHeld);
    assert!(!probe.was_rung(), "no waiting client is concerned");
    assert_eq!(released(&store, &first).await, Release::Released);
    assert!(probe.was_rung(), "a release that passes it on");
    assert_eq!(released(&store, &one).await, Release::Released);
    assert!(probe.was_rung(), "one that leaves at its turn");
    granted(&store, &two).await;
    assert!(!probe.was_rung(), "a grant that is confirmed");
    assert_eq!(released(&store, &two).await, Release::Released);
    assert!(probe.was_rung(), "a release");
    assert_eq!(released(&store, &two).await, Release::NotHeld);
    assert!(!probe.was_rung(), "a release of nothing");
    granted(&store, &first).await;
    evicted(&store, Eviction::Now).await;
    assert!(probe.was_rung(), "an eviction at once");
    let last = claim("a", LONG);
    granted(&store, &last).await;
    let kept = store.release(&last.name, last.holder, Some(LONG), LIMIT);
    assert_eq!(kept.await.expect("answered"), Release::Released);
    assert!(probe.was_rung(), "a release that keeps it");
    evicted(&store, Eviction::Now).await;
    probe.was_rung();
    let short = claim("a", Duration::from_millis(100));
    granted(&store, &short).await;
    held(&store, &queued("a", Duration::from_secs(1))).await;
    pass_time(Duration::from_millis(150)).await;
    assert!(!probe.was_rung(), "nobody is there who could ring");
    held(&store, &claim("a", LONG)).await;
    assert!(probe.was_rung(), "a claim that passes it on");
    pass_time(Duration::from_secs(1)).await;
    granted(&store, &claim("a", LONG)).await;
    assert!(!probe.was_rung(), "a grant instead of what ran out");
}

#[tokio::test]
async fn a_program_that_a_waiting_client_starts_has_none_of_its_bells() {
    let bench = Bench::new();
    let store = open(&bench.file()).await;
    let _notices = listening(&store, "a").await;
    assert_eq!(open_bells(std::process::id(), &bench), 1);
    let mut program = Command::new("sleep").arg("60").spawn().expect("started");
    let its = open_bells(program.id(), &bench);
    program.kill().expect("it is ours");
    program.wait().expect("it is ours");
    assert_eq!(its, 0);
}

#[tokio::test]
async fn bells_are_for_the_user_of_the_file_alone_and_stay() {
    let bench = Bench::new();
    let store = open(&bench.file()).await;
    drop(listening(&store, "a").await);
    store.close().await;
    for (path, mode) in [(bench.bells(), 0o700), (bench.bell(), 0o600)] {
        let found = fs::metadata(&path).expect("it stays").permissions().mode();
        assert_eq!(found & 0o7777, mode, "{path:?}");
    }
}
