#!/bin/bash
# Bytes of write-ahead log and of disk for each task and event, on an idle server and its database. Nothing else may write.
#
#   bench/bytes.sh 'postgres://holdfast@127.0.0.1/holdfast' --url http://127.0.0.1:8080 --mode stream --text 'chunks=1000 size=256'
#
# The arguments after the database are those of `go run ./bench/run`. The role must be a superuser: a checkpoint makes the start the same
# each time.
set -euo pipefail
cd "$(dirname "$0")/.."
database=$1
shift
sql() { psql --no-psqlrc --quiet --tuples-only --no-align --set ON_ERROR_STOP=1 --dbname "$database" --command "$1"; }
size="SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE n.nspname = 'holdfast' AND c.relkind = 'r'"
count="SELECT (SELECT count(*) FROM holdfast.v_tasks) || ' ' || (SELECT count(*) FROM holdfast.v_events)"

sql CHECKPOINT
sql VACUUM
start=$(sql 'SELECT pg_current_wal_insert_lsn()')
read -r tasks events <<<"$(sql "$count")"
bytes=$(sql "$size")
go run ./bench/run "$@"
wal=$(sql "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '$start')")
sql VACUUM
bytes=$(($(sql "$size") - bytes))
read -r tasks_then events_then <<<"$(sql "$count")"
tasks=$((tasks_then - tasks)) events=$((events_then - events))
printf '%s tasks, %s events\n' "$tasks" "$events"
printf 'bytes for a task:   write-ahead log %s, disk %s\n' $((wal / tasks)) $((bytes / tasks))
printf 'bytes for an event: write-ahead log %s, disk %s\n' $((wal / events)) $((bytes / events))
