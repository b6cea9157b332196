//! A paused writer wakes up and writes: lost without a fence, refused with one. Needs no server, unless it is to write
//! to a bucket: then the leases are in the bucket, too.
//!
//! ```text
//! cargo run -p leasehold-examples --example storage_writer
//! cargo run -p leasehold-examples --example storage_writer -- --pauses 200
//! AWS_ENDPOINT=http://localhost:9000 AWS_ALLOW_HTTP=true AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=... \
//!     cargo run -p leasehold-examples --example storage_writer -- --bucket mine --pauses 20
//! ```
//!
//! Two processes take turns at the lease `ledger`. Each reads a total, checks its lease, and writes the total plus one.
//! In each round one of them is stopped (`SIGSTOP`) between its check and its write, until the other has had its turn.

use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use leasehold::fence::{Pass, object_store as bucket, rusqlite as sqlite};
use leasehold::store::bucket::Bucket;
use leasehold::store::record::Records;
use leasehold::{Client, ErrorKind, OutagePolicy};
use object_store::aws::AmazonS3Builder;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt, RetryConfig};
use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};

/// Much longer than a lease.
const LIMIT: Duration = Duration::from_secs(3);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => compare(3, None),
        ["--pauses", pauses] => compare(pauses.parse()?, None),
        ["--bucket", bucket, "--pauses", pauses] => compare(pauses.parse()?, Some(bucket)),
        ["writer", fence, folder, bucket] => writer(Path::new(folder), bucket, fence == "fenced"),
        _ => Err("usage: storage_writer [--bucket NAME] [--pauses N]".into()),
    }
}

/// Runs the same rounds without the fence and with it.
fn compare(pauses: u32, bucket: Option<&str>) -> Result<()> {
    for fence in ["unfenced", "fenced"] {
        let folder = tempfile::tempdir()?;
        let bucket = bucket.unwrap_or_default();
        println!("\n{fence}:");
        let acknowledged = rounds(pauses, fence, folder.path(), bucket)?;
        let total = total(folder.path(), bucket)?;
        println!(
            "{fence}: {pauses} pauses, {acknowledged} writes acknowledged, total {total}, lost {}",
            acknowledged - total
        );
    }
    Ok(())
}

#[tokio::main]
async fn total(folder: &Path, bucket: &str) -> Result<u32> {
    Ledger::open(folder, bucket)?.read(None).await
}

/// Where the total is.
enum Ledger {
    File(Connection, sqlite::Fence),
    /// Writers without the fence have an object of their own.
    Bucket(Arc<dyn ObjectStore>, Key, bucket::Fence),
}

impl Ledger {
    /// Opens the bucket of this name, or a file if there is none. The folder has a name that no other run has.
    fn open(folder: &Path, bucket: &str) -> Result<Self> {
        if bucket.is_empty() {
            let connection = Connection::open(folder.join("ledger"))?;
            connection.busy_timeout(Duration::from_secs(5))?;
            connection.execute_batch(
                "CREATE TABLE IF NOT EXISTS ledger (id INTEGER PRIMARY KEY, total INTEGER);
                 INSERT OR IGNORE INTO ledger VALUES (1, 0)",
            )?;
            let fence = sqlite::Fence::new("ledger")?;
            fence.create_table(&connection)?;
            return Ok(Self::File(connection, fence));
        }
        let _ = rustls::crypto::ring::default_provider().install_default();
        // A put that the crate repeated could meet its own effect.
        let retries = RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        };
        let store = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_retry(retries)
            .build()?;
        let store: Arc<dyn ObjectStore> = Arc::new(store);
        let run = folder.file_name().ok_or("a folder has a name")?;
        let path = format!("storage_writer/{}", run.display());
        let fence = bucket::Fence::new(store.clone(), format!("{path}/fenced"))?;
        Ok(Self::Bucket(
            store,
            format!("{path}/unfenced").into(),
            fence,
        ))
    }

    /// Reads the total, after a raise if there is a pass.
    async fn read(&mut self, pass: Option<&Pass>) -> Result<u32> {
        match self {
            Self::File(connection, fence) => {
                if let Some(pass) = pass {
                    fence.begin(connection, pass)?.commit()?;
                }
                Ok(connection.query_row("SELECT total FROM ledger", [], |row| row.get(0))?)
            }
            Self::Bucket(store, path, fence) => {
                let fenced = match pass {
                    Some(pass) => Some(fence.raise(pass).await?),
                    None => fence.read().await?,
                };
                let content = match fenced {
                    Some(object) => object.content,
                    None => match store.get(path).await {
                        Ok(object) => object.bytes().await?,
                        Err(object_store::Error::NotFound { .. }) => return Ok(0),
                        Err(error) => return Err(error.into()),
                    },
                };
                let text = std::str::from_utf8(&content)?;
                Ok(if text.is_empty() { 0 } else { text.parse()? })
            }
        }
    }

    /// Writes it, through the fence if there is a pass.
    async fn write(&mut self, total: u32, pass: Option<&Pass>) -> Result<()> {
        match (self, pass) {
            (Self::File(connection, fence), _) => {
                let transaction = match pass {
                    Some(pass) => fence.begin(connection, pass)?,
                    None => connection.transaction()?,
                };
                transaction.execute("UPDATE ledger SET total = ?1", [total])?;
                transaction.commit()?;
            }
            (Self::Bucket(_, _, fence), Some(pass)) => {
                fence.commit(pass, |_| total.to_string()).await?;
            }
            (Self::Bucket(store, path, _), None) => {
                store.put(path, total.to_string().into()).await?;
            }
        }
        Ok(())
    }
}

/// Runs the rounds and counts the writes that were acknowledged.
fn rounds(pauses: u32, fence: &str, folder: &Path, bucket: &str) -> Result<u32> {
    let mut paused = Writer::start(fence, folder, bucket)?;
    let mut rival = Writer::start(fence, folder, bucket)?;
    let mut acknowledged = 0;
    for pause in 1..=pauses {
        paused.tell("turn")?;
        paused.hear()?; // It has checked its lease, and is about to write.
        paused.signal(Signal::STOP)?;
        paused.tell("write")?; // Waits in its pipe.

        rival.tell("turn")?; // Waits until the other's lease has run out.
        if rival.hear_within(LIMIT).is_err() {
            // In a rare case it was stopped inside a renewal, with the lease file locked: then it is resumed first.
            paused.signal(Signal::CONT)?;
            rival.hear()?;
        }
        rival.tell("write")?;
        let first = rival.hear()?;

        paused.signal(Signal::CONT)?;
        let second = paused.hear()?;
        if pause <= 3 {
            println!("  the rival: {first}\n  the paused writer, awake again: {second}");
        }
        acknowledged += [first, second]
            .iter()
            .filter(|said| said.starts_with("wrote"))
            .count() as u32;
        std::mem::swap(&mut paused, &mut rival);
    }
    Ok(acknowledged)
}

/// A process that writes when it is told to.
#[tokio::main]
async fn writer(folder: &Path, bucket: &str, is_fenced: bool) -> Result<()> {
    let mut ledger = Ledger::open(folder, bucket)?;
    let builder = match &ledger {
        Ledger::File(..) => Client::builder()
            .store_url(format!("sqlite:{}", folder.join("leases").display()))
            .ttl(Duration::from_millis(300))
            .margin(Duration::from_millis(30)),
        // The leases are next to what they guard.
        Ledger::Bucket(store, path, _) => Client::builder()
            .store(Records::new(Bucket::new(
                store.clone(),
                &format!("{path}-leases"),
            )?))
            .ttl(Duration::from_secs(1)),
    };
    let client = builder.build().await?;
    let mut orders = std::io::stdin().lines();

    while orders.next().transpose()?.is_some() {
        let lease = client
            .request("ledger")
            .on_outage(OutagePolicy::WaitOut)
            .acquire()
            .await?;
        let pass = lease.pass()?;
        let shown = is_fenced.then_some(&pass);
        let total = ledger.read(shown).await?; // With a raise before it.
        lease.check()?; // It is held.

        say("about to write");
        orders.next().transpose()?; // Here it is stopped, and goes on without a look at any clock.

        // Under the pass: a plain `&lease` would have looked at the clock once more.
        match ledger.write(total + 1, shown).await {
            Ok(()) => say(&format!("wrote {} under token {}", total + 1, pass.token)),
            Err(error) => match error.downcast_ref::<leasehold::Error>() {
                Some(refused) if refused.kind() == ErrorKind::Stale => say(&format!("{refused:#}")),
                _ => return Err(error),
            },
        }
        lease.release().await;
    }
    Ok(())
}

fn say(words: &str) {
    println!("{words}");
}

/// A writer as its parent sees it.
struct Writer {
    process: Child,
    said: Receiver<String>,
}

impl Writer {
    fn start(fence: &str, folder: &Path, bucket: &str) -> Result<Self> {
        let program: PathBuf = env::current_exe()?;
        let mut process = Command::new(program)
            .args(["writer", fence])
            .arg(folder)
            .arg(bucket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(process.stdout.take().ok_or("stdout is piped")?).lines();
        let (tell, said) = sync_channel(1);
        std::thread::spawn(move || {
            lines
                .map_while(|line| line.ok())
                .try_for_each(|line| tell.send(line))
        });
        Ok(Self { process, said })
    }

    fn tell(&mut self, order: &str) -> Result<()> {
        let stdin = self.process.stdin.as_mut().ok_or("stdin is piped")?;
        Ok(writeln!(stdin, "{order}")?)
    }

    fn hear(&self) -> Result<String> {
        Ok(self.said.recv()?)
    }

    fn hear_within(&self, limit: Duration) -> Result<String> {
        Ok(self.said.recv_timeout(limit)?)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.process), signal)?)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
