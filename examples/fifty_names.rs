//! Fifty names together, all or none, with one guard. Needs no server.
//!
//! ```text
//! cargo run -p leasehold --example fifty_names
//! ```
//! Run it twice at once: the second one waits, and the two cannot wait for each other.

use std::time::Duration;

use leasehold::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let file = std::env::temp_dir().join("leasehold-example-fifty-names.sqlite");
    let client = Client::open(format!("sqlite:{}", file.display())).await?;
    let names = (0..50).map(|number| format!("account/{number}"));
    let set = client.acquire_all(names).await?;
    println!("held {}, the first token is {}", set.len(), set[0].token());
    tokio::select! {
        lost = set.lost() => return Err(lost),
        () = tokio::time::sleep(Duration::from_millis(300)) => set.check()?, // the work
    }
    println!("released: {:?}", set.release().await);
    Ok(())
}
