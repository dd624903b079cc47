#!/usr/bin/env python3
"""A Python program with Sentry's own SDK, whose profiler is off, runs beside profbridge's sampler: its transactions name the
sampler's profile.

Usage: sentry_linking.py PATH_TO_PROFBRIDGE

The program's DSN names profbridge. It has threads and coroutines, each of which spends the time of its transaction, and of a
span in it, in a function of its own. The SDK says neither a process id nor the system's id of a thread, only host and thread
pointer. In the Sentry of this script every transaction and span must name the profiler of the program's chunks and the thread
on which it ran, and the functions that the chunk shows on that thread in its time must be those that the program says; what
the SDK sent beside that must be as it was. Needs sentry-sdk 2.75.0 in this interpreter, and the right to sample a process of
the same user. Uses loopback only, on ports that the system chooses.
"""

import datetime
import sys

from common import expect
from linking import SPIN, beside_the_sampler, check_spans, items
from sentry_sdks import KEY

PROGRAM = """
import asyncio, os, sys, threading, time
import sentry_sdk

sentry_sdk.init(dsn=sys.argv[1], release="interop@1.0", traces_sample_rate=1.0)
""" + SPIN + """
def work(name, spin):
    with sentry_sdk.isolation_scope(), sentry_sdk.start_transaction(op="task", name=name):
        with sentry_sdk.start_span(op="part", name=name):
            spin(time.monotonic() + 2)

async def work_in_turns(name, spin):
    with sentry_sdk.isolation_scope(), sentry_sdk.start_transaction(op="task", name=name):
        with sentry_sdk.start_span(op="part", name=name):
            await spin(time.monotonic() + 2)

async def all_in_turns():
    await asyncio.gather(work_in_turns("three", busy_in_three), work_in_turns("four", busy_in_four))

sys.stdin.readline()
threads = [threading.Thread(target=work, args=("one", busy_in_one)), threading.Thread(target=work, args=("two", busy_in_two))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
asyncio.run(all_in_turns())
sentry_sdk.get_client().close(10)
# The sampler sees the end of the last span before the program is gone.
time.sleep(1)
"""

CONFIG = """
receivers:
  sentry: {endpoint: "127.0.0.1:0"}
  ptrace: {export_interval: 1s, control: {enabled: false}, targets: {shop: {pid: PID}}}
processors: {link_spans: {}, chunk: {}}
exporters: {sentry: {dsn: "DSN", upstream: "UPSTREAM", compression: none}}
service:
  pipelines:
    everything: {receivers: [sentry, ptrace], processors: [link_spans, chunk], exporters: [sentry]}
"""

# Which functions the thread of a span runs while the span is open.
MAY_SEE = {
    "one": {"busy_in_one"}, "two": {"busy_in_two"},
    "three": {"busy_in_three", "busy_in_four"}, "four": {"busy_in_three", "busy_in_four"},
}


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def main():
    def arguments(profbridge):
        return [f"http://{KEY}@{profbridge.address('sentry/http')}/42"]

    sentry, pid = beside_the_sampler(sys.argv[1], CONFIG, PROGRAM, arguments, len(MAY_SEE))
    chunks = items(sentry, "profile_chunk")
    threads = {}
    for event in items(sentry, "transaction"):
        name, trace = event["transaction"], event["contexts"]["trace"]
        assert event["platform"] == "python" and event["release"] == "interop@1.0", event
        threads[name] = trace["data"]["thread.id"]
        profiler = event["contexts"].get("profile", {}).get("profiler_id")
        spans = [(profiler, threads[name], seconds(event["start_timestamp"]), seconds(event["timestamp"]))]
        for span in event["spans"]:
            if span["op"] == "part":
                data = span["data"]
                spans.append((data.get("profiler_id"), data["thread.id"], seconds(span["start_timestamp"]), seconds(span["timestamp"])))
        assert len(spans) == 2, event
        check_spans(name, spans, chunks, MAY_SEE[name])
    expect(threads["three"] == threads["four"] == str(pid), "coroutines ran on the main thread")
    expect(len(set(threads.values())) == 3, "each thread has an id of its own")
    print("sentry_linking: everything agrees")


if __name__ == "__main__":
    main()
