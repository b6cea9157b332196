//! The live view over 10,000 leases: how long a key takes to show, and what the view costs the store.
//!
//! ```text
//! cargo bench -p leasehold-cli --bench top              # a minute over Redis and a minute over SQLite
//! cargo bench -p leasehold-cli --bench top -- redis 20  # one of them, for so many seconds
//! ```
//!
//! The tool runs on a terminal of its own and is pressed keys at random moments, so that some come while a list arrives.
//! Over Redis the cost is the server's own processor time, less what it takes while no client is there; over SQLite, which
//! has no server, it is that of the threads of the tool that read, which is all but the one that draws.

#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures with the clock that stands still in no suspend it would survive"
)]

mod screen;
use std::time::{Duration, Instant};

use deadpool_redis::redis;
use leasehold::{Attempt, Client, Lease};
use leasehold_benches as yardstick;
use leasehold_benches::many;

use self::many::take_many;
use self::screen::{Screen, Terminal};
use self::yardstick::{Server, figure, median, seconds};

const LEASES: usize = 10_000;
/// Longer than the bench: nothing is renewed meanwhile.
const TTL: Duration = Duration::from_secs(3_600);

/// A key that takes longer to show is printed.
const AIM: Duration = Duration::from_millis(50);

async fn take(url: &str) -> (Client, Vec<Lease>) {
    let builder = Client::builder().store_url(url).ttl(TTL);
    let client = builder.build().await.expect("the store opens");
    let leases = take_many(&client, LEASES, |client, index| async move {
        held(&client, &format!("job-{index:05}")).await
    });
    let leases = leases.await;
    (client, leases)
}

async fn held(client: &Client, name: &str) -> Lease {
    let request = client.request(name).label("a bench");
    match request.try_acquire().await.expect("the store answers") {
        Attempt::Acquired(lease) => lease,
        other => panic!("{other:?}"),
    }
}

/// Opens the view, and returns once it shows all leases.
fn open(url: &str) -> Terminal {
    let opened = Instant::now();
    let terminal = Terminal::run(env!("CARGO_BIN_EXE_leasehold"), &["top", "--store", url]);
    let all = format!("{LEASES} leases");
    terminal.shows(|screen| screen.text(0).contains(&all) && screen.selected().is_some());
    println!("# all shown {:.2} s after the start", seconds(opened));
    terminal
}

/// Presses keys for that long, and returns how many milliseconds each took to show.
fn press_keys(terminal: &mut Terminal, length: Duration) -> Vec<f64> {
    let (started, mut taken) = (Instant::now(), Vec::new());
    while started.elapsed() < length {
        for (keys, effect) in KEYS {
            std::thread::sleep(Duration::from_millis(fastrand::u64(20..120)));
            let took = match effect {
                Effect::Selects => {
                    let before = terminal.look(Screen::selected);
                    terminal.press(keys, |screen| {
                        let now = screen.selected();
                        now.is_some() && name(&now) != name(&before)
                    })
                }
                Effect::Shows(line, text) => {
                    terminal.press(keys, |screen| screen.text(*line).contains(text))
                }
                Effect::Hides(line, text) => {
                    terminal.press(keys, |screen| !screen.text(*line).contains(text))
                }
            };
            if took > AIM {
                let head = terminal.look(|screen| screen.text(0));
                println!("# {keys:?} took {took:.0?}: {head}");
            }
            taken.push(took.as_secs_f64() * 1e3);
        }
    }
    taken
}

/// The name of a line of the table.
fn name(line: &Option<String>) -> Option<&str> {
    line.as_deref()?.split_whitespace().nth(1)
}

/// By what a key is seen to have been answered.
enum Effect {
    /// Another name is selected.
    Selects,
    /// This line has this text.
    Shows(usize, &'static str),
    /// It no longer has it.
    Hides(usize, &'static str),
}

/// A round of keys: moves, each order in both directions, a filter that is typed and cleared.
const KEYS: &[(&str, Effect)] = &[
    ("j", Effect::Selects),
    ("j", Effect::Selects),
    (" ", Effect::Selects),
    ("G", Effect::Selects),
    ("k", Effect::Selects),
    ("g", Effect::Selects),
    ("s", Effect::Shows(0, "by left")),
    ("s", Effect::Shows(0, "by held")),
    ("s", Effect::Shows(0, "by waiting")),
    ("s", Effect::Shows(0, "by token")),
    ("s", Effect::Shows(0, "by holder")),
    ("r", Effect::Shows(0, "reversed")),
    ("r", Effect::Hides(0, "reversed")),
    ("s", Effect::Shows(0, "by name")),
    ("/", Effect::Shows(1, "filter: _")),
    ("j", Effect::Shows(1, "filter: j_")),
    ("o", Effect::Shows(1, "filter: jo_")),
    ("b", Effect::Shows(1, "filter: job_")),
    ("\r", Effect::Shows(1, "(Esc clears it)")),
    ("\x1b", Effect::Hides(1, "filter")),
];

fn tell(store: &str, mut taken: Vec<f64>) {
    taken.sort_by(f64::total_cmp);
    println!("# {} keys were pressed", taken.len());
    let p99 = taken[taken.len() * 99 / 100];
    let worst = taken.last().copied().expect("some were pressed");
    let name = |what: &str| format!("top_{LEASES}_{store}_key_{what}_ms");
    figure(&name("p50"), "ms", &[median(taken)]);
    figure(&name("p99"), "ms", &[p99]);
    figure(&name("worst"), "ms", &[worst]);
}

/// The seconds of processor time that the threads of this process have used, without its first.
fn readers_time(pid: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    let threads = threads.map(|thread| thread.expect("a thread").file_name());
    let threads = threads.filter_map(|thread| thread.to_str()?.parse::<u32>().ok());
    let readers = threads.filter(|thread| *thread != pid);
    readers.map(|thread| thread_time(pid, thread)).sum()
}

fn thread_time(pid: u32, thread: u32) -> f64 {
    let path = format!("/proc/{pid}/task/{thread}/stat");
    let stat = std::fs::read_to_string(path).expect("it lives");
    let (_, fields) = stat.rsplit_once(") ").expect("a name");
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks = fields[11..13].iter().map(|field| field.parse::<f64>());
    ticks.map(|ticks| ticks.expect("a number")).sum::<f64>() / 100.0
}

/// The seconds of processor time that the server has used.
async fn server_time(connection: &mut redis::aio::MultiplexedConnection) -> f64 {
    let info: String = redis::cmd("INFO")
        .arg("cpu")
        .query_async(connection)
        .await
        .expect("it answers");
    let used = |key: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|text| text.trim().parse::<f64>().ok())
    };
    let parts = ["used_cpu_user:", "used_cpu_sys:"].map(used);
    parts.iter().map(|part| part.expect("a number")).sum()
}

async fn over_redis(length: Duration) {
    let server = Server::start().await;
    let (_client, leases) = take(&server.url()).await;
    let mut connection = server.connect().await;
    let mut share = async |body: &mut dyn FnMut()| {
        let (before, started) = (server_time(&mut connection).await, Instant::now());
        tokio::task::block_in_place(body);
        (server_time(&mut connection).await - before) / seconds(started) * 100.0
    };
    let idle = share(&mut || std::thread::sleep(length / 4)).await;
    let mut terminal = open(&server.url());
    let mut taken = Vec::new();
    let busy = share(&mut || taken = press_keys(&mut terminal, length)).await;
    tell("redis", taken);
    let name = format!("top_{LEASES}_redis_server_percent");
    figure(&name, "percent", &[busy - idle]);
    picture(&terminal);
    drop(leases);
}

async fn over_sqlite(length: Duration) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let url = format!("sqlite:{}", folder.path().join("leases.sqlite").display());
    let (_client, leases) = take(&url).await;
    let mut terminal = open(&url);
    let (before, started) = (readers_time(terminal.pid()), Instant::now());
    let taken = tokio::task::block_in_place(|| press_keys(&mut terminal, length));
    tell("sqlite", taken);
    let used = (readers_time(terminal.pid()) - before) / seconds(started) * 100.0;
    figure(
        &format!("top_{LEASES}_sqlite_readers_percent"),
        "percent",
        &[used],
    );
    picture(&terminal);
    drop(leases);
}

/// Prints the screen.
fn picture(terminal: &Terminal) {
    terminal.look(|screen| screen.lines().for_each(|line| println!("# |{line}")));
}

fn main() {
    let words = std::env::args().skip(1);
    let words: Vec<String> = words.filter(|word| !word.starts_with('-')).collect();
    let length = words.iter().find_map(|word| word.parse().ok());
    let length = Duration::from_secs(length.unwrap_or(60));
    let stores: Vec<&String> = words
        .iter()
        .filter(|word| word.parse::<u64>().is_err())
        .collect();
    let is_wanted = |part: &str| stores.is_empty() || stores.iter().any(|word| *word == part);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        if is_wanted("redis") {
            over_redis(length).await;
        }
        if is_wanted("sqlite") {
            over_sqlite(length).await;
        }
    });
}
