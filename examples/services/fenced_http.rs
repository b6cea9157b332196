//! An HTTP service that refuses a stale writer with 412 and one without a token with 428. Needs no server.
//!
//! ```text
//! cargo run -p leasehold-examples --example fenced_http
//! ```

use std::error::Error;
use std::net::SocketAddr;

use axum::extract::Path;
use axum::routing::get;
use axum::{Extension, Router};
use http::{HeaderMap, StatusCode};
use leasehold::fence::gate::Gate;
use leasehold::fence::tower::FenceLayer;
use leasehold::fence::{Bearer, Pass, http as fence};
use leasehold::store::memory::Memory;
use leasehold::{Attempt, Client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The fenced resource: all devices together. The gate keeps a row for each resource, so the service names it and not
/// the client.
const DEVICES: &str = "devices";

/// The handler: it runs only for a pass that the gate admitted, and can pass it on to its own database.
async fn set(Path(id): Path<String>, Extension(pass): Extension<Pass>) -> String {
    format!("device {id} set under token {}", pass.token)
}

async fn serve(gate: Gate) -> Result<SocketAddr> {
    let fence = FenceLayer::new(gate, |_| DEVICES.into());
    let service = Router::new()
        .route("/devices/{id}", get(async || "a device").put(set))
        .layer(fence);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, service).await });
    Ok(address)
}

/// A client's write. Any HTTP client will do: send the header, read the status and the body.
async fn write(address: SocketAddr, bearer: &dyn Bearer) -> Result<String> {
    let mut headers = HeaderMap::new();
    let shown = fence::insert_pass(&mut headers, bearer)?;
    let (status, body) = put(address, &headers).await?;
    fence::check_response(bearer, DEVICES, &shown, status, body.as_bytes())?;
    Ok(body)
}

async fn put(address: SocketAddr, headers: &HeaderMap) -> Result<(StatusCode, String)> {
    let mut request =
        String::from("PUT /devices/7 HTTP/1.1\r\nhost: example\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {}\r\n", value.to_str()?));
    }
    request.push_str("content-length: 0\r\n\r\n");
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or("an answer without a head")?;
    let status = head.split(' ').nth(1).ok_or("an answer without a status")?;
    Ok((status.parse()?, body.into()))
}

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let address = serve(Gate::open(folder.path().join("fences")).await?).await?;
    let client = Client::builder().store(Memory::new()).build().await?;

    let paused = client.acquire("devices").await?;
    let stale = paused.pass()?; // As if it were paused right after this check.
    println!("the first holder:   {}", write(address, &paused).await?);
    paused.release().await;

    let Attempt::Acquired(successor) = client.try_acquire("devices").await? else {
        return Err("the lease is free".into());
    };
    println!("its successor:      {}", write(address, &successor).await?);

    match write(address, &stale).await {
        Err(error) => println!("the paused holder:  {error}"),
        Ok(said) => return Err(format!("a stale write was let in: {said}").into()),
    }
    let (status, body) = put(address, &HeaderMap::new()).await?;
    println!("without a token:    {status}\n{body}");
    Ok(())
}
