PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE migrations (name TEXT PRIMARY KEY) STRICT;
INSERT INTO migrations VALUES('001_init.sql');
INSERT INTO migrations VALUES('002_seeds.sql');
INSERT INTO migrations VALUES('003_session_limits.sql');
INSERT INTO migrations VALUES('004_totp.sql');
INSERT INTO migrations VALUES('005_outbox.sql');
INSERT INTO migrations VALUES('006_sessions.sql');
CREATE TABLE accounts (
	id                INTEGER PRIMARY KEY AUTOINCREMENT,
	company           TEXT    NOT NULL,
	mnemocode         TEXT    NOT NULL,
	role              TEXT    NOT NULL,
	phone             TEXT    NOT NULL,
	email             TEXT    NOT NULL,
	login_name        TEXT    NOT NULL,
	status            TEXT    NOT NULL,
	second_factor     INTEGER NOT NULL,
	must_set_password INTEGER NOT NULL,
	password_hash     TEXT    NOT NULL,
	question          TEXT    NOT NULL,
	answer_hash       TEXT    NOT NULL,
	epoch             INTEGER NOT NULL DEFAULT 1,
	created           INTEGER NOT NULL,
	updated           INTEGER NOT NULL, totp TEXT NOT NULL DEFAULT '', totp_pending TEXT NOT NULL DEFAULT '',
	UNIQUE (company, mnemocode)
) STRICT;
INSERT INTO accounts VALUES(1,'acme','alice','tester','','alice@example.com','alice','active',0,0,'$argon2id$v=19$m=7168,t=5,p=1$XIFvyWRqm8/qPq3N6ue/+Q$U1xXFoEE+lGDV6MrdVeY+irG0yKgc0+VPOBs5s8fMLo','Cat?','$argon2id$v=19$m=7168,t=5,p=1$eY8dX8EaRBW/Y1VK9kBADg$mLUKeZEyp74Oc7bJ/vTlqBNsaEPPlcdKWwP3QA0o03U',1,1795382870846114,1795382870846114,'','');
INSERT INTO accounts VALUES(2,'acme','carol','','+37060000003','','carol','active',1,0,'$argon2id$v=19$m=7168,t=5,p=1$sSkFgE2xSqOuJjYzuzGrIQ$t31sx5V6ehkhpux2cQkWSKYRySTGKvPuwOl7ojL8Coo','','',1,1795382870971886,1795382870971886,'','');
INSERT INTO accounts VALUES(3,'acme','lou','','','','lou','active',0,0,'$argon2id$v=19$m=7168,t=5,p=1$1h1+UsEKuSHdXI4CDQ+ftw$S8uUniWcuH7mwq66NK42yRGky4OfohubOSOd+54b3P4','','',1,1795382871155169,1795382871155169,'','');
CREATE TABLE login_ids (
	company  TEXT    NOT NULL,
	login_id TEXT    NOT NULL,
	account  INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	PRIMARY KEY (company, login_id)
) STRICT, WITHOUT ROWID;
INSERT INTO login_ids VALUES('acme','alice',1);
INSERT INTO login_ids VALUES('acme','alice@example.com',1);
INSERT INTO login_ids VALUES('acme','+37060000003',2);
INSERT INTO login_ids VALUES('acme','carol',2);
INSERT INTO login_ids VALUES('acme','lou',3);
CREATE TABLE identities (
	company  TEXT    NOT NULL,
	provider INTEGER NOT NULL,
	subject  TEXT    NOT NULL,
	account  INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	PRIMARY KEY (company, provider, subject)
) STRICT, WITHOUT ROWID;
INSERT INTO identities VALUES('acme',1,'sub-carol',2);
CREATE TABLE acceptances (
	account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	code    TEXT    NOT NULL,
	version TEXT    NOT NULL,
	at      INTEGER NOT NULL,
	PRIMARY KEY (account, code)
) STRICT, WITHOUT ROWID;
INSERT INTO acceptances VALUES(1,'terms','1',1795341600000000);
CREATE TABLE backup_codes (
	account INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
	hash    TEXT    NOT NULL,
	PRIMARY KEY (account, hash)
) STRICT, WITHOUT ROWID;
INSERT INTO backup_codes VALUES(2,'$argon2id$v=19$m=7168,t=5,p=1$RDwRkkI/IOwaZhQt4frfTQ$0sWXRRr8Rn3XRle4a2RN0qF86gyVW8NLJkPgdmpqPas');
INSERT INTO backup_codes VALUES(2,'$argon2id$v=19$m=7168,t=5,p=1$RDwRkkI/IOwaZhQt4frfTQ$Qx/qEfVEmleTM+WRXWxpgpFNNV+zEtMLj1dQ9VakJ6g');
CREATE TABLE tallies (
	company  TEXT    NOT NULL,
	account  INTEGER NOT NULL,
	login_id TEXT    NOT NULL,
	kind     TEXT    NOT NULL,
	count    INTEGER NOT NULL,
	until    INTEGER NOT NULL,
	changed  INTEGER NOT NULL,
	PRIMARY KEY (company, account, login_id, kind)
) STRICT, WITHOUT ROWID;
INSERT INTO tallies VALUES('acme',3,'','password',10,4102444800000000,1795382871819838);
CREATE TABLE endings (
	company TEXT    NOT NULL,
	account INTEGER NOT NULL,
	epoch   INTEGER NOT NULL, keep BLOB NOT NULL DEFAULT x'',
	PRIMARY KEY (company, account)
) STRICT, WITHOUT ROWID;
CREATE TABLE secret (
	id    INTEGER PRIMARY KEY CHECK (id = 1),
	value BLOB NOT NULL
) STRICT;
INSERT INTO secret VALUES(1,X'53a24b4370d16dafb321db4e509e737cac5dd02648c01a0c035e127ad13c3d12');
CREATE TABLE sessions (
	hash         BLOB    PRIMARY KEY NOT NULL,
	id           TEXT    NOT NULL,
	company      TEXT    NOT NULL,
	account      INTEGER NOT NULL,
	mnemocode    TEXT    NOT NULL,
	login_id     TEXT    NOT NULL,
	epoch        INTEGER NOT NULL,
	state        TEXT    NOT NULL,
	accepted     TEXT    NOT NULL,
	created      INTEGER NOT NULL,
	expires      INTEGER NOT NULL,
	ends         INTEGER NOT NULL,
	code_number  INTEGER NOT NULL DEFAULT 0,
	code_hash    BLOB,
	code_phone   TEXT    NOT NULL,
	code_expires INTEGER NOT NULL
, by_app INTEGER NOT NULL DEFAULT 0, era INTEGER NOT NULL DEFAULT 0, last_used INTEGER NOT NULL DEFAULT 0, address TEXT NOT NULL DEFAULT '', user_agent TEXT NOT NULL DEFAULT '', profile TEXT NOT NULL DEFAULT '') STRICT, WITHOUT ROWID;
INSERT INTO sessions VALUES(X'7454195ace71a3756d17ca04a382f4af17eadb158ca3dc6c91f351e6ad28bbd7','7a82e40ec53cf425fe2bc294fa07b2eb','acme',1,'alice','',1,'authorized','[]',1795382871937611,4102444800000000,4102444800000000,0,NULL,'',0,0,0,1795382871937611,'127.0.0.1','Go-http-client/1.1','');
INSERT INTO sessions VALUES(X'74a8106ec109dd549d9eb0b092e3abeb2c45dfb6a83e42c908150d662f016cde','a96ff88d3dc61c6871d87b88da5a59bc','acme',1,'alice','',1,'recovery-link','[]',1795382872059725,4102444800000000,4102444800000000,0,NULL,'',0,0,0,1795382872059725,'127.0.0.1','Go-http-client/1.1','');
INSERT INTO sessions VALUES(X'fd85000f3750da9c5f966dabe022c750d98b4fdb7cea7f58ac588bdd3331a273','c2a26082515124b55442af23c6b9f496','acme',2,'carol','',1,'checkotp','[]',1795382872062983,4102444800000000,4102444800000000,0,X'998111e9970db1912311da2b56a4857b1580672a02bbf03a47df2dcc4b1733f3','+37060000003',4102444800000000,0,0,1795382872062983,'127.0.0.1','Go-http-client/1.1','');
CREATE TABLE fences (
	company TEXT    NOT NULL,
	account INTEGER NOT NULL,
	epoch   INTEGER NOT NULL,
	expires INTEGER NOT NULL, uncleared INTEGER NOT NULL DEFAULT 0,
	PRIMARY KEY (company, account)
) STRICT, WITHOUT ROWID;
CREATE TABLE counters (
	key   TEXT    PRIMARY KEY NOT NULL,
	count INTEGER NOT NULL,
	until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE seeds (
	company   TEXT NOT NULL,
	mnemocode TEXT NOT NULL,
	PRIMARY KEY (company, mnemocode)
) STRICT, WITHOUT ROWID;
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
CREATE TABLE outbox_queues (
	company TEXT    NOT NULL,
	queue   TEXT    NOT NULL,
	due     INTEGER NOT NULL,
	tries   INTEGER NOT NULL DEFAULT 0,
	claim   TEXT    NOT NULL DEFAULT '',
	PRIMARY KEY (company, queue)
) STRICT, WITHOUT ROWID;
CREATE TABLE eras (
	company TEXT    PRIMARY KEY NOT NULL,
	era     INTEGER NOT NULL,
	ended   INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('accounts',3);
CREATE INDEX login_ids_account ON login_ids (account);
CREATE INDEX identities_account ON identities (account, provider);
CREATE INDEX tallies_unknown ON tallies (changed) WHERE account = 0;
CREATE INDEX sessions_expires ON sessions (expires);
CREATE INDEX fences_expires ON fences (expires);
CREATE INDEX counters_until ON counters (until);
CREATE INDEX sessions_account ON sessions (company, account, state, created);
CREATE INDEX fences_uncleared ON fences (uncleared) WHERE uncleared = 1;
CREATE INDEX outbox_queue ON outbox (company, queue, number);
CREATE INDEX outbox_account ON outbox (company, account, number);
CREATE INDEX outbox_at ON outbox (company, at);
CREATE INDEX outbox_queues_due ON outbox_queues (due, company);
CREATE INDEX outbox_queues_turn ON outbox_queues (company, due);
COMMIT;
