//! Calls that wait: for a thread, which releases the GIL while it waits, and for asyncio, which receives the end.

use std::future::Future;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::blocking;
use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::error::{Closed, Unavailable, result};

/// Interval between checks for Ctrl-C while a call waits.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// A callback in Python.
type Delivery = Box<dyn FnOnce(Python<'_>) + Send>;

/// The caller of the library's client.
pub struct Caller {
    pub client: blocking::Client,
    /// To the thread that calls Python when a call has ended. The client's own thread drives connections, and must not
    /// wait for the GIL.
    deliveries: Mutex<Option<Sender<Delivery>>>,
    /// The process of the threads: a forked child has none.
    process: u32,
}

impl Caller {
    pub fn new(client: blocking::Client) -> Self {
        Self {
            client,
            deliveries: Mutex::new(None),
            process: std::process::id(),
        }
    }

    /// Waits for a future without the GIL. Ctrl-C drops it, and what it has begun is undone.
    pub fn wait<T: Send>(
        &self,
        py: Python<'_>,
        future: impl Future<Output = PyResult<T>> + Send,
    ) -> PyResult<T> {
        let mut future = Box::pin(future);
        loop {
            let step = async { timeout(CHECK_EVERY, &mut future).await.ok() };
            let done = py.detach(|| self.client.wait(step));
            if let Some(done) = result(done)? {
                return done;
            }
            py.check_signals()?;
        }
    }

    /// Waits for the end of a call, or begins it if a callback is to hear of its end.
    pub fn call<'py, T>(
        &self,
        py: Python<'py>,
        done: Option<Py<PyAny>>,
        future: impl Future<Output = PyResult<T>> + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>>
    where
        T: for<'a> IntoPyObject<'a> + Send + 'static,
    {
        match done {
            None => self.wait(py, future)?.into_bound_py_any(py),
            Some(done) => self.begin(py, future, done)?.into_bound_py_any(py),
        }
    }

    /// Fails in a forked child, where no timer runs either.
    pub fn check_process(&self) -> PyResult<()> {
        if std::process::id() == self.process {
            return Ok(());
        }
        let what =
            "call refused: the client belongs to the parent of this process; open a client here";
        Err(Closed::new_err(what))
    }

    /// Returns where to send callbacks, and starts the thread for the first. It ends with the client and its last call.
    fn open(&self) -> PyResult<Sender<Delivery>> {
        self.check_process()?;
        let mut to = self
            .deliveries
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(to) = &*to {
            return Ok(to.clone());
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "no more wait here than calls of Python are under way"
        )]
        let (sender, deliveries) = channel::<Delivery>();
        let thread = std::thread::Builder::new().name("leasehold-python".into());
        let deliver = move || {
            for delivery in deliveries {
                // Not once the interpreter ends.
                let _ = Python::try_attach(delivery);
            }
        };
        thread.spawn(deliver).map_err(|error| {
            let what = "call failed: the thread that tells of its end did not start";
            Unavailable::new_err(format!("{what}: {error}"))
        })?;
        Ok(to.insert(sender).clone())
    }

    /// Begins a call, which calls `done(call)` at its end.
    pub fn begin<T>(
        &self,
        py: Python<'_>,
        future: impl Future<Output = PyResult<T>> + Send + 'static,
        done: Py<PyAny>,
    ) -> PyResult<Py<Call>>
    where
        T: for<'py> IntoPyObject<'py> + Send + 'static,
    {
        let to = self.open()?;
        let state = Arc::new(Mutex::new(State::Begun(None)));
        let begun = Py::new(py, Call(state.clone()))?;
        let call = begun.clone_ref(py);
        let task = async move {
            let ended = future.await;
            let ended = Box::new(move |py: Python<'_>| ended?.into_py_any(py));
            let was_wanted = lock(&state).end(ended);
            if was_wanted {
                let _ = to.send(Box::new(move |py| {
                    if let Err(error) = done.call1(py, (call,)) {
                        error.write_unraisable(py, None);
                    }
                }));
            }
        };
        let spawned = self
            .client
            .wait(async { tokio::spawn(task).abort_handle() });
        lock(&begun.get().0).abort_by(result(spawned)?);
        Ok(begun)
    }
}

/// The result of a call, in Python.
type Ended = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// A call that has begun. It keeps its result until that is taken, so that a lease without a waiting caller is released
/// whoever still refers to the call.
#[pyclass(frozen)]
pub struct Call(Arc<Mutex<State>>);

enum State {
    Begun(Option<AbortHandle>),
    Ended(Ended),
    /// Taken, or cancelled.
    Over,
}

impl State {
    /// Keeps what the call returned. Returns whether somebody waits for it.
    fn end(&mut self, ended: Ended) -> bool {
        let was_wanted = matches!(self, Self::Begun(_));
        if was_wanted {
            *self = Self::Ended(ended);
        }
        was_wanted
    }

    fn abort_by(&mut self, task: AbortHandle) {
        if let Self::Begun(none) = self {
            *none = Some(task);
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[pymethods]
impl Call {
    /// Returns what the call returned, or raises what it raised, once.
    fn result(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let state = std::mem::replace(&mut *lock(&self.0), State::Over);
        match state {
            State::Ended(ended) => ended(py).map(Some),
            State::Begun(_) | State::Over => Ok(None),
        }
    }

    /// Ends the call, and undoes what it has begun. It has no effect on a result that was taken.
    fn cancel(&self) {
        let state = std::mem::replace(&mut *lock(&self.0), State::Over);
        if let State::Begun(Some(task)) = state {
            task.abort();
        }
    }
}
