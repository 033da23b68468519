-- Times are microseconds since 1970, 0 for none. Epochs: see record.Account.
-- STRICT, because SQLite would otherwise keep a text in an integer column.

-- AUTOINCREMENT: an id is never given twice, also not that of a deleted account.
CREATE TABLE accounts (
	id                INTEGER PRIMARY KEY AUTOINCREMENT,
	company           TEXT    NOT NULL,
	mnemocode         TEXT    NOT NULL,
	role              TEXT    NOT NULL,
	phone             TEXT    NOT NULL,
	email             TEXT    NOT NULL,
	login_name        TEXT    NOT NULL,
	status            TEXT    NOT NULL,
	second_factor     INTEGER NOT NULL,
	must_set_password INTEGER NOT NULL,
	password_hash     TEXT    NOT NULL,
	question          TEXT    NOT NULL,
	answer_hash       TEXT    NOT NULL,
	epoch             INTEGER NOT NULL DEFAULT 1,
	created           INTEGER NOT NULL,
	updated           INTEGER NOT NULL,
	UNIQUE (company, mnemocode)
) STRICT;

-- The normalised login ids: one names one account of a company, of whichever
-- field it is.
CREATE TABLE login_ids (
	company  TEXT    NOT NULL,
	login_id TEXT    NOT NULL,
	account  INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	PRIMARY KEY (company, login_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX login_ids_account ON login_ids (account);

CREATE TABLE identities (
	company  TEXT    NOT NULL,
	provider INTEGER NOT NULL,
	subject  TEXT    NOT NULL,
	account  INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	PRIMARY KEY (company, provider, subject)
) STRICT, WITHOUT ROWID;
CREATE INDEX identities_account ON identities (account, provider);

CREATE TABLE acceptances (
	account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	code    TEXT    NOT NULL,
	version TEXT    NOT NULL,
	at      INTEGER NOT NULL,
	PRIMARY KEY (account, code)
) STRICT, WITHOUT ROWID;

CREATE TABLE backup_codes (
	account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	hash    TEXT    NOT NULL,
	PRIMARY KEY (account, hash)
) STRICT, WITHOUT ROWID;

-- Of an account, or (account 0) of a login id that no account has.
CREATE TABLE tallies (
	company  TEXT    NOT NULL,
	account  INTEGER NOT NULL,
	login_id TEXT    NOT NULL,
	kind     TEXT    NOT NULL,
	count    INTEGER NOT NULL,
	until    INTEGER NOT NULL,
	changed  INTEGER NOT NULL,
	PRIMARY KEY (company, account, login_id, kind)
) STRICT, WITHOUT ROWID;
CREATE INDEX tallies_unknown ON tallies (changed) WHERE account = 0;

-- What is owed to Sessions.End. It outlives the account.
CREATE TABLE endings (
	company TEXT    NOT NULL,
	account INTEGER NOT NULL,
	epoch   INTEGER NOT NULL,
	PRIMARY KEY (company, account)
) STRICT, WITHOUT ROWID;

CREATE TABLE secret (
	id    INTEGER PRIMARY KEY CHECK (id = 1),
	value BLOB NOT NULL
) STRICT;

-- code_number counts the calls of OpenCode; code_hash is null when no code waits.
CREATE TABLE sessions (
	hash         BLOB    PRIMARY KEY NOT NULL,
	id           TEXT    NOT NULL,
	company      TEXT    NOT NULL,
	account      INTEGER NOT NULL,
	mnemocode    TEXT    NOT NULL,
	login_id     TEXT    NOT NULL,
	epoch        INTEGER NOT NULL,
	state        TEXT    NOT NULL,
	accepted     TEXT    NOT NULL,
	created      INTEGER NOT NULL,
	expires      INTEGER NOT NULL,
	ends         INTEGER NOT NULL,
	code_number  INTEGER NOT NULL DEFAULT 0,
	code_hash    BLOB,
	code_phone   TEXT    NOT NULL,
	code_expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_account ON sessions (company, account, epoch);
CREATE INDEX sessions_expires ON sessions (expires);

-- Sessions of an account with an epoch below a fence's can't be stored.
CREATE TABLE fences (
	company TEXT    NOT NULL,
	account INTEGER NOT NULL,
	epoch   INTEGER NOT NULL,
	expires INTEGER NOT NULL,
	PRIMARY KEY (company, account)
) STRICT, WITHOUT ROWID;
CREATE INDEX fences_expires ON fences (expires);

CREATE TABLE counters (
	key   TEXT    PRIMARY KEY NOT NULL,
	count INTEGER NOT NULL,
	until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX counters_until ON counters (until);
