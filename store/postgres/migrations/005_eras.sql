-- A company's era grows with each ending of all its sessions; the ending is owed
-- until ended has reached it.
CREATE TABLE eras (
	company text   COLLATE "C" PRIMARY KEY,
	era     bigint NOT NULL,
	ended   bigint NOT NULL DEFAULT 0
);
