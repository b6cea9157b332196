//! One connection through the proxy: its readers and writers, and what each fault does to it.

use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;

use super::{Fault, Request, Road};
use crate::resp;
use crate::wait::{at, now};

/// Requests under way on one connection; more than any client of ours has.
const UNDER_WAY: usize = 4_096;

/// One connection, until one side or a fault ends it.
pub(super) async fn carry(client: TcpStream, road: &Road) {
    let _ = client.set_nodelay(true);
    road.flowing().await;
    let server = road.server().clone();
    let Ok(server) = UnixStream::connect(server).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (requests_tx, requests_rx) = mpsc::channel(UNDER_WAY);
    let (fates_tx, fates_rx) = mpsc::channel(UNDER_WAY);
    tokio::select! {
        () = read_requests(from_client, road, requests_tx) => {}
        () = pass_requests(requests_rx, road, to_server, fates_tx) => {}
        () = pass_replies(from_server, road, to_client, fates_rx) => {}
    }
}

/// What happens to one reply.
enum Fate {
    Pass,
    Drop,
    Hold,
    Delay(Duration),
    Double,
    Garble(&'static str),
    Swallow,
}

/// Reads requests and decides about each. Never returns: a request that was read is passed on even if the client has
/// hung up.
async fn read_requests(
    mut client: impl AsyncRead + Unpin,
    road: &Road,
    requests: mpsc::Sender<(Request, Option<Fault>)>,
) {
    let mut bytes = Vec::new();
    while let Some(request) = read_message(&mut client, &mut bytes).await {
        if requests.send(road.decide(request)).await.is_err() {
            break;
        }
    }
    drop(requests);
    std::future::pending().await
}

/// Passes requests on. Returns when a fault ends the connection; otherwise the end of the server's side does.
async fn pass_requests(
    mut requests: mpsc::Receiver<(Request, Option<Fault>)>,
    road: &Road,
    mut server: impl AsyncWrite + Unpin,
    fates: mpsc::Sender<Fate>,
) {
    while let Some((request, fault)) = requests.recv().await {
        let mut planned = vec![Fate::Pass];
        match fault {
            None => {}
            Some(Fault::DropRequest) => return,
            Some(Fault::HoldRequest) => std::future::pending().await,
            Some(Fault::DelayRequest(time)) => at(now().after(time)).await,
            Some(Fault::DropReply) => planned = vec![Fate::Drop],
            Some(Fault::HoldReply) => planned = vec![Fate::Hold],
            Some(Fault::DelayReply(time)) => planned = vec![Fate::Delay(time)],
            Some(Fault::DoubleReply) => planned = vec![Fate::Double],
            Some(Fault::GarbleReply(heard)) => planned = vec![Fate::Garble(heard)],
            Some(Fault::DoubleRequest) => planned.push(Fate::Swallow),
        }
        road.flowing().await;
        for fate in planned {
            // Subscriptions are answered by pushes, which have no fault of their own.
            if !request.words[0].to_uppercase().ends_with("SUBSCRIBE") {
                let _ = fates.send(fate).await;
            }
            if server.write_all(&request.bytes).await.is_err() {
                return;
            }
        }
    }
    let _ = server.shutdown().await;
    std::future::pending().await
}

/// Passes replies on. Returns when the server hangs up, or a fault ends the connection. Those that are late are late each
/// by itself, as on a long line, and none overtakes another.
async fn pass_replies(
    mut server: impl AsyncRead + Unpin,
    road: &Road,
    mut client: impl AsyncWrite + Unpin,
    mut fates: mpsc::Receiver<Fate>,
) {
    let (on_the_line, mut arriving) = mpsc::channel(UNDER_WAY);
    let leave = async move {
        let mut bytes = Vec::new();
        while let Some(reply) = read_message(&mut server, &mut bytes).await {
            let fate = match resp::is_pushed(&reply) {
                true => Fate::Pass,
                false => fates.try_recv().unwrap_or(Fate::Pass),
            };
            let _ = on_the_line.send((now(), fate, reply)).await;
        }
        drop(on_the_line);
    };
    let arrive = async {
        while let Some((left_at, fate, mut reply)) = arriving.recv().await {
            match fate {
                Fate::Pass => {}
                Fate::Drop => return,
                Fate::Hold => std::future::pending().await,
                Fate::Delay(time) => at(left_at.after(time)).await,
                Fate::Double => reply.extend_from_within(..),
                Fate::Garble(heard) => reply = heard.into(),
                Fate::Swallow => continue,
            }
            road.flowing().await;
            // A client that hung up does not cancel its requests.
            let _ = client.write_all(&reply).await;
        }
    };
    let mut arrive = pin!(arrive);
    tokio::select! {
        () = &mut arrive => return,
        () = leave => {}
    }
    arrive.await;
}

/// Reads the next whole request or reply; `None` at the end of the stream.
async fn read_message(from: &mut (impl AsyncRead + Unpin), bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    loop {
        if let Some(length) = resp::whole(bytes) {
            return Some(bytes.drain(..length).collect());
        }
        if from.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
}
