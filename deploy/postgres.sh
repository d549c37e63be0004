#!/bin/sh
# The PostgreSQL image runs this once, when it makes the cluster. The server's role owns its database and may create
# the role of callers' statements, but it is no superuser. The superuser has no password: it logs in inside the
# container only.
set -eu
psql --set ON_ERROR_STOP=1 --set password="$POSTGRES_PASSWORD" --username "$POSTGRES_USER" --dbname postgres <<'SQL'
CREATE ROLE holdfast LOGIN CREATEROLE PASSWORD :'password';
CREATE DATABASE holdfast OWNER holdfast;
REVOKE CONNECT ON DATABASE holdfast FROM PUBLIC;
ALTER ROLE CURRENT_USER PASSWORD NULL;
SQL
