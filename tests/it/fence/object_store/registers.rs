//! A register for each resource: the content of a fenced object.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use leasehold::Error;
use leasehold::fence::Pass;
use leasehold::fence::object_store::Fence;
use object_store::ObjectStore;
use object_store::path::Path;

use crate::fence::Guard;

/// The registers in one store.
pub(crate) struct Registers {
    store: Arc<dyn ObjectStore>,
    /// The fences of one process, until it is restarted; `None`: each step is that of another process.
    fences: Option<Mutex<HashMap<String, Fence>>>,
}

/// Without all that is stored.
impl fmt::Debug for Registers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registers in {}", self.store)
    }
}

impl Registers {
    /// Registers of one process, which remembers what it wrote.
    pub(crate) fn of_one_process(store: Arc<dyn ObjectStore>) -> Self {
        let fences = Some(Mutex::default());
        Self { store, fences }
    }

    /// Registers of which each step is taken by a process of its own.
    pub(crate) fn of_many_processes(store: Arc<dyn ObjectStore>) -> Self {
        let fences = None;
        Self { store, fences }
    }

    fn fence(&self, resource: &str) -> Fence {
        let fresh = || Fence::new(self.store.clone(), Path::from(resource)).expect("a valid path");
        let Some(fences) = &self.fences else {
            return fresh();
        };
        let mut fences = fences.lock().unwrap();
        fences.entry(resource.into()).or_insert_with(fresh).clone()
    }
}

impl Guard for Registers {
    async fn raise(&self, resource: &str, shown: Option<&Pass>) -> Result<(), Error> {
        let pass = Pass::required(shown)?;
        self.fence(resource).raise(pass).await.map(drop)
    }

    async fn write(&self, resource: &str, shown: Option<&Pass>, value: &str) -> Result<(), Error> {
        let (pass, value) = (Pass::required(shown)?, format!("={value}"));
        let written = self.fence(resource).commit(pass, |_| value.clone()).await;
        written.map(drop)
    }

    async fn read(&self, resource: &str) -> Option<String> {
        let object = self.fence(resource).read().await.expect("read")?;
        let content = String::from_utf8(object.content.to_vec()).expect("text");
        // A raise alone leaves no content.
        content.strip_prefix('=').map(str::to_owned)
    }

    async fn row(&self, resource: &str) -> Option<Pass> {
        let object = self.fence(resource).read().await.expect("read");
        object.map(|object| object.pass)
    }

    async fn restart(&self) {
        if let Some(fences) = &self.fences {
            fences.lock().unwrap().clear();
        }
    }
}
