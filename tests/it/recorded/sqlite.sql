PRAGMA journal_mode = WAL;
PRAGMA application_id = 1819502703;
PRAGMA user_version = 3;
BEGIN TRANSACTION;
CREATE TABLE counter (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    token INTEGER NOT NULL
) STRICT;
INSERT INTO "counter" VALUES(1,9007199254740000);
CREATE TABLE lease (
    name TEXT PRIMARY KEY NOT NULL,
    holder TEXT NOT NULL,
    token INTEGER NOT NULL,
    info TEXT NOT NULL,
    since_us INTEGER NOT NULL,
    standing INTEGER NOT NULL,
    boot TEXT NOT NULL,
    ends_at_ns INTEGER NOT NULL,
    ttl_ns INTEGER NOT NULL,
    renewals INTEGER NOT NULL,
    watcher TEXT,
    watched_until_ns INTEGER,
    watched_renewals INTEGER
) STRICT, WITHOUT ROWID;
INSERT INTO "lease" VALUES('held','2a11efb61ea94984bf49c02feefbc538-11e458faf173af92',1795539637653235,'{"host":"recorded","pid":8645}',1795539637653274,0,'an earlier boot',6680726021195,3600000000000,0,NULL,NULL,NULL);
INSERT INTO "lease" VALUES('evicted','8daddfbadc6e4aafb80cd80da41cbaae-455499afd434a40b',1795539637653236,'{"host":"recorded","pid":8646}',1795539637653275,1,'an earlier boot',6680726021195,3600000000000,0,NULL,NULL,NULL);
INSERT INTO "lease" VALUES('kept','2ce4f5df39514544a309b08cc43e9ae9-78c9407014eb45f7',1795539637483517,'{"host":"recorded","pid":8632}',1795539637483575,2,'an earlier boot',6680553279453,3599967034189,1,NULL,NULL,NULL);
CREATE TABLE line (
    name TEXT NOT NULL,
    place INTEGER NOT NULL,
    client TEXT NOT NULL,
    boot TEXT NOT NULL,
    alive_until_ns INTEGER NOT NULL,
    PRIMARY KEY (name, place)
) STRICT, WITHOUT ROWID;
INSERT INTO "line" VALUES('held',1,'caddf6362e7142f09a01f0ba875509c4','an earlier boot',3090746247645);
CREATE TABLE mark (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    token INTEGER NOT NULL,
    boot TEXT NOT NULL
) STRICT;
INSERT INTO "mark" VALUES(1,9007199254740000,'an earlier boot');
CREATE TABLE room (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    filling BLOB NOT NULL
) STRICT;
CREATE INDEX lease_by_end ON lease (boot, ends_at_ns);
CREATE INDEX lease_by_watch ON lease (watcher, watched_until_ns)
    WHERE watcher IS NOT NULL;
CREATE UNIQUE INDEX line_by_client ON line (name, client);
CREATE INDEX line_by_end ON line (boot, alive_until_ns);
COMMIT;
