#!/usr/bin/env python3
"""A Python program traced by OpenTelemetry's own SDK runs beside profbridge's sampler: its transactions name its profile.

Usage: otel_linking.py PATH_TO_PROFBRIDGE

The program has threads, each of which spends the time of its span in a function of its own. In the Sentry of this script
every span must name the profiler of the program's chunks and the thread on which it ran, and the function that the chunk
shows on that thread in the span's time must be the one that the program says. Needs the packages opentelemetry-sdk and
opentelemetry-exporter-otlp-proto-http in this interpreter, and the right to sample a process of the same user. Uses
loopback only, on ports that the system chooses.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

from common import PATIENCE, Profbridge, expect, wait_for
from sentry_sdks import Server, takes

EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "linking")

PROGRAM = """
import os, sys, threading, time
sys.path.insert(0, sys.argv[2])
from native_thread import NativeThread
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

resource = Resource.create({"service.name": "shop", "process.pid": os.getpid()})
provider = TracerProvider(resource=resource)
provider.add_span_processor(NativeThread())
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=sys.argv[1] + "/v1/traces")))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("interop")

def busy_in_one(end):
    while time.monotonic() < end:
        sum(range(500))

def busy_in_two(end):
    while time.monotonic() < end:
        sum(range(500))

def work(name, spin):
    with tracer.start_as_current_span(name):
        spin(time.monotonic() + 2)

sys.stdin.readline()
threads = [threading.Thread(target=work, args=("one", busy_in_one)), threading.Thread(target=work, args=("two", busy_in_two))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
provider.shutdown()
# The sampler sees the end of the last span before the program is gone.
time.sleep(1)
"""

CONFIG = """
receivers:
  otlp: {protocols: {http: {endpoint: "127.0.0.1:0"}}}
  ptrace: {export_interval: 1s, control: {enabled: false}, targets: {shop: {pid: PID}}}
processors: {link_spans: {}, chunk: {}, transactions: {wait: 1s}}
exporters: {sentry: {dsn: "DSN", compression: none}}
service:
  pipelines:
    everything: {receivers: [otlp, ptrace], processors: [link_spans, chunk, transactions], exporters: [sentry]}
"""


def items(sentry, kind):
    found = []
    for request in list(sentry.requests):
        found += [json.loads(payload) for item, payload in request.items() if item["type"] == kind]
    return found


def functions(chunks, profiler, thread, start, end):
    """How often each function was innermost on a thread in a stretch of time, of those that the program has."""
    counts = {}
    for chunk in chunks:
        profile = chunk["profile"]
        for sample in profile["samples"]:
            if chunk["profiler_id"] == profiler and sample["thread_id"] == thread and start <= sample["timestamp"] <= end:
                frames = [profile["frames"][frame]["function"] for frame in profile["stacks"][sample["stack_id"]]]
                own = next((frame for frame in frames if "busy_in_" in frame), None)
                counts[own] = counts.get(own, 0) + 1
    return counts


def main():
    binary = sys.argv[1]
    sentry = Server(takes)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "shop.py")
        with open(path, "w") as file:
            file.write(PROGRAM)
        # The address is known once profbridge listens, which it does once it knows the process.
        relay = os.path.join(folder, "start.py")
        with open(relay, "w") as file:
            file.write("import os, sys\nos.execv(sys.executable, [sys.executable, *sys.stdin.readline().split()])\n")
        program = subprocess.Popen([sys.executable, "-u", relay], stdin=subprocess.PIPE, bufsize=0)
        try:
            config = CONFIG.replace("DSN", sentry.dsn).replace("PID", str(program.pid))
            with Profbridge(binary, config) as profbridge:
                endpoint = f"http://{profbridge.address('otlp/http')}"
                program.stdin.write(f"{path} {endpoint} {EXAMPLE}\n".encode())
                time.sleep(2)
                program.stdin.write(b"\n")
                program.wait(PATIENCE)
                wait_for("the transactions are in Sentry", lambda: len(items(sentry, "transaction")) == 2)
                assert profbridge.stop() == 0
        finally:
            program.kill()
    chunks = items(sentry, "profile_chunk")
    for event in items(sentry, "transaction"):
        name, trace = event["transaction"], event["contexts"]["trace"]
        profiler = event["contexts"].get("profile", {}).get("profiler_id")
        expect(profiler in {chunk["profiler_id"] for chunk in chunks}, f"{name}: its profiler has chunks")
        counts = functions(chunks, profiler, trace["data"]["thread.id"], event["start_timestamp"], event["timestamp"])
        right = sum(count for function, count in counts.items() if function and f"busy_in_{name}" in function)
        other = sum(count for function, count in counts.items() if function and f"busy_in_{name}" not in function)
        where = f"{name}: of {sum(counts.values())} samples of its thread in its time {right} are in busy_in_{name}"
        expect(right >= 10 and other == 0, where)
    print("otel_linking: everything agrees")


if __name__ == "__main__":
    main()
