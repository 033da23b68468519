-- Times are microseconds since 1970, 0 for none. Epochs: see record.Account.
-- Texts that an index holds have COLLATE "C": it is the order by bytes, and no
-- update of the system's locales breaks such an index.

-- Identity: an id is never given twice, also not that of a deleted account.
CREATE TABLE accounts (
	id                bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	company           text    COLLATE "C" NOT NULL,
	mnemocode         text    COLLATE "C" NOT NULL,
	role              text    NOT NULL,
	phone             text    NOT NULL,
	email             text    NOT NULL,
	login_name        text    NOT NULL,
	status            text    NOT NULL,
	second_factor     boolean NOT NULL,
	must_set_password boolean NOT NULL,
	password_hash     text    NOT NULL,
	question          text    NOT NULL,
	answer_hash       text    NOT NULL,
	epoch             bigint  NOT NULL DEFAULT 1,
	created           bigint  NOT NULL,
	updated           bigint  NOT NULL,
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
CREATE TABLE tallies (
	company  text   COLLATE "C" NOT NULL,
	account  bigint NOT NULL,
	login_id text   COLLATE "C" NOT NULL,
	kind     text   COLLATE "C" NOT NULL,
	count    bigint NOT NULL,
	until    bigint NOT NULL,
	changed  bigint NOT NULL,
	PRIMARY KEY (company, account, login_id, kind)
);
CREATE INDEX tallies_unknown ON tallies (changed) WHERE account = 0;

-- What is owed to Sessions.End, the oldest first. It outlives the account.
CREATE TABLE endings (
	company text   COLLATE "C" NOT NULL,
	account bigint NOT NULL,
	epoch   bigint NOT NULL,
	number  bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
	PRIMARY KEY (company, account)
);

CREATE TABLE secret (
	id    integer PRIMARY KEY CHECK (id = 1),
	value bytea   NOT NULL
);
