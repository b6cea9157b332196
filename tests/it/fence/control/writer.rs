//! A writer of the control: this test binary once more, as a process that can be stopped.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::{Client, Error, ErrorKind, OutagePolicy};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};
use tokio::net::UnixStream;

use super::storage::Storage;

/// Short, so that many pauses fit into a test.
const TTL: Duration = Duration::from_millis(150);
const MARGIN: Duration = Duration::from_millis(15);

/// What a writer is told when it starts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Role {
    /// Where its orders come from.
    pub(super) socket: PathBuf,
    /// The URL of the store of leases.
    pub(super) leases: String,
    pub(super) storage: Storage,
    pub(super) is_fenced: bool,
}

impl Role {
    pub(super) const VARIABLE: &str = "LEASEHOLD_TEST_WRITER";

    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("text becomes JSON")
    }

    /// The role of a process that was started as a writer.
    pub(super) fn of_this_process() -> Option<Self> {
        let text = env::var(Self::VARIABLE).ok()?;
        Some(serde_json::from_str(&text).expect("written by this test"))
    }

    /// Takes orders until there are no more.
    pub(super) async fn play(self) {
        let stream = UnixStream::connect(&self.socket).await;
        let mut orders = Line::new(stream.expect("the test listens"));
        let builder = Client::builder().store_url(&self.leases);
        let client = builder.ttl(TTL).margin(MARGIN).build().await;
        let client = client.expect("the store is up");
        while let Some(point) = orders.try_hear().await {
            let outcome = self.round(&client, &point, &mut orders).await;
            let outcome = match outcome {
                Ok(()) => "wrote".into(),
                Err(error) if error.kind() == ErrorKind::Stale => "refused".into(),
                Err(error) if error.kind() == ErrorKind::Lost => "given up".into(),
                Err(error) => format!("{error:?}"),
            };
            orders.say(&outcome).await;
        }
    }

    /// Reads the total, works, checks and writes; stands still at `point` until it is told to go on.
    async fn round(&self, client: &Client, point: &str, orders: &mut Line) -> Result<(), Error> {
        // A busy machine may answer later than so short a lease can wait.
        let claim = client.request("ledger").on_outage(OutagePolicy::WaitOut);
        let lease = claim.acquire().await?;
        let pass = lease.pass()?;
        orders.stand_still_at("granted", point).await;
        let total = self.storage.read(self.is_fenced.then_some(&pass)).await?;
        orders.stand_still_at("read", point).await;
        lease.check()?;
        // Here no check helps any more.
        orders.stand_still_at("checked", point).await;
        let written = self
            .storage
            .write(total + 1, self.is_fenced.then_some(&pass))
            .await;
        lease.release().await;
        written
    }
}

/// Lines to and from the other process.
pub(super) struct Line(BufStream<UnixStream>);

impl Line {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self(BufStream::new(stream))
    }

    pub(super) async fn say(&mut self, word: &str) {
        self.0
            .write_all(format!("{word}\n").as_bytes())
            .await
            .expect("it listens");
        self.0.flush().await.expect("it listens");
    }

    pub(super) async fn hear(&mut self) -> String {
        self.try_hear().await.expect("the other process lives")
    }

    async fn try_hear(&mut self) -> Option<String> {
        let mut word = String::new();
        let read = self.0.read_line(&mut word).await.expect("a readable line");
        (read > 0).then(|| word.trim_end().to_owned())
    }

    async fn stand_still_at(&mut self, here: &str, point: &str) {
        if here == point {
            self.say("there").await;
            self.hear().await;
        }
    }
}
