-- The keys that sign assertions, sealed with the store's secret.
CREATE TABLE signing_keys (
	company text   COLLATE "C" NOT NULL,
	number  bigint NOT NULL,
	sealed  text   NOT NULL,
	created bigint NOT NULL,
	PRIMARY KEY (company, number)
);
