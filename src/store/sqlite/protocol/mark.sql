-- Schema 3: besides, a token that no power cut takes back.
--
-- Commits are not synced one by one, so a power cut may take back the last grants, and the counter with them. But before
-- a token above the mark is given out, the mark is lifted and that commit is synced. Another boot mints above the mark.

CREATE TABLE mark (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    -- At least every token that was given out.
    token INTEGER NOT NULL,
    -- The boot that lifted it.
    boot TEXT NOT NULL
) STRICT;

INSERT INTO mark VALUES (1, 0, '');
