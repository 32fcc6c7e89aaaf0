-- The ledger of Semel in PostgreSQL, version 1. To run it again changes nothing.

CREATE TABLE IF NOT EXISTS {schema}.ledger (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL
);

CREATE TABLE IF NOT EXISTS {schema}.records (
    key text COLLATE "C" PRIMARY KEY,
    version text COLLATE "C" NOT NULL,  -- random, drawn by whoever wrote it: it never comes back, not even after a failover
    value bytea NOT NULL,
    ttl_ms bigint,
    expires timestamptz,
    awaited text                        -- the word to call when it changes, left there by one who waits
) WITH (fillfactor = 70);

-- The timeline, which a failover moves on; 0 where it cannot be read.
CREATE OR REPLACE FUNCTION {schema}.epoch_1()
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $epoch$
BEGIN
    -- the control file still tells the old one for a while after a failover; this does not
    RETURN ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;
EXCEPTION WHEN OTHERS THEN
    RETURN 0;
END $epoch$;

-- First the row (0, epoch), then one for each key that is there, by its place among those asked for.
CREATE OR REPLACE FUNCTION {schema}.load_1(keys text[])
RETURNS TABLE (n integer, stands text, value bytea, left_us bigint, epoch bigint)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $load$
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'this server is a replica' USING ERRCODE = 'read_only_sql_transaction';
    END IF;
    RETURN QUERY SELECT 0, NULL::text, NULL::bytea, NULL::bigint, {schema}.epoch_1();
    RETURN QUERY
        SELECT c.n::integer, r.version, r.value,
               (extract(epoch FROM r.expires - clock_timestamp()) * 1000000)::bigint, NULL::bigint
        FROM unnest(keys) WITH ORDINALITY AS c (key, n) JOIN {schema}.records r ON r.key = c.key;
END $load$;

-- All changes or none. Answers nothing if they are made, else the first that does not fit and what stands there.
-- makes: how many records are absent before, holds: how many of these are absent after, moves: how many others change.
-- epoch: if not 0, the timeline that the changes were decided by; on another nothing fits.
-- verbs: 0 guard, 1 put, 2 remove. wants: 0 absent, 1 at this version, 2 and live, 3 and lapsed, 9 never.
CREATE OR REPLACE FUNCTION {schema}.swap_1(
    keys text[], verbs smallint[], wants smallint[], seen text[], made text[], vals bytea[], ttls bigint[],
    makes integer, holds integer, moves integer, patience text, relaxed boolean, epoch bigint
)
RETURNS TABLE (misfit integer, stands text, value bytea, left_us bigint)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $swap$
DECLARE
    at_time timestamptz;
    bad bigint;
    awaited_keys text[];
    words text[];
    done bigint;
    more bigint;
BEGIN
    PERFORM set_config('lock_timeout', patience, true);
    IF relaxed THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    LOOP
        -- in the order of their keys, so that two swaps do not wait for each other in a circle
        SELECT array_agg(l.key) FILTER (WHERE l.awaited IS NOT NULL),
               array_agg(l.awaited) FILTER (WHERE l.awaited IS NOT NULL)
        INTO awaited_keys, words
        FROM (
            SELECT r.key, r.awaited FROM {schema}.records r WHERE r.key = ANY (keys) ORDER BY r.key FOR UPDATE
        ) l;
        -- after the locks: nobody can renew any more
        at_time := clock_timestamp();
        SELECT c.n INTO bad
        FROM unnest(keys, wants, seen) WITH ORDINALITY AS c (key, want, seen, n)
        LEFT JOIN {schema}.records r ON r.key = c.key
        WHERE (CASE c.want
            WHEN 0 THEN r.key IS NULL
            WHEN 1 THEN r.version = c.seen
            WHEN 2 THEN r.version = c.seen AND r.expires > at_time
            WHEN 3 THEN r.version = c.seen AND r.expires <= at_time
        END) IS NOT TRUE
        ORDER BY c.n LIMIT 1;
        IF bad IS NULL AND epoch > 0 AND epoch <> {schema}.epoch_1() THEN
            bad := 1;
        END IF;
        IF bad IS NOT NULL THEN
            -- nothing is written, so nothing need reach the disk but that rows were locked
            PERFORM set_config('synchronous_commit', 'off', true);
            RETURN QUERY
                SELECT bad::integer - 1, r.version, r.value,
                       (extract(epoch FROM r.expires - at_time) * 1000000)::bigint
                FROM (SELECT keys[bad] AS key) c LEFT JOIN {schema}.records r ON r.key = c.key;
            RETURN;
        END IF;
        EXIT WHEN NOT 0 = ANY (wants);
        -- what must be absent has no row to lock: whoever makes it first has it. One that is only guarded is made too,
        -- so that another waits for us, and taken away again below
        INSERT INTO {schema}.records (key, version, value, ttl_ms, expires)
            SELECT DISTINCT ON (c.key) c.key, c.made, c.val, c.ttl, at_time + c.ttl * interval '1 millisecond'
            FROM unnest(keys, verbs, wants, made, vals, ttls) AS c (key, verb, want, made, val, ttl)
            WHERE c.want = 0 ORDER BY c.key, c.verb DESC
            ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS done = ROW_COUNT;
        IF done = makes THEN
            IF holds > 0 THEN
                DELETE FROM {schema}.records r WHERE r.key = ANY (keys) AND r.version = '';
            END IF;
            EXIT;
        END IF;
        -- another was first: take ours back and look again
        DELETE FROM {schema}.records r WHERE r.key = ANY (keys) AND (r.version = ANY (made) OR r.version = '');
    END LOOP;
    IF moves > 0 THEN
        UPDATE {schema}.records r
            SET version = c.made, value = c.val, ttl_ms = c.ttl,
                expires = at_time + c.ttl * interval '1 millisecond', awaited = NULL
            FROM unnest(keys, verbs, wants, seen, made, vals, ttls) AS c (key, verb, want, seen, made, val, ttl)
            WHERE r.key = c.key AND r.version = c.seen AND c.verb = 1 AND c.want > 0;
        GET DIAGNOSTICS done = ROW_COUNT;
        IF 2 = ANY (verbs) THEN
            DELETE FROM {schema}.records r
                USING unnest(keys, verbs, seen) AS c (key, verb, seen)
                WHERE r.key = c.key AND r.version = c.seen AND c.verb = 2;
            GET DIAGNOSTICS more = ROW_COUNT;
            done := done + more;
        END IF;
        IF done <> moves THEN
            RAISE EXCEPTION 'a record moved under its lock' USING ERRCODE = 'serialization_failure';
        END IF;
    END IF;
    IF words IS NOT NULL THEN
        PERFORM pg_notify('{channel}', w.word)
        FROM unnest(awaited_keys, words) AS w (key, word) JOIN unnest(keys, verbs) AS c (key, verb) ON c.key = w.key
        WHERE c.verb > 0;
    END IF;
END $swap$;

-- Restart a clock that has not run out. Answers nothing if it is done, else what stands there.
CREATE OR REPLACE FUNCTION {schema}.touch_1(asked text, seen text, patience text)
RETURNS TABLE (misfit integer, stands text, value bytea, left_us bigint)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $touch$
BEGIN
    PERFORM set_config('lock_timeout', patience, true);
    -- the lock first: an UPDATE that waited for one that changed nothing does not look at the clock again
    PERFORM 1 FROM {schema}.records r WHERE r.key = asked AND r.version = seen FOR UPDATE;
    UPDATE {schema}.records r SET expires = clock_timestamp() + r.ttl_ms * interval '1 millisecond'
        WHERE r.key = asked AND r.version = seen AND r.expires > clock_timestamp();
    IF NOT FOUND THEN
        RETURN QUERY
            SELECT 0, r.version, r.value, (extract(epoch FROM r.expires - clock_timestamp()) * 1000000)::bigint
            FROM (SELECT asked AS key) c LEFT JOIN {schema}.records r ON r.key = c.key;
    END IF;
END $touch$;

-- Is it another by now? If not, leave a word with it: a NOTIFY makes commits wait for each other, so it is sent only
-- where somebody listens.
CREATE OR REPLACE FUNCTION {schema}.await_1(asked text, seen text, word text)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $await$
DECLARE
    same boolean;
    said text;
BEGIN
    SELECT r.version = seen, r.awaited INTO same, said FROM {schema}.records r WHERE r.key = asked;
    IF same IS NOT TRUE OR said = word THEN
        RETURN same IS NOT TRUE;
    END IF;
    -- a hint that a power cut may forget
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE {schema}.records r SET awaited = word WHERE r.key = asked AND r.version = seen;
    RETURN NOT FOUND;
END $await$;

INSERT INTO {schema}.ledger (version) VALUES (1) ON CONFLICT DO NOTHING;
