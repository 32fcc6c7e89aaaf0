"""DBOS' durable steps: `dbos_steps.py PLACE STEPS AT_ONCE`. The place is a folder, for its SQLite system database, or the
address of a PostgreSQL.

One workflow after the other of a hundred steps, so many at once on threads of their own. Prints the steps per second.
A step is durable when it returns, as an item of a batch is when it is counted.
"""

import os
import sys
import threading
import time

from dbos import DBOS

place, steps, at_once = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
PER_WORKFLOW = 100
if "://" not in place:
    place = "sqlite:///" + os.path.join(place, "dbos.sqlite")

DBOS(
    config={
        "name": "bench",
        "system_database_url": place,
        "run_admin_server": False,
        "log_level": "ERROR",
    }
)


@DBOS.step()
def one(n):
    return n


@DBOS.workflow()
def many(count):
    for n in range(count):
        one(n)


DBOS.launch()
many(PER_WORKFLOW)

workflows = max(1, steps // PER_WORKFLOW)
lock, left = threading.Lock(), [workflows]


def work():
    while True:
        with lock:
            if left[0] == 0:
                return
            left[0] -= 1
        many(PER_WORKFLOW)


began = time.monotonic()
threads = [threading.Thread(target=work) for _ in range(at_once)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
took = time.monotonic() - began
print(workflows * PER_WORKFLOW / took)
DBOS.destroy()
