//! A leader that is told to stop finishes what it has accepted, and only then hands over: the stop goes into the work,
//! which ends by itself and under its lease. `lead_until` alone would drop the work at the stop. Needs no server.
//!
//! ```text
//! cargo run -p leasehold --example draining_leader
//! ```

use std::time::Duration;

use leasehold::{Client, Error, Lease};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

/// The work of the leader. It is dropped only when the lease is lost: then the next leader fills the orders.
async fn lead(
    lease: &Lease,
    orders: &mut mpsc::Receiver<u32>,
    stop: &CancellationToken,
) -> Result<u32, Error> {
    let mut filled = 0;
    loop {
        let order = tokio::select! {
            order = orders.recv() => order,
            // From now on none is accepted, and what was accepted comes out of `recv` still.
            () = stop.cancelled(), if !orders.is_closed() => { orders.close(); continue }
        };
        let Some(order) = order else {
            return Ok(filled);
        };
        lease.check()?;
        println!("order {order} under token {}", lease.token());
        tokio::time::sleep(Duration::from_millis(50)).await;
        filled += 1;
    }
}

/// Sends orders until none is accepted any more. Returns how many were.
async fn send(accepted: mpsc::Sender<u32>) -> u32 {
    let mut order = 0;
    while accepted.send(order).await.is_ok() {
        order += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    order
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let file = std::env::temp_dir().join("leasehold-example-draining-leader.sqlite");
    let client = Client::open(format!("sqlite:{}", file.display())).await?;
    let (sender, mut orders) = mpsc::channel(8);
    let stop = CancellationToken::new();
    let sending = tokio::spawn(send(sender));
    tokio::spawn({
        let stop = stop.clone();
        async move {
            // As a deployment does, by TERM.
            tokio::time::sleep(Duration::from_millis(300)).await;
            stop.cancel();
        }
    });

    // A candidate that waits stops at once. One that leads is busy, and stops by itself.
    let idle = Semaphore::new(1);
    let stopped = async {
        stop.cancelled().await;
        drop(idle.acquire().await);
    };
    let work = async |lease: &Lease| {
        let _busy = idle.acquire().await;
        lead(lease, &mut orders, &stop).await
    };
    let request = client.request("scheduler/draining-leader");
    match request.lead_until(stopped, work).await?.transpose()? {
        Some(filled) => {
            let accepted = sending.await.expect("it does not panic");
            println!("drained: {filled} of {accepted} orders");
        }
        None => println!("stopped before it led"),
    }

    client.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
