-- The sealed secrets of the authenticator app: the one in force, and one that
-- waits to be confirmed.
ALTER TABLE accounts ADD COLUMN totp text NOT NULL DEFAULT '';
ALTER TABLE accounts ADD COLUMN totp_pending text NOT NULL DEFAULT '';

-- The session that an ending leaves; empty for none.
ALTER TABLE endings ADD COLUMN keep bytea NOT NULL DEFAULT '';
