//! Leases as `Lease` objects of a Kubernetes namespace: a team that runs on Kubernetes runs nothing else for them.
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
//! `get`, `list`, `watch`, `create`, `patch` and `delete` on `leases` of `coordination.k8s.io` in the namespace. `doctor`
//! names those that are missing. Who has them can take any name.
//!
//! # Limits
//! Each renewal is a write to etcd: 100 leases of 30 s are ten writes a second. Where the API server limits its clients
//! (429), that is an outage as any other.

mod address;
mod connection;
mod failure;
mod hazards;
mod notices;
mod object;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube_client::Config;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use serde::Deserialize;
use serde_json::json;

use self::address::{Address, Location};
use self::connection::{Connection, Verb};
use self::object::{LABEL, Object, object_name, written};
use super::kit::subscription::Subscription;
use super::record::{
    Expiry, Failure, Put, Record, Records, Register, Seen, Traits, Version, Versioned,
};
use super::{Hazard, Member, MemberState, Notices, Purpose};
use crate::clock;
use crate::error::{Error, ErrorKind};

/// Time for which a connection is tried to be made.
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
    let namespace = address.namespace;
    let location = Location {
        cluster: config
            .cluster_url
            .authority()
            .map(ToString::to_string)
            .unwrap_or_default(),
        namespace: namespace.unwrap_or_else(|| config.default_namespace.clone()),
    };
    Ok(Records::new(Kubernetes {
        connection: Connection::new(config),
        location,
        skew: address.skew,
    }))
}

async fn config(address: &Address) -> Result<Config, Box<dyn std::error::Error + Send + Sync>> {
    let options = KubeConfigOptions {
        context: address.context.clone(),
        ..KubeConfigOptions::default()
    };
    match (&address.kubeconfig, &address.context) {
        (Some(path), _) => {
            let kubeconfig = Kubeconfig::read_from(path)?;
            Ok(Config::from_custom_kubeconfig(kubeconfig, &options).await?)
        }
        (None, Some(_)) => Ok(Config::from_kubeconfig(&options).await?),
        (None, None) => Ok(Config::infer().await?),
    }
}

/// A page of a list.
#[derive(Debug, Deserialize)]
struct Page {
    metadata: PageMetadata,
    items: Vec<Object>,
}

#[derive(Debug, Deserialize)]
struct PageMetadata {
    #[serde(default)]
    r#continue: String,
}

#[derive(Debug, Deserialize)]
struct ServerVersion {
    #[serde(rename = "gitVersion")]
    git_version: String,
}

impl Kubernetes {
    /// Returns the path of an object, or of all of them.
    fn path(&self, object: &str) -> String {
        let namespace = &self.location.namespace;
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        match object {
            "" => path,
            _ => format!("{path}/{object}"),
        }
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

    // Without a version in the request: the answer is that of a quorum of etcd.
    async fn read(&self, key: &str) -> Result<Seen, Failure> {
        let path = self.path(&object_name(key));
        let reply = self.connection.ask::<Object>(&path, Verb::Get).await?;
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
        let reply = match on {
            Some(_) => {
                let path = self.path(&object_name(key));
                self.connection
                    .ask::<Object>(&path, Verb::Patch(&body))
                    .await?
            }
            None => {
                self.connection
                    .ask(&self.path(""), Verb::Create(&body))
                    .await?
            }
        };
        match reply.found {
            Some(object) => Ok(Put::Done(object.versioned(key)?.version)),
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
        let removed = self
            .connection
            .ask::<serde_json::Value>(&path, Verb::Delete(&options));
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
            let label = LABEL.replace('/', "%2F").replace('=', "%3D");
            let path = self.path("");
            let path = format!("{path}?labelSelector={label}&limit={PAGE}&continue={from}");
            let page = self.connection.ask::<Page>(&path, Verb::Get).await?.found;
            let Some(page) = page else {
                return Ok(listed);
            };
            for object in page.items {
                let key = object.key().to_owned();
                if key.starts_with(prefix) {
                    let record = object.versioned(&key)?;
                    if before.is_none_or(|before| record.written_at <= Some(before)) {
                        listed.push((key, record));
                    }
                }
            }
            from = page.metadata.r#continue;
            if from.is_empty() {
                return Ok(listed);
            }
        }
    }

    async fn time(&self) -> Result<Option<Duration>, Failure> {
        let version = self.connection.ask::<ServerVersion>("/version", Verb::Get);
        Ok(version.await?.time)
    }

    async fn notices(&self) -> Result<Option<Box<dyn Notices>>, Failure> {
        if !self.may("watch").await? {
            return Ok(None);
        }
        let leases = Arc::new(self.another());
        let listening = async |wanted| {
            let listener = tokio::spawn(notices::listen(leases, wanted));
            Ok::<_, Failure>(listener.abort_handle())
        };
        let subscription = Subscription::start(listening).await?;
        Ok(Some(Box::new(subscription)))
    }

    async fn hazards(&self) -> Result<Vec<Hazard>, Failure> {
        self.missing_rights().await
    }

    async fn members(&self) -> Result<Vec<Member>, Failure> {
        let version = self.connection.ask::<ServerVersion>("/version", Verb::Get);
        let (state, version) = match version.await {
            Ok(reply) => (MemberState::Up, reply.found),
            Err(_) => (MemberState::Down, None),
        };
        let version = version.map(|version| format!("Kubernetes {}", version.git_version));
        let member = Member::new(self.location.cluster.clone(), state);
        Ok(vec![member.with_version(version)])
    }

    async fn on_own_connection(&self, _: Purpose) -> Result<Self, Failure> {
        let own = self.another();
        // Made here, on the calling runtime.
        own.connection.client()?;
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
