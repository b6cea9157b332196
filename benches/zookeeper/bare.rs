//! The least that a lease in ZooKeeper can be: an ephemeral node, made and deleted. It has no token, no ttl of its own, and
//! no information about its holder.

use zookeeper_client as zk;

/// A session with the server.
pub(crate) struct Bare(zk::Client);

impl Bare {
    pub(crate) async fn connect(cluster: &str) -> Self {
        Self(zk::Client::connect(cluster).await.expect("it serves"))
    }

    /// Makes the node and deletes it.
    pub(crate) async fn pair(&self, name: &str) {
        let options = zk::CreateMode::Ephemeral.with_acls(zk::Acls::anyone_all());
        let path = format!("/{name}");
        self.0.create(&path, b"", &options).await.expect("made");
        self.0.delete(&path, None).await.expect("deleted");
    }

    /// Makes this many nodes.
    pub(crate) async fn make(&self, count: usize) {
        let options = zk::CreateMode::Ephemeral.with_acls(zk::Acls::anyone_all());
        for index in 0..count {
            let path = format!("/renewed-{index}");
            self.0.create(&path, b"", &options).await.expect("made");
        }
    }

    /// Writes all of them, in transactions of this many.
    pub(crate) async fn renew(&self, count: usize, batch: usize) {
        let batches = (0..count).step_by(batch).map(|first| async move {
            let mut writer = self.0.new_multi_writer();
            for index in first..(first + batch).min(count) {
                let path = format!("/renewed-{index}");
                writer.add_set_data(&path, b"30000", None).expect("a path");
            }
            writer.commit().await.expect("written");
        });
        futures_util::future::join_all(batches).await;
    }
}
