//! A job that runs once for each full hour, on whichever machine is first: its schedule starts this program on all of
//! them, and their clocks differ. A run that failed, or whose machine died, is not done, and the next machine runs it.
//!
//! ```text
//! cargo run -p leasehold --example once_per_fire -- COMMAND [ARG...]
//! ```
//! Run it twice: the second one finds this hour done. `LEASEHOLD_STORE` is the URL of the store; without one it is a
//! file of this machine.

use std::process::Command;
use std::time::{Duration, SystemTime};

use leasehold::{Client, OutagePolicy};

const HOUR: u64 = 60 * 60;

/// The full hour that is nearest by this machine's clock. All machines get the same one while no clock is wrong by half
/// an hour.
fn nearest_hour() -> SystemTime {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let hours = (now.as_secs() + HOUR / 2) / HOUR;
    SystemTime::UNIX_EPOCH + Duration::from_secs(hours * HOUR)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::temp_dir().join("leasehold-example-once-per-fire.sqlite");
    let url = std::env::var("LEASEHOLD_STORE");
    let url = url.unwrap_or_else(|_| format!("sqlite:{}", file.display()));
    // After this time another machine runs the job of one that died.
    let ttl = Duration::from_secs(5);
    let client = Client::builder().store_url(url).ttl(ttl).build().await?;

    let request = client.request("report").on_outage(OutagePolicy::WaitOut);
    let Some(fire) = request.once(nearest_hour()).await? else {
        println!("done by another machine");
        return Ok(());
    };
    println!("running, token {}", fire.token());
    let mut words = std::env::args().skip(1);
    let mut job = Command::new(words.next().unwrap_or_else(|| "true".into()));
    job.args(words);
    let ended = tokio::task::spawn_blocking(move || job.status()).await??;
    if !ended.success() {
        return Err(format!("not done: {ended}").into());
    }
    println!("done: {:?}", fire.done().await);
    Ok(())
}
