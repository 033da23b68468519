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
