//! The one shape of a future behind a trait object.

use std::pin::Pin;

/// A boxed future that can be moved to any thread: what the methods of a store and of a fence return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
