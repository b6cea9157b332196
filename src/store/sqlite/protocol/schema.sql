-- Schema 1. Moments are nanoseconds of CLOCK_MONOTONIC in the initial time namespace, of the boot named beside them.

CREATE TABLE counter (
    -- One row: the highest token that this file has given out.
    one INTEGER PRIMARY KEY CHECK (one = 1),
    token INTEGER NOT NULL
) STRICT;

INSERT INTO counter VALUES (1, 0);

CREATE TABLE lease (
    name TEXT PRIMARY KEY NOT NULL,
    holder TEXT NOT NULL,
    token INTEGER NOT NULL,
    -- JSON: label, host, pid.
    info TEXT NOT NULL,
    -- Wall clock, microseconds since 1970; for people only.
    since_us INTEGER NOT NULL,
    -- 0 live, 1 evicted, 2 kept after its release.
    standing INTEGER NOT NULL,
    -- The boot that wrote it last, and when it runs out by that boot's clock.
    boot TEXT NOT NULL,
    ends_at_ns INTEGER NOT NULL,
    -- How long it was to run when it was written last.
    ttl_ns INTEGER NOT NULL,
    -- Counts what the holder wrote, so that another boot can see that it lives.
    renewals INTEGER NOT NULL,
    -- Another boot that watches it: void at `watched_until_ns` of that boot's clock if `renewals` is then the same.
    watcher TEXT,
    watched_until_ns INTEGER,
    watched_renewals INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE room (
    -- Filled and emptied again to give the file free pages before they are needed.
    one INTEGER PRIMARY KEY CHECK (one = 1),
    filling BLOB NOT NULL
) STRICT;

CREATE INDEX lease_by_end ON lease (boot, ends_at_ns);

CREATE INDEX lease_by_watch ON lease (watcher, watched_until_ns)
    WHERE watcher IS NOT NULL;
