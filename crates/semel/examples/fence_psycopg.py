"""A fenced write from Python: semel run --job publish --once -- python3 fence_psycopg.py"""
import os
import sys

import psycopg

try:
    with psycopg.connect(os.environ["DATABASE_URL"]) as db, db.transaction():
        # first the fence, then what is read and written
        db.execute(
            "SELECT semel_fence(%s, %s, %s)",
            (os.environ["SEMEL_RESOURCE"], int(os.environ["SEMEL_TOKEN"]), os.environ["SEMEL_NONCE"]),
        )
        db.execute("INSERT INTO posts (title) VALUES (%s)", ("on being once",))
except psycopg.Error as why:
    if why.sqlstate not in ("SM077", "SM079"):
        raise
    print(why.diag.message_primary, file=sys.stderr)
    sys.exit(int(why.sqlstate[2:]))
