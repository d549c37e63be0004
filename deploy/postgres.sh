#!/bin/sh
# The PostgreSQL image runs this once, when it makes the cluster. The server's role owns its database and may create
# the role of callers' statements, but it is no superuser. The superuser has no password: it logs in inside the
# container only.
set -eu
psql --set ON_ERROR_STOP=1 --set password="$(cat /run/secrets/database_password)" --username postgres --dbname postgres <<'SQL'
CREATE ROLE holdfast LOGIN CREATEROLE PASSWORD :'password';
CREATE DATABASE holdfast OWNER holdfast;
REVOKE CONNECT ON DATABASE holdfast FROM PUBLIC;
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
SQL
