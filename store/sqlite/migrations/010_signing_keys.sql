-- The keys that sign assertions, sealed with the store's secret.
CREATE TABLE signing_keys (
	company TEXT    NOT NULL,
	number  INTEGER NOT NULL,
	sealed  TEXT    NOT NULL,
	created INTEGER NOT NULL,
	PRIMARY KEY (company, number)
) STRICT, WITHOUT ROWID;
