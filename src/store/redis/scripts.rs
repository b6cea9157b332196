//! The scripts, and how they are called: by their hash, and loaded when the server does not have them.
//!
//! They are never sent with EVAL: newer servers drop scripts that came with it after 500 others. A call that finds them
//! missing loads them all, once for all callers that wait.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool_redis::redis::{self, Cmd, ToRedisArgs, Value};
use futures_util::future::try_join_all;
use tokio::sync::Mutex;

use super::failure::Failure;
use super::lane::Budget;
use super::runtime_lanes::RuntimeLanes;

/// A script and its hash.
#[derive(Debug)]
pub(super) struct Script {
    source: &'static str,
    hash: String,
}

/// All scripts of this store.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) acquire: Script,
    pub(super) renew: Script,
    pub(super) release: Script,
    pub(super) evict: Script,
    pub(super) inspect: Script,
    pub(super) leave: Script,
}

/// Joins the script in this file with the parts that it needs in front of it.
macro_rules! script {
    ($($part:literal),+) => {
        Script::new(concat!($(include_str!($part)),+))
    };
}

pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    acquire: script!("lease.lua", "queue.lua", "acquire.lua"),
    renew: script!("lease.lua", "renew.lua"),
    release: script!("lease.lua", "queue.lua", "release.lua"),
    evict: script!("lease.lua", "queue.lua", "evict.lua"),
    inspect: script!("lease.lua", "inspect.lua"),
    leave: script!("lease.lua", "queue.lua", "leave.lua"),
});

/// The usual number of arguments of a call: those of a claim with a place in the queue, or a grant and a ttl for each
/// key.
const ARGUMENTS: usize = 9;
/// The usual size of one argument with its length: a grant has 67 bytes, a key mostly less, a number far less.
const WORD_BYTES: usize = 64;

impl Script {
    fn new(source: &'static str) -> Self {
        let hash = redis::Script::new(source).get_hash().to_owned();
        Self { source, hash }
    }

    /// Begins a call of this script on these keys, without its arguments.
    pub(super) fn call<K: ToRedisArgs>(
        &self,
        keys: impl IntoIterator<Item = K, IntoIter: ExactSizeIterator>,
    ) -> Cmd {
        let keys = keys.into_iter();
        let words = 3 + keys.len() + ARGUMENTS.max(2 * keys.len());
        let mut call = Cmd::with_capacity(words, words * WORD_BYTES);
        call.arg("EVALSHA").arg(&self.hash).arg(keys.len());
        keys.for_each(|key| {
            call.arg(key);
        });
        call
    }
}

impl Scripts {
    fn each(&self) -> [&Script; 6] {
        let Self {
            acquire,
            renew,
            release,
            evict,
            inspect,
            leave,
        } = self;
        [acquire, renew, release, evict, inspect, leave]
    }
}

/// The scripts on a server, reached over these lanes.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) lanes: RuntimeLanes,
    /// How often the scripts were loaded over these lanes.
    loads: AtomicU64,
    turn: Mutex<()>,
}

impl Server {
    pub(super) fn new(lanes: RuntimeLanes) -> Self {
        Self {
            lanes,
            loads: AtomicU64::new(0),
            turn: Mutex::new(()),
        }
    }

    /// Calls a script. If the server does not have it, loads all of them and calls it again: the first call was refused
    /// as a whole, so this does not count as a second attempt.
    pub(super) async fn run(
        &self,
        call: &Cmd,
        budget: Budget,
        replace_every: Duration,
    ) -> Result<Value, Failure> {
        let loads = self.loads.load(Ordering::Acquire);
        let outcome = self.lanes.request(call, budget, replace_every).await;
        if !outcome.as_ref().is_err_and(Failure::is_no_script) {
            return outcome;
        }
        let loaded = self.load(loads, budget, replace_every).await;
        loaded.map_err(Failure::before_the_request)?;
        self.lanes.request(call, budget, replace_every).await
    }

    /// Loads the scripts, unless another call did so after they had been loaded `seen` times.
    async fn load(
        &self,
        seen: u64,
        budget: Budget,
        replace_every: Duration,
    ) -> Result<(), Failure> {
        let Ok(_turn) = tokio::time::timeout(budget.left(), self.turn.lock()).await else {
            return Err(Failure::Silent);
        };
        if self.loads.load(Ordering::Acquire) != seen {
            return Ok(());
        }
        try_join_all(SCRIPTS.each().map(async |script| {
            let mut load = Cmd::new();
            load.arg("SCRIPT").arg("LOAD").arg(script.source);
            self.lanes.request(&load, budget, replace_every).await
        }))
        .await?;
        self.loads.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_script_says_what_it_takes_and_answers() {
        for script in SCRIPTS.each() {
            for word in ["-- KEYS ", "-- ARGV ", "-- Reply "] {
                assert!(script.source.contains(word), "{word} in {}", script.source);
            }
            assert_eq!(script.hash.len(), 40);
        }
    }

    #[test]
    fn no_script_breaks_a_rule_that_can_be_read_off_it() {
        for script in SCRIPTS.each() {
            let code: String = script
                .source
                .lines()
                .filter(|line| !line.trim_start().starts_with("--"))
                .collect();
            assert!(!code.contains("unpack"), "unpack fails at 8,000 values");
            let publishes = code.matches("(publish,").count();
            assert_eq!(publishes, code.matches("pcall(publish,").count());
        }
    }

    #[test]
    fn a_call_names_the_hash_and_counts_the_keys() {
        let mut call = SCRIPTS.release.call(["k"]);
        call.arg("a");
        let packed = String::from_utf8(call.get_packed_command()).expect("text");
        let hash = &SCRIPTS.release.hash;
        assert_eq!(
            packed,
            format!("*5\r\n$7\r\nEVALSHA\r\n$40\r\n{hash}\r\n$1\r\n1\r\n$1\r\nk\r\n$1\r\na\r\n")
        );
    }
}
