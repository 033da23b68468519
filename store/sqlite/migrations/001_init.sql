-- Times are microseconds since 1970, 0 for none. Generations: see record.Account.
-- STRICT, because SQLite would otherwise keep a text in an integer column.

-- AUTOINCREMENT: an id is never given twice, also not that of a deleted account.
CREATE TABLE accounts (
	id                  INTEGER PRIMARY KEY AUTOINCREMENT,
	company             TEXT    NOT NULL,
	mnemocode           TEXT    NOT NULL,
	role                TEXT    NOT NULL,
	phone               TEXT    NOT NULL,
	email               TEXT    NOT NULL,
	login_name          TEXT    NOT NULL,
	status              TEXT    NOT NULL,
	second_factor       INTEGER NOT NULL,
	must_set_password   INTEGER NOT NULL,
	password_hash       TEXT    NOT NULL,
	question            TEXT    NOT NULL,
	answer_hash         TEXT    NOT NULL,
	generation          INTEGER NOT NULL DEFAULT 1,
	created             INTEGER NOT NULL,
	updated             INTEGER NOT NULL,
	-- The sealed secrets of the authenticator app: the one in force, and one that
	-- waits to be confirmed.
	totp                TEXT    NOT NULL DEFAULT '',
	totp_pending        TEXT    NOT NULL DEFAULT '',
	-- The language that the account's owner reads, as a tag of BCP 47; empty for none.
	locale              TEXT    NOT NULL DEFAULT '',
	-- The generation that began when the status was last changed from active.
	inactive_generation INTEGER NOT NULL DEFAULT 0,
	-- When the phone and the email were proven.
	phone_verified      INTEGER NOT NULL DEFAULT 0,
	email_verified      INTEGER NOT NULL DEFAULT 0,
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
CREATE TABLE failures (
	company  TEXT    NOT NULL,
	account  INTEGER NOT NULL,
	login_id TEXT    NOT NULL,
	kind     TEXT    NOT NULL,
	count    INTEGER NOT NULL,
	until    INTEGER NOT NULL,
	changed  INTEGER NOT NULL,
	PRIMARY KEY (company, account, login_id, kind)
) STRICT, WITHOUT ROWID;
CREATE INDEX failures_unknown ON failures (changed) WHERE account = 0;

-- The revocations that Sessions.End has not made yet. They outlive the account.
CREATE TABLE pending_revocations (
	company    TEXT    NOT NULL,
	account    INTEGER NOT NULL,
	generation INTEGER NOT NULL,
	-- The session that the revocation leaves; empty for none.
	keep       BLOB    NOT NULL DEFAULT x'',
	-- The number of the last token that was removed in the generation; 0 for none.
	token      INTEGER NOT NULL DEFAULT 0,
	PRIMARY KEY (company, account)
) STRICT, WITHOUT ROWID;

-- code_hash is null when no code waits.
CREATE TABLE sessions (
	hash               BLOB    PRIMARY KEY NOT NULL,
	id                 TEXT    NOT NULL,
	company            TEXT    NOT NULL,
	account            INTEGER NOT NULL,
	mnemocode          TEXT    NOT NULL,
	login_id           TEXT    NOT NULL,
	generation         INTEGER NOT NULL,
	state              TEXT    NOT NULL,
	accepted           TEXT    NOT NULL,
	created            INTEGER NOT NULL,
	expires            INTEGER NOT NULL,
	ends               INTEGER NOT NULL,
	code_hash          BLOB   ,
	code_phone         TEXT    NOT NULL,
	code_expires       INTEGER NOT NULL,
	-- 1: no code was sent.
	no_code            INTEGER NOT NULL DEFAULT 0,
	company_generation INTEGER NOT NULL DEFAULT 0,
	last_used          INTEGER NOT NULL DEFAULT 0,
	address            TEXT    NOT NULL DEFAULT '',
	user_agent         TEXT    NOT NULL DEFAULT '',
	profile            TEXT    NOT NULL DEFAULT '',
	-- The device that a session began on; empty for none.
	device             TEXT    NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_expires ON sessions (expires);

-- Sessions with a generation below that of their account's revocation are revoked, and can't be
-- stored. A revocation of account 0 is its company's, with a company generation.
CREATE TABLE revocations (
	company    TEXT    NOT NULL,
	account    INTEGER NOT NULL,
	generation INTEGER NOT NULL,
	expires    INTEGER NOT NULL,
	-- Whether rows of revoked sessions may still be there.
	uncleared  INTEGER NOT NULL DEFAULT 0,
	PRIMARY KEY (company, account)
) STRICT, WITHOUT ROWID;
CREATE INDEX revocations_expires ON revocations (expires);

CREATE TABLE counters (
	key   TEXT    PRIMARY KEY NOT NULL,
	count INTEGER NOT NULL,
	until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX counters_until ON counters (until);

-- Answers to requests that clients may repeat; null while the holder is at work.
CREATE TABLE answers (
	name   TEXT    PRIMARY KEY NOT NULL,
	holder TEXT    NOT NULL,
	answer BLOB   ,
	until  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX answers_until ON answers (until);

-- The accounts that the configuration has brought. A row outlives its account:
-- one that was deleted is not created again.
CREATE TABLE seeds (
	company   TEXT NOT NULL,
	mnemocode TEXT NOT NULL,
	PRIMARY KEY (company, mnemocode)
) STRICT, WITHOUT ROWID;

-- The sessions of an account in a state, the oldest first.
CREATE INDEX sessions_account ON sessions (company, account, state, created);
CREATE INDEX revocations_uncleared ON revocations (uncleared) WHERE uncleared = 1;

-- Events that wait for a company's receiver. They outlive their account.
CREATE TABLE outbox (
	number      INTEGER PRIMARY KEY AUTOINCREMENT,
	company     TEXT    NOT NULL,
	queue       TEXT    NOT NULL,
	account     INTEGER NOT NULL,
	id          TEXT    NOT NULL,
	type        TEXT    NOT NULL,
	body        TEXT    NOT NULL,
	at          INTEGER NOT NULL,
	-- The trace of the request that caused the event (W3C Trace Context); empty for none.
	traceparent TEXT    NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX outbox_queue ON outbox (company, queue, number);
CREATE INDEX outbox_account ON outbox (company, account, number);
CREATE INDEX outbox_at ON outbox (company, at);

-- There is one for each queue with events. While it is claimed, due is when the
-- claim runs out.
CREATE TABLE outbox_queues (
	company TEXT    NOT NULL,
	queue   TEXT    NOT NULL,
	due     INTEGER NOT NULL,
	tries   INTEGER NOT NULL DEFAULT 0,
	claim   TEXT    NOT NULL DEFAULT '',
	PRIMARY KEY (company, queue)
) STRICT, WITHOUT ROWID;
CREATE INDEX outbox_queues_due ON outbox_queues (due, company);
CREATE INDEX outbox_queues_turn ON outbox_queues (company, due);

-- A company's generation grows with each revocation of all its sessions, which is pending
-- until revoked has reached it.
CREATE TABLE company_generations (
	company    TEXT    PRIMARY KEY NOT NULL,
	generation INTEGER NOT NULL,
	revoked    INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- What happened to an account, the newest last; noise is what strangers can cause.
CREATE TABLE history (
	number  INTEGER PRIMARY KEY AUTOINCREMENT,
	account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	noise   INTEGER NOT NULL,
	at      INTEGER NOT NULL,
	event   TEXT    NOT NULL,
	-- The name of an event that one session can cause without end, else empty; and how often in a row an event happened.
	apart   TEXT    NOT NULL DEFAULT '',
	times   INTEGER NOT NULL DEFAULT 1,
	-- Of the refusal, else empty.
	ref     TEXT    NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX history_account ON history (account, noise, number);
CREATE INDEX history_at ON history (at);
CREATE INDEX history_ref ON history (ref) WHERE ref <> '';

-- When the sessions expired of which it has been noted that they did.
CREATE INDEX sessions_expired ON sessions (ends) WHERE expires = 0;

-- What is kept of a session that a revocation of its account has ended, until it would
-- have expired.
CREATE TABLE revoked (
	hash               BLOB    PRIMARY KEY NOT NULL,
	company            TEXT    NOT NULL,
	account            INTEGER NOT NULL,
	generation         INTEGER NOT NULL,
	company_generation INTEGER NOT NULL,
	state              TEXT    NOT NULL,
	expires            INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX revoked_expires ON revoked (expires);

-- The keys that sign assertions, sealed with the store's secret.
CREATE TABLE signing_keys (
	company TEXT    NOT NULL,
	number  INTEGER NOT NULL,
	sealed  TEXT    NOT NULL,
	created INTEGER NOT NULL,
	PRIMARY KEY (company, number)
) STRICT, WITHOUT ROWID;

-- The passkeys of accounts. credential is WebAuthn's credential ID, public_key its
-- public key in COSE. user_handle is what the authenticator keeps with it. It is
-- stored for each passkey, so that passkeys can move to another store.
CREATE TABLE passkeys (
	company         TEXT    NOT NULL,
	credential      BLOB    NOT NULL,
	account         INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	user_handle     BLOB    NOT NULL,
	public_key      BLOB    NOT NULL,
	sign_count      INTEGER NOT NULL,
	backup_eligible INTEGER NOT NULL,
	backed_up       INTEGER NOT NULL,
	transports      TEXT    NOT NULL,
	name            TEXT    NOT NULL,
	created         INTEGER NOT NULL,
	last_used       INTEGER NOT NULL,
	PRIMARY KEY (company, credential)
) STRICT, WITHOUT ROWID;
CREATE INDEX passkeys_account ON passkeys (account);

-- Clients that an account remembers, the newest last; factor is until when a login may
-- go without a second factor. Their wrong passwords are in failures, with the id of the
-- device as login_id.
CREATE TABLE devices (
	number             INTEGER PRIMARY KEY AUTOINCREMENT,
	company            TEXT    NOT NULL,
	account            INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	hash               BLOB    NOT NULL,
	id                 TEXT    NOT NULL,
	generation         INTEGER NOT NULL,
	company_generation INTEGER NOT NULL,
	factor             INTEGER NOT NULL,
	created            INTEGER NOT NULL,
	expires            INTEGER NOT NULL,
	address            TEXT    NOT NULL,
	user_agent         TEXT    NOT NULL
) STRICT;
CREATE INDEX devices_hash ON devices (hash);
CREATE INDEX devices_account ON devices (account, number);
CREATE INDEX devices_expires ON devices (expires);

-- The first secret, whose number is 0, and those that replaced it.
CREATE TABLE secrets (
	number INTEGER PRIMARY KEY,
	value  BLOB    NOT NULL,
	begins INTEGER NOT NULL
) STRICT;

-- What a change of an account has used up: proofs, codes and welcome links, at least until they
-- would have expired.
CREATE TABLE spent (
	hash  BLOB    PRIMARY KEY NOT NULL,
	until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX spent_until ON spent (until);

-- Tokens that are issued for accounts: no logins. paths has one on each line, methods are
-- separated by spaces.
CREATE TABLE tokens (
	number             INTEGER PRIMARY KEY AUTOINCREMENT,
	account            INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	hash               BLOB    NOT NULL,
	id                 TEXT    NOT NULL,
	company_generation INTEGER NOT NULL,
	name               TEXT    NOT NULL,
	paths              TEXT    NOT NULL,
	methods            TEXT    NOT NULL,
	actor              TEXT    NOT NULL,
	reason             TEXT    NOT NULL,
	created            INTEGER NOT NULL,
	expires            INTEGER NOT NULL,
	last_used          INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX tokens_hash ON tokens (hash);
CREATE INDEX tokens_account ON tokens (account, number);
CREATE INDEX tokens_expires ON tokens (expires);
