"""LangGraph's durable steps: `langgraph_steps.py FOLDER STEPS`.

One graph whose only node runs again and again. After each step, before the next, its checkpoint is committed to SQLite
(`durability="sync"`); the connection is LangGraph's own, in WAL mode and with a full sync at each commit. Prints the steps
per second.
"""

import os
import sys
import time
from typing import TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

folder, steps = sys.argv[1], int(sys.argv[2])


class State(TypedDict):
    n: int
    most: int


def one(state):
    return {"n": state["n"] + 1}


graph = StateGraph(State)
graph.add_node("one", one)
graph.add_edge(START, "one")
graph.add_conditional_edges("one", lambda state: "one" if state["n"] < state["most"] else END)

with SqliteSaver.from_conn_string(os.path.join(folder, "langgraph.sqlite")) as saver:
    saver.setup()
    (mode,) = saver.conn.execute("PRAGMA journal_mode").fetchone()
    (sync,) = saver.conn.execute("PRAGMA synchronous").fetchone()
    if (mode, sync) != ("wal", 2):
        sys.exit(f"its commits are not synced: journal_mode {mode}, synchronous {sync}")
    app = graph.compile(checkpointer=saver)

    def run(thread, most):
        config = {"configurable": {"thread_id": f"{os.getpid()}-{thread}"}, "recursion_limit": most + 10}
        done = app.invoke({"n": 0, "most": most}, config, durability="sync")
        if done["n"] != most:
            sys.exit(f"{done} after {most} steps")

    run("warm", 20)
    began = time.monotonic()
    run("measured", steps)
    print(steps / (time.monotonic() - began))
