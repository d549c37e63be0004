#!/bin/sh
# Writes the secrets of docker-compose.yml that are not in deploy/secrets/ yet. Only you can enter that directory; the files in it
# are readable, because the users inside the containers are others.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
umask 022
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
# new NAME writes standard input to a secret, unless that exists.
new() { if [ -e "secrets/$1" ]; then cat >/dev/null; else cat >"secrets/$1"; fi; }
random | new database_password
random | new owner_password
random | new grafana_password
# Seals clients' secrets and signing keys (docs/security.md, Secrets at rest): a dump of the database alone opens none.
head -c 32 /dev/urandom | base64 | new secret_keys
# Programs find a password by host, port, database and role; * is PostgreSQL or PgBouncer.
printf '*:*:holdfast:holdfast:%s\n' "$(cat secrets/database_password)" | new pgpass
printf '*:*:holdfast:holdfast_owner:%s\n' "$(cat secrets/owner_password)" | new owner_pgpass
printf '"holdfast" "%s"\n' "$(cat secrets/database_password)" | new pgbouncer_users
