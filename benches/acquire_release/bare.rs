//! The scripts without the library.

use std::sync::Arc;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Script, Value};
use leasehold::{ClientId, Holder};

/// The information about the holder.
pub(crate) const INFO: &str = r#"{"host":"bench","pid":1}"#;

/// The bare scripts, with keys built beforehand.
#[derive(Clone)]
pub(crate) struct Bare {
    connection: MultiplexedConnection,
    pub(crate) acquire: Arc<Script>,
    pub(crate) release: Arc<Script>,
    /// Those of both scripts.
    pub(crate) keys: [String; 5],
    pub(crate) client: ClientId,
}

impl Bare {
    pub(crate) fn new(connection: MultiplexedConnection, name: &str) -> Self {
        Self {
            connection,
            acquire: Arc::new(Script::new(concat!(
                include_str!("../../src/store/redis/protocol/lease.lua"),
                include_str!("../../src/store/redis/protocol/grant.lua"),
                include_str!("../../src/store/redis/protocol/queue.lua"),
                include_str!("../../src/store/redis/protocol/origin.lua"),
                include_str!("../../src/store/redis/protocol/node.lua"),
                include_str!("../../src/store/redis/protocol/acquire.lua")
            ))),
            release: Arc::new(Script::new(concat!(
                include_str!("../../src/store/redis/protocol/lease.lua"),
                include_str!("../../src/store/redis/protocol/grant.lua"),
                include_str!("../../src/store/redis/protocol/queue.lua"),
                include_str!("../../src/store/redis/protocol/release.lua")
            ))),
            keys: [
                format!("leasehold:{{{name}}}"),
                // The mark of this name alone, where our client uses that of the slot: its length is the same.
                format!("leasehold:{{{name}}}:mark"),
                format!("leasehold:{{{name}}}:queue"),
                format!("leasehold:{{{name}}}:waiting"),
                "leasehold:node".into(),
            ],
            client: ClientId::draw(),
        }
    }

    pub(crate) async fn pair(&mut self) {
        let holder = self.acquire().await;
        self.release(&holder).await;
    }

    /// Returns the holder.
    pub(crate) async fn acquire(&mut self) -> String {
        let holder = Holder::draw(self.client).expect("random bits").to_string();
        let mut script = self.acquire.key(&self.keys[..]);
        let script = script.arg(&holder).arg(30_000).arg(0).arg(INFO);
        let granted: Value = script
            .invoke_async(&mut self.connection)
            .await
            .expect("the script runs");
        assert!(is_tagged(&granted, "granted"), "{granted:?}");
        holder
    }

    pub(crate) async fn release(&mut self, holder: &str) {
        let mut script = self.release.key(&self.keys[..]);
        let script = script.arg(holder).arg(0);
        let released: Value = script
            .invoke_async(&mut self.connection)
            .await
            .expect("the script runs");
        assert!(is_tagged(&released, "released"), "{released:?}");
    }
}

fn is_tagged(reply: &Value, tag: &str) -> bool {
    matches!(reply, Value::BulkString(text) if text.split(|byte| *byte == b' ').next() == Some(tag.as_bytes()))
}
