//! The scripts, and the requests that call them by their hash.

use std::fmt::Display;
use std::sync::LazyLock;

use deadpool_redis::redis::{self, Cmd, RedisWrite};

/// A script and its hash.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) source: &'static str,
    hash: String,
}

/// The scripts that a store has on its servers, and the label under which it is counted in metrics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program {
    pub(crate) kind: &'static str,
    pub(crate) scripts: fn() -> Vec<&'static Script>,
}

/// Defines the scripts of this store: each is the text of its file behind the parts that it needs.
macro_rules! scripts {
    ($($name:ident: $($part:literal),+;)+) => {
        /// All scripts of this store.
        #[derive(Debug)]
        pub(crate) struct Scripts {
            $(pub(crate) $name: Script,)+
        }

        impl Scripts {
            pub(crate) fn each(&self) -> Vec<&Script> {
                vec![$(&self.$name),+]
            }
        }

        pub(crate) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
            $($name: Script::new(concat!($(include_str!($part)),+)),)+
        });
    };
}

scripts! {
    acquire: "lease.lua", "grant.lua", "queue.lua", "origin.lua", "node.lua", "acquire.lua";
    renew: "lease.lua", "renew.lua";
    renew_one: "lease.lua", "renew_one.lua";
    release: "lease.lua", "grant.lua", "queue.lua", "release.lua";
    evict: "lease.lua", "grant.lua", "queue.lua", "evict.lua";
    inspect: "lease.lua", "inspect.lua";
    init: "origin.lua", "node.lua", "init.lua";
}

/// The scripts that this store calls on its servers.
pub(crate) const PROGRAM: Program = Program {
    kind: super::super::KIND,
    scripts: || SCRIPTS.each(),
};

/// The usual number of arguments of a call: those of a claim, or a grant and a ttl for each key.
const ARGUMENTS: usize = 6;
/// The usual size of one argument: a grant has 67 bytes, a key mostly less, a number far less.
const WORD_BYTES: usize = 40;

impl Script {
    /// Returns the request that loads this script.
    pub(crate) fn load(&self) -> Cmd {
        let mut load = Cmd::new();
        load.arg("SCRIPT").arg("LOAD").arg(self.source);
        load
    }

    pub(crate) fn new(source: &'static str) -> Self {
        let hash = redis::Script::new(source).get_hash().to_owned();
        Self { source, hash }
    }

    /// Begins a call of this script on these keys, without its arguments.
    pub(crate) fn call<K: Display>(
        &self,
        keys: impl IntoIterator<Item = K, IntoIter: ExactSizeIterator>,
    ) -> Cmd {
        let keys = keys.into_iter();
        let words = 3 + keys.len() + ARGUMENTS.max(2 * keys.len());
        let mut call = Cmd::with_capacity(words, words * WORD_BYTES);
        call.arg("EVALSHA").arg(&self.hash).arg(keys.len());
        keys.for_each(|key| call.write_arg_fmt(key));
        call
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
            let publishes = code.matches("'PUBLISH'").count();
            assert_eq!(publishes, code.matches("pcall('PUBLISH',").count());
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
