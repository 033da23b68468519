-- Events that wait for a company's receiver. They outlive their account.
CREATE TABLE outbox (
	number  INTEGER PRIMARY KEY AUTOINCREMENT,
	company TEXT    NOT NULL,
	queue   TEXT    NOT NULL,
	account INTEGER NOT NULL,
	id      TEXT    NOT NULL,
	type    TEXT    NOT NULL,
	body    TEXT    NOT NULL,
	at      INTEGER NOT NULL
) STRICT;
CREATE INDEX outbox_queue ON outbox (company, queue, number);
CREATE INDEX outbox_account ON outbox (company, account, number);
CREATE INDEX outbox_at ON outbox (company, at);

-- There is one for each queue with events. While it is claimed, due is when the
-- claim runs out.
CREATE TABLE outbox_queues (
	company TEXT    NOT NULL,
	queue   TEXT    NOT NULL,
	due     INTEGER NOT NULL,
	tries   INTEGER NOT NULL DEFAULT 0,
	claim   TEXT    NOT NULL DEFAULT '',
	PRIMARY KEY (company, queue)
) STRICT, WITHOUT ROWID;
CREATE INDEX outbox_queues_due ON outbox_queues (due, company);
CREATE INDEX outbox_queues_turn ON outbox_queues (company, due);
