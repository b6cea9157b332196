//! A store in memory with a fault.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use leasehold::BoxFuture;
use leasehold::clock::{Clock, Monotonic};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// What is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// It carries every put out.
    IgnoresConditions,
    /// Its answers have no version.
    HasNoVersions,
    /// A put with a version is carried out where there is no object.
    CreatesByUpdate,
    /// The first put is refused as a conflict, and nothing is there: it was busy with the path.
    IsBusyAtFirst,
}

/// What happens to the next put, before the client is told that the connection ended.
type Loss = Box<dyn FnOnce(PutOptions, PutPayload) -> BoxFuture<'static, ()> + Send>;

/// What happens while the store lists.
type Meanwhile = BoxFuture<'static, ()>;

/// The store.
pub(crate) struct Faulty {
    pub(crate) inner: Arc<InMemory>,
    fault: Fault,
    loss: Mutex<Option<Loss>>,
    meanwhile: Mutex<Option<Meanwhile>>,
    delay: Mutex<Duration>,
    puts: Mutex<u64>,
    gets: Mutex<u64>,
}

impl Faulty {
    pub(crate) fn with(fault: Fault) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::default(),
            fault,
            loss: Mutex::default(),
            meanwhile: Mutex::default(),
            delay: Mutex::default(),
            puts: Mutex::default(),
            gets: Mutex::default(),
        })
    }

    /// The next put is lost, and nothing of it is carried out.
    pub(crate) fn lose_request(&self) {
        *self.loss.lock().unwrap() = Some(Box::new(|_, _| Box::pin(async {})));
    }

    /// The answer to the next put to this path is lost. Before the client hears of that, this happens.
    pub(crate) fn lose_answer(&self, path: &str, then: impl Future<Output = ()> + Send + 'static) {
        let (inner, path) = (self.inner.clone(), Path::from(path));
        let loss: Loss = Box::new(move |options, payload| {
            Box::pin(async move {
                let put = inner.put_opts(&path, payload, options).await;
                put.expect("it is carried out");
                then.await;
            })
        });
        *self.loss.lock().unwrap() = Some(loss);
    }

    /// This happens after the objects of the next list were found, and before they are answered.
    pub(crate) fn at_the_next_list(&self, then: impl Future<Output = ()> + Send + 'static) {
        *self.meanwhile.lock().unwrap() = Some(Box::pin(then));
    }

    /// The next put takes this long.
    pub(crate) fn delay(&self, delay: Duration) {
        *self.delay.lock().unwrap() = delay;
    }

    /// How many puts and gets have come since this was asked last.
    pub(crate) fn requests(&self) -> (u64, u64) {
        let take = |count: &Mutex<u64>| std::mem::take(&mut *count.lock().unwrap());
        (take(&self.puts), take(&self.gets))
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faulty({:?})", self.fault)
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        *self.puts.lock().unwrap() += 1;
        let is_first = *self.puts.lock().unwrap() == 1;
        if is_first && self.fault == Fault::IsBusyAtFirst {
            return Err(Error::AlreadyExists {
                path: path.to_string(),
                source: "409 ConditionalRequestConflict".into(),
            });
        }
        let delay = std::mem::take(&mut *self.delay.lock().unwrap());
        Monotonic.sleep_until(Monotonic.now().after(delay)).await;
        let loss = self.loss.lock().unwrap().take();
        if let Some(loss) = loss {
            loss(options, payload).await;
            return Err(Error::Generic {
                store: "Faulty",
                source: "the connection ended".into(),
            });
        }
        let is_there = self
            .inner
            .get_opts(path, GetOptions::default())
            .await
            .is_ok();
        match (self.fault, &options.mode) {
            (Fault::IgnoresConditions, _) => options.mode = PutMode::Overwrite,
            (Fault::CreatesByUpdate, PutMode::Update(_)) if !is_there => {
                options.mode = PutMode::Create;
            }
            _ => {}
        }
        let mut put = self.inner.put_opts(path, payload, options).await?;
        put.e_tag.take_if(|_| self.fault == Fault::HasNoVersions);
        Ok(put)
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        *self.gets.lock().unwrap() += 1;
        let mut got = self.inner.get_opts(path, options).await?;
        got.meta
            .e_tag
            .take_if(|_| self.fault == Fault::HasNoVersions);
        Ok(got)
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let listed = self.inner.list(prefix);
        match self.meanwhile.lock().unwrap().take() {
            None => listed,
            Some(then) => {
                let then = stream::once(then).filter_map(async |()| None);
                listed.chain(then).boxed()
            }
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
