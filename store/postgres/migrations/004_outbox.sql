-- Events that wait for a company's receiver. They outlive their account.
CREATE TABLE outbox (
	number  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	company text   COLLATE "C" NOT NULL,
	queue   text   COLLATE "C" NOT NULL,
	account bigint NOT NULL,
	id      text   NOT NULL,
	type    text   NOT NULL,
	body    text   NOT NULL,
	at      bigint NOT NULL
);
CREATE INDEX outbox_queue ON outbox (company, queue, number);
CREATE INDEX outbox_account ON outbox (company, account, number);
CREATE INDEX outbox_at ON outbox (company, at);

-- There is one for each queue with events. While it is claimed, due is when the
-- claim runs out.
CREATE TABLE outbox_queues (
	company text   COLLATE "C" NOT NULL,
	queue   text   COLLATE "C" NOT NULL,
	due     bigint NOT NULL,
	tries   bigint NOT NULL DEFAULT 0,
	claim   text   NOT NULL DEFAULT '',
	PRIMARY KEY (company, queue)
);
CREATE INDEX outbox_queues_due ON outbox_queues (due, company);
CREATE INDEX outbox_queues_turn ON outbox_queues (company, due);
