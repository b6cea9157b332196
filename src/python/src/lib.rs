//! What Python cannot do itself: the client without async, and its lease. `leasehold/__init__.py` has the rest, and what
//! users read.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold::{Error, ErrorKind, LeaseHandle, LeaseRequest, ReleaseOutcome, blocking};
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use tokio::time::timeout;

create_exception!(leasehold, LeaseholdError, PyException);
create_exception!(leasehold, Invalid, LeaseholdError);
create_exception!(leasehold, Unavailable, LeaseholdError);
create_exception!(leasehold, TimedOut, LeaseholdError);
create_exception!(leasehold, Denied, LeaseholdError);
create_exception!(leasehold, Misconfigured, LeaseholdError);
create_exception!(leasehold, Lost, LeaseholdError);
create_exception!(leasehold, Stale, LeaseholdError);
create_exception!(leasehold, Closed, LeaseholdError);

/// Interval at which a call that waits looks whether Ctrl-C was pressed.
const LOOK: Duration = Duration::from_millis(100);
/// The limit of the releases at the end of a client.
const GOODBYE: Duration = Duration::from_secs(5);

/// The exception of an error, with its sources in the text.
fn raised(error: &Error) -> PyErr {
    let text = format!("{error:#}");
    match error.kind() {
        ErrorKind::Invalid => Invalid::new_err(text),
        ErrorKind::Unavailable => Unavailable::new_err(text),
        ErrorKind::TimedOut => TimedOut::new_err(text),
        ErrorKind::Denied => Denied::new_err(text),
        ErrorKind::Misconfigured => Misconfigured::new_err(text),
        ErrorKind::Lost => Lost::new_err(text),
        ErrorKind::Stale => Stale::new_err(text),
        ErrorKind::Closed => Closed::new_err(text),
        _ => LeaseholdError::new_err(text),
    }
}

fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value).map_err(|_| {
        Invalid::new_err(format!(
            "{name} of {value} s refused: expected seconds, not negative"
        ))
    })
}

/// Waits for a future without the GIL. Ctrl-C drops it, and what it has begun is undone.
fn wait<T: Send>(
    py: Python<'_>,
    client: &blocking::Client,
    future: impl Future<Output = T> + Send,
) -> PyResult<T> {
    let mut future = Box::pin(future);
    loop {
        let step = async { timeout(LOOK, &mut future).await.ok() };
        let done = py.detach(|| client.wait(step));
        if let Some(done) = done.map_err(|error| raised(&error))? {
            return Ok(done);
        }
        py.check_signals()?;
    }
}

/// The client without async.
#[pyclass(frozen)]
struct Client(blocking::Client);

/// What a request asks for, beside the name.
#[derive(FromPyObject)]
struct Wish {
    #[pyo3(item)]
    ttl: Option<f64>,
    #[pyo3(item)]
    label: Option<String>,
    #[pyo3(item)]
    max_hold: Option<f64>,
    #[pyo3(item)]
    hold_at_least: Option<f64>,
    #[pyo3(item)]
    progress_within: Option<f64>,
    #[pyo3(item)]
    permits: Option<u16>,
    #[pyo3(item)]
    shared: bool,
    #[pyo3(item)]
    exclusive: bool,
}

impl Client {
    fn request(&self, name: &str, wish: Wish) -> PyResult<LeaseRequest> {
        let mut request = self.0.request(name);
        let time = |name, value: Option<f64>| value.map(|value| seconds(name, value)).transpose();
        if let Some(ttl) = time("ttl", wish.ttl)? {
            request = request.ttl(ttl);
        }
        if let Some(most) = time("max_hold", wish.max_hold)? {
            request = request.max_hold(most);
        }
        if let Some(least) = time("hold_at_least", wish.hold_at_least)? {
            request = request.hold_at_least(least);
        }
        if let Some(most) = time("progress_within", wish.progress_within)? {
            request = request.progress_within(most);
        }
        if let Some(label) = wish.label {
            request = request.label(label);
        }
        if let Some(permits) = wish.permits {
            request = request.permits(permits);
        }
        Ok(match (wish.shared, wish.exclusive) {
            (true, true) => return Err(Invalid::new_err("shared and exclusive at once")),
            (true, false) => request.shared(),
            (false, true) => request.exclusive(),
            (false, false) => request,
        })
    }
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (url, ttl=None, label=None))]
    fn new(py: Python<'_>, url: String, ttl: Option<f64>, label: Option<String>) -> PyResult<Self> {
        let mut builder = leasehold::Client::builder().store_url(url);
        if let Some(ttl) = ttl {
            builder = builder.ttl(seconds("ttl", ttl)?);
        }
        if let Some(label) = label {
            builder = builder.label(label);
        }
        let client = py.detach(|| blocking::Client::build(builder));
        client.map(Self).map_err(|error| raised(&error))
    }

    /// Acquires a name. `wait` is in seconds; without one it waits for as long as another holder has the name.
    fn acquire(
        &self,
        py: Python<'_>,
        name: &str,
        wait_for: Option<f64>,
        wish: Wish,
    ) -> PyResult<Lease> {
        let request = self.request(name, wish)?;
        let limit = wait_for.map(|limit| seconds("wait", limit)).transpose()?;
        let lease = wait(py, &self.0, async {
            match limit {
                Some(limit) => request.acquire_within(limit).await,
                None => request.acquire().await,
            }
        });
        Ok(self.guard(lease?.map_err(|error| raised(&error))?))
    }

    /// Acquires a name if it is free.
    fn try_acquire(&self, py: Python<'_>, name: &str, wish: Wish) -> PyResult<Option<Lease>> {
        let request = self.request(name, wish)?;
        let attempt = wait(py, &self.0, request.try_acquire())?;
        Ok(match attempt.map_err(|error| raised(&error))? {
            leasehold::Attempt::Acquired(lease) => Some(self.guard(lease)),
            leasehold::Attempt::Held(_) => None,
        })
    }

    /// Ends all leases of this client, and closes its connections.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let closed = py.detach(|| self.0.shutdown(GOODBYE));
        closed.map(drop).map_err(|error| raised(&error))
    }

    #[getter]
    fn location(&self) -> String {
        self.0.store().location()
    }
}

/// A held lease. What is left of it when it is released is its handle.
#[pyclass(frozen)]
struct Lease {
    client: blocking::Client,
    lease: Mutex<Option<leasehold::Lease>>,
    handle: LeaseHandle,
}

impl Client {
    fn guard(&self, lease: leasehold::Lease) -> Lease {
        Lease {
            client: self.0.clone(),
            handle: lease.handle(),
            lease: Mutex::new(Some(lease)),
        }
    }
}

impl Lease {
    /// Reads the lease, if it was not released.
    fn of_lease<T>(&self, read: impl FnOnce(&leasehold::Lease) -> T) -> Option<T> {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        lease.as_ref().map(read)
    }

    fn take(&self) -> Option<leasehold::Lease> {
        let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        lease.take()
    }
}

#[pymethods]
impl Lease {
    #[getter]
    fn name(&self) -> &str {
        self.handle.name().as_str()
    }

    #[getter]
    fn token(&self) -> u64 {
        self.handle.token().get()
    }

    /// The token, the holder and the name, as storage compares them.
    fn pass_(&self) -> PyResult<(u64, String, String)> {
        let pass = self.handle.pass().map_err(|error| raised(&error))?;
        Ok((
            pass.token.get(),
            pass.holder.to_string(),
            pass.name.to_string(),
        ))
    }

    fn check(&self) -> PyResult<()> {
        self.handle.check().map_err(|error| raised(&error))
    }

    /// Seconds until `check` begins to fail without a renewal.
    #[getter]
    fn remaining(&self) -> f64 {
        let left = self.of_lease(leasehold::Lease::remaining);
        left.unwrap_or_default().as_secs_f64()
    }

    fn progress(&self) {
        self.of_lease(leasehold::Lease::progress);
    }

    /// Waits for the loss, for at most so many seconds. Returns its reason; `None` if there was none in that time.
    fn wait_lost(&self, py: Python<'_>, limit: Option<f64>) -> PyResult<Option<&'static str>> {
        let limit = limit.map(|limit| seconds("timeout", limit)).transpose()?;
        let lost = async {
            match limit {
                Some(limit) => timeout(limit, self.handle.lost()).await.ok(),
                None => Some(self.handle.lost().await),
            }
        };
        let reason = wait(py, &self.client, lost)?;
        Ok(reason.map(|reason| reason.as_str()))
    }

    /// Calls back once the lease is lost or released, with the reason, in a thread of its own.
    fn on_lost(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        let handle = self.handle.clone();
        let told = async move {
            tokio::spawn(async move {
                let reason = handle.lost().await.as_str();
                // Not here: this thread drives the connections, and must not wait for the GIL.
                std::thread::spawn(move || {
                    Python::attach(|py| callback.call1(py, (reason,)).map(drop))
                });
            });
        };
        wait(py, &self.client, told)
    }

    /// Releases the lease. Returns whether the store confirmed that this holder had it until now.
    fn release(&self, py: Python<'_>) -> bool {
        let Some(lease) = self.take() else {
            return false;
        };
        let released = py.detach(|| self.client.wait(lease.release()));
        matches!(released, Ok(ReleaseOutcome::Released))
    }
}

/// The part of the package `leasehold` that is written in Rust.
#[pymodule(name = "_leasehold")]
mod module {
    #[pymodule_export]
    use super::{
        Client, Closed, Denied, Invalid, Lease, LeaseholdError, Lost, Misconfigured, Stale,
        TimedOut, Unavailable,
    };
}
