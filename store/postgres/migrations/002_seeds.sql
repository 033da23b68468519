-- The accounts that the configuration has brought. A row outlives its account:
-- one that was deleted is not created again.
CREATE TABLE seeds (
	company   text COLLATE "C" NOT NULL,
	mnemocode text COLLATE "C" NOT NULL,
	PRIMARY KEY (company, mnemocode)
);
