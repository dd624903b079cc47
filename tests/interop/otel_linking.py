#!/usr/bin/env python3
"""A Python program traced by OpenTelemetry's own SDK runs beside profbridge's sampler: its transactions name its profile.

Usage: otel_linking.py PATH_TO_PROFBRIDGE

The program has threads, each of which spends the time of its span in a function of its own, and coroutines that take turns
on the main thread while their spans are open. In the Sentry of this script every span must name the profiler of the program's
chunks and the thread on which it ran, and the functions that the chunk shows on that thread in the span's time must be those
that the program says. Needs the packages opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http in this interpreter,
and the right to sample a process of the same user. Uses loopback only, on ports that the system chooses.
"""

import sys

from common import expect
from linking import EXAMPLE, SPIN, beside_the_sampler, check_spans, items

PROGRAM = """
import asyncio, os, sys, threading, time
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
""" + SPIN + """
def work(name, spin):
    with tracer.start_as_current_span(name):
        spin(time.monotonic() + 2)

async def work_in_turns(name, spin):
    with tracer.start_as_current_span(name):
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

# Which functions the thread of a span runs while the span is open.
MAY_SEE = {
    "one": {"busy_in_one"}, "two": {"busy_in_two"},
    "three": {"busy_in_three", "busy_in_four"}, "four": {"busy_in_three", "busy_in_four"},
}


def main():
    def arguments(profbridge):
        return [f"http://{profbridge.address('otlp/http')}", EXAMPLE]

    sentry, pid = beside_the_sampler(sys.argv[1], CONFIG, PROGRAM, arguments, len(MAY_SEE))
    chunks = items(sentry, "profile_chunk")
    threads = {}
    for event in items(sentry, "transaction"):
        name, trace = event["transaction"], event["contexts"]["trace"]
        threads[name] = trace["data"]["thread.id"]
        profiler = event["contexts"].get("profile", {}).get("profiler_id")
        span = profiler, threads[name], event["start_timestamp"], event["timestamp"]
        check_spans(name, [span], chunks, MAY_SEE[name])
    expect(threads["three"] == threads["four"] == str(pid), "coroutines ran on the main thread")
    expect(len(set(threads.values())) == 3, "each thread has an id of its own")
    print("otel_linking: everything agrees")


if __name__ == "__main__":
    main()
