#!/bin/sh
# The PostgreSQL image runs this once, when it makes the cluster. holdfast_owner migrates: it owns the database and may create the
# role of callers' statements. holdfast, the servers' role, owns nothing (docs/database.md). reader reads the views of
# docs/sql.md. None is a superuser. The superuser and reader have no password: they log in inside the container only.
#
# It may run again: then it makes what is missing.
set -eu
psql --quiet --set ON_ERROR_STOP=1 --username postgres --dbname postgres \
	--set owner="$(cat /run/secrets/owner_password)" --set server="$(cat /run/secrets/database_password)" <<'SQL'
SELECT format('CREATE ROLE holdfast_owner LOGIN CREATEROLE PASSWORD %L', :'owner') WHERE to_regrole('holdfast_owner') IS NULL \gexec
SELECT format('CREATE ROLE holdfast LOGIN PASSWORD %L', :'server') WHERE to_regrole('holdfast') IS NULL \gexec
SELECT 'CREATE ROLE holdfast_reader NOLOGIN' WHERE to_regrole('holdfast_reader') IS NULL \gexec
SELECT 'CREATE ROLE reader LOGIN' WHERE to_regrole('reader') IS NULL \gexec
SELECT 'CREATE DATABASE holdfast OWNER holdfast_owner' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'holdfast') \gexec
\connect holdfast
REVOKE CONNECT ON DATABASE holdfast FROM PUBLIC;
GRANT CONNECT ON DATABASE holdfast TO holdfast, reader;
GRANT holdfast_reader TO reader;
ALTER ROLE CURRENT_USER PASSWORD NULL;
-- The server sets these for its sessions. Behind PgBouncer it cannot, and relies on the role.
ALTER ROLE holdfast SET timezone = 'UTC';
ALTER ROLE holdfast SET enable_seqscan = off;
ALTER ROLE holdfast SET plan_cache_mode = force_generic_plan;
ALTER ROLE holdfast SET jit = off;
ALTER ROLE holdfast SET default_transaction_isolation = 'read committed';
ALTER ROLE holdfast SET lock_timeout = '4s';
ALTER ROLE holdfast SET statement_timeout = '30s';
ALTER ROLE holdfast SET idle_in_transaction_session_timeout = '10s';
ALTER ROLE reader SET statement_timeout = '60s';
ALTER ROLE reader SET idle_in_transaction_session_timeout = '60s';
ALTER ROLE reader SET default_transaction_read_only = on;
SQL
