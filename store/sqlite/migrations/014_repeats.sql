-- The name of an event that one session can cause without end, else empty; and how often in a row an event happened.
ALTER TABLE history ADD COLUMN apart TEXT NOT NULL DEFAULT '';
ALTER TABLE history ADD COLUMN times INTEGER NOT NULL DEFAULT 1;
