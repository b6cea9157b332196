//! One of all candidates leads; when it ends or dies, another takes over. Ctrl-C hands over at once. Needs no server.
//!
//! ```text
//! cargo run -p leasehold --example leader
//! ```
//! Run it twice at once: the second one follows, and leads when the first has ended.

use std::time::Duration;

use leasehold::{Client, Error, Lease};

/// The work of the leader. It is dropped when the lease is lost.
async fn lead(lease: &Lease) {
    for round in 1..=10 {
        println!("leading, round {round}, token {}", lease.token());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Prints who leads, whenever that changes.
async fn follow(client: Client) -> Result<(), Error> {
    let mut holders = client.holders("scheduler/leader")?;
    loop {
        match holders.next().await? {
            Some(held) => println!("led by {held}"),
            None => println!("led by none"),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let file = std::env::temp_dir().join("leasehold-example-leader.sqlite");
    let client = Client::open(format!("sqlite:{}", file.display())).await?;
    tokio::spawn(follow(client.clone()));

    let stop = async { drop(tokio::signal::ctrl_c().await) };
    let led = client
        .request("scheduler/leader")
        .lead_until(stop, lead)
        .await?;
    println!(
        "{}",
        if led.is_some() {
            "the work has ended"
        } else {
            "stopped"
        }
    );

    client.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
