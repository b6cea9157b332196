//! A layer that puts an HTTP service behind a [`Gate`]: no handler runs for a stale holder.
//!
//! ```
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::fence::gate::Gate;
//! use leasehold::fence::tower::{FenceLayer, tower_layer::Layer};
//!
//! # let (folder, service) = (tempfile::tempdir()?, ());
//! let gate = Gate::open(folder.path().join("fences")).await?;
//! // One resource for all devices: a fixed name, whatever path a client sends.
//! let fence = FenceLayer::new(gate, |_| "devices".into());
//! // With axum: `Router::new().route("/devices/{id}", put(handler)).layer(fence)`.
//! let fenced = fence.layer(service);
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//! 1. A request shows its pass in the header `Fencing-Token`; the handler runs inside the gate, and finds the
//!    [`Pass`] among the extensions of the request.
//! 2. A stale pass gets the status 412 and a missing one 428, in the form of [`http`]; the handler does not run.
//! 3. Safe methods need no pass. A `GET` that shows one raises the fence, so that a new holder can read before it
//!    writes.
//!
//! # Assumptions
//! The handler has finished its writes when it returns: tasks that it spawns, and a body that it streams later, are
//! outside the gate. Requests are authenticated before this layer.
//!
//! The gate keeps a row for each resource that was ever raised, in memory and in its journal, for ever, because it
//! cannot know when the last delayed writer has ended. So name resources by what your service knows (a fixed name, the
//! id of a record that exists), not by what a client can invent: with the bare `uri.path()`, each new path is one more
//! row.
//!
//! # Errors
//! The layer makes responses; it adds no errors to those of the service.
//!
//! # Cancel safety
//! A request that is dropped leaves the gate together with its handler.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::request::Parts;
use ::http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::gate::{Entry, Gate};
use super::{Pass, http};
use crate::error::Error;

/// The traits that [`FenceLayer`] implements, in the versions with which leasehold was built.
#[doc(no_inline)]
pub use {::tower_layer, ::tower_service};

/// Names the resource that a request writes to.
type Resource = Arc<dyn Fn(&Parts) -> String + Send + Sync>;

/// Puts services behind a gate. The [module](self) has its guarantees.
#[derive(Clone)]
pub struct FenceLayer {
    gate: Gate,
    resource: Resource,
}

/// A service behind a gate.
#[derive(Debug, Clone)]
pub struct Fenced<S> {
    service: S,
    fence: FenceLayer,
}

impl FenceLayer {
    /// Makes a layer; `resource` names what a request writes to. Each name that it returns may become a row that the
    /// gate keeps for ever; see the [module](self).
    pub fn new(gate: Gate, resource: impl Fn(&Parts) -> String + Send + Sync + 'static) -> Self {
        Self {
            gate,
            resource: Arc::new(resource),
        }
    }

    /// Admits this request, and puts its pass into its extensions. Returns `None` for a reader that shows no pass.
    async fn admit(&self, request: &mut Parts) -> Result<Option<Entry>, Error> {
        let pass = http::pass_from_headers(&request.headers)?;
        if pass.is_none() && request.method.is_safe() {
            return Ok(None);
        }
        let pass = Pass::required(pass.as_ref())?;
        let resource = (self.resource)(request);
        let entry = self.gate.enter(&resource, pass).await?;
        request.extensions.insert(pass.clone());
        Ok(Some(entry))
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = Fenced<S>;

    fn layer(&self, service: S) -> Fenced<S> {
        Fenced {
            service,
            fence: self.clone(),
        }
    }
}

impl<S, B, A> Service<Request<B>> for Fenced<S>
where
    S: Service<Request<B>, Response = Response<A>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    A: From<String>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The service that reported readiness is the one to call.
        let next = self.service.clone();
        let mut service = std::mem::replace(&mut self.service, next);
        let fence = self.fence.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let _inside = match fence.admit(&mut parts).await {
                Ok(entry) => entry,
                Err(error) => return Ok(http::response_for(&error)),
            };
            service.call(Request::from_parts(parts, body)).await
        })
    }
}

impl fmt::Debug for FenceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceLayer")
            .field("gate", &self.gate)
            .finish_non_exhaustive()
    }
}
