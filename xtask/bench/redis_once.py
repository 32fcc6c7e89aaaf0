"""A job that guards itself, as cron starts it: redis_once.py PEER PORT NAME COMMAND…

Takes a lock of that name on Redis, or an idempotency key, runs the command, and gives the lock back.
"""

import os
import subprocess
import sys
import warnings

warnings.simplefilter("ignore")
peer, port, name, command = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]

import redis  # noqa: E402

client = redis.Redis(port=port)
if peer == "python-redis-lock":
    import redis_lock

    with redis_lock.Lock(client, name, expire=60):
        subprocess.run(command, check=True)
elif peer == "pottery":
    from pottery import Redlock

    with Redlock(key=name, masters={client}, auto_release_time=60):
        subprocess.run(command, check=True)
elif peer == "powertools":
    os.environ["POWERTOOLS_SERVICE_NAME"] = "bench"
    from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
    from aws_lambda_powertools.utilities.idempotency.persistence.redis import RedisCachePersistenceLayer

    layer = RedisCachePersistenceLayer(client=client)

    @idempotent_function(
        data_keyword_argument="work",
        persistence_store=layer,
        config=IdempotencyConfig(expires_after_seconds=3600),
    )
    def effect(work):
        return {"code": subprocess.run(command, check=True).returncode}

    effect(work=name)
else:
    sys.exit(f"there is no peer {peer!r}")
