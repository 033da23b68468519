-- Clients that an account remembers, the newest last; factor is until when a login may
-- go without a second factor. Their wrong passwords are in tallies, with the id of the
-- device as login_id.
CREATE TABLE devices (
	number     INTEGER PRIMARY KEY AUTOINCREMENT,
	company    TEXT    NOT NULL,
	account    INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	hash       BLOB    NOT NULL,
	id         TEXT    NOT NULL,
	epoch      INTEGER NOT NULL,
	era        INTEGER NOT NULL,
	factor     INTEGER NOT NULL,
	created    INTEGER NOT NULL,
	expires    INTEGER NOT NULL,
	address    TEXT    NOT NULL,
	user_agent TEXT    NOT NULL
) STRICT;
CREATE INDEX devices_hash ON devices (hash);
CREATE INDEX devices_account ON devices (account, number);
CREATE INDEX devices_expires ON devices (expires);

-- The device that a session began on; empty for none.
ALTER TABLE sessions ADD COLUMN device TEXT NOT NULL DEFAULT '';
