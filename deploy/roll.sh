#!/bin/sh
# Replaces the replicas of docker-compose.yml one by one, for a new image or configuration: requests lose nothing. First it checks the
# configuration and migrates. If one of these fails, or the first new replica does, the old replicas run on.
set -eu
cd "$(dirname "$0")/.."
docker compose run --rm --no-deps server config check
docker compose run --rm --no-deps migrate
docker compose rm --force server # those that have stopped
old=$(docker compose ps --quiet server)
if [ -z "$old" ]; then exec docker compose up --detach --no-build --wait server; fi
replicas=$(echo "$old" | wc -l)
for replaced in $old; do
	before=$(docker compose ps --all --quiet server)
	docker compose up --detach --no-build --no-deps --no-recreate --scale server=$((replicas + 1)) server
	for new in $(docker compose ps --all --quiet server); do
		case $before in *"$new"*) continue ;; esac
		until [ "$(docker inspect --format '{{.State.Health.Status}}' "$new")" = healthy ]; do
			case $(docker inspect --format '{{.RestartCount}} {{.State.Health.Status}}' "$new") in
			*unhealthy | [!0]*)
				docker logs --tail 20 "$new"
				docker rm --force "$new"
				exit 1
				;;
			esac
			sleep 1
		done
	done
	docker stop -t 60 "$replaced"
	docker rm "$replaced"
done
