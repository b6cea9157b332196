-- Schema 4. Each boot has a watch of its own, so that none ends another's. The columns `watcher`, `watched_until_ns` and
-- `watched_renewals` of `lease` are those of schema 3, for its processes that have the file open.

-- Another boot that watches a grant: void for it at `until_ns` of its own clock if `renewals` is then the same.
CREATE TABLE watch (
    name TEXT NOT NULL,
    boot TEXT NOT NULL,
    token INTEGER NOT NULL,
    renewals INTEGER NOT NULL,
    until_ns INTEGER NOT NULL,
    PRIMARY KEY (name, boot)
) STRICT, WITHOUT ROWID;

INSERT INTO watch (name, boot, token, renewals, until_ns)
SELECT name, watcher, token, watched_renewals, watched_until_ns
FROM lease
WHERE watcher IS NOT NULL;

CREATE INDEX watch_by_end ON watch (boot, until_ns);
