"""What somebody would pick instead, on the same Redis: redis_peers.py PORT TIMES THREADS.

Each peer does its own thing TIMES times over so many threads, on warm connections: take and give back a lock, or do a work
once by an idempotency key. Prints a line for each: its name and the seconds.
"""

import os
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import redis

warnings.simplefilter("ignore")
port, times, threads = (int(word) for word in sys.argv[1:4])
client = redis.Redis(port=port)


def lock():
    import redis_lock

    def once(n):
        with redis_lock.Lock(client, f"lock-{n}", expire=60):
            pass

    return once


def redlock():
    from pottery import Redlock

    def once(n):
        with Redlock(key=f"redlock-{n}", masters={client}, auto_release_time=60):
            pass

    return once


def powertools():
    os.environ["POWERTOOLS_SERVICE_NAME"] = "bench"
    from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
    from aws_lambda_powertools.utilities.idempotency.persistence.redis import RedisCachePersistenceLayer

    layer = RedisCachePersistenceLayer(client=client)
    config = IdempotencyConfig(expires_after_seconds=3600)

    @idempotent_function(data_keyword_argument="work", persistence_store=layer, config=config)
    def effect(work):
        return {"done": work}

    return lambda n: effect(work=f"work-{n}")


for name, make in [("python-redis-lock", lock), ("pottery Redlock", redlock), ("powertools idempotency", powertools)]:
    once = make()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(once, [f"{time.time_ns()}-warm-{n}" for n in range(threads)]))
        names = [f"{time.time_ns()}-{n}" for n in range(times)]
        begun = time.perf_counter()
        list(pool.map(once, names))
    print(f"{name}\t{time.perf_counter() - begun}", flush=True)
