//! A job that runs at most once an hour, on whichever machine is first, though it takes a second and the clocks of the
//! machines differ. Needs no server.
//!
//! ```text
//! cargo run -p leasehold --example once_an_hour
//! ```
//! Run it twice: the second one finds the job done. For a job that must run once for each time of its schedule, also
//! when the first run failed, see `once_per_fire.rs`.

use std::time::Duration;

use leasehold::{Attempt, Client, Error};

/// Less than the hour, by more than the clocks differ.
const LEAST: Duration = Duration::from_secs(50 * 60);

#[tokio::main]
async fn main() -> Result<(), Error> {
    let file = std::env::temp_dir().join("leasehold-example-once-an-hour.sqlite");
    let client = Client::open(format!("sqlite:{}", file.display())).await?;
    let attempt = client
        .request("hourly")
        .hold_at_least(LEAST)
        .try_acquire()
        .await?;
    match attempt {
        Attempt::Held(held) => println!("not now: {held}"),
        Attempt::Acquired(lease) => {
            println!("running, token {}", lease.token());
            lease.release().await;
        }
    }
    Ok(())
}
