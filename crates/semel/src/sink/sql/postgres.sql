-- Semel's fence for PostgreSQL (tested with 15; it needs ON CONFLICT, which is in 9.5 and later). Run it as the
-- owner of your tables, in the schema they are in; it may be run again. A role that passes the fence needs SELECT,
-- INSERT and UPDATE on the table semel_fence.
--
--   BEGIN;
--   SELECT semel_fence('site', 41, 'nonce');              -- first the fence, then what you read and write
--   INSERT INTO posts (title) VALUES ('...');
--   COMMIT;
--
--   INSERT INTO posts (title) SELECT '...' FROM semel_fence('site', 41, 'nonce');   -- all in one statement
--
-- An older token than the last one fails with SQLSTATE SM077, the same token with another nonce with SM079; the
-- transaction can then only be rolled back. The row stays locked until the transaction ends, so transactions of
-- one resource commit in the order of their tokens. Do not catch the error in a savepoint to write after all.

DO $migration$
BEGIN
  -- two migrations at once would trip over each other
  PERFORM pg_advisory_xact_lock(hashtext('semel_fence'));

  CREATE TABLE IF NOT EXISTS semel_fence (
    resource text PRIMARY KEY,
    token    bigint NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991),
    nonce    text NOT NULL,
    changed  timestamptz NOT NULL DEFAULT clock_timestamp()
  );

  -- bound to this schema, whatever the caller's search_path is
  EXECUTE format($create$
    CREATE OR REPLACE FUNCTION %1$I.semel_fence(of_resource text, new_token bigint, new_nonce text)
    RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path = %1$I, pg_temp AS $body$
    DECLARE
      last_token bigint;
      last_nonce text;
    BEGIN
      IF of_resource IS NULL OR new_token IS NULL OR new_nonce IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed',
          MESSAGE = 'semel_fence takes a resource, a token and a nonce, none of them NULL';
      END IF;
      -- The same grant writes the row too: whoever comes next waits for this transaction, and under REPEATABLE
      -- READ fails to serialize instead of going on with what it read before.
      INSERT INTO semel_fence AS fence (resource, token, nonce, changed)
        VALUES (of_resource, new_token, new_nonce, clock_timestamp())
        ON CONFLICT (resource) DO UPDATE
          SET token = excluded.token, nonce = excluded.nonce, changed = excluded.changed
          WHERE fence.token < excluded.token
             OR (fence.token = excluded.token AND fence.nonce = excluded.nonce);
      IF FOUND THEN
        RETURN true;
      END IF;
      SELECT fence.token, fence.nonce INTO last_token, last_nonce
        FROM semel_fence AS fence WHERE fence.resource = of_resource;
      IF last_token = new_token THEN
        RAISE EXCEPTION USING ERRCODE = 'SM079',
          MESSAGE = 'token ' || new_token || ' of ' || of_resource || ' was granted twice: nothing was written',
          DETAIL = 'last=' || last_token || ' last_nonce=' || last_nonce || ' nonce=' || new_nonce,
          HINT = 'Two holders have been told that they are the one: look at the store of the leases.';
      END IF;
      RAISE EXCEPTION USING ERRCODE = 'SM077',
        MESSAGE = 'token ' || new_token || ' of ' || of_resource || ' is stale: nothing was written',
        DETAIL = 'last=' || last_token,
        HINT = 'The lease was taken over: stop, and leave the work to its new holder.';
    END
    $body$
  $create$, current_schema());
END
$migration$;
