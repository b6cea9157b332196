//! The obvious fence, which is none: the token stands in the object's metadata, and each put is conditional on the tag. On S3
//! the tag is a hash of the bytes, so a raise that writes the same bytes leaves it as it was.

use std::sync::Arc;

use leasehold::fence::object_store::Fence;
use object_store::path::Path;
use object_store::{
    Attribute, Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion,
};

use crate::fence::pass;

const ROUNDS: u64 = 20;

/// An object whose token is in its metadata.
struct TagAlone {
    store: Arc<dyn ObjectStore>,
    path: Path,
}

/// What a holder read.
struct Seen {
    token: u64,
    content: String,
    version: UpdateVersion,
}

impl TagAlone {
    async fn create(&self, content: &str) {
        let options = tagged(0, PutMode::Create);
        let put = self
            .store
            .put_opts(&self.path, content.to_owned().into(), options);
        put.await.expect("created");
    }

    async fn read(&self) -> Seen {
        let answer = self.store.get(&self.path).await.expect("it is there");
        let token = answer.attributes.get(&Attribute::Metadata("token".into()));
        let token = token.expect("it has a token").parse().expect("a number");
        let (e_tag, version) = (answer.meta.e_tag.clone(), answer.meta.version.clone());
        let bytes = answer.bytes().await.expect("read");
        Seen {
            token,
            content: String::from_utf8(bytes.to_vec()).expect("text"),
            version: UpdateVersion { e_tag, version },
        }
    }

    /// Writes, if no greater token was seen and the object is still the one that was seen.
    async fn write(&self, seen: &Seen, token: u64, content: &str) -> Result<(), Error> {
        assert!(seen.token <= token, "a holder that is told stops");
        let options = tagged(token, PutMode::Update(seen.version.clone()));
        let put = self
            .store
            .put_opts(&self.path, content.to_owned().into(), options);
        put.await.map(drop)
    }

    /// Writes the token alone.
    async fn raise(&self, token: u64) -> Seen {
        let seen = self.read().await;
        let content = seen.content.clone();
        self.write(&seen, token, &content).await.expect("raised");
        self.read().await
    }
}

fn tagged(token: u64, mode: PutMode) -> PutOptions {
    let key = Attribute::Metadata("token".into());
    PutOptions {
        attributes: [(key, token.to_string())].into_iter().collect(),
        mode,
        ..PutOptions::default()
    }
}

/// A holder reads, and is paused before its write. A successor raises, and reads. Then the holder writes. Returns in how many
/// rounds that write was accepted, and so changed what the successor had read.
async fn stale_writes_by_tag_alone(store: &Arc<dyn ObjectStore>) -> u64 {
    let mut accepted = 0;
    for round in 0..ROUNDS {
        let path = Path::from(format!("tag-alone/{}/{round}", uuid()));
        let object = TagAlone {
            store: store.clone(),
            path,
        };
        object.create("7").await;
        let paused = object.raise(1).await;
        let read = object.raise(2).await;
        let written = object.write(&paused, 1, "stale").await;
        let is_changed = object.read().await.content != read.content;
        assert_eq!(written.is_ok(), is_changed, "{written:?}");
        accepted += u64::from(is_changed);
    }
    accepted
}

/// The same with the guard; the paused holder goes on from what it remembers.
async fn stale_writes_by_the_guard(store: &Arc<dyn ObjectStore>) -> u64 {
    let mut accepted = 0;
    for round in 0..ROUNDS {
        let path = Path::from(format!("guarded/{}/{round}", uuid()));
        let fence = || Fence::new(store.clone(), path.clone()).expect("a valid path");
        let (paused, successor) = (fence(), fence());
        paused.commit(&pass(1, 1), |_| "7").await.expect("written");
        let read = successor.raise(&pass(2, 2)).await.expect("raised");
        let written = paused.commit(&pass(1, 1), |_| "stale").await;
        let now = successor.read().await.expect("read").expect("it is there");
        assert_eq!(written.is_ok(), now.content != read.content, "{written:?}");
        accepted += u64::from(written.is_ok());
    }
    accepted
}

fn uuid() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// The control and the guard on this server.
pub(crate) async fn compare(server: &str, store: Arc<dyn ObjectStore>) {
    let by_tag = stale_writes_by_tag_alone(&store).await;
    let by_guard = stale_writes_by_the_guard(&store).await;
    println!(
        "{server}: of {ROUNDS} stale writes after a raise {by_tag} were accepted by the tag alone, {by_guard} by the guard"
    );
    assert_eq!(by_tag, ROUNDS, "the control loses");
    assert_eq!(by_guard, 0);
}
