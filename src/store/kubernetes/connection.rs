//! Requests to the API server, by the client crate: it has the credentials, their renewal and TLS.

use std::fmt;
use std::time::Duration;

use http::{Method, Request, StatusCode, header};
use kube_client::client::Body;
use kube_client::{Client, Config};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::failure::{self, Status};
use super::object;
use crate::error::ErrorKind;
use crate::store::Sent;
use crate::store::record::Failure;

/// The client of one runtime. When a request was given up without an answer, the next one makes another client: its
/// connections may lead to a server that is gone.
pub(super) struct Connection {
    config: Config,
    client: Mutex<Option<Client>>,
}

/// Without the configuration: parts of it are secret that the crate prints.
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// An answer: its code, its body, and the server's time in whole seconds.
#[derive(Debug)]
pub(super) struct Reply<T> {
    pub(super) found: Option<T>,
    pub(super) time: Option<Duration>,
}

/// A request to the API server.
#[derive(Debug)]
pub(super) enum Verb<'a> {
    Get,
    Create(&'a Value),
    Patch(&'a Value),
    Delete(&'a Value),
}

/// Drops the client, unless a request was answered before.
struct Unanswered<'a>(Option<&'a Connection>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.0 {
            *connection.client.lock() = None;
        }
    }
}

impl Connection {
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            client: Mutex::default(),
        }
    }

    /// Returns a connection of its own to the same cluster.
    pub(super) fn another(&self) -> Self {
        Self::new(self.config.clone())
    }

    /// Returns the client, made on the calling runtime.
    pub(super) async fn client(&self) -> Result<Client, Failure> {
        let client = self.client.lock().clone();
        if let Some(client) = client {
            return Ok(client);
        }
        // Two callers at once make two clients, and one of them stays: so no caller waits for a future that another one
        // may not poll.
        let made = self.make().await?;
        Ok(self.client.lock().get_or_insert(made).clone())
    }

    async fn make(&self) -> Result<Client, Failure> {
        let config = self.config.clone();
        // It may run a program that makes a token.
        let made = tokio::task::spawn_blocking(|| Client::try_from(config)).await;
        let made = made.map_err(|error| {
            let what = "the runtime of this connection ends";
            Failure::new(ErrorKind::Unavailable, Sent::Never, what).with_source(error)
        })?;
        made.map_err(failure::of_configuration)
    }

    /// Sends a request. An object that is missing, or has another version, is an answer: nothing is found.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        verb: Verb<'_>,
    ) -> Result<Reply<T>, Failure> {
        let client = self.client().await?;
        let mut unanswered = Unanswered(Some(self));
        let response = client.send(request(path, &verb)).await;
        let response = response.map_err(failure::of_silence)?;
        let time = response.headers().get(header::DATE);
        let time = time.and_then(|date| object::date(date.to_str().ok()?));
        let code = response.status();
        let body = response.into_body().collect_bytes().await;
        let body = body.map_err(|error| {
            let what = "the API server's answer broke off";
            Failure::new(ErrorKind::Unavailable, Sent::Perhaps, what).with_source(error)
        })?;
        unanswered.0 = None;
        if code.is_success() {
            let found = serde_json::from_slice(&body).map_err(|error| {
                let what = "the answer is not that of an API server";
                Failure::new(ErrorKind::Misconfigured, Sent::Perhaps, what).with_source(error)
            })?;
            let found = Some(found);
            return Ok(Reply { found, time });
        }
        let status: Status = serde_json::from_slice(&body).unwrap_or_default();
        let is_missing = code == StatusCode::NOT_FOUND && status.is_missing_object();
        match is_missing || code == StatusCode::CONFLICT {
            true => Ok(Reply { found: None, time }),
            false => Err(failure::of_answer(code, &status)),
        }
    }
}

fn request(path: &str, verb: &Verb<'_>) -> Request<Body> {
    let (method, kind, body) = match verb {
        Verb::Get => (Method::GET, "application/json", None),
        Verb::Create(body) => (Method::POST, "application/json", Some(body)),
        // What others wrote into the object stays.
        Verb::Patch(body) => (Method::PATCH, "application/merge-patch+json", Some(body)),
        Verb::Delete(body) => (Method::DELETE, "application/json", Some(body)),
    };
    let body = body.map_or_else(Body::empty, |body| {
        Body::from(body.to_string().into_bytes())
    });
    let request = Request::builder().method(method).uri(path);
    let request = request.header(header::CONTENT_TYPE, kind).body(body);
    request.expect("the names in a path are written with letters of a URI")
}
