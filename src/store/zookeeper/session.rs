//! One session: the few requests that this store sends through the client crate, which no other file names.
//!
//! A request that is made while the crate is disconnected waits in a queue from which it cannot be removed, and is sent
//! after the next connect. So each request is preceded by a check of [`Session::is_connected`].

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use zookeeper_client as zk;

use super::address::Address;
use super::failure::Failure;
use super::stamp::Stamp;
use crate::telemetry::ConnectionGauge;

/// The bounds of the time after which a silent server is given up for another one.
const SILENT_LEAST: Duration = Duration::from_millis(400);
const SILENT_MOST: Duration = Duration::from_secs(4);

/// A session with the ensemble, which outlives its connections.
pub(super) struct Session {
    client: zk::Client,
    acls: zk::Acls<'static>,
    /// A task on the runtime that keeps the session alive: without that runtime the crate no longer reports its state.
    home: AbortHandle,
    /// Cancelled with that task.
    is_orphan: CancellationToken,
}

/// What the server reports about a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stat {
    /// The stamp of the last change of its data.
    pub(super) stamp: Stamp,
    /// The number of the last change of its data or its children.
    pub(super) zxid: i64,
    pub(super) created_ms: u64,
    pub(super) version: i32,
    /// The session with which the node ends; 0 if it ends with none.
    pub(super) owner: i64,
}

/// How a node is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Persistent,
    /// Ends with our session.
    Ephemeral,
    /// Ends with our session; the server adds a number to its path.
    Numbered,
    /// Removed by the server some time after its last child.
    Container,
}

/// One step of a transaction.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Create(String, Vec<u8>, Mode),
    /// Writes the data; with a version, only if the node has it.
    Set(String, Vec<u8>, Option<i32>),
    Delete(String, Option<i32>),
}

/// A transaction was not carried out.
#[derive(Debug)]
pub(super) struct Aborted {
    /// The step that failed, if the server names it.
    pub(super) step: Option<usize>,
    pub(super) failure: Failure,
}

impl Session {
    /// Makes a session on the calling runtime, which keeps it alive from then on.
    pub(super) async fn connect(
        address: &Address,
        timeout: Duration,
        gauge: Arc<ConnectionGauge>,
    ) -> Result<Self, Failure> {
        let mut connector = zk::Client::connector()
            .with_session_timeout(timeout)
            .with_connection_timeout((timeout / 10).clamp(SILENT_LEAST, SILENT_MOST));
        let mut acls = zk::Acls::anyone_all();
        if let Some(login) = address.login() {
            connector = connector.with_auth("digest", login.as_bytes());
            acls = zk::Acls::creator_all();
        }
        let client = connector.connect(&address.cluster()).await;
        let client = client.map_err(|error| match failure(&error) {
            // No request was sent before.
            Failure::Broken(why) => {
                tracing::debug!(store = %address, why, "no session made");
                Failure::NotReached
            }
            other => other,
        })?;
        let is_orphan = CancellationToken::new();
        let guard = is_orphan.clone().drop_guard();
        let states = client.state_watcher();
        let home = tokio::spawn(async move {
            let _guard = guard;
            note_states(states, &gauge).await;
            std::future::pending::<()>().await;
        });
        Ok(Self {
            client,
            acls,
            home: home.abort_handle(),
            is_orphan,
        })
    }

    pub(super) fn id(&self) -> i64 {
        self.client.session_id().0
    }

    /// Returns for how long the servers keep the session without hearing from it, as negotiated with them.
    pub(super) fn timeout(&self) -> Duration {
        self.client.session_timeout()
    }

    pub(super) fn is_connected(&self) -> bool {
        self.client.state() == zk::SessionState::SyncConnected && !self.is_orphan.is_cancelled()
    }

    /// Returns whether the session is over, so that another one has to be made.
    pub(super) fn is_over(&self) -> bool {
        self.client.state().is_terminated() || self.is_orphan.is_cancelled()
    }

    /// Waits until the session is connected or over.
    pub(super) async fn settled(&self) {
        let mut states = self.client.state_watcher();
        while !self.is_connected() && !self.is_over() {
            tokio::select! {
                _ = states.changed() => {}
                () = self.is_orphan.cancelled() => {}
            }
        }
    }

    /// Ends the session. The future completes when the session is over.
    pub(super) fn end(self) -> impl Future<Output = ()> + Send {
        let mut states = self.client.state_watcher();
        drop(self);
        async move {
            while !states.peek_state().is_terminated() {
                states.changed().await;
            }
        }
    }

    pub(super) async fn children(&self, path: &str) -> Result<(Vec<String>, Stat), Failure> {
        let (children, stat) = self.client.get_children(path).await.map_err(of)?;
        Ok((children, stat.into()))
    }

    pub(super) async fn data(&self, path: &str) -> Result<(Vec<u8>, Stat), Failure> {
        let (data, stat) = self.client.get_data(path).await.map_err(of)?;
        Ok((data, stat.into()))
    }

    pub(super) async fn is_there(&self, path: &str) -> Result<bool, Failure> {
        let stat = self.client.check_stat(path).await.map_err(of)?;
        Ok(stat.is_some())
    }

    /// Makes the server catch up with its leader before it answers later requests.
    pub(super) async fn sync(&self, path: &str) -> Result<(), Failure> {
        self.client.sync(path).await.map_err(of)
    }

    pub(super) async fn set(&self, path: &str, data: &[u8]) -> Result<Stat, Failure> {
        let stat = self.client.set_data(path, data, None).await.map_err(of)?;
        Ok(stat.into())
    }

    /// Makes a node, unless it exists.
    pub(super) async fn ensure(&self, path: &str) -> Result<(), Failure> {
        let options = zk::CreateMode::Persistent.with_acls(self.acls);
        match self.client.create(path, b"", &options).await {
            Ok(_) | Err(zk::Error::NodeExists) => Ok(()),
            Err(error) => Err(failure(&error)),
        }
    }

    /// Does all steps or none. Returns the stat of the node that each `Set` wrote; the stats of other steps are of no
    /// use, because the server fills them with arbitrary values.
    pub(super) async fn transact(&self, steps: &[Change]) -> Result<Vec<Option<Stat>>, Aborted> {
        let written = self.write(steps).map_err(|error| Aborted {
            step: None,
            failure: failure(&error),
        })?;
        let results = written.await.map_err(|error| match error {
            zk::MultiWriteError::RequestFailed { source } => Aborted {
                step: None,
                failure: failure(&source),
            },
            zk::MultiWriteError::OperationFailed { index, source } => Aborted {
                step: Some(index),
                failure: failure(&source),
            },
        })?;
        let stats = results.into_iter().map(|result| match result {
            zk::MultiWriteResult::SetData { stat } => Some(stat.into()),
            _ => None,
        });
        Ok(stats.collect())
    }

    fn write(
        &self,
        steps: &[Change],
    ) -> Result<
        impl Future<Output = Result<Vec<zk::MultiWriteResult>, zk::MultiWriteError>> + Send + '_,
        zk::Error,
    > {
        let mut writer = self.client.new_multi_writer();
        for step in steps {
            match step {
                Change::Create(path, data, mode) => {
                    let mode = match mode {
                        Mode::Persistent => zk::CreateMode::Persistent,
                        Mode::Ephemeral => zk::CreateMode::Ephemeral,
                        Mode::Numbered => zk::CreateMode::EphemeralSequential,
                        Mode::Container => zk::CreateMode::Container,
                    };
                    writer.add_create(path, data, &mode.with_acls(self.acls))?;
                }
                Change::Set(path, data, version) => writer.add_set_data(path, data, *version)?,
                Change::Delete(path, version) => writer.add_delete(path, *version)?,
            }
        }
        Ok(writer.commit())
    }

    /// The same as [`children`](Self::children), with a future that ends when they change, the node is deleted or the
    /// session ends.
    pub(super) async fn watch_children(
        &self,
        path: &str,
    ) -> Result<(Stat, impl Future<Output = ()> + Send + 'static), Failure> {
        let watched = self.client.get_and_watch_children(path).await;
        let (_, stat, watch) = watched.map_err(of)?;
        Ok((stat.into(), async move { drop(watch.changed().await) }))
    }

    /// Returns whether the node exists, with a future that ends when it is created, changed or deleted, or the session
    /// ends.
    pub(super) async fn watch_presence(
        &self,
        path: &str,
    ) -> Result<(bool, impl Future<Output = ()> + Send + 'static), Failure> {
        let watched = self.client.check_and_watch_stat(path).await;
        let (stat, watch) = watched.map_err(of)?;
        Ok((stat.is_some(), async move { drop(watch.changed().await) }))
    }

    /// Returns the configured servers of the ensemble; an empty text if it is one server without a configuration.
    pub(super) async fn ensemble(&self) -> Result<String, Failure> {
        let (data, _) = self.client.get_config().await.map_err(of)?;
        Ok(String::from_utf8_lossy(&data).into_owned())
    }
}

/// Keeps the metrics up to date about whether the session is connected, until it is over.
async fn note_states(mut states: zk::StateWatcher, gauge: &ConnectionGauge) {
    loop {
        match states.changed().await {
            zk::SessionState::SyncConnected => gauge.made(),
            // The store ended it.
            zk::SessionState::Closed => return,
            state => {
                gauge.lost();
                if state.is_terminated() {
                    return;
                }
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.home.abort();
    }
}

impl From<zk::Stat> for Stat {
    fn from(stat: zk::Stat) -> Self {
        Self {
            stamp: Stamp {
                ms: u64::try_from(stat.mtime).unwrap_or_default(),
                zxid: stat.mzxid,
            },
            zxid: stat.mzxid.max(stat.pzxid),
            created_ms: u64::try_from(stat.ctime).unwrap_or_default(),
            version: stat.version,
            owner: stat.ephemeral_owner,
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn of(error: zk::Error) -> Failure {
    failure(&error)
}

fn failure(error: &zk::Error) -> Failure {
    use zk::Error as E;
    match error {
        E::NoNode => Failure::NoNode,
        E::BadVersion | E::NodeExists | E::NotEmpty => Failure::Changed,
        E::NoAuth => Failure::Denied(error.to_string()),
        E::AuthFailed => Failure::LockedOut(error.to_string()),
        E::InvalidAcl
        | E::QuotaExceeded
        | E::NotReadOnly
        | E::Unimplemented
        | E::MarshallingError
        | E::NoChildrenForEphemerals
        | E::BadArguments(_) => Failure::Unable(error.to_string()),
        // Lost connections come in three shapes, and an ended session in more; all of them leave the outcome open.
        _ => Failure::Broken(error.to_string()),
    }
}
