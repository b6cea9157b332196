//! Storage that refuses a stale holder, on the real storage.

pub(crate) mod control;
mod gate;
mod http;
mod lease;
pub(crate) mod object_store;
mod postgres;
mod redis;
mod sqlite;
mod wrong_guard;
mod wrong_guards;

use std::fmt;
use std::sync::Arc;

use leasehold::fence::Pass;
use leasehold::fence::conformance::{self, Guarded};
use leasehold::{BoxFuture, ClientId, Error, ErrorKind, Holder, Name, Token};

/// [`Guarded`] in the form of async functions.
pub(crate) trait Guard: fmt::Debug + Send + Sync + 'static {
    fn raise(
        &self,
        resource: &str,
        shown: Option<&Pass>,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    fn write(
        &self,
        resource: &str,
        shown: Option<&Pass>,
        value: &str,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    fn read(&self, resource: &str) -> impl Future<Output = Option<String>> + Send;

    fn row(&self, resource: &str) -> impl Future<Output = Option<Pass>> + Send;

    fn restart(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// Checks this guard against the contract.
pub(crate) async fn keeps_the_contract(guard: impl Guard) {
    conformance::check(Arc::new(Checked(guard))).await;
}

/// Makes attempts until one is answered: a guard in the user's own transaction fails as unavailable where that transaction
/// is to be repeated.
pub(crate) async fn repeated<F>(attempt: impl Fn() -> F) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>>,
{
    loop {
        match attempt().await {
            Err(error) if error.kind() == ErrorKind::Unavailable => {}
            answer => return answer,
        }
    }
}

#[derive(Debug)]
struct Checked<G>(G);

impl<G: Guard> Guarded for Checked<G> {
    fn raise<'a>(
        &'a self,
        resource: &'a str,
        shown: Option<&'a Pass>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.0.raise(resource, shown))
    }

    fn write<'a>(
        &'a self,
        resource: &'a str,
        shown: Option<&'a Pass>,
        value: &'a str,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.0.write(resource, shown, value))
    }

    fn read<'a>(&'a self, resource: &'a str) -> BoxFuture<'a, Option<String>> {
        Box::pin(self.0.read(resource))
    }

    fn row<'a>(&'a self, resource: &'a str) -> BoxFuture<'a, Option<Pass>> {
        Box::pin(self.0.row(resource))
    }

    fn restart(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.restart())
    }
}

/// The pass of a claim of this test's client.
pub(crate) fn pass(claim: u64, token: u64) -> Pass {
    pass_for("nightly", claim, token)
}

fn pass_for(name: &str, claim: u64, token: u64) -> Pass {
    Pass::new(
        Name::new(name).expect("valid"),
        Holder::new(ClientId::from_u128(7), claim),
        Token::new(token).expect("valid"),
    )
}
