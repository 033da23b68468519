-- The epoch that began when the status was last changed from active.
ALTER TABLE accounts ADD COLUMN barred INTEGER NOT NULL DEFAULT 0;

-- What is kept of a session that its account's ending has ended, until it would
-- have expired.
CREATE TABLE revoked (
	hash    BLOB    PRIMARY KEY NOT NULL,
	company TEXT    NOT NULL,
	account INTEGER NOT NULL,
	epoch   INTEGER NOT NULL,
	era     INTEGER NOT NULL,
	state   TEXT    NOT NULL,
	expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX revoked_expires ON revoked (expires);
