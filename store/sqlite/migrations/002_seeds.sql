-- The accounts that the configuration has brought. A row outlives its account:
-- one that was deleted is not created again.
CREATE TABLE seeds (
	company   TEXT NOT NULL,
	mnemocode TEXT NOT NULL,
	PRIMARY KEY (company, mnemocode)
) STRICT, WITHOUT ROWID;
