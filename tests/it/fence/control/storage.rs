//! Where the control's total is kept. The work between read and write is long, so each has a transaction of its own.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deadpool_redis::redis::{self, AsyncCommands};
use leasehold::Error;
use leasehold::fence::{self, Pass};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use serde::{Deserialize, Serialize};
use tokio_postgres::NoTls;

use crate::harness::bucket_server::bucket;

const RESOURCE: &str = "ledger";
const KEY: &str = "total:{ledger}";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Storage {
    Sqlite(PathBuf),
    Postgres(String),
    Redis(String),
    /// The URL of the bucket, and where the total is in it.
    Bucket(String, String),
}

impl Storage {
    /// A total of nothing.
    pub(super) async fn prepare(&self) {
        match self {
            Self::Sqlite(_) => {
                let connection = self.sqlite();
                sqlite_fence().create_table(&connection).expect("made");
                connection
                    .execute_batch(
                        "CREATE TABLE ledger (total INTEGER); INSERT INTO ledger VALUES (0)",
                    )
                    .expect("made");
            }
            Self::Postgres(_) => {
                let client = self.postgres().await;
                postgres_fence().create_table(&client).await.expect("made");
                client
                    .batch_execute(
                        "CREATE TABLE ledger (total BIGINT); INSERT INTO ledger VALUES (0)",
                    )
                    .await
                    .expect("made");
            }
            Self::Redis(_) => {
                let mut connection = self.redis().await;
                let () = redis::cmd("DEL")
                    .arg(KEY)
                    .arg(redis_fence().key())
                    .query_async(&mut connection)
                    .await
                    .expect("told");
                let () = connection.set(KEY, 0).await.expect("told");
            }
            Self::Bucket(..) => {}
        }
    }

    /// What it is in the end.
    pub(super) async fn total(&self) -> u64 {
        self.read(None).await.expect("read")
    }

    /// Reads the total, after raising the fence if there is one.
    pub(super) async fn read(&self, pass: Option<&Pass>) -> Result<u64, Error> {
        match self {
            Self::Sqlite(_) => {
                let mut connection = self.sqlite();
                if let Some(pass) = pass {
                    let raised = sqlite_fence().begin(&mut connection, pass)?;
                    raised.commit().expect("committed");
                }
                let total = connection
                    .query_row("SELECT total FROM ledger", [], |row| row.get::<_, i64>(0));
                Ok(total.expect("read").cast_unsigned())
            }
            Self::Postgres(_) => {
                let mut client = self.postgres().await;
                if let Some(pass) = pass {
                    let raised = postgres_fence().begin(&mut client, pass).await?;
                    raised.commit().await.expect("committed");
                }
                let row = client.query_one("SELECT total FROM ledger", &[]).await;
                Ok(row.expect("read").get::<_, i64>(0).cast_unsigned())
            }
            Self::Redis(_) => {
                let mut connection = self.redis().await;
                if let Some(pass) = pass {
                    redis_fence().raise(&mut connection, pass).await?;
                }
                Ok(connection.get(KEY).await.expect("read"))
            }
            Self::Bucket(..) => self.read_object(pass).await,
        }
    }

    /// Writes the total, under the fence if there is one.
    pub(super) async fn write(&self, total: u64, pass: Option<&Pass>) -> Result<(), Error> {
        match self {
            Self::Sqlite(_) => {
                let mut connection = self.sqlite();
                let transaction = match pass {
                    Some(pass) => sqlite_fence().begin(&mut connection, pass)?,
                    None => connection.transaction().expect("begun"),
                };
                let total = total.cast_signed();
                transaction
                    .execute("UPDATE ledger SET total = ?1", [total])
                    .expect("written");
                transaction.commit().expect("committed");
            }
            Self::Postgres(_) => {
                let mut client = self.postgres().await;
                let transaction = match pass {
                    Some(pass) => postgres_fence().begin(&mut client, pass).await?,
                    None => client.transaction().await.expect("begun"),
                };
                let total = total.cast_signed();
                transaction
                    .execute("UPDATE ledger SET total = $1", &[&total])
                    .await
                    .expect("written");
                transaction.commit().await.expect("committed");
            }
            Self::Redis(_) => {
                let mut connection = self.redis().await;
                let mut commands = redis::pipe();
                commands.set(KEY, total);
                match pass {
                    Some(pass) => {
                        redis_fence()
                            .write(&mut connection, pass, &commands)
                            .await?
                    }
                    None => commands
                        .query_async(&mut connection)
                        .await
                        .expect("written"),
                }
            }
            Self::Bucket(..) => match pass {
                Some(pass) => {
                    let fence = self.bucket_fence();
                    fence.commit(pass, |_| total.to_string()).await?;
                }
                None => {
                    let (bucket, plain) = self.bucket();
                    let put = bucket.put(&plain, total.to_string().into()).await;
                    put.expect("written");
                }
            },
        }
        Ok(())
    }

    /// Without a pass, it is that of the fenced object if there is one, and else that of a plain one.
    async fn read_object(&self, pass: Option<&Pass>) -> Result<u64, Error> {
        let fence = self.bucket_fence();
        let fenced = match pass {
            Some(pass) => Some(fence.raise(pass).await?),
            None => fence.read().await?,
        };
        let content = match fenced {
            Some(object) => object.content,
            None => {
                let (bucket, plain) = self.bucket();
                match bucket.get(&plain).await {
                    Ok(object) => object.bytes().await.expect("read"),
                    Err(object_store::Error::NotFound { .. }) => return Ok(0),
                    Err(error) => panic!("{error}"),
                }
            }
        };
        let text = std::str::from_utf8(&content).expect("text");
        Ok(if text.is_empty() {
            0
        } else {
            text.parse().expect("a total")
        })
    }

    fn sqlite(&self) -> rusqlite::Connection {
        let Self::Sqlite(path) = self else {
            panic!("{self:?} is no file");
        };
        let connection = rusqlite::Connection::open(path).expect("a local file");
        connection
            .busy_timeout(Duration::from_secs(5))
            .expect("a valid time");
        connection
    }

    async fn postgres(&self) -> tokio_postgres::Client {
        let Self::Postgres(url) = self else {
            panic!("{self:?} is no Postgres");
        };
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("it is up");
        tokio::spawn(connection);
        client
    }

    fn bucket(&self) -> (Arc<dyn ObjectStore>, Path) {
        let Self::Bucket(url, prefix) = self else {
            panic!("{self:?} is no bucket");
        };
        (bucket(url), Path::from(format!("{prefix}/plain")))
    }

    /// The fence of this process, which remembers what it wrote.
    fn bucket_fence(&self) -> fence::object_store::Fence {
        static FENCE: Mutex<Option<fence::object_store::Fence>> = Mutex::new(None);
        let Self::Bucket(url, prefix) = self else {
            panic!("{self:?} is no bucket");
        };
        let path = Path::from(format!("{prefix}/{RESOURCE}"));
        let mut fence = FENCE.lock().expect("no panic");
        fence.take_if(|fence| *fence.path() != path);
        let fresh = || fence::object_store::Fence::new(bucket(url), path).expect("valid");
        fence.get_or_insert_with(fresh).clone()
    }

    async fn redis(&self) -> redis::aio::MultiplexedConnection {
        let Self::Redis(url) = self else {
            panic!("{self:?} is no Redis");
        };
        let client = redis::Client::open(url.as_str()).expect("a valid URL");
        client
            .get_multiplexed_async_connection()
            .await
            .expect("it is up")
    }
}

fn sqlite_fence() -> fence::rusqlite::Fence {
    fence::rusqlite::Fence::new(RESOURCE).expect("valid")
}

fn postgres_fence() -> fence::tokio_postgres::Fence {
    fence::tokio_postgres::Fence::new(RESOURCE).expect("valid")
}

fn redis_fence() -> fence::redis::Fence {
    fence::redis::Fence::new(RESOURCE).expect("valid")
}
