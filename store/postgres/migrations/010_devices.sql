-- Clients that an account remembers, the newest last; factor is until when a login may
-- go without a second factor. Their wrong passwords are in tallies, with the id of the
-- device as login_id.
CREATE TABLE devices (
	number     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	company    text   COLLATE "C" NOT NULL,
	account    bigint NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	hash       bytea  NOT NULL,
	id         text   COLLATE "C" NOT NULL,
	epoch      bigint NOT NULL,
	era        bigint NOT NULL,
	factor     bigint NOT NULL,
	created    bigint NOT NULL,
	expires    bigint NOT NULL,
	address    text   NOT NULL,
	user_agent text   NOT NULL
);
CREATE INDEX devices_hash ON devices (hash);
CREATE INDEX devices_account ON devices (account, number);
CREATE INDEX devices_expires ON devices (expires);
