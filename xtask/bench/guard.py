"""What people write instead: a lock file and a JSONL ledger. usage: guard.py DIR KEY COMMAND..."""

import fcntl
import json
import os
import subprocess
import sys
import time

folder, key, command = sys.argv[1], sys.argv[2], sys.argv[3:]
lock = open(os.path.join(folder, "lock"), "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit(0)

path = os.path.join(folder, "ledger.jsonl")
done = set()
if os.path.exists(path):
    with open(path) as ledger:
        for line in ledger:
            entry = json.loads(line)
            if entry["state"] == "done":
                done.add(entry["key"])
if key in done:
    sys.exit(0)


def record(state, **more):
    with open(path, "a") as ledger:
        ledger.write(json.dumps({"key": key, "state": state, "at": time.time(), **more}) + "\n")
        ledger.flush()
        os.fdatasync(ledger.fileno())


record("running", pid=os.getpid())
code = subprocess.run(command).returncode
record("done" if code == 0 else "failed", code=code)
sys.exit(code)
