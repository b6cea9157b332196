//! Held leases: by themselves, in a set, or the right to run the job of one time.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures_util::future::{join_all, select_all};
use leasehold::{Fire, LeaseHandle, ReleaseOutcome, Share};
use pyo3::prelude::*;
use tokio::time::timeout;

use crate::call::{Call, Caller};
use crate::error::result;
use crate::options::seconds;

/// Releases the lease when it is dropped.
pub enum Guard {
    Lease(leasehold::Lease),
    Share(Share),
    Fire(Fire),
}

impl Deref for Guard {
    type Target = leasehold::Lease;

    fn deref(&self) -> &leasehold::Lease {
        match self {
            Self::Lease(lease) => lease,
            Self::Share(share) => share,
            Self::Fire(fire) => fire,
        }
    }
}

impl Guard {
    /// Releases the lease. Returns whether the store confirmed that it was held until now.
    async fn release(self) -> bool {
        let outcome = match self {
            Self::Lease(lease) => Some(lease.release().await),
            Self::Share(share) => share.release().await,
            // A fire that is dropped is not done.
            Self::Fire(fire) => {
                drop(fire);
                None
            }
        };
        outcome == Some(ReleaseOutcome::Released)
    }
}

/// A held lease. What is left of it when it is released is its handle.
#[pyclass(frozen)]
pub struct Lease {
    caller: Arc<Caller>,
    guard: Arc<Mutex<Option<Guard>>>,
    pub handle: LeaseHandle,
    #[pyo3(get)]
    holder: String,
    #[pyo3(get)]
    permit: Option<u16>,
}

impl Lease {
    pub fn new(caller: Arc<Caller>, guard: Guard) -> Self {
        Self {
            caller,
            handle: guard.handle(),
            holder: guard.holder().to_string(),
            permit: guard.permit(),
            guard: Arc::new(Mutex::new(Some(guard))),
        }
    }

    /// Reads the lease, if it was not released.
    fn read<T>(&self, read: impl FnOnce(&leasehold::Lease) -> T) -> Option<T> {
        let guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        guard.as_deref().map(read)
    }

    fn take(&self) -> Option<Guard> {
        take(&self.guard)
    }
}

fn take(guard: &Mutex<Option<Guard>>) -> Option<Guard> {
    let mut guard = guard.lock().unwrap_or_else(PoisonError::into_inner);
    guard.take()
}

/// The leases of a client that Python has not dropped yet.
#[derive(Default)]
pub struct Leases(Mutex<Vec<Weak<Mutex<Option<Guard>>>>>);

impl Leases {
    pub fn add(&self, lease: Lease) -> Lease {
        let mut leases = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Before it grows, so that each lease is checked a few times only.
        if leases.len() == leases.capacity() {
            leases.retain(|lease| lease.strong_count() > 0);
        }
        leases.push(Arc::downgrade(&lease.guard));
        lease
    }

    /// Gives up the guards of all leases, whoever has them.
    pub fn drop_all(&self) {
        let mut leases = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let leases = leases.drain(..).filter_map(|lease| lease.upgrade());
        drop(leases.filter_map(|lease| take(&lease)).collect::<Vec<_>>());
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
    fn show(&self) -> PyResult<(u64, String, String)> {
        let pass = result(self.handle.pass())?;
        let (holder, name) = (pass.holder.to_string(), pass.name.to_string());
        Ok((pass.token.get(), holder, name))
    }

    fn check(&self) -> PyResult<()> {
        result(self.handle.check())
    }

    /// Seconds until `check` begins to fail without a renewal.
    #[getter]
    fn remaining(&self) -> f64 {
        let left = self.read(leasehold::Lease::remaining);
        left.unwrap_or_default().as_secs_f64()
    }

    fn progress(&self) {
        self.read(leasehold::Lease::progress);
    }

    /// Records that the job of a fire is done, and returns whether the store confirmed it.
    fn done<'py>(&self, py: Python<'py>, done: Option<Py<PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let guard = self.take();
        let noted = async move {
            Ok(match guard {
                Some(Guard::Fire(fire)) => fire.done().await == ReleaseOutcome::Released,
                _ => false,
            })
        };
        self.caller.call(py, done, noted)
    }
}

/// Releases these leases of one client at once. Returns whether the store confirmed that all were held until now.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python hands a list over")]
pub fn release<'py>(
    py: Python<'py>,
    done: Option<Py<PyAny>>,
    leases: Vec<PyRef<'_, Lease>>,
) -> PyResult<Bound<'py, PyAny>> {
    let guards: Vec<_> = leases.iter().map(|lease| lease.take()).collect();
    let released = async move {
        let each = guards.into_iter().map(async |guard| match guard {
            Some(guard) => guard.release().await,
            None => false,
        });
        Ok(join_all(each).await.into_iter().all(|released| released))
    };
    leases[0].caller.call(py, done, released)
}

/// Waits until one of these leases is lost or released, for at most so many seconds. Returns the reason; `None` if
/// there was none in that time.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python hands a list over")]
pub fn wait_lost(
    py: Python<'_>,
    leases: Vec<PyRef<'_, Lease>>,
    limit: Option<Bound<'_, PyAny>>,
) -> PyResult<Option<&'static str>> {
    leases[0].caller.check_process()?;
    let limit = limit.map(|limit| seconds("timeout", &limit)).transpose()?;
    let lost = first_lost(&leases);
    let lost = async {
        Ok(match limit {
            Some(limit) => timeout(limit, lost).await.ok(),
            None => Some(lost.await),
        })
    };
    leases[0].caller.wait(py, lost)
}

/// Begins a call that ends when one of these leases is lost or released, with the reason.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python hands a list over")]
pub fn call_when_lost(
    py: Python<'_>,
    done: Py<PyAny>,
    leases: Vec<PyRef<'_, Lease>>,
) -> PyResult<Py<Call>> {
    let lost = first_lost(&leases);
    (leases[0].caller).begin(py, async { Ok(lost.await) }, done)
}

/// Waits until one of these leases is lost or released, and returns the reason.
fn first_lost(leases: &[PyRef<'_, Lease>]) -> impl Future<Output = &'static str> + Send + use<> {
    let handles: Vec<_> = leases.iter().map(|lease| lease.handle.clone()).collect();
    async move {
        let losses = handles.iter().map(|handle| Box::pin(handle.lost()));
        select_all(losses).await.0.as_str()
    }
}
