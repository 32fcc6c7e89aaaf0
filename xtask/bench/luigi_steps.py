"""Luigi's tasks: `luigi_steps.py FOLDER STEPS`.

Each task leaves a file, written beside its place and renamed, by which it is known as done; one worker, the scheduler in
the same process. Nothing is synced: a task survives the end of the process, and not always that of the machine. Nothing is
written before it either. Prints the tasks per second.
"""

import logging
import os
import sys
import time

import luigi

folder, steps = sys.argv[1], int(sys.argv[2])
logging.disable(logging.CRITICAL)


class One(luigi.Task):
    folder = luigi.Parameter()
    n = luigi.IntParameter()

    def output(self):
        return luigi.LocalTarget(os.path.join(self.folder, str(self.n)))

    def run(self):
        with self.output().open("w") as out:
            out.write(str(self.n))


def run(name, many):
    place = os.path.join(folder, f"luigi-{os.getpid()}-{name}")
    tasks = [One(folder=place, n=n) for n in range(many)]
    began = time.monotonic()
    done = luigi.build(tasks, workers=1, local_scheduler=True, no_lock=True)
    took = time.monotonic() - began
    if not done or len(os.listdir(place)) != many:
        sys.exit("not all tasks are done")
    return many / took


run("warm", 5)
print(run("measured", steps))
