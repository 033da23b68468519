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
