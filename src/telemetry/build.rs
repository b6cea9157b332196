//! What was compiled in.

use metrics::gauge;

use super::table;

#[cfg(feature = "postgres")]
mod postgres {
    pub(super) const WORD: &str = "postgres";
}
#[cfg(not(feature = "postgres"))]
mod postgres {
    pub(super) const WORD: &str = "";
}

#[cfg(feature = "redis")]
mod redis {
    pub(super) const WORD: &str = "redis";
}
#[cfg(not(feature = "redis"))]
mod redis {
    pub(super) const WORD: &str = "";
}

#[cfg(feature = "sqlite")]
mod sqlite {
    pub(super) const WORD: &str = "sqlite";
}
#[cfg(not(feature = "sqlite"))]
mod sqlite {
    pub(super) const WORD: &str = "";
}

#[cfg(feature = "zookeeper")]
mod zookeeper {
    pub(super) const WORD: &str = "zookeeper";
}
#[cfg(not(feature = "zookeeper"))]
mod zookeeper {
    pub(super) const WORD: &str = "";
}

/// The stores that were compiled in, beside that in memory.
fn features() -> String {
    let mut words = vec![postgres::WORD, redis::WORD, sqlite::WORD, zookeeper::WORD];
    words.retain(|word| !word.is_empty());
    words.join(",")
}

/// Tells the recorder.
pub(super) fn tell() {
    let version = env!("CARGO_PKG_VERSION");
    gauge!(table::BUILD_INFO.name, "version" => version, "features" => features()).set(1.0);
}
