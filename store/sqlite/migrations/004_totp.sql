-- The sealed secrets of the authenticator app: the one in force, and one that
-- waits to be confirmed.
ALTER TABLE accounts ADD COLUMN totp TEXT NOT NULL DEFAULT '';
ALTER TABLE accounts ADD COLUMN totp_pending TEXT NOT NULL DEFAULT '';

-- 1: the app's code is what the session waits for.
ALTER TABLE sessions ADD COLUMN by_app INTEGER NOT NULL DEFAULT 0;

-- The session that an ending leaves; empty for none.
ALTER TABLE endings ADD COLUMN keep BLOB NOT NULL DEFAULT x'';
