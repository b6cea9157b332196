//! Holds a lease for a few seconds and shows how it is renewed. Needs no server.
//!
//! ```text
//! cargo run -p leasehold --example hold
//! ```
//! Run it twice at once: the second waits for the first, and its token is greater.

use std::time::Duration;

use leasehold::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let file = std::env::temp_dir().join("leasehold-example-hold.sqlite");
    let url = format!("sqlite:{}", file.display());
    let builder = Client::builder().store_url(url).label("example hold");
    let client = builder.ttl(Duration::from_secs(3)).build().await?;

    println!("waiting for the lease of 'hold' ...");
    let lease = client.acquire("hold").await?;
    println!("held, token {}", lease.token());

    for _ in 0..4 {
        let Some(term) = lease.term() else { break };
        match lease.renewed_past(term.deadline()).await {
            Some(_) => println!("renewed, {:.1?} left", lease.remaining()),
            None => println!("lost: {}", lease.lost().await),
        }
    }
    println!("released: {:?}", lease.release().await);
    Ok(())
}
