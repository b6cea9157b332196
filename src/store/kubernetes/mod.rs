//! Leases as `Lease` objects of a Kubernetes namespace: a team on Kubernetes needs no further service.
//!
//! ```no_run
//! # #[tokio::main]
//! # async fn main() -> Result<(), leasehold::Error> {
//! use leasehold::{Client, store::kubernetes};
//!
//! let store = kubernetes::open("kubernetes:jobs").await?;
//! let client = Client::builder().store(store).build().await?;
//! let lease = client.acquire("nightly").await?;
//! # drop(lease);
//! # Ok(())
//! # }
//! ```
//!
//! The protocol is that of [`record`](super::record), with a grace of the clocks' [skew](#urls) and two seconds. The
//! wire, and how objects are shared with client-go, is in `README.md` next to the sources.
//!
//! # URLs
//! `kubernetes:NAMESPACE?PARAMETERS`. Without a namespace it is that of the context, and in a pod that of the pod.
//!
//! | parameter | meaning | default |
//! |---|---|---|
//! | `kubeconfig` | path of the kubeconfig | `$KUBECONFIG` or `~/.kube/config`; in a pod without one its service account |
//! | `context` | context of the kubeconfig | its current context |
//! | `skew` | the most by which the clocks of the API servers differ | `10s` |
//!
//! # Rights
//! `get`, `list`, `watch`, `create`, `patch` and `delete` on `leases` of `coordination.k8s.io` in the namespace.
//! `doctor` names those that are missing. Who has them can take any name.
//!
//! # Limits
//! Each renewal is a write to etcd: 100 leases of 30 s are ten writes a second. If the API server limits its clients
//! (429), that counts as an outage.

mod address;
mod connection;
mod failure;
mod hazards;
mod notices;
mod object;

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use kube_client::Config;
use kube_client::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube_client::core::ObjectList;
use serde::Deserialize;
use serde_json::{Value, json};

use self::address::{Address, Location};
use self::connection::{Connection, Reply, Verb};
use self::object::{LABEL, LeaseObject, RESOURCE, object_name, written};
use super::kit::backend::Failing as _;
use super::kit::watches;
use super::record::{
    Expiry, Failure, Put, Record, Records, Register, Seen, Traits, Version, Versioned,
};
use super::{Hazard, Member, MemberState, Notices, Purpose, Sent};
use crate::clock;
use crate::error::{Error, ErrorKind};
use crate::percent::encode;

/// Time limit for a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of objects in one answer to a list.
const PAGE: usize = 500;

/// The `Lease` objects of a namespace.
#[derive(Debug)]
pub struct Kubernetes {
    connection: Connection,
    location: Location,
    skew: Duration,
}

/// Opens the leases of a namespace. It reads the kubeconfig or the files of the pod, and asks no server.
///
/// # Errors
/// `Invalid` for a URL out of order; `Misconfigured` if the credentials cannot be read.
///
/// # Cancel safety
/// Dropping the future leaves nothing behind.
pub async fn open(url: &str) -> Result<Records<Kubernetes>, Error> {
    let address = Address::parse(url)?;
    let mut config = config(&address).await.map_err(|source| {
        let what = "open failed: no credentials for a cluster were found store=kubernetes";
        Error::new(ErrorKind::Misconfigured, what).with_source(source)
    })?;
    // A repeated put could meet its own effect, and be taken for a conflict.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    let location = Location::new(&address, &config)?;
    Ok(Records::new(Kubernetes {
        connection: Connection::new(config),
        location,
        skew: address.skew,
    }))
}

/// Reads the credentials. The pod's are taken only where nothing names a kubeconfig and there is none.
async fn config(address: &Address) -> Result<Config, Box<dyn StdError + Send + Sync>> {
    let options = KubeConfigOptions {
        context: address.context.clone(),
        ..KubeConfigOptions::default()
    };
    let found = match &address.kubeconfig {
        Some(path) => match Kubeconfig::read_from(path) {
            Ok(kubeconfig) => Config::from_custom_kubeconfig(kubeconfig, &options).await,
            Err(error) => Err(error),
        },
        None => Config::from_kubeconfig(&options).await,
    };
    let is_named = address.kubeconfig.is_some()
        || address.context.is_some()
        || std::env::var_os("KUBECONFIG").is_some_and(|path| !path.is_empty());
    match found {
        Err(error) if !is_named && is_absent(&error) => Ok(Config::incluster()?),
        found => found.map_err(failure::of_kubeconfig),
    }
}

fn is_absent(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(error, _) => error.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}

/// The part of an object that is read after a write: a failure to read the rest would hide that the write succeeded.
#[derive(Debug, Deserialize)]
struct Written {
    metadata: WrittenMetadata,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMetadata {
    resource_version: Version,
}

impl Kubernetes {
    /// Returns the path of an object, or of all of them.
    fn path(&self, object: &str) -> String {
        let namespace = &self.location.namespace;
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/{RESOURCE}");
        match object {
            "" => path,
            _ => format!("{path}/{object}"),
        }
    }

    /// Asks for the server's version, which every account may read.
    async fn version(&self) -> Result<Reply<Value>, Failure> {
        self.connection.ask("/version", Verb::Get).await
    }
}

impl Register for Kubernetes {
    fn traits(&self) -> Traits {
        let grain = Duration::from_secs(1);
        let skew = self.skew;
        let mut traits = Traits::new("kubernetes", Expiry::Counted { skew, grain });
        traits.has_notices = true;
        traits
    }

    fn location(&self) -> &dyn fmt::Display {
        &self.location
    }

    // Without a version in the request, so that a quorum of etcd answers.
    async fn read(&self, key: &str) -> Result<Seen, Failure> {
        let path = self.path(&object_name(key));
        let reply = self.connection.ask::<LeaseObject>(&path, Verb::Get).await?;
        let record = reply
            .found
            .map(|object| object.versioned(key))
            .transpose()?;
        Ok(Seen::new(record, reply.time))
    }

    async fn put(
        &self,
        key: &str,
        on: Option<&Version>,
        record: &Record,
        _: Option<Duration>,
    ) -> Result<Put, Failure> {
        let now = Duration::from_micros(clock::wall_clock_us());
        let body = written(key, on.map(String::as_str), record, now);
        let (path, verb) = match on {
            Some(_) => (self.path(&object_name(key)), Verb::Patch(&body)),
            None => (self.path(""), Verb::Create(&body)),
        };
        let reply = self.connection.ask::<Written>(&path, verb).await?;
        match reply.found {
            Some(object) => Ok(Put::Done(object.metadata.resource_version)),
            None => Ok(Put::Conflict),
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

    async fn remove(&self, key: &str, on: &Version) -> Result<Put, Failure> {
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": { "resourceVersion": on },
        });
        let path = self.path(&object_name(key));
        let removed = self.connection.ask::<Value>(&path, Verb::Delete(&options));
        match removed.await?.found {
            Some(_) => Ok(Put::Done(on.clone())),
            None => Ok(Put::Conflict),
        }
    }

    async fn list(
        &self,
        prefix: &str,
        before: Option<Duration>,
    ) -> Result<Vec<(String, Versioned)>, Failure> {
        let mut listed = Vec::new();
        let mut from = String::new();
        loop {
            let (path, label) = (self.path(""), encode(LABEL));
            let from_here = encode(&from);
            let path = format!("{path}?labelSelector={label}&limit={PAGE}&continue={from_here}");
            let page = self
                .connection
                .ask::<ObjectList<LeaseObject>>(&path, Verb::Get)
                .await?
                .found;
            let Some(page) = page else {
                return Ok(listed);
            };
            for object in page.items {
                let key = object.key().to_owned();
                if key.starts_with(prefix) && object.is_of_its_key() {
                    let record = object.versioned(&key)?;
                    if before.is_none_or(|before| record.written_at <= Some(before)) {
                        listed.push((key, record));
                    }
                }
            }
            from = page.metadata.continue_.unwrap_or_default();
            if from.is_empty() {
                return Ok(listed);
            }
        }
    }

    async fn time(&self) -> Result<Option<Duration>, Failure> {
        Ok(self.version().await?.time)
    }

    async fn notices(&self) -> Result<Option<Box<dyn Notices>>, Failure> {
        // Who may not even ask, may not watch either.
        match self.may("watch").await {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(failure) if failure.kind() == ErrorKind::Denied => return Ok(None),
            Err(failure) => return Err(failure),
        }
        let leases = Arc::new(self.another());
        let subscription = watches::subscribe(leases, notices::watch).await;
        Ok(Some(Box::new(subscription)))
    }

    async fn hazards(&self) -> Result<Vec<Hazard>, Failure> {
        self.all_hazards().await
    }

    async fn members(&self) -> Result<Vec<Member>, Failure> {
        let (state, version) = match self.version().await {
            Ok(reply) => (MemberState::Up, reply.found),
            Err(failure) if failure.sent() == Sent::Answered => (MemberState::Up, None),
            Err(_) => (MemberState::Down, None),
        };
        let version = version.unwrap_or_default();
        let version = version["gitVersion"].as_str();
        let version = version.map(|version| format!("Kubernetes {version}"));
        let member = Member::new(self.location.cluster.clone(), state);
        Ok(vec![member.with_version(version)])
    }

    async fn on_own_connection(&self, _: Purpose) -> Result<Self, Failure> {
        let own = self.another();
        // Made here, on the calling runtime.
        own.connection.client().await?;
        Ok(own)
    }

    async fn close(&self) {}
}

impl Kubernetes {
    fn another(&self) -> Self {
        Self {
            connection: self.connection.another(),
            location: self.location.clone(),
            skew: self.skew,
        }
    }
}
