-- What happened to an account, the newest last; noise is what strangers can cause.
CREATE TABLE history (
	number  bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	account bigint  NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	noise   boolean NOT NULL,
	at      bigint  NOT NULL,
	event   text    NOT NULL
);
CREATE INDEX history_account ON history (account, noise, number);
CREATE INDEX history_at ON history (at);
