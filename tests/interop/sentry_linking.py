#!/usr/bin/env python3
"""Programs with Sentry's own SDKs, whose profilers are off, run beside profbridge's sampler: their transactions name the
sampler's profile.

Usage: sentry_linking.py PATH_TO_PROFBRIDGE [FOLDER_WITH_NODE_MODULES]

The program's DSN names profbridge. The one in Python has threads and coroutines, each of which spends the time of its
transaction, and of a span in it, in a function of its own. Its SDK says neither a process id nor the system's id of a thread,
only host and thread pointer; it runs twice, found by these and by its socket, under another name of the host. The one in Node
has one thread, of which its SDK says nothing, and is found by its socket. In the Sentry of this script every transaction and
span must name the profiler of the program's chunks and the thread on which it ran, and the functions that the chunk shows on
that thread in its time must be those that the program says. Needs sentry-sdk 2.75.0 in this interpreter, @sentry/node 10.75.3
in the folder if one is named, and the right to sample a process of the same user. Uses loopback only, on ports that the
system chooses.
"""

import datetime
import os
import shutil
import sys

from common import expect
from linking import PYTHON, SPIN, WORK, adapted, beside_the_sampler, check_spans, items
from sentry_sdks import KEY

PROGRAM = """
import asyncio, os, sys, threading, time
import sentry_sdk

server_name = {"server_name": sys.argv[2]} if len(sys.argv) > 2 else {}
sentry_sdk.init(dsn=sys.argv[1], release="interop@1.0", traces_sample_rate=1.0, **server_name)
""" + SPIN + """
def work(name, spin):
    with sentry_sdk.isolation_scope(), sentry_sdk.start_transaction(op="task", name=name):
        with sentry_sdk.start_span(op="part", name=name):
            spin(time.monotonic() + 2)

async def work_in_turns(name, spin):
    with sentry_sdk.isolation_scope(), sentry_sdk.start_transaction(op="task", name=name):
        with sentry_sdk.start_span(op="part", name=name):
            await spin(time.monotonic() + 2)

""" + WORK + """\
sentry_sdk.get_client().close(10)
# The sampler sees the end of the last span before the program is gone.
time.sleep(1)
"""

CONFIG = adapted("sentry-sdk.yaml", {":9000": ":0", "resolve_clients: true": "resolve_clients: RESOLVE"})

NODE = """
const Sentry = require("@sentry/node");
Sentry.init({ dsn: process.argv[2], release: "interop@1.0", tracesSampleRate: 1 });

function busy_in_one(end) {
  let sum = 0;
  while (Date.now() < end) for (let number = 0; number < 3000; number += 1) sum += number * number;
  return sum;
}

function busy_in_two(end) {
  let sum = 0;
  while (Date.now() < end) for (let number = 0; number < 3000; number += 1) sum += number * number;
  return sum;
}

function work(name, spin) {
  Sentry.startSpan({ op: "task", name, forceTransaction: true }, () => {
    Sentry.startSpan({ op: "part", name }, () => spin(Date.now() + 2000));
  });
}

// Compiled now, so that little code moves to where another function's was, whose name it gets in Node's list.
for (let number = 0; number < 3; number += 1) {
  busy_in_one(Date.now() + 200);
  busy_in_two(Date.now() + 200);
}

process.stdin.once("data", async () => {
  work("one", busy_in_one);
  work("two", busy_in_two);
  await Sentry.close(10000);
  // The sampler sees the end of the last span before the program is gone.
  setTimeout(() => process.exit(0), 1000);
});
"""

# Which functions the thread of a span runs while the span is open.
IN_TURNS = {"busy_in_three", "busy_in_four"}
MAY_SEE = {"one": {"busy_in_one"}, "two": {"busy_in_two"}, "three": IN_TURNS, "four": IN_TURNS}


def seconds(time):
    """Python's SDK writes a time as text, Node's as a number."""
    if isinstance(time, str):
        return datetime.datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()
    return time


def run(binary, text, names, resolve, interpreter=PYTHON, server_name=(), environment=None, misnamed=0):
    """Runs a program and checks its transactions with these names. Returns the thread of each, and its process id."""

    def arguments(profbridge):
        return [f"http://{KEY}@{profbridge.address('sentry/http')}/42", *server_name]

    config = CONFIG.replace("RESOLVE", resolve)
    sentry, pid = beside_the_sampler(binary, config, text, arguments, len(names), interpreter, environment)
    chunks = items(sentry, "profile_chunk")
    threads = {}
    for event in items(sentry, "transaction"):
        name, trace = event["transaction"], event["contexts"]["trace"]
        assert event["release"] == "interop@1.0", event
        threads[name] = trace["data"]["thread.id"]
        profiler = event["contexts"].get("profile", {}).get("profiler_id")
        spans = [(profiler, threads[name], seconds(event["start_timestamp"]), seconds(event["timestamp"]))]
        for span in event["spans"]:
            if span["op"] == "part":
                data, times = span["data"], (seconds(span["start_timestamp"]), seconds(span["timestamp"]))
                spans.append((data.get("profiler_id"), data["thread.id"], *times))
        assert len(spans) == 2, event
        check_spans(name, spans, chunks, MAY_SEE[name], misnamed)
    expect(set(threads) == set(names), f"the transactions are {sorted(names)}")
    return threads, pid


def main():
    binary, modules = sys.argv[1], sys.argv[2:]
    for resolve, server_name in [("false", []), ("true", ["elsewhere.example"])]:
        threads, pid = run(binary, PROGRAM, list(MAY_SEE), resolve, server_name=server_name)
        expect(threads["three"] == threads["four"] == str(pid), "coroutines ran on the main thread")
        expect(len(set(threads.values())) == 3, "each thread has an id of its own")
    if modules and os.path.isdir(modules[0]) and shutil.which("node"):
        # Node then says the names of compiled functions in /tmp/perf-PID.map, where the sampler looks for them. It moves
        # code and does not say when, so a name may be that of what lay there before or afterwards.
        node = [shutil.which("node"), "--perf-basic-prof", "--interpreted-frames-native-stack"]
        environment = {"NODE_PATH": os.path.abspath(os.path.join(modules[0], "node_modules"))}
        threads, pid = run(binary, NODE, ["one", "two"], "true", node, environment=environment, misnamed=0.1)
        expect(set(threads.values()) == {str(pid)}, "Node ran on its main thread")
    else:
        print("there is no Node with Sentry's SDK, not checked")
    print("sentry_linking: everything agrees")


if __name__ == "__main__":
    main()
