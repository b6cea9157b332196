//! What a grant costs the servers while many clients wait for their turn.
//!
//! Each client has sessions and threads of its own, as the only client of a process has. A thousand of them are too many
//! for one process, so they are spread over ten: this bench, started again.
//!
//! A waiting client also checks again after some seconds, whatever happens. What that costs is measured while a client
//! holds the name, and told apart: it grows with the clients and with the time, and not with the grants.

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::{Client, Lease, OutagePolicy};
use tokio::task::JoinSet;

use super::server::{Counter, Server};
use super::yardstick::{figure, seconds};

const TTL: Duration = Duration::from_secs(30);
const HOLD: Duration = Duration::from_millis(1);
const APART: Duration = Duration::from_millis(50);
/// The grants that are counted.
const GRANTS: usize = 300;
/// How long the name is held while the checks of the waiting clients are counted: several of each.
const QUIET: Duration = Duration::from_secs(20);
const PROCESSES: usize = 10;
/// The URL and the number of clients; set only for such a process.
const TASK: &str = "LEASEHOLD_BENCH_TURNS";

/// The grants of all processes.
#[derive(Debug, Default)]
struct Seen {
    grants: usize,
    /// The clients that were granted the name, by process and number.
    clients: HashSet<(usize, String)>,
}

/// A process with some of the clients. Ends on drop.
struct Sharer(Child);

impl Sharer {
    fn start(index: usize, url: &str, clients: usize, seen: &Arc<Mutex<Seen>>) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this bench"))
            .env(TASK, format!("{clients} {url}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this bench starts again");
        let lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let seen = seen.clone();
        std::thread::spawn(move || {
            for client in lines.map_while(Result::ok) {
                let mut seen = seen.lock().expect("no panic");
                seen.grants += 1;
                seen.clients.insert((index, client));
            }
        });
        Self(process)
    }
}

impl Drop for Sharer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Measures with so many clients that take one name in turns.
pub(crate) async fn measure(clients: usize) {
    let server = Server::start().await;
    let counter = server.counter().await;
    let seen = Arc::<Mutex<Seen>>::default();
    let each = clients / PROCESSES;
    let start = |index| Sharer::start(index, &counter.url(), each, &seen);
    let _sharers: Vec<_> = (0..PROCESSES).map(start).collect();
    let grants = || seen.lock().expect("no panic").grants;
    // Then all of them stand in the queue.
    until(|| seen.lock().expect("no panic").clients.len() == clients).await;
    let checks = checks_per_s(&server, &counter).await;
    // The client that was woken by the release has its turn.
    let settled = grants() + 10;
    until(|| grants() >= settled).await;
    counter.take();
    let (before, started) = (grants(), Instant::now());
    until(|| grants() >= before + GRANTS).await;
    let took = seconds(started);
    let (requests, granted) = (counter.take(), grants() - before);
    report(clients, &requests, granted, checks, took);
}

/// Holds the name for a while, and returns the requests of the clients that wait for it.
async fn checks_per_s(server: &Server, counter: &Counter) -> f64 {
    let client = Client::builder().store_url(server.url()).ttl(TTL);
    let client = client.build().await.expect("the store opens");
    let lease = acquire(&client).await;
    counter.take();
    let started = Instant::now();
    tokio::time::sleep(QUIET).await;
    let requests: u64 = counter.take().values().sum();
    let rate = requests as f64 / seconds(started);
    lease.check().expect("renewed");
    lease.release().await;
    rate
}

async fn acquire(client: &Client) -> Lease {
    let request = client.request("turns");
    let request = request.on_outage(OutagePolicy::WaitOut);
    request.acquire().await.expect("in the end")
}

/// Serves as such a process, if this is one.
pub(crate) async fn serve() -> bool {
    let Ok(task) = std::env::var(TASK) else {
        return false;
    };
    let (clients, url) = task.split_once(' ').expect("a number and a URL");
    let clients: usize = clients.parse().expect("a number");
    let mut tasks = JoinSet::new();
    for index in 0..clients {
        let builder = Client::builder().store_url(url).ttl(TTL);
        let client = builder.build().await.expect("the store opens");
        tasks.spawn(take_turns(client, index));
        // A thousand sessions made at once would be another measurement.
        tokio::time::sleep(APART).await;
    }
    // It ends with its parent.
    let parent = tokio::task::spawn_blocking(|| std::io::stdin().lines().count());
    let _ = parent.await;
    std::process::exit(0);
}

/// Takes turns for ever, and says its number after each.
async fn take_turns(client: Client, index: usize) {
    loop {
        let lease = acquire(&client).await;
        tokio::time::sleep(HOLD).await;
        lease.release().await;
        println!("{index}");
    }
}

async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Prints the requests of each kind for a grant, and the figures without the checks that went on meanwhile.
fn report(clients: usize, requests: &BTreeMap<&str, u64>, granted: usize, checks: f64, took: f64) {
    let granted = granted as f64;
    let kinds = requests.iter();
    let kinds: Vec<_> = kinds
        .map(|(kind, count)| format!("{kind}={:.1}", *count as f64 / granted))
        .collect();
    let rate = granted / took;
    println!(
        "# {rate:.0} grants/s, each with {} and the checks",
        kinds.join(" ")
    );
    let all: u64 = requests.values().sum();
    let without_checks = (all as f64 - checks * took) / granted;
    let name = |what: &str| format!("zookeeper_requests_{what}_{clients}_waiters");
    figure(&name("per_grant"), "requests", &[without_checks]);
    figure(&name("per_s_while_held"), "requests/s", &[checks]);
}
