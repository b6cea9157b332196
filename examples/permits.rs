//! At most four at once: eight tasks render, and each needs one of four permits. Needs no server.
//!
//! ```text
//! cargo run -p leasehold --example permits
//! ```
//! Run it twice at once: both together have four permits.

use std::time::Duration;

use leasehold::{Client, Error};

async fn render(client: Client, frame: u32) -> Result<(), Error> {
    let permit = client.permits("gpu", 4).acquire().await?;
    println!("frame {frame} on {}", permit.name());
    tokio::time::sleep(Duration::from_millis(100)).await;
    permit.release().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let file = std::env::temp_dir().join("leasehold-example-permits.sqlite");
    let client = Client::open(format!("sqlite:{}", file.display())).await?;
    let tasks = (0..8).map(|frame| tokio::spawn(render(client.clone(), frame)));
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no task panics")?;
    }
    Ok(())
}
