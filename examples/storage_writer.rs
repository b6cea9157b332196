//! A paused writer wakes up and writes: lost without a fence, refused with one. Needs no server.
//!
//! ```text
//! cargo run -p leasehold --example storage_writer --features rusqlite
//! cargo run -p leasehold --example storage_writer --features rusqlite -- --pauses 200
//! ```
//!
//! Two processes take turns at the lease `ledger`. Each reads a total, checks its lease, and writes the total plus one.
//! In each round one of them is stopped (`SIGSTOP`) between its check and its write, until the other has had its turn.

use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use leasehold::fence::rusqlite::Fence;
use leasehold::{Client, ErrorKind, OutagePolicy};
use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};

/// Much longer than a lease.
const PATIENCE: Duration = Duration::from_secs(3);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => compare(3),
        ["--pauses", pauses] => compare(pauses.parse()?),
        ["writer", fence, folder] => writer(Path::new(folder), fence == "fenced"),
        _ => Err("usage: storage_writer [--pauses N]".into()),
    }
}

/// Runs the same rounds without the fence and with it.
fn compare(pauses: u32) -> Result<()> {
    for fence in ["unfenced", "fenced"] {
        let folder = tempfile::tempdir()?;
        let connection = open(folder.path())?;
        connection
            .execute_batch("CREATE TABLE ledger (total INTEGER); INSERT INTO ledger VALUES (0)")?;
        Fence::new("ledger")?.create_table(&connection)?;

        println!("\n{fence}:");
        let acknowledged = rounds(pauses, fence, folder.path())?;
        let total: u32 = connection.query_row("SELECT total FROM ledger", [], |row| row.get(0))?;
        println!(
            "{fence}: {pauses} pauses, {acknowledged} writes acknowledged, total {total}, lost {}",
            acknowledged - total
        );
    }
    Ok(())
}

/// Runs the rounds and counts the writes that were acknowledged.
fn rounds(pauses: u32, fence: &str, folder: &Path) -> Result<u32> {
    let mut paused = Writer::start(fence, folder)?;
    let mut rival = Writer::start(fence, folder)?;
    let mut acknowledged = 0;
    for pause in 1..=pauses {
        paused.tell("turn")?;
        paused.hear()?; // It has checked its lease, and is about to write.
        paused.signal(Signal::STOP)?;
        paused.tell("write")?; // Waits in its pipe.

        rival.tell("turn")?; // Waits until the other's lease has run out.
        if rival.hear_within(PATIENCE).is_err() {
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
async fn writer(folder: &Path, is_fenced: bool) -> Result<()> {
    let builder =
        Client::builder().store_url(format!("sqlite:{}", folder.join("leases").display()));
    let builder = builder
        .ttl(Duration::from_millis(300))
        .margin(Duration::from_millis(30));
    let client = builder.build().await?;
    let fence = Fence::new("ledger")?;
    let mut connection = open(folder)?;
    let mut orders = std::io::stdin().lines();

    while orders.next().transpose()?.is_some() {
        let lease = client
            .request("ledger")
            .on_outage(OutagePolicy::WaitOut)
            .acquire()
            .await?;
        if is_fenced {
            fence.begin(&mut connection, &lease)?.commit()?; // Raised before the first read.
        }
        let total: u32 = connection.query_row("SELECT total FROM ledger", [], |row| row.get(0))?;
        let pass = lease.pass()?; // The last check: it is held.

        say("about to write");
        orders.next().transpose()?; // Here it is stopped, and goes on without a look at any clock.

        let transaction = match is_fenced {
            true => fence.begin(&mut connection, &pass), // A plain `&lease` would have looked at the clock once more.
            false => Ok(connection.transaction()?),
        };
        match transaction {
            Ok(transaction) => {
                transaction.execute("UPDATE ledger SET total = ?1", [total + 1])?;
                transaction.commit()?;
                say(&format!("wrote {} under token {}", total + 1, pass.token));
            }
            Err(error) if error.kind() == ErrorKind::Stale => {
                say(&format!("{error:#}"));
            }
            Err(error) => return Err(error.into()),
        }
        lease.release().await;
    }
    Ok(())
}

fn say(words: &str) {
    println!("{words}");
}

fn open(folder: &Path) -> Result<Connection> {
    let connection = Connection::open(folder.join("ledger"))?;
    connection.busy_timeout(Duration::from_secs(5))?;
    Ok(connection)
}

/// A writer as its parent sees it.
struct Writer {
    process: Child,
    said: Receiver<String>,
}

impl Writer {
    fn start(fence: &str, folder: &Path) -> Result<Self> {
        let program: PathBuf = env::current_exe()?;
        let mut process = Command::new(program)
            .args(["writer", fence])
            .arg(folder)
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
