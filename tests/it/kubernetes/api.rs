//! An API server in this process, which answers as the test says: from what was recorded, or what a real one answers, or
//! neither.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use futures_util::future::BoxFuture;
use leasehold_harness::kubernetes_server::{Answered, kubeconfig};
use reqwest::{Method, StatusCode};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    /// With the query.
    pub(crate) path: String,
    pub(crate) body: String,
}

type Answering = Arc<dyn Fn(Asked) -> BoxFuture<'static, Answered> + Send + Sync>;

/// The server. It ends on drop.
#[derive(Debug)]
pub(crate) struct Api {
    port: u16,
    folder: tempfile::TempDir,
    serving: JoinHandle<()>,
}

impl Api {
    /// Starts a server that answers each request by this function.
    pub(crate) async fn answering(
        answer: impl Fn(Asked) -> BoxFuture<'static, Answered> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answering: Answering = Arc::new(answer);
        let router = Router::new().fallback(respond).with_state(answering);
        let serving = tokio::spawn(async {
            axum::serve(listener, router).await.unwrap();
        });
        Self {
            port,
            folder: tempfile::tempdir().unwrap(),
            serving,
        }
    }

    /// Returns the URL of this namespace here.
    pub(crate) fn url(&self, namespace: &str) -> String {
        let cluster = json!({ "server": format!("http://127.0.0.1:{}", self.port) });
        let kubeconfig = kubeconfig(self.folder.path(), &cluster, &json!({ "token": "any" }));
        format!("kubernetes:{namespace}?kubeconfig={kubeconfig}&skew=1s")
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn respond(State(answering): State<Answering>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let asked = Asked {
        method: head.method,
        path: head.uri.to_string(),
        body: String::from_utf8(body.into()).unwrap(),
    };
    let answer = answering(asked).await;
    let response = Response::builder().status(answer.code);
    let response = response.header("date", answer.date);
    let response = response.header("content-type", "application/json");
    response.body(Body::from(answer.body)).unwrap()
}

/// The answer of a server that is asked for too much, or that knows the token no more.
pub(crate) fn refusal(code: StatusCode, message: &str) -> Answered {
    let body = json!({ "kind": "Status", "code": code.as_u16(), "message": message });
    Answered {
        code,
        date: "Sat, 28 Nov 2026 22:00:00 GMT".into(),
        body: body.to_string(),
    }
}
