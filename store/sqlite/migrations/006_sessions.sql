-- A company's era grows with each ending of all its sessions; the ending is owed
-- until ended has reached it.
CREATE TABLE eras (
	company TEXT    PRIMARY KEY NOT NULL,
	era     INTEGER NOT NULL,
	ended   INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- A fence of account 0 is its company's, with an era in the place of the epoch.
ALTER TABLE sessions ADD COLUMN era INTEGER NOT NULL DEFAULT 0;

ALTER TABLE sessions ADD COLUMN last_used INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN address TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN user_agent TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN profile TEXT NOT NULL DEFAULT '';
