-- Compares payloads that stay in their rows (MAIN) with payloads that PostgreSQL moves to another table (EXTENDED):
-- processor time of writes and reads, write-ahead log and disk for a row.
--
--     psql -qf bench/storage.sql postgres
--
-- It needs Linux and a superuser, and leaves nothing behind.
\set QUIET on
\set ON_ERROR_STOP on
SET client_min_messages = error;
SET search_path = pg_temp;
CREATE FUNCTION spent() RETURNS numeric LANGUAGE sql AS $$
    SELECT (f[14]::numeric + f[15]::numeric) * 10000 FROM string_to_array(pg_read_file('/proc/self/stat'), ' ') f
$$;
-- Random text cannot be compressed; words of PostgreSQL's catalog compress as prose does.
CREATE FUNCTION text_of(kind text, size int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    words text[];
BEGIN
    IF kind = 'random' THEN
        RETURN (SELECT left(string_agg(translate(encode(sha256(random()::text::bytea), 'base64'), E'\n', ''), ''), size)
                  FROM generate_series(1, size / 40));
    END IF;
    SELECT array_agg(w) INTO words FROM (
        SELECT w
          FROM pg_description d, regexp_split_to_table(d.description, '[^a-z]+') w
         WHERE w <> '' LIMIT 3000) found;
    RETURN (SELECT left(string_agg(words[1 + floor(random() * array_length(words, 1))::int], ' '), size)
              FROM generate_series(1, size));
END
$$;
CREATE TABLE results (
    size int, kind text, storage text,
    write numeric, read numeric, wal numeric, disk numeric, stored numeric
);
CREATE PROCEDURE try(size int, kind text, storage text) LANGUAGE plpgsql AS $$
DECLARE
    payloads text[] := ARRAY(
        SELECT format('{"index":0,"name":"chunks","parts":[{"text":"%s"}]}', pg_temp.text_of(kind, size))
          FROM generate_series(1, 50));
    wal pg_lsn;
    before numeric;
    write numeric;
BEGIN
    CREATE TABLE public.holdfast_storage (
        task uuid, seq bigint, kind smallint, kept boolean, state smallint, attempt integer, append boolean,
        last boolean, artifact_id text, payload json, request_id uuid, created_at timestamptz DEFAULT now(),
        worker_id uuid, claimed_at timestamptz,
        PRIMARY KEY (task, seq)
    );
    EXECUTE format('ALTER TABLE public.holdfast_storage
        ALTER payload SET STORAGE %1$s, ALTER artifact_id SET STORAGE %1$s', storage);
    BEGIN
        ALTER TABLE public.holdfast_storage ALTER payload SET COMPRESSION lz4;
    EXCEPTION WHEN feature_not_supported THEN NULL;
    END;
    wal := pg_current_wal_insert_lsn();
    before := pg_temp.spent();
    FOR i IN 1..100 LOOP
        INSERT INTO public.holdfast_storage (task, seq, kind, attempt, append, last, artifact_id, payload)
        SELECT t, s, 3, 1, true, false, t::text, payloads[1 + s % 50]::json
          FROM gen_random_uuid() t, generate_series(1, 500) s;
    END LOOP;
    write := (pg_temp.spent() - before) / 50000;
    before := pg_temp.spent();
    FOR i IN 1..4 LOOP
        PERFORM sum(length(payload::text)) FROM public.holdfast_storage;
    END LOOP;
    INSERT INTO results
    SELECT try.size, try.kind, try.storage, write,
           (pg_temp.spent() - before) / 200000,
           (pg_current_wal_insert_lsn() - wal) / 50000,
           pg_total_relation_size('public.holdfast_storage') / 50000,
           avg(pg_column_size(payload))
      FROM public.holdfast_storage;
    DROP TABLE public.holdfast_storage;
END
$$;
SELECT format('CALL pg_temp.try(%s, %L, %L)', size, kind, storage)
  FROM unnest('{256,2048,4000,8000}'::int[]) size,
       unnest('{random,words}'::text[]) kind,
       unnest('{EXTENDED,MAIN}'::text[]) storage,
       generate_series(1, 2) turn
 ORDER BY size, kind, turn
\gexec
\set QUIET off
SELECT size, kind, storage,
       round(percentile_cont(0.5) WITHIN GROUP (ORDER BY write)::numeric, 1) AS "µs to write a row",
       round(percentile_cont(0.5) WITHIN GROUP (ORDER BY read)::numeric, 1) AS "µs to read it",
       round(avg(wal)) AS "bytes of log",
       round(avg(disk)) AS "bytes on disk",
       round(avg(stored)) AS "of the payload"
  FROM results
 GROUP BY 1, 2, 3
 ORDER BY 1, 2, 3;
