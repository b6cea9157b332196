//! A server in this process that answers in the frames of gRPC, as the test says.

use std::io::Cursor;
use std::sync::Arc;

use h2::server::SendResponse;
use http::{HeaderMap, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What it answers to a call.
pub(crate) enum Said {
    Message(Vec<u8>),
    Refusal(u32, &'static str),
    /// A code of HTTP, as of a server that knows no gRPC.
    Code(u16),
    /// It breaks off.
    Nothing,
}

type Answering = Arc<dyn Fn(&str) -> Said + Send + Sync>;

/// The server. It ends on drop.
#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) port: u16,
    serving: JoinHandle<()>,
}

impl Fake {
    /// Starts a server that answers each call by its path.
    pub(crate) async fn answering(answer: impl Fn(&str) -> Said + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answering: Answering = Arc::new(answer);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, answering.clone()));
            }
        });
        Self { port, serving }
    }

    pub(crate) fn url(&self) -> String {
        format!("etcd://127.0.0.1:{}", self.port)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(stream: TcpStream, answering: Answering) {
    let server = h2::server::Builder::new();
    let mut connection = server.handshake(stream).await.unwrap();
    while let Some(Ok((request, respond))) = connection.accept().await {
        let said = answering(request.uri().path());
        tokio::spawn(async move {
            // An answer before the end of the request would end that by a reset.
            let mut body = request.into_body();
            while body.data().await.is_some() {}
            send(respond, said);
        });
    }
}

fn send(mut respond: SendResponse<Cursor<Vec<u8>>>, said: Said) {
    let head = Response::builder().header("content-type", "application/grpc");
    match said {
        Said::Nothing => respond.send_reset(h2::Reason::INTERNAL_ERROR),
        Said::Code(code) => {
            let head = head.status(code).body(()).unwrap();
            respond.send_response(head, true).unwrap();
        }
        Said::Refusal(code, message) => {
            let head = head.header("grpc-status", code);
            let head = head.header("grpc-message", message).body(()).unwrap();
            respond.send_response(head, true).unwrap();
        }
        Said::Message(message) => {
            let mut body = respond
                .send_response(head.body(()).unwrap(), false)
                .unwrap();
            let mut frame = vec![0];
            frame.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
            frame.extend(message);
            body.send_data(Cursor::new(frame), false).unwrap();
            let mut end = HeaderMap::new();
            end.insert("grpc-status", 0.into());
            body.send_trailers(end).unwrap();
        }
    }
}
