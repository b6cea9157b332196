//! The client without async.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use futures_util::future::join;
use leasehold::{Attempt, LeaseRequest, blocking};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::call::Caller;
use crate::error::{Invalid, result};
use crate::lease::{Guard, Lease, Leases};
use crate::options::{self, seconds};

/// The limit of the releases at the end of a client.
const GOODBYE: Duration = Duration::from_secs(5);

#[pyclass(frozen)]
pub struct Client {
    caller: Arc<Caller>,
    leases: Arc<Leases>,
}

/// Each call that waits begins with the callback of asyncio, or with `None` where its thread waits.
#[pymethods]
impl Client {
    #[new]
    fn new(
        py: Python<'_>,
        url: String,
        ttl: Option<Bound<'_, PyAny>>,
        margin: Option<Bound<'_, PyAny>>,
        label: Option<String>,
    ) -> PyResult<Self> {
        let mut builder = leasehold::Client::builder().store_url(url);
        if let Some(ttl) = ttl {
            builder = builder.ttl(seconds("ttl", &ttl)?);
        }
        if let Some(margin) = margin {
            builder = builder.margin(seconds("margin", &margin)?);
        }
        if let Some(label) = label {
            builder = builder.label(label);
        }
        let client = py.detach(|| blocking::Client::build(builder));
        Ok(Self {
            caller: Arc::new(Caller::new(result(client)?)),
            leases: Arc::default(),
        })
    }

    /// Acquires a name. Without `wait` it waits for as long as another holder has the name.
    fn acquire<'py>(
        &self,
        py: Python<'py>,
        done: Option<Py<PyAny>>,
        name: &str,
        wait: Option<Bound<'_, PyAny>>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let limit = limit(wait)?;
        let request = self.request(name, options)?;
        let guarding = self.guarding();
        self.caller.call(py, done, async move {
            let lease = result(request.acquire_within(limit).await)?;
            Ok(guarding(Guard::Lease(lease)))
        })
    }

    /// Acquires a name if it is free.
    fn try_acquire<'py>(
        &self,
        py: Python<'py>,
        done: Option<Py<PyAny>>,
        name: &str,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = self.request(name, options)?;
        let guarding = self.guarding();
        self.caller.call(py, done, async move {
            Ok(match result(request.try_acquire().await)? {
                Attempt::Acquired(lease) => Some(guarding(Guard::Lease(lease))),
                Attempt::Held(_) => None,
            })
        })
    }

    /// Waits for the right to run the job of this time, in seconds since 1970. Returns `None` once it is done.
    fn once<'py>(
        &self,
        py: Python<'py>,
        done: Option<Py<PyAny>>,
        name: &str,
        at: f64,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let since = Duration::try_from_secs_f64(at).ok();
        let Some(at) = since.and_then(|since| UNIX_EPOCH.checked_add(since)) else {
            return Err(Invalid::new_err(format!(
                "at of {at} refused: expected the time of a schedule, in seconds since 1970"
            )));
        };
        let request = self.request(name, options)?;
        let guarding = self.guarding();
        self.caller.call(py, done, async move {
            let fire = result(request.once(at).await)?;
            Ok(fire.map(|fire| guarding(Guard::Fire(fire))))
        })
    }

    /// Acquires all of these names or none.
    fn acquire_all<'py>(
        &self,
        py: Python<'py>,
        done: Option<Py<PyAny>>,
        names: Vec<String>,
        wait: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let limit = limit(wait)?;
        let client = (*self.caller.client).clone();
        let guarding = self.guarding();
        self.caller.call(py, done, async move {
            let set = result(client.acquire_all_within(names, limit).await)?;
            let shares = set.into_iter().map(|share| guarding(Guard::Share(share)));
            Ok(shares.collect::<Vec<_>>())
        })
    }

    /// Ends all leases of this client, and closes its connections.
    fn close<'py>(&self, py: Python<'py>, done: Option<Py<PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let (client, leases) = ((*self.caller.client).clone(), self.leases.clone());
        self.caller.call(py, done, async move {
            // In this order: the leases are lost by the shutdown, and then released.
            join(client.shutdown(GOODBYE), async { leases.drop_all() }).await;
            Ok(())
        })
    }

    #[getter]
    fn location(&self) -> String {
        self.caller.client.store().location()
    }
}

impl Client {
    fn request(&self, name: &str, options: &Bound<'_, PyDict>) -> PyResult<LeaseRequest> {
        options::add(self.caller.client.request(name), options)
    }

    /// Returns what makes a lease of Python's of one of the library.
    fn guarding(&self) -> impl Fn(Guard) -> Lease + Send + 'static {
        let (caller, leases) = (self.caller.clone(), self.leases.clone());
        move |guard| leases.add(Lease::new(caller.clone(), guard))
    }
}

/// Reads the limit of a wait; without one it is the latest moment of all.
fn limit(wait: Option<Bound<'_, PyAny>>) -> PyResult<Duration> {
    wait.map_or(Ok(Duration::MAX), |limit| seconds("wait", &limit))
}
