#!/usr/bin/env python3
"""A program traced by Datadog's ddtrace runs beside profbridge's sampler: samples name the spans that the program says.

Usage: live_contexts.py PATH_TO_PROFBRIDGE PYTHON_WITH_DDTRACE

ddtrace shows the resource of its process and the span of each of its threads in memory, as OpenTelemetry's OTEPs 4719 and
4947 define it; no span is sent to anybody. The program has threads that wait in their spans, one that changes its span
every few milliseconds, and one that computes. It says of each span the thread, the ids and the time. Every link of a
sample has to be one that the program said for that thread and time, every sample of a thread that waited in a span has to
have it, and the resource has to be called as the program calls its service.

The second argument is a Python that has the package ddtrace 4.16.0. Where it has none (no package could be had), this is
said and nothing is tested. Needs the right to sample a process of the same user. Uses loopback only.
"""

import collections
import json
import os
import subprocess
import sys
import tempfile
import time

from common import PATIENCE, Profbridge, expect, wait_for

VERSION = "4.16.0"

PROGRAM = """
import os, sys, threading, time
from ddtrace.trace import tracer

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def traced(name, work, until):
    with tracer.trace(name) as span:
        begin = time.time_ns()
        work(until)
        end = time.time_ns()
    ids = f"{span.trace_id:032x}", f"{span.span_id:016x}"
    say("span", name, threading.get_native_id(), *ids, begin, end)

def wait(until):
    time.sleep(max(0, until - time.monotonic()))

def compute(until):
    while time.monotonic() < until:
        sum(range(500))

def change(until):
    while time.monotonic() < until:
        traced("short", wait, time.monotonic() + 0.008)

sys.stdin.readline()
until = time.monotonic() + 4
threads = [threading.Thread(target=traced, args=("waiting", wait, until)) for _ in range(3)]
threads.append(threading.Thread(target=change, args=(until,)))
threads.append(threading.Thread(target=traced, args=("computing", compute, until)))
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
say("done")
sys.stdin.readline()
"""

CONFIG = """
receivers:
  ptrace:
    export_interval: 1s
    control: {enabled: false}
    thread_attributes: [datadog.local_root_span_id]
    targets: {shop: {pid: PID}}
exporters: {file: {path: profiles.json, format: json}}
service: {pipelines: {profiles: {receivers: [ptrace], exporters: [file]}}}
"""

# How far the time that a sample stands for may be from the moment at which it was taken, in nanoseconds: the samples of a
# batch, of half a second, share the time of their thread.
SLACK = 600_000_000


def text(value):
    return value.get("stringValue", value.get("intValue"))


def observations(path):
    """What each sample says: thread, link or None, attributes, beginning and end; and the attributes of the resources."""
    found, resources = [], []
    with open(path) as file:
        for line in file:
            request = json.loads(line)
            tables = request["dictionary"]
            strings = tables["stringTable"]
            for resource in request["resourceProfiles"]:
                attributes = resource["resource"]["attributes"]
                resources.append({attribute["key"]: attribute["value"] for attribute in attributes})
                profiles = [profile for scope in resource["scopeProfiles"] for profile in scope["profiles"]]
                for sample in [sample for profile in profiles for sample in profile.get("samples", [])]:
                    said = {}
                    for index in sample["attributeIndices"]:
                        attribute = tables["attributeTable"][index]
                        said[strings[attribute["keyStrindex"]]] = text(attribute["value"])
                    link = tables["linkTable"][sample["linkIndex"]] if sample.get("linkIndex") else None
                    link = link and (link["traceId"], link["spanId"])
                    for begin, weight in zip(sample["timestampsUnixNano"], sample["values"], strict=True):
                        found.append((int(said["thread.id"]), link, said, int(begin), int(begin) + int(weight)))
    return found, resources


def main():
    binary, python = sys.argv[1:]
    check = f"import ddtrace; assert ddtrace.__version__ == '{VERSION}', ddtrace.__version__"
    environment = {
        **os.environ,
        "DD_SERVICE": "live-shop",
        "DD_TRACE_AGENT_URL": "http://127.0.0.1:1",
        "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
        "DD_REMOTE_CONFIGURATION_ENABLED": "false",
    }
    if subprocess.run([python, "-c", check], env=environment, stderr=subprocess.DEVNULL).returncode != 0:
        print(f"live_contexts: there is no ddtrace {VERSION} in {python}, nothing is tested")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "shop.py")
        with open(path, "w") as file:
            file.write(PROGRAM)
        pipe = subprocess.PIPE
        # It complains that nobody takes its spans, which is what is wanted.
        program = subprocess.Popen([python, path], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment)
        try:
            with Profbridge(binary, CONFIG.replace("PID", str(program.pid))) as profbridge:
                profbridge.wait_for_log("belongs to shop: it is sampled")
                # ddtrace has to be loaded, and found: both take a second at most.
                wait_for("ddtrace shows its process", lambda: "OTEL_CTX" in open(f"/proc/{program.pid}/maps").read())
                time.sleep(3)
                program.stdin.write("\n")
                program.stdin.flush()
                spans = collections.defaultdict(list)
                for line in iter(program.stdout.readline, "done\n"):
                    _, name, thread, trace, span, begin, end = line.split()
                    spans[int(thread)].append((name, (trace, span), int(begin), int(end)))
                time.sleep(1)
                program.stdin.close()
                program.wait(PATIENCE)
                assert profbridge.stop() == 0
                found, resources = observations(os.path.join(profbridge.folder, "profiles.json"))
        finally:
            program.kill()
    named = [resource for resource in resources if "service.name" in resource]
    claimed = [text(value) for value in named[-1]["profbridge.claimed"]["arrayValue"]["values"]]
    names = {text(resource["service.name"]) for resource in named}
    expect(names == {"live-shop"} and "service.name" in claimed, f"the service is called {names}, which is a claim of the program")
    expect(all("telemetry.sdk.name" not in resource for resource in resources), "what profbridge itself says is not the program's")

    linked = [observed for observed in found if observed[1]]
    wrong = [
        observed
        for observed in linked
        if not any(
            link == observed[1] and begin - SLACK <= observed[4] and observed[3] <= end + SLACK
            for _, link, begin, end in spans[observed[0]]
        )
    ]
    expect(not wrong, f"all {len(linked)} links are what the program said for that thread and time: {wrong[:3]}")
    roots = {observed[2].get("datadog.local_root_span_id") for observed in linked}
    expect(roots - {None}, f"the attribute that was asked for is there: {len(roots)} values")
    others = {key for observed in found for key in observed[2] if key.startswith("datadog.")}
    expect(others == {"datadog.local_root_span_id"}, "and no other")

    for thread, said in spans.items():
        name, link, begin, end = max(said, key=lambda one: one[3] - one[2])
        if name == "waiting":
            inside = [observed for observed in found if observed[0] == thread and begin + SLACK < observed[3] and observed[4] < end - SLACK]
            without = [observed for observed in inside if observed[1] != link]
            expect(inside and not without, f"thread {thread}: all {len(inside)} samples while it waits have its span: {without[:3]}")
    changing = {thread for thread, said in spans.items() if any(name == "short" for name, *_ in said)}
    links = {observed[1] for observed in linked if observed[0] in changing}
    expect(len(links) >= 50, f"{len(links)} spans of the thread that changes them all the time were seen")
    print("live_contexts: everything agrees")


if __name__ == "__main__":
    main()
