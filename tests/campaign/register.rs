//! The storage behind the leases: one register for each name, on a server of its own that keeps what it acknowledged,
//! in Redis or in a bucket.

use std::time::Duration;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{self, AsyncConnectionConfig, RedisError};
use leasehold::fence::Bearer;
use leasehold::fence::redis::Fence;
use leasehold::{Error, ErrorKind};

use crate::bucket::InBucket;
use crate::grounds::Site;
use crate::harness::bucket_server::{BucketServer, Program};
use crate::harness::redis_server::{RedisServer, Setup};
use crate::history::{Facts, Operation, Phase, Scribe};

/// How long a writer waits for storage.
const LIMIT: Duration = Duration::from_secs(2);

/// The server that has the registers.
pub(crate) enum Storage {
    Redis(RedisServer),
    Bucket(BucketServer),
}

impl Storage {
    /// Starts the one of the runs at this site.
    pub(crate) async fn start(site: Site) -> Self {
        match site {
            Site::Sqlite | Site::Postgres => Self::Bucket(BucketServer::start(Program::Moto).await),
            _ => {
                let setup = Setup::default().with(["--appendonly", "yes"]);
                Self::Redis(setup.with(["--appendfsync", "always"]).start().await)
            }
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(),
            Self::Bucket(server) => server.url(),
        }
    }

    /// Restarts it. The server of buckets keeps nothing across a restart, so it stands still instead.
    pub(crate) async fn restart(&mut self) {
        match self {
            Self::Redis(server) => {
                server.kill();
                server.start_again().await;
            }
            Self::Bucket(server) => {
                server.process.pause();
                tokio::time::sleep(LIMIT / 2).await;
                server.process.resume();
            }
        }
    }
}

/// The register of one name.
pub(crate) enum Register {
    Redis(InRedis),
    Bucket(InBucket),
}

/// One in Redis.
pub(crate) struct InRedis {
    key: String,
    fence: Fence,
    connection: Option<MultiplexedConnection>,
    url: String,
}

/// What came of a read or a write.
#[derive(Debug)]
pub(crate) struct Failed {
    /// `Refused` if the fence refused it or it never left, `Unknown` otherwise.
    pub(crate) phase: Phase,
    pub(crate) why: String,
}

impl Register {
    pub(crate) fn new(url: &str, name: &str) -> Self {
        if url.starts_with("http:") {
            return Self::Bucket(InBucket::new(url, name));
        }
        Self::Redis(InRedis {
            key: format!("register:{{{name}}}"),
            fence: Fence::new(name).expect("a valid name"),
            connection: None,
            url: url.into(),
        })
    }

    /// Reads the register, after raising the fence if there is a bearer.
    pub(crate) async fn read(
        &mut self,
        bearer: Option<&dyn Bearer>,
    ) -> Result<Option<String>, Failed> {
        match self {
            Self::Redis(register) => register.read(bearer).await,
            Self::Bucket(register) => register.read(bearer).await,
        }
    }

    /// Writes it, through the fence if there is a bearer.
    async fn write(&mut self, value: &str, bearer: Option<&dyn Bearer>) -> Result<(), Failed> {
        match self {
            Self::Redis(register) => register.write(value, bearer).await,
            Self::Bucket(register) => register.write(value, bearer).await,
        }
    }

    /// Writes the value of these facts, and notes it. Returns whether storage acknowledged it.
    pub(crate) async fn write_noted(
        &mut self,
        scribe: &Scribe,
        bearer: Option<&dyn Bearer>,
        facts: Facts,
    ) -> bool {
        let value = facts.value.clone().expect("a value");
        let call = scribe.invoke(Operation::Write, facts.clone());
        let outcome = self.write(&value, bearer).await;
        let (phase, facts) = match &outcome {
            Ok(()) => (Phase::Answer, facts),
            Err(failed) => (failed.phase, facts.with_detail(&failed.why)),
        };
        scribe.end(Operation::Write, phase, call, facts);
        outcome.is_ok()
    }
}

impl InRedis {
    async fn read(&mut self, bearer: Option<&dyn Bearer>) -> Result<Option<String>, Failed> {
        let (fence, key) = (self.fence.clone(), self.key.clone());
        let mut connection = self.connect().await?;
        let read = async {
            if let Some(bearer) = bearer {
                fence.raise(&mut connection, bearer).await?;
            }
            let mut get = redis::cmd("GET");
            let value = get.arg(&key).query_async(&mut connection).await;
            Ok::<_, Failed>(value?)
        };
        let outcome = read.await;
        self.keep(&outcome, connection);
        outcome
    }

    async fn write(&mut self, value: &str, bearer: Option<&dyn Bearer>) -> Result<(), Failed> {
        let mut commands = redis::pipe();
        commands.set(&self.key, value);
        let fence = self.fence.clone();
        let mut connection = self.connect().await?;
        let written = async {
            match bearer {
                Some(bearer) => {
                    fence
                        .write::<()>(&mut connection, bearer, &commands)
                        .await?
                }
                None => commands.query_async(&mut connection).await?,
            }
            Ok::<_, Failed>(())
        };
        let outcome = written.await;
        self.keep(&outcome, connection);
        outcome
    }

    async fn connect(&mut self) -> Result<MultiplexedConnection, Failed> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(LIMIT))
            .set_response_timeout(Some(LIMIT));
        let client = redis::Client::open(self.url.as_str()).expect("a valid URL");
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        connection.await.map_err(|error| Failed {
            phase: Phase::Refused,
            why: error.to_string(),
        })
    }

    /// A connection that failed is not used again.
    fn keep<T>(&mut self, outcome: &Result<T, Failed>, connection: MultiplexedConnection) {
        let is_sound = !matches!(outcome, Err(failed) if failed.phase == Phase::Unknown);
        self.connection = is_sound.then_some(connection);
    }
}

impl From<RedisError> for Failed {
    fn from(error: RedisError) -> Self {
        Self {
            phase: Phase::Unknown,
            why: error.to_string(),
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let phase = match error.kind() {
            // The two that say for certain that nothing was written.
            ErrorKind::Stale | ErrorKind::Lost => Phase::Refused,
            _ => Phase::Unknown,
        };
        Self {
            phase,
            why: error.to_string(),
        }
    }
}
