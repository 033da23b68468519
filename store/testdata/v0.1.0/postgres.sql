SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA test1;
ALTER SCHEMA test1 OWNER TO postgres;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE test1.acceptances (
    account bigint NOT NULL,
    code text NOT NULL COLLATE pg_catalog."C",
    version text NOT NULL,
    at bigint NOT NULL
);
ALTER TABLE test1.acceptances OWNER TO postgres;
CREATE TABLE test1.accounts (
    id bigint NOT NULL,
    company text NOT NULL COLLATE pg_catalog."C",
    mnemocode text NOT NULL COLLATE pg_catalog."C",
    role text NOT NULL,
    phone text NOT NULL,
    email text NOT NULL,
    login_name text NOT NULL,
    status text NOT NULL,
    second_factor boolean NOT NULL,
    must_set_password boolean NOT NULL,
    password_hash text NOT NULL,
    question text NOT NULL,
    answer_hash text NOT NULL,
    epoch bigint DEFAULT 1 NOT NULL,
    created bigint NOT NULL,
    updated bigint NOT NULL,
    totp text DEFAULT ''::text NOT NULL,
    totp_pending text DEFAULT ''::text NOT NULL
);
ALTER TABLE test1.accounts OWNER TO postgres;
ALTER TABLE test1.accounts ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME test1.accounts_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE test1.backup_codes (
    account bigint NOT NULL,
    hash text NOT NULL COLLATE pg_catalog."C"
);
ALTER TABLE test1.backup_codes OWNER TO postgres;
CREATE TABLE test1.endings (
    company text NOT NULL COLLATE pg_catalog."C",
    account bigint NOT NULL,
    epoch bigint NOT NULL,
    number bigint NOT NULL,
    keep bytea DEFAULT '\x'::bytea NOT NULL
);
ALTER TABLE test1.endings OWNER TO postgres;
ALTER TABLE test1.endings ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME test1.endings_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE test1.eras (
    company text NOT NULL COLLATE pg_catalog."C",
    era bigint NOT NULL,
    ended bigint DEFAULT 0 NOT NULL
);
ALTER TABLE test1.eras OWNER TO postgres;
CREATE TABLE test1.identities (
    company text NOT NULL COLLATE pg_catalog."C",
    provider integer NOT NULL,
    subject text NOT NULL COLLATE pg_catalog."C",
    account bigint NOT NULL
);
ALTER TABLE test1.identities OWNER TO postgres;
CREATE TABLE test1.login_ids (
    company text NOT NULL COLLATE pg_catalog."C",
    login_id text NOT NULL COLLATE pg_catalog."C",
    account bigint NOT NULL
);
ALTER TABLE test1.login_ids OWNER TO postgres;
CREATE TABLE test1.mnemogate_migrations (
    name text NOT NULL
);
ALTER TABLE test1.mnemogate_migrations OWNER TO postgres;
CREATE TABLE test1.outbox (
    number bigint NOT NULL,
    company text NOT NULL COLLATE pg_catalog."C",
    queue text NOT NULL COLLATE pg_catalog."C",
    account bigint NOT NULL,
    id text NOT NULL,
    type text NOT NULL,
    body text NOT NULL,
    at bigint NOT NULL
);
ALTER TABLE test1.outbox OWNER TO postgres;
ALTER TABLE test1.outbox ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME test1.outbox_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE test1.outbox_queues (
    company text NOT NULL COLLATE pg_catalog."C",
    queue text NOT NULL COLLATE pg_catalog."C",
    due bigint NOT NULL,
    tries bigint DEFAULT 0 NOT NULL,
    claim text DEFAULT ''::text NOT NULL
);
ALTER TABLE test1.outbox_queues OWNER TO postgres;
CREATE TABLE test1.secret (
    id integer NOT NULL,
    value bytea NOT NULL,
    CONSTRAINT secret_id_check CHECK ((id = 1))
);
ALTER TABLE test1.secret OWNER TO postgres;
CREATE TABLE test1.seeds (
    company text NOT NULL COLLATE pg_catalog."C",
    mnemocode text NOT NULL COLLATE pg_catalog."C"
);
ALTER TABLE test1.seeds OWNER TO postgres;
CREATE TABLE test1.tallies (
    company text NOT NULL COLLATE pg_catalog."C",
    account bigint NOT NULL,
    login_id text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    count bigint NOT NULL,
    until bigint NOT NULL,
    changed bigint NOT NULL
);
ALTER TABLE test1.tallies OWNER TO postgres;
COPY test1.acceptances (account, code, version, at) FROM stdin;
1	terms	1	1795341600000000
\.
COPY test1.accounts (id, company, mnemocode, role, phone, email, login_name, status, second_factor, must_set_password, password_hash, question, answer_hash, epoch, created, updated, totp, totp_pending) FROM stdin;
1	acme	alice	tester		alice@example.com	alice	active	f	f	$argon2id$v=19$m=7168,t=5,p=1$bbiGLs35xnSEhPTxirJUXg$AiUQ5DB1KgvzuEPtDSJWCKNBaH86opv8/l5JGwae9vA	Cat?	$argon2id$v=19$m=7168,t=5,p=1$XuFaCCdezUrb8o7Udf0caQ$xwkADIcUN7jilCrvNI/VliorCNuQ79Q8W/hRNG34qGU	1	1795382874462758	1795382874462758		
2	acme	carol		+37060000003		carol	active	t	f	$argon2id$v=19$m=7168,t=5,p=1$ZoMkKAjtEnFlwR0036FlMg$Z/r18lkwwOiCQ/K5tPLPx4jxMe00i+RVIoEvuBVxsxg			1	1795382874654705	1795382874654705		
3	acme	lou				lou	active	f	f	$argon2id$v=19$m=7168,t=5,p=1$1RbubPZOmbcfuszkKtuOmA$EbDSwxNcBGaUgk/m1NzZwDrTVVfQKYYTirZvMAlDrEk			1	1795382874795676	1795382874795676		
\.
COPY test1.backup_codes (account, hash) FROM stdin;
2	$argon2id$v=19$m=7168,t=5,p=1$Z4yasWtEO6k1m5HqnCr/7w$9XoSWgbPRLdS8cjXLQj0ihbmeO3U5+r2F7KiOJKoxNc
2	$argon2id$v=19$m=7168,t=5,p=1$Z4yasWtEO6k1m5HqnCr/7w$nuLy0qXNgR954wQw9SwL8nlyGOM6nANIl4yA0OPK0SI
\.
COPY test1.endings (company, account, epoch, number, keep) FROM stdin;
\.
COPY test1.eras (company, era, ended) FROM stdin;
\.
COPY test1.identities (company, provider, subject, account) FROM stdin;
acme	1	sub-carol	2
\.
COPY test1.login_ids (company, login_id, account) FROM stdin;
acme	alice@example.com	1
acme	alice	1
acme	carol	2
acme	+37060000003	2
acme	lou	3
\.
COPY test1.mnemogate_migrations (name) FROM stdin;
001_init.sql
002_seeds.sql
003_totp.sql
004_outbox.sql
005_eras.sql
\.
COPY test1.outbox (number, company, queue, account, id, type, body, at) FROM stdin;
\.
COPY test1.outbox_queues (company, queue, due, tries, claim) FROM stdin;
\.
COPY test1.secret (id, value) FROM stdin;
1	\\xad654c544db423cd524fba2f93ee6d1d45c8997340cf06fe57f60dc47f71d489
\.
COPY test1.seeds (company, mnemocode) FROM stdin;
\.
COPY test1.tallies (company, account, login_id, kind, count, until, changed) FROM stdin;
acme	3		password	10	4102444800000000	1795382875647454
\.
SELECT pg_catalog.setval('test1.accounts_id_seq', 3, true);
SELECT pg_catalog.setval('test1.endings_number_seq', 1, false);
SELECT pg_catalog.setval('test1.outbox_number_seq', 1, false);
ALTER TABLE ONLY test1.acceptances
    ADD CONSTRAINT acceptances_pkey PRIMARY KEY (account, code);
ALTER TABLE ONLY test1.accounts
    ADD CONSTRAINT accounts_company_mnemocode_key UNIQUE (company, mnemocode);
ALTER TABLE ONLY test1.accounts
    ADD CONSTRAINT accounts_pkey PRIMARY KEY (id);
ALTER TABLE ONLY test1.backup_codes
    ADD CONSTRAINT backup_codes_pkey PRIMARY KEY (account, hash);
ALTER TABLE ONLY test1.endings
    ADD CONSTRAINT endings_number_key UNIQUE (number);
ALTER TABLE ONLY test1.endings
    ADD CONSTRAINT endings_pkey PRIMARY KEY (company, account);
ALTER TABLE ONLY test1.eras
    ADD CONSTRAINT eras_pkey PRIMARY KEY (company);
ALTER TABLE ONLY test1.identities
    ADD CONSTRAINT identities_pkey PRIMARY KEY (company, provider, subject);
ALTER TABLE ONLY test1.login_ids
    ADD CONSTRAINT login_ids_pkey PRIMARY KEY (company, login_id);
ALTER TABLE ONLY test1.mnemogate_migrations
    ADD CONSTRAINT mnemogate_migrations_pkey PRIMARY KEY (name);
ALTER TABLE ONLY test1.outbox
    ADD CONSTRAINT outbox_pkey PRIMARY KEY (number);
ALTER TABLE ONLY test1.outbox_queues
    ADD CONSTRAINT outbox_queues_pkey PRIMARY KEY (company, queue);
ALTER TABLE ONLY test1.secret
    ADD CONSTRAINT secret_pkey PRIMARY KEY (id);
ALTER TABLE ONLY test1.seeds
    ADD CONSTRAINT seeds_pkey PRIMARY KEY (company, mnemocode);
ALTER TABLE ONLY test1.tallies
    ADD CONSTRAINT tallies_pkey PRIMARY KEY (company, account, login_id, kind);
CREATE INDEX identities_account ON test1.identities USING btree (account, provider);
CREATE INDEX login_ids_account ON test1.login_ids USING btree (account);
CREATE INDEX outbox_account ON test1.outbox USING btree (company, account, number);
CREATE INDEX outbox_at ON test1.outbox USING btree (company, at);
CREATE INDEX outbox_queue ON test1.outbox USING btree (company, queue, number);
CREATE INDEX outbox_queues_due ON test1.outbox_queues USING btree (due, company);
CREATE INDEX outbox_queues_turn ON test1.outbox_queues USING btree (company, due);
CREATE INDEX tallies_unknown ON test1.tallies USING btree (changed) WHERE (account = 0);
ALTER TABLE ONLY test1.acceptances
    ADD CONSTRAINT acceptances_account_fkey FOREIGN KEY (account) REFERENCES test1.accounts(id) ON DELETE CASCADE;
ALTER TABLE ONLY test1.backup_codes
    ADD CONSTRAINT backup_codes_account_fkey FOREIGN KEY (account) REFERENCES test1.accounts(id) ON DELETE CASCADE;
ALTER TABLE ONLY test1.identities
    ADD CONSTRAINT identities_account_fkey FOREIGN KEY (account) REFERENCES test1.accounts(id) ON DELETE CASCADE;
ALTER TABLE ONLY test1.login_ids
    ADD CONSTRAINT login_ids_account_fkey FOREIGN KEY (account) REFERENCES test1.accounts(id) ON DELETE CASCADE;

