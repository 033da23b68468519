-- The secrets that replaced the first one, which stays in the table secret.
CREATE TABLE secrets (
	number bigint PRIMARY KEY,
	value  bytea  NOT NULL,
	begins bigint NOT NULL
);
