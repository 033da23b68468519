-- The epoch that began when the status was last changed from active.
ALTER TABLE accounts ADD COLUMN barred bigint NOT NULL DEFAULT 0;
