//! The closed sets of label values: each value is a variant here, so no other word can appear in metrics.

use crate::words::words;

words! {
    /// Why a call to acquire asked the store.
    pub(crate) enum Trigger {
        /// The call began.
        First = "first",
        /// A notice came, or the waiter before it left.
        Notice = "notice",
        /// The holder's time was over, or it was time to poll again.
        Timer = "timer",
        /// The request before it failed, or its grant was of no use.
        Retry = "retry",
    }
}

words! {
    /// A call to a store.
    pub(crate) enum StoreCall {
        Acquire = "acquire",
        Renew = "renew",
        Release = "release",
        Inspect = "inspect",
        List = "list",
        Evict = "evict",
    }
}

words! {
    /// The purpose of a connection to a store.
    pub(crate) enum ConnectionPurpose {
        Requests = "requests",
        Watchdog = "watchdog",
        Notices = "notices",
    }
}

words! {
    /// Whether a server of a store takes part.
    pub(crate) enum ServerState {
        Up = "up",
        Away = "away",
        Down = "down",
    }
}

words! {
    /// Whether enough replicas have what was written.
    pub(crate) enum AckOutcome {
        Acknowledged = "acknowledged",
        Missing = "missing",
    }
}

words! {
    /// The guard of storage that checked a pass.
    pub(crate) enum FenceKind {
        Gate = "gate",
        Http = "http",
        MysqlAsync = "mysql_async",
        ObjectStore = "object_store",
        Redis = "redis",
        Rusqlite = "rusqlite",
        Sqlx = "sqlx",
        TokioPostgres = "tokio_postgres",
        /// A guard that this crate does not know.
        Other = "other",
    }
}
