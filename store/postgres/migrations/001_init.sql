-- Times are microseconds since 1970, 0 for none. Generations: see record.Account.
-- Texts that an index holds have COLLATE "C": it is the order by bytes, and no
-- update of the system's locales breaks such an index.

-- Identity: an id is never given twice, also not that of a deleted account.
CREATE TABLE accounts (
	id                  bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	company             text    COLLATE "C" NOT NULL,
	mnemocode           text    COLLATE "C" NOT NULL,
	role                text    NOT NULL,
	phone               text    NOT NULL,
	email               text    NOT NULL,
	login_name          text    NOT NULL,
	status              text    NOT NULL,
	second_factor       boolean NOT NULL,
	must_set_password   boolean NOT NULL,
	password_hash       text    NOT NULL,
	question            text    NOT NULL,
	answer_hash         text    NOT NULL,
	generation          bigint  NOT NULL DEFAULT 1,
	created             bigint  NOT NULL,
	updated             bigint  NOT NULL,
	-- The sealed secrets of the authenticator app: the one in force, and one that
	-- waits to be confirmed.
	totp                text    NOT NULL DEFAULT '',
	totp_pending        text    NOT NULL DEFAULT '',
	-- The language that the account's owner reads, as a tag of BCP 47; empty for none.
	locale              text    NOT NULL DEFAULT '',
	-- The generation that began when the status was last changed from active.
	inactive_generation bigint  NOT NULL DEFAULT 0,
	-- When the phone and the email were proven.
	phone_verified      bigint  NOT NULL DEFAULT 0,
	email_verified      bigint  NOT NULL DEFAULT 0,
	UNIQUE (company, mnemocode)
);

-- The normalised login ids: one names one account of a company, of whichever
-- field it is.
CREATE TABLE login_ids (
	company  text   COLLATE "C" NOT NULL,
	login_id text   COLLATE "C" NOT NULL,
	account  bigint NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	PRIMARY KEY (company, login_id)
);
CREATE INDEX login_ids_account ON login_ids (account);

CREATE TABLE identities (
	company  text    COLLATE "C" NOT NULL,
	provider integer NOT NULL,
	subject  text    COLLATE "C" NOT NULL,
	account  bigint  NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	PRIMARY KEY (company, provider, subject)
);
CREATE INDEX identities_account ON identities (account, provider);

CREATE TABLE acceptances (
	account bigint NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	code    text   COLLATE "C" NOT NULL,
	version text   NOT NULL,
	at      bigint NOT NULL,
	PRIMARY KEY (account, code)
);

CREATE TABLE backup_codes (
	account bigint NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	hash    text   COLLATE "C" NOT NULL,
	PRIMARY KEY (account, hash)
);

-- Of an account, or (account 0) of a login id that no account has.
CREATE TABLE failures (
	company  text   COLLATE "C" NOT NULL,
	account  bigint NOT NULL,
	login_id text   COLLATE "C" NOT NULL,
	kind     text   COLLATE "C" NOT NULL,
	count    bigint NOT NULL,
	until    bigint NOT NULL,
	changed  bigint NOT NULL,
	PRIMARY KEY (company, account, login_id, kind)
);
CREATE INDEX failures_unknown ON failures (changed) WHERE account = 0;

-- The revocations that Sessions.End has not made yet. They outlive the account.
CREATE TABLE pending_revocations (
	company    text   COLLATE "C" NOT NULL,
	account    bigint NOT NULL,
	generation bigint NOT NULL,
	-- The session that the revocation leaves; empty for none.
	keep       bytea  NOT NULL DEFAULT '',
	-- The number of the last token that was removed in the generation; 0 for none.
	token      bigint NOT NULL DEFAULT 0,
	PRIMARY KEY (company, account)
);

-- The accounts that the configuration has brought. A row outlives its account:
-- one that was deleted is not created again.
CREATE TABLE seeds (
	company   text COLLATE "C" NOT NULL,
	mnemocode text COLLATE "C" NOT NULL,
	PRIMARY KEY (company, mnemocode)
);

-- Events that wait for a company's receiver. They outlive their account.
CREATE TABLE outbox (
	number      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	company     text   COLLATE "C" NOT NULL,
	queue       text   COLLATE "C" NOT NULL,
	account     bigint NOT NULL,
	id          text   NOT NULL,
	type        text   NOT NULL,
	body        text   NOT NULL,
	at          bigint NOT NULL,
	-- The trace of the request that caused the event (W3C Trace Context); empty for none.
	traceparent text   NOT NULL DEFAULT ''
);
CREATE INDEX outbox_queue ON outbox (company, queue, number);
CREATE INDEX outbox_account ON outbox (company, account, number);
CREATE INDEX outbox_at ON outbox (company, at);

-- There is one for each queue with events. While it is claimed, due is when the
-- claim runs out.
CREATE TABLE outbox_queues (
	company text   COLLATE "C" NOT NULL,
	queue   text   COLLATE "C" NOT NULL,
	due     bigint NOT NULL,
	tries   bigint NOT NULL DEFAULT 0,
	claim   text   NOT NULL DEFAULT '',
	PRIMARY KEY (company, queue)
);
CREATE INDEX outbox_queues_due ON outbox_queues (due, company);
CREATE INDEX outbox_queues_turn ON outbox_queues (company, due);

-- A company's generation grows with each revocation of all its sessions, which is pending
-- until revoked has reached it.
CREATE TABLE company_generations (
	company    text   COLLATE "C" PRIMARY KEY,
	generation bigint NOT NULL,
	revoked    bigint NOT NULL DEFAULT 0
);

-- What happened to an account, the newest last; noise is what strangers can cause.
CREATE TABLE history (
	number  bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	account bigint  NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	noise   boolean NOT NULL,
	at      bigint  NOT NULL,
	event   text    NOT NULL,
	-- The name of an event that one session can cause without end, else empty; and how often in a row an event happened.
	apart   text    NOT NULL DEFAULT '',
	times   bigint  NOT NULL DEFAULT 1,
	-- Of the refusal, else empty.
	ref     text    NOT NULL DEFAULT ''
);
CREATE INDEX history_account ON history (account, noise, number);
CREATE INDEX history_at ON history (at);
CREATE INDEX history_ref ON history (ref) WHERE ref <> '';

-- The keys that sign assertions, sealed with the store's secret.
CREATE TABLE signing_keys (
	company text   COLLATE "C" NOT NULL,
	number  bigint NOT NULL,
	sealed  text   NOT NULL,
	created bigint NOT NULL,
	PRIMARY KEY (company, number)
);

-- The passkeys of accounts. credential is WebAuthn's credential ID, public_key its
-- public key in COSE. user_handle is what the authenticator keeps with it. It is
-- stored for each passkey, so that passkeys can move to another store.
CREATE TABLE passkeys (
	company         text    COLLATE "C" NOT NULL,
	credential      bytea   NOT NULL,
	account         bigint  NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	user_handle     bytea   NOT NULL,
	public_key      bytea   NOT NULL,
	sign_count      bigint  NOT NULL,
	backup_eligible boolean NOT NULL,
	backed_up       boolean NOT NULL,
	transports      text    NOT NULL,
	name            text    NOT NULL,
	created         bigint  NOT NULL,
	last_used       bigint  NOT NULL,
	PRIMARY KEY (company, credential)
);
CREATE INDEX passkeys_account ON passkeys (account);

-- Clients that an account remembers, the newest last; factor is until when a login may
-- go without a second factor. Their wrong passwords are in failures, with the id of the
-- device as login_id.
CREATE TABLE devices (
	number             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	company            text   COLLATE "C" NOT NULL,
	account            bigint NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	hash               bytea  NOT NULL,
	id                 text   COLLATE "C" NOT NULL,
	generation         bigint NOT NULL,
	company_generation bigint NOT NULL,
	factor             bigint NOT NULL,
	created            bigint NOT NULL,
	expires            bigint NOT NULL,
	address            text   NOT NULL,
	user_agent         text   NOT NULL
);
CREATE INDEX devices_hash ON devices (hash);
CREATE INDEX devices_account ON devices (account, number);
CREATE INDEX devices_expires ON devices (expires);

-- The first secret, whose number is 0, and those that replaced it.
CREATE TABLE secrets (
	number bigint PRIMARY KEY,
	value  bytea  NOT NULL,
	begins bigint NOT NULL
);

-- What a change of an account has used up: proofs, codes and welcome links, at least until they
-- would have expired.
CREATE TABLE spent (
	hash  bytea PRIMARY KEY,
	until bigint NOT NULL
);
CREATE INDEX spent_until ON spent (until);

-- Tokens that are issued for accounts: no logins. paths has one on each line, methods are
-- separated by spaces.
CREATE TABLE tokens (
	number             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	account            bigint NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	hash               bytea  NOT NULL,
	id                 text   COLLATE "C" NOT NULL,
	company_generation bigint NOT NULL,
	name               text   NOT NULL,
	paths              text   NOT NULL,
	methods            text   NOT NULL,
	actor              text   NOT NULL,
	reason             text   NOT NULL,
	created            bigint NOT NULL,
	expires            bigint NOT NULL,
	last_used          bigint NOT NULL
);
CREATE UNIQUE INDEX tokens_hash ON tokens (hash);
CREATE INDEX tokens_account ON tokens (account, number);
CREATE INDEX tokens_expires ON tokens (expires);
