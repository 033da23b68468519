-- What happened to an account, the newest last; noise is what strangers can cause.
CREATE TABLE history (
	number  INTEGER PRIMARY KEY AUTOINCREMENT,
	account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	noise   INTEGER NOT NULL,
	at      INTEGER NOT NULL,
	event   TEXT    NOT NULL
) STRICT;
CREATE INDEX history_account ON history (account, noise, number);
CREATE INDEX history_at ON history (at);
