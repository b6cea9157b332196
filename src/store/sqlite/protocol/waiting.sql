-- Schema 5. A place keeps the claim of its client: a release grants the name to the first live one in its own transaction,
-- until the place's own end. Schema 4 has offers instead; its clients and those of this one do not take turns.

-- NULL: no caller of the client claims at the place now.
ALTER TABLE line ADD COLUMN holder TEXT;

-- The token has to be above it; 0 for none.
ALTER TABLE line ADD COLUMN floor INTEGER NOT NULL DEFAULT 0;

-- JSON, as in `lease`.
ALTER TABLE line ADD COLUMN info TEXT NOT NULL DEFAULT '{}';
