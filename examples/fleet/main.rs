//! A small fleet of real processes to look at in Grafana: holders, waiting clients, fenced writers and jobs, on a Redis
//! server of its own, with a fault every now and then.
//!
//! ```text
//! cargo run -p leasehold-cli --example fleet -- --for 10min
//! ```
//!
//! It needs `redis-server`, or `--store redis://HOST`. With `--prometheus PORT` it starts the `prometheus` of this
//! machine too, with the rules of `dashboards/rules`. `--seed N` changes what happens when. Everything ends with it.

#![expect(clippy::disallowed_methods, reason = "a demo, whose threads may block")]

pub(crate) mod conductor;
pub(crate) mod faults;
pub(crate) mod member;
mod process;
pub(crate) mod scrape;
mod tool;
mod work;

use std::path::PathBuf;
use std::time::Duration;

use leasehold::clock::{Clock, Monotonic};

use conductor::{Fleet, Setup};
use faults::Fault;

/// Any failure: this is a demo, whose reader is a person.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How long a step may take, on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(60);

const USAGE: &str = "usage: fleet [--for 10min] [--seed 1] [--store URL] [--prometheus PORT]";

/// Between one fault and the next, at least; up to twice as long.
const QUIET: Duration = Duration::from_secs(30);

struct Options {
    length: Duration,
    seed: u64,
    store: Option<String>,
    prometheus: Option<u16>,
}

impl Options {
    fn read(words: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self {
            length: Duration::from_secs(600),
            seed: 1,
            store: None,
            prometheus: None,
        };
        let mut words = words;
        while let Some(word) = words.next() {
            let value = words.next().ok_or(USAGE)?;
            match word.as_str() {
                "--for" => options.length = humantime::parse_duration(&value)?,
                "--seed" => options.seed = value.parse()?,
                "--store" => options.store = Some(value),
                "--prometheus" => options.prometheus = Some(value.parse()?),
                _ => return Err(USAGE.into()),
            }
        }
        Ok(options)
    }
}

fn main() -> Result<()> {
    if let Some(role) = member::role() {
        return member::run(&role);
    }
    let options = Options::read(std::env::args().skip(1))?;
    // Before cargo builds the tool, which replaces this program.
    let own = own_path()?;
    let folder = tempfile::tempdir()?;
    let mut fleet = Fleet::start(Setup {
        folder: folder.path().to_owned(),
        tool: tool::built()?,
        member: vec![own],
        store: options.store.clone(),
        seed: options.seed,
    })?;
    let (count, seed) = (fleet.instances(), options.seed);
    println!("{count} processes, seed {seed}");
    let config = folder.path().join("prometheus.yml");
    std::fs::write(&config, scrape::config(folder.path(), 2))?;
    let _prometheus = options
        .prometheus
        .map(|port| scrape::start_prometheus(folder.path(), port))
        .transpose()?;
    if options.prometheus.is_none() {
        println!(
            "to scrape it: prometheus --config.file={} --storage.tsdb.path={}",
            config.display(),
            folder.path().join("data").display()
        );
    }
    stage(&mut fleet, &options)
}

fn own_path() -> Result<String> {
    let path: PathBuf = std::env::current_exe()?;
    Ok(path
        .into_os_string()
        .into_string()
        .map_err(|_| "a path in UTF-8")?)
}

/// Stages one fault after the other until the time is over, in rounds that have each of them.
fn stage(fleet: &mut Fleet, options: &Options) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(options.seed);
    let mut round = Vec::new();
    let end = Monotonic.now().after(options.length);
    let left = || end.since(Monotonic.now());
    loop {
        let pause = QUIET + Duration::from_secs(random.u64(..=QUIET.as_secs()));
        if left() <= pause {
            std::thread::sleep(left());
            return Ok(());
        }
        std::thread::sleep(pause);
        if round.is_empty() {
            round.extend(Fault::ALL);
            random.shuffle(&mut round);
        }
        let fault = round.pop().ok_or("a round has faults")?;
        println!("{:>4} s left: {}", left().as_secs(), fault.as_str());
        fleet.stage(fault)?;
    }
}

/// Looks every so often until it is so.
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let step = Duration::from_millis(20);
    for _ in 0..LIMIT.as_millis() / step.as_millis() {
        if is_so()? {
            return Ok(());
        }
        std::thread::sleep(step);
    }
    Err(format!("waited {LIMIT:?} in vain for {what}").into())
}
