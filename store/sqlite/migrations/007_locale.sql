-- The language that the account's owner reads, as a tag of BCP 47; empty for none.
ALTER TABLE accounts ADD COLUMN locale TEXT NOT NULL DEFAULT '';
