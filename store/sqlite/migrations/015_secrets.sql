-- The secrets that replaced the first one, which stays in the table secret.
CREATE TABLE secrets (
	number INTEGER PRIMARY KEY,
	value  BLOB    NOT NULL,
	begins INTEGER NOT NULL
) STRICT;
