-- The sessions of an account in a state, the oldest first.
DROP INDEX sessions_account;
CREATE INDEX sessions_account ON sessions (company, account, state, created);

-- A fence ends sessions at once; uncleared says that their rows may still be there.
ALTER TABLE fences ADD COLUMN uncleared INTEGER NOT NULL DEFAULT 0;
CREATE INDEX fences_uncleared ON fences (uncleared) WHERE uncleared = 1;
