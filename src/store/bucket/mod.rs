//! Leases as objects in a bucket of S3, or of a server like it: a team that has a bucket needs no further service.
//!
//! ```no_run
//! # #[tokio::main]
//! # async fn main() -> Result<(), leasehold::Error> {
//! use leasehold::{Client, store::bucket};
//!
//! let store = bucket::open("s3://my-bucket/leases").await?;
//! let client = Client::builder().store(store).build().await?;
//! let lease = client.acquire("nightly").await?;
//! # drop(lease);
//! # Ok(())
//! # }
//! ```
//!
//! The protocol is that of [`record`](super::record), with a grace of the clocks' [skew](#urls) and two seconds. The
//! fence of [`fence::object_store`](crate::fence::object_store) guards objects of the same bucket. The wire, the costs
//! and the rule by which a bucket may clear old objects are in `README.md` next to the sources.
//!
//! # URLs
//! `s3://BUCKET/PREFIX?PARAMETERS`. The prefix is `leasehold` unless it is given. Credentials are those of the
//! environment: `AWS_ACCESS_KEY_ID` and its like, a web identity, or those of the machine.
//!
//! | parameter | meaning | default |
//! |---|---|---|
//! | `credentials` | path of a file of credentials, as `aws configure` writes it; read once | those of the environment |
//! | `profile` | its section | `default` |
//! | `endpoint` | URL of the server | `AWS_ENDPOINT_URL`, or Amazon's |
//! | `region` | region of the bucket | `AWS_REGION`, or `us-east-1` |
//! | `poll` | interval between polls of a waiting client | `1s` |
//! | `skew` | the most by which the clocks of the bucket's servers differ | `10s` |
//!
//! Buckets of other providers are opened by [`Bucket::new`] with a store of the crate `object_store`.
//!
//! # Conditional puts
//! A server has to compare versions with each put. Some ignore the condition, and some let several puts win that arrive
//! at once. It is tried once for each prefix, by `leasehold init` or by the first claim, and the result is kept next to
//! the leases. A server that does not compare is `Misconfigured`.
//!
//! # Limits
//! A put takes tens of milliseconds on S3, and some hundreds at times: a ttl of 5 s is the least that holds there.
//! There are no notices: a waiting client polls once a second.

mod address;
mod credentials;
mod hazards;
mod object;
mod trial;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::object_store::aws::AmazonS3Builder;
use ::object_store::path::Path;
use ::object_store::{ClientOptions, ObjectStore, ObjectStoreExt as _, PutMode, RetryConfig};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use self::address::{Address, LOOK_EVERY, check_prefix};
use self::credentials::Credentials;
use self::object::{failed, is_conflict, key_of, object_name, update, version, written_at};
use super::record::{
    Expiry, Failure, Put, Record, Records, Register, SKEW, Seen, Traits, Version, Versioned,
};
use super::{Hazard, Member, MemberState, Notices, Purpose, TableSettings};
use crate::error::{Error, ErrorKind};

/// Time limit for a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest time of one request. The callers' limits are shorter.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Number of objects that are read at a time for a list.
const READS: usize = 16;

/// The leases of a bucket.
#[derive(Clone)]
pub struct Bucket {
    store: Arc<dyn ObjectStore>,
    /// Makes the same store with connections of its own; `None` where the caller made it.
    address: Option<Address>,
    location: String,
    prefix: String,
    skew: Duration,
    look_every: Duration,
    /// Whether the note was read that the server compares versions.
    is_tried: Arc<AtomicBool>,
}

/// Opens the leases of a bucket. It asks no server.
///
/// # Errors
/// `Invalid` for a URL out of order; `Misconfigured` for settings of the environment that are, or a file of credentials
/// that cannot be read.
///
/// # Cancel safety
/// Dropping the future leaves nothing behind.
pub async fn open(url: &str) -> Result<Records<Bucket>, Error> {
    Ok(Records::new(Bucket::at(Address::parse(url)?).await?))
}

/// Tries out the server of the bucket at this URL, and writes the result next to the leases. It takes some hundred
/// requests.
pub(crate) async fn init(url: &str, settings: TableSettings, limit: Duration) -> Result<(), Error> {
    check_settings(settings)?;
    let bucket = Bucket::at(Address::parse(url)?).await?;
    let tried = tokio::time::timeout(limit, bucket.try_out(trial::Extent::Whole)).await;
    tried.unwrap_or_else(|_| {
        let what = format!("init failed: no answer in time store={}", bucket.location);
        Err(Error::new(ErrorKind::TimedOut, what))
    })
}

/// Returns what [`init`] would do.
pub(crate) fn init_script(url: &str, settings: TableSettings) -> Result<String, Error> {
    check_settings(settings)?;
    let address = Address::parse(url)?;
    Ok(format!(
        "race puts on one version of an object in {address}, of which exactly one may win, and delete it; then write {}/{}\n",
        address.prefix,
        trial::NOTE
    ))
}

fn check_settings(settings: TableSettings) -> Result<(), Error> {
    match settings.max_ttl {
        None => Ok(()),
        Some(_) => Err(Error::invalid(
            "init refused: a bucket has no tables, and no longest ttl; expected no settings",
        )),
    }
}

impl Bucket {
    /// Makes the leases below this prefix of a store of the crate `object_store`, for [`Records`]. The store must not
    /// repeat requests by itself: the retries of the crate are on unless they are switched off.
    ///
    /// # Errors
    /// `Invalid` for a prefix with an empty part.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: &str) -> Result<Self, Error> {
        check_prefix(prefix).map_err(|why| {
            Error::invalid(format!(
                "prefix {prefix:?} refused: {why}; expected parts between '/'"
            ))
        })?;
        Ok(Self {
            location: format!("{store}/{prefix}"),
            prefix: prefix.into(),
            store,
            address: None,
            skew: SKEW,
            look_every: LOOK_EVERY,
            is_tried: Arc::default(),
        })
    }

    /// Returns the same leases with the most by which the clocks of the bucket's servers differ (default: 10 s).
    #[must_use = "returns the leases with their skew"]
    pub const fn with_skew(mut self, skew: Duration) -> Self {
        self.skew = skew;
        self
    }

    /// Returns the same leases with this interval between polls of a waiting client (default: 1 s).
    #[must_use = "returns the leases with their interval"]
    pub const fn with_look_every(mut self, look_every: Duration) -> Self {
        self.look_every = look_every;
        self
    }

    async fn at(address: Address) -> Result<Self, Error> {
        // The client asks for it even without TLS. Another part of the program may have chosen one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let retries = RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        };
        let is_plain = address
            .endpoint
            .as_ref()
            .is_some_and(|at| at.starts_with("http://"));
        let client = ClientOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_timeout(REQUEST_TIMEOUT)
            .with_allow_http(is_plain);
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(&address.bucket)
            .with_retry(retries)
            .with_client_options(client);
        if let Some(endpoint) = &address.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(region) = &address.region {
            builder = builder.with_region(region);
        }
        if let Some(path) = &address.credentials {
            let credentials = Credentials::read(path, &address.profile).await?;
            builder = builder
                .with_access_key_id(credentials.key_id)
                .with_secret_access_key(credentials.secret);
            if let Some(token) = credentials.token {
                builder = builder.with_token(token);
            }
        }
        let store = builder.build().map_err(|source| {
            let what = "open failed: the settings of the bucket cannot be used store=bucket";
            Error::new(ErrorKind::Misconfigured, what).with_source(source)
        })?;
        Ok(Self {
            store: Arc::new(store),
            location: address.to_string(),
            prefix: address.prefix.clone(),
            skew: address.skew,
            look_every: address.look_every,
            address: Some(address),
            is_tried: Arc::default(),
        })
    }

    /// Returns the path of an object next to the leases, or of a lease.
    fn path(&self, name: &str) -> Path {
        let path = format!("{}/{name}", self.prefix);
        Path::parse(path).expect("a prefix and a name without letters that a path lacks")
    }

    /// Reads an object with its content.
    async fn get(&self, path: &Path) -> Result<Option<(Versioned, Vec<u8>)>, Failure> {
        let got = match self.store.get(path).await {
            Err(::object_store::Error::NotFound { .. }) => return Ok(None),
            got => got.map_err(failed)?,
        };
        let version = version(got.meta.e_tag.clone(), got.meta.version.clone())?;
        let written_at = written_at(&got.meta);
        let content = got.bytes().await.map_err(failed)?;
        let record = Record::from_text(&content)?;
        let versioned = Versioned::new(version, record, Some(written_at));
        Ok(Some((versioned, content.to_vec())))
    }

    /// Reads the note of the trial once, and tries the server out if there is none.
    async fn ensure_tried(&self) -> Result<(), Failure> {
        if !self.is_tried.load(Ordering::Relaxed) {
            let note = self.store.head(&self.path(trial::NOTE)).await;
            match note {
                Ok(_) => {}
                Err(::object_store::Error::NotFound { .. }) => {
                    self.try_out(trial::Extent::First).await?;
                }
                Err(error) => return Err(failed(error)),
            }
            self.is_tried.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Without the settings of the store, which may show secrets.
impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket")
            .field("location", &self.location)
            .finish_non_exhaustive()
    }
}

impl Register for Bucket {
    fn traits(&self) -> Traits {
        let grain = Duration::from_secs(1);
        let skew = self.skew;
        let mut traits = Traits::new("bucket", Expiry::Counted { skew, grain });
        // The crate deletes without a condition.
        traits.removes = false;
        traits.look_every = self.look_every;
        traits
    }

    fn location(&self) -> &dyn fmt::Display {
        &self.location
    }

    async fn read(&self, key: &str) -> Result<Seen, Failure> {
        let got = self.get(&self.path(&object_name(key))).await?;
        Ok(Seen::new(got.map(|(versioned, _)| versioned), None))
    }

    async fn put(
        &self,
        key: &str,
        on: Option<&Version>,
        record: &Record,
        _: Option<Duration>,
    ) -> Result<Put, Failure> {
        self.ensure_tried()
            .await
            .map_err(Failure::before_it_was_sent)?;
        let mode = on.map_or(PutMode::Create, |on| PutMode::Update(update(on)));
        let content = object::content(key, record).into();
        let path = self.path(&object_name(key));
        match self.store.put_opts(&path, content, mode.into()).await {
            Ok(put) => Ok(Put::Done(version(put.e_tag, put.version)?)),
            Err(error) if is_conflict(&error, on) => Ok(Put::Conflict),
            Err(error) => Err(failed(error)),
        }
    }

    async fn extend(
        &self,
        key: &str,
        on: &Version,
        record: &Record,
        lasts: Duration,
    ) -> Result<Put, Failure> {
        self.put(key, Some(on), record, Some(lasts)).await
    }

    async fn remove(&self, _: &str, _: &Version) -> Result<Put, Failure> {
        let what = "the bucket deletes without a condition";
        Err(Failure::answered(ErrorKind::Misconfigured, what))
    }

    async fn list(
        &self,
        prefix: &str,
        before: Option<Duration>,
    ) -> Result<Vec<(String, Versioned)>, Failure> {
        let folder = self.path(object::FOLDER);
        let listed = self.store.list(Some(&folder));
        let metas: Vec<_> = listed.try_collect().await.map_err(failed)?;
        let is_wanted = |meta: &::object_store::ObjectMeta| {
            let is_old = before.is_none_or(|before| written_at(meta) <= before);
            let known = meta.location.filename().and_then(key_of);
            is_old && known.is_none_or(|key| key.starts_with(prefix))
        };
        let reads = metas.into_iter().filter(is_wanted).map(async |meta| {
            let got = self.get(&meta.location).await?;
            let named = got.and_then(|(versioned, content)| {
                let key = meta.location.filename().and_then(key_of);
                let key = key.or_else(|| object::name_in(&content))?;
                key.starts_with(prefix).then_some((key, versioned))
            });
            Ok::<_, Failure>(named)
        });
        let reads: Vec<_> = reads.collect();
        let read: Vec<_> = stream::iter(reads)
            .buffer_unordered(READS)
            .try_collect()
            .await?;
        Ok(read.into_iter().flatten().collect())
    }

    /// The crate hides the `Date` of answers, so an object is written, and its time read.
    async fn time(&self) -> Result<Option<Duration>, Failure> {
        let path = self.path("clock");
        self.store.put(&path, "".into()).await.map_err(failed)?;
        let meta = self.store.head(&path).await.map_err(failed)?;
        Ok(Some(written_at(&meta)))
    }

    async fn notices(&self) -> Result<Option<Box<dyn Notices>>, Failure> {
        Ok(None)
    }

    async fn hazards(&self) -> Result<Vec<Hazard>, Failure> {
        hazards::all(self).await
    }

    async fn members(&self) -> Result<Vec<Member>, Failure> {
        let state = match self.store.head(&self.path(trial::NOTE)).await {
            Ok(_) | Err(::object_store::Error::NotFound { .. }) => MemberState::Up,
            Err(_) => MemberState::Down,
        };
        Ok(vec![Member::new(self.location.clone(), state)])
    }

    async fn on_own_connection(&self, _: Purpose) -> Result<Self, Failure> {
        let Some(address) = &self.address else {
            return Ok(self.clone());
        };
        let mut own = Self::at(address.clone()).await?;
        own.is_tried = self.is_tried.clone();
        Ok(own)
    }

    async fn close(&self) {}
}
