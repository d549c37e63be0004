#!/bin/sh
# Writes the secrets of docker-compose.yml into deploy/secrets/, once. Only you can enter that directory; the files in it are
# readable, because the users inside the containers are others.
set -eu
cd "$(dirname "$0")"
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
if [ -e secrets/database_password ]; then
	echo "deploy/secrets/ has secrets already; the volume of PostgreSQL has this password" >&2
	exit 0
fi
umask 077
mkdir -p secrets
umask 022
password=$(random)
# The server finds its password by host, port, database and role; * is PostgreSQL or PgBouncer.
printf '*:*:holdfast:holdfast:%s\n' "$password" >secrets/pgpass
printf '"holdfast" "%s"\n' "$password" >secrets/pgbouncer_users
random >secrets/grafana_password
printf %s "$password" >secrets/database_password
