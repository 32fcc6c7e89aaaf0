-- Semel's fence for SQLite (tested with 3.40 and later). It may be run again.
--
--   BEGIN;
--   INSERT INTO semel_fence (resource, token, nonce) VALUES ('site', 41, 'nonce');   -- first the fence
--   INSERT INTO posts (title) VALUES ('...');
--   COMMIT;
--
-- An older token than the last one fails with "SM077 ...", the same token with another nonce with "SM079 ...".
-- SQLite then takes back this statement alone: roll back (in the shell, use -bail). From the fence to the end of
-- the transaction nobody else writes. After SQLITE_BUSY nothing was written: roll back and begin anew.

CREATE TABLE IF NOT EXISTS semel_fence (
  -- a grant that passed takes the place of the last one
  resource TEXT NOT NULL PRIMARY KEY ON CONFLICT REPLACE CHECK (typeof(resource) = 'text'),
  token    INTEGER NOT NULL CHECK (typeof(token) = 'integer' AND token BETWEEN 1 AND 9007199254740991),
  nonce    TEXT NOT NULL CHECK (typeof(nonce) = 'text'),
  changed  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

CREATE TRIGGER IF NOT EXISTS semel_fence_insert BEFORE INSERT ON semel_fence
BEGIN
  SELECT RAISE(ABORT, 'SM077 stale token: nothing was written: the lease was taken over')
    FROM semel_fence WHERE resource = NEW.resource AND token > NEW.token;
  SELECT RAISE(ABORT, 'SM079 token granted twice: nothing was written: look at the store of the leases')
    FROM semel_fence WHERE resource = NEW.resource AND token = NEW.token AND nonce <> NEW.nonce;
END;

CREATE TRIGGER IF NOT EXISTS semel_fence_update BEFORE UPDATE ON semel_fence
BEGIN
  SELECT RAISE(ABORT, 'SM077 stale token: nothing was written: the lease was taken over')
    WHERE NEW.token < OLD.token;
  SELECT RAISE(ABORT, 'SM079 token granted twice: nothing was written: look at the store of the leases')
    WHERE NEW.token = OLD.token AND NEW.nonce <> OLD.nonce;
END;
