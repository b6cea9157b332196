-- Schema 2: besides, the clients that wait for a name in turn.
--
-- A row counts as dead past its moment, and for every other boot.

CREATE TABLE line (
    name TEXT NOT NULL,
    -- One more than the last one's when the client joined.
    place INTEGER NOT NULL,
    client TEXT NOT NULL,
    -- Until when it counts as alive, by the clock of this boot.
    boot TEXT NOT NULL,
    alive_until_ns INTEGER NOT NULL,
    PRIMARY KEY (name, place)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX line_by_client ON line (name, client);

CREATE INDEX line_by_end ON line (boot, alive_until_ns);

-- In `lease`, standing 3 is an offer: the name is kept for a client, in the holder's place, under no token. Schema 1 takes
-- it for a lease that no holder can renew, and that runs out.
