//! The closed sets of label values: each value is a variant here, so nothing can be counted under another word.

/// Defines a set of label values in the order in which they are counted.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$of:meta])* $value:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name { $($(#[$of])* $value,)+ }

        impl $name {
            pub(crate) const ALL: [Self; [$($word),+].len()] = [$(Self::$value),+];
            pub(crate) const WORDS: [&'static str; Self::ALL.len()] = [$($word),+];

            pub(crate) const fn as_str(self) -> &'static str {
                Self::WORDS[self as usize]
            }
        }

        // Without the feature that counts them, some words are only listed.
        const _: fn($name) -> &'static str = $name::as_str;
    };
}

words! {
    /// The cause for which a call to acquire asked the store.
    Trigger {
        /// The call began.
        First = "first",
        /// A notice came, or the waiter before it left.
        Notice = "notice",
        /// The holder's time was over, or it was time to look again.
        Timer = "timer",
        /// The request before it failed, or its grant was of no use.
        Retry = "retry",
    }
}

words! {
    /// A call to a store.
    StoreCall {
        Acquire = "acquire",
        Renew = "renew",
        Release = "release",
        Leave = "leave",
        Inspect = "inspect",
        List = "list",
        Evict = "evict",
    }
}

words! {
    /// The purpose of a connection to a store.
    LaneUse {
        Requests = "requests",
        Watchdog = "watchdog",
        Notices = "notices",
    }
}

words! {
    /// Says whether a server of a store takes part.
    Standing {
        Up = "up",
        Away = "away",
        Down = "down",
    }
}

words! {
    /// Says whether enough replicas have what was written.
    AckOutcome {
        Acknowledged = "acknowledged",
        Missing = "missing",
    }
}

words! {
    /// The guard of storage that checked a pass.
    FenceKind {
        Gate = "gate",
        Http = "http",
        ObjectStore = "object_store",
        Redis = "redis",
        Rusqlite = "rusqlite",
        Sqlx = "sqlx",
        TokioPostgres = "tokio_postgres",
        /// One that this crate does not know.
        Other = "other",
    }
}
