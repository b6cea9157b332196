//! The options of every command that uses a store.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::span::{Span, duration};

/// The least time for a first contact: a wait of zero makes one look, too.
const LEAST_CONTACT: Duration = Duration::from_millis(300);

#[derive(Debug, Args)]
pub struct StoreOptions {
    /// The store; see `leasehold --help`
    ///
    /// [env: LEASEHOLD_STORE] [default: a file of this user]
    #[arg(long = "store", value_name = "URL")]
    pub url: Option<String>,

    /// Read the store's URL from a file, which keeps its password out of the list of processes [env:
    /// LEASEHOLD_STORE_FILE]
    #[arg(
        long = "store-file",
        value_name = "FILE",
        conflicts_with = "url",
        hide_short_help = true
    )]
    pub file: Option<PathBuf>,

    /// Exit 69 if the store gives no first answer within this time
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "5s",
        env = "LEASEHOLD_CONNECT_TIMEOUT"
    )]
    #[arg(value_parser = duration, allow_hyphen_values = true, hide_short_help = true)]
    pub connect_timeout: Duration,

    /// Read settings from this file only [default: ~/.config/leasehold/config.toml over /etc/leasehold.toml]
    #[arg(
        long,
        value_name = "FILE",
        env = "LEASEHOLD_CONFIG",
        hide_short_help = true
    )]
    pub config: Option<PathBuf>,
}

impl StoreOptions {
    /// Returns the limit of the first contact of a command that waits at most this long.
    pub fn contact(&self, wait: Option<&Span>) -> Duration {
        let wait = wait.map_or(Duration::MAX, |wait| wait.time.max(LEAST_CONTACT));
        self.connect_timeout.min(wait)
    }
}
