#!/usr/bin/env python3
"""A program traced by Datadog's ddtrace runs beside profbridge's sampler: samples name the spans that the program says.

Usage: live_contexts.py PATH_TO_PROFBRIDGE PYTHON_WITH_DDTRACE

ddtrace shows the resource of its process and the span of each of its threads in memory, as OpenTelemetry's OTEPs 4719 and
4947 define it. The program has threads that wait in their spans, one that changes its span every few milliseconds, and one
that computes. It says of each span the thread, the ids and the time. Every link of a sample has to be one that the program
said for that thread and time, every sample of a thread that waited in a span has to have it, and the resource has to be
called as the program calls its service. ddtrace sends its spans in OTLP as well, in which they say neither a process nor a
thread: those that samples name have to name the profiler and the thread that the program said, and no other may.

The second argument is a Python that has the package ddtrace 4.16.0. Where it has none (no package could be had), this is
said and nothing is tested. Needs the right to sample a process of the same user. Uses loopback only.
"""

import collections
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

from common import PATIENCE, Profbridge, expect, wait_for
from linking import START

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

# Spans that name no process are waited for once samples name spans: they name this one.
traced("begin", lambda until: sys.stdin.readline(), None)
until = time.monotonic() + 8
threads = [threading.Thread(target=traced, args=("waiting", wait, until)) for _ in range(3)]
threads.append(threading.Thread(target=change, args=(until,)))
threads.append(threading.Thread(target=traced, args=("computing", compute, until)))
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
tracer.flush()
say("done")
sys.stdin.readline()
"""

CONFIG = """
receivers:
  otlp: {protocols: {http: {endpoint: "127.0.0.1:0"}}}
  ptrace:
    export_interval: 1s
    control: {enabled: false}
    thread_attributes: [datadog.local_root_span_id]
    targets: {shop: {pid: PID}}
processors: {link_spans: }
exporters: {file: {path: all.json, format: json}}
service: {pipelines: {everything: {receivers: [otlp, ptrace], processors: [link_spans], exporters: [file]}}}
"""

# How far the time of a sample may be from that of its span, in nanoseconds: a sample stands for a period of 10 ms before it
# was taken, what ddtrace shows changes some time before and after the program takes the time, and samples of a thread give
# way to each other, so that none overlap: by some 70 ms at most where this was measured.
SLACK = 100_000_000

# What a thread that waits stands for is divided at such times, where windows of the processor chunk may end: a later part
# says the time of the division. Of a sampler that was given no processor for long a sample stands for as long.
CUTS = 500_000_000

# Where a thread's variable is, is looked for once a second, which a busy machine makes longer.
FOUND = 2_000_000_000


def text(value):
    return value.get("stringValue", value.get("intValue"))


def observations(path):
    """What each sample says: thread, link or None, attributes, beginning and end; and the attributes of the resources."""
    found, resources = [], []
    with open(path) as file:
        for line in file:
            request = json.loads(line)
            if "resourceProfiles" not in request:
                continue
            tables = request["dictionary"]
            strings = tables["stringTable"]
            for resource in request["resourceProfiles"]:
                attributes = resource["resource"]["attributes"]
                resources.append({attribute["key"]: attribute["value"] for attribute in attributes})
                profiles = [profile for scope in resource["scopeProfiles"] for profile in scope["profiles"]]
                for sample in [sample for profile in profiles for sample in profile.get("samples", [])]:
                    stack = tables["stackTable"][sample["stackIndex"]].get("locationIndices", [])
                    lines = tables["locationTable"][stack[0]].get("lines", []) if stack else []
                    leaf = [strings[tables["functionTable"][line["functionIndex"]]["nameStrindex"]] for line in lines]
                    # Time of which nothing was seen, or in which the thread waited for a processor.
                    said = {"explained": leaf and leaf[0].startswith("[waiting")}
                    for index in sample["attributeIndices"]:
                        attribute = tables["attributeTable"][index]
                        said[strings[attribute["keyStrindex"]]] = text(attribute["value"])
                    link = tables["linkTable"][sample["linkIndex"]] if sample.get("linkIndex") else None
                    link = link and (link["traceId"], link["spanId"])
                    for begin, weight in zip(sample["timestampsUnixNano"], sample["values"], strict=True):
                        found.append((int(said["thread.id"]), link, said, int(begin), int(begin) + int(weight)))
    return found, resources


def metrics(profbridge):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open(f"http://{profbridge.address('metrics/telemetry')}/metrics", timeout=PATIENCE).read().decode()


def sent_spans(path):
    """What each span says: its ids, and its attributes."""
    with open(path) as file:
        resources = [resource for line in file for resource in json.loads(line).get("resourceSpans", [])]
    spans = [span for resource in resources for scope in resource["scopeSpans"] for span in scope["spans"]]
    attributes = [{one["key"]: text(one["value"]) for one in span.get("attributes", [])} for span in spans]
    of_resources = {one["key"] for resource in resources for one in resource["resource"]["attributes"]}
    ids = [(span["traceId"], span["spanId"]) for span in spans]
    return dict(zip(ids, attributes, strict=True)), of_resources


def main():
    binary, python = sys.argv[1:]
    check = f"import ddtrace; assert ddtrace.__version__ == '{VERSION}', ddtrace.__version__"
    environment = {
        **os.environ,
        "DD_SERVICE": "live-shop",
        "DD_TRACE_AGENT_URL": "http://127.0.0.1:1",
        "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
        "DD_REMOTE_CONFIGURATION_ENABLED": "false",
        "OTEL_TRACES_EXPORTER": "otlp",
    }
    if subprocess.run([python, "-c", check], env=environment, stderr=subprocess.DEVNULL).returncode != 0:
        print(f"live_contexts: there is no ddtrace {VERSION} in {python}, nothing is tested")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "shop.py")
        with open(path, "w") as file:
            file.write(PROGRAM)
        pipe = subprocess.PIPE
        # Where it sends to is known once profbridge listens, which it does once it knows the process.
        start = os.path.join(folder, "start.py")
        with open(start, "w") as file:
            file.write(START)
        command = [sys.executable, "-u", start]
        program = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, bufsize=0, env=environment)
        lines = os.fdopen(os.dup(program.stdout.fileno()), "r")
        try:
            with Profbridge(binary, CONFIG.replace("PID", str(program.pid))) as profbridge:
                profbridge.wait_for_log("belongs to shop: it is sampled")
                endpoint = f"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://{profbridge.address('otlp/http')}/v1/traces"
                program.stdin.write(f"/usr/bin/env {endpoint} {os.path.abspath(python)} {path}\n".encode())
                wait_for("samples name spans", lambda: "observations_with_link" in metrics(profbridge))
                program.stdin.write(b"\n")
                spans = collections.defaultdict(list)
                for line in iter(lines.readline, "done\n"):
                    _, name, thread, trace, span, begin, end = line.split()
                    spans[int(thread)].append((name, (trace, span), int(begin), int(end)))
                time.sleep(1)
                program.stdin.close()
                program.wait(PATIENCE)
                assert profbridge.stop() == 0
                found, resources = observations(os.path.join(profbridge.folder, "all.json"))
                sent, said_of_process = sent_spans(os.path.join(profbridge.folder, "all.json"))
                log = profbridge.log()
        finally:
            program.kill()
            with contextlib.suppress(OSError):
                lines.close()
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
            link == observed[1]
            and begin - SLACK <= observed[4]
            and observed[3] <= end + (SLACK if observed[3] % CUTS else CUTS)
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
            inside = [observed for observed in found if observed[0] == thread and begin + FOUND < observed[3] and observed[4] < end - SLACK]
            without = [observed for observed in inside if observed[1] != link and not observed[2]["explained"]]
            expect(inside and not without, f"thread {thread}: all {len(inside)} samples while it waits have its span: {without[:3]}")
    changing = {thread for thread, said in spans.items() if any(name == "short" for name, *_ in said)}
    links = {observed[1] for observed in linked if observed[0] in changing}
    # On an idle machine several hundred.
    expect(len(links) >= 20, f"{len(links)} spans of the thread that changes them all the time were seen")

    expect("process.pid" not in said_of_process, f"{len(sent)} spans came, whose resource says no process: {sorted(said_of_process)}")
    threads = {ids: thread for thread, said in spans.items() for _, ids, _, _ in said}
    named = {ids: attributes for ids, attributes in sent.items() if "sentry.profiler_id" in attributes}
    wrong = [ids for ids, attributes in named.items() if attributes["thread.id"] != str(threads[ids])]
    expect(not wrong, f"all {len(named)} spans that name a profiler name the thread that the program said: {wrong[:3]}")
    waited = {ids for said in spans.values() for name, ids, _, _ in said if name == "waiting"}
    expect(len(waited) == 3 and waited <= named.keys(), "and those that waited for seconds are among them")
    unnamed = {observed[1] for observed in linked} & sent.keys() - named.keys()
    expect(not unnamed, f"every span that a sample names has its profiler: {unnamed}")
    counted = int(re.search(r"(\d+) spans_linked_by_live_context", log).group(1))
    expect(counted == len(named), f"{counted} are counted as linked by a live context")
    print("live_contexts: everything agrees")


if __name__ == "__main__":
    main()
