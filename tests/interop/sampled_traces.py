#!/usr/bin/env python3
"""Programs of whose traces one in ten is sampled run beside profbridge's sampler: no sample names a span that did not run.

Usage: sampled_traces.py PATH_TO_PROFBRIDGE [FOLDER_WITH_NODE_MODULES]

A program in Python handles requests as coroutines on one event loop, one on a pool of threads, and one in Node as asynchronous
functions, each at a low and a high load. Every request computes a while in a function that is named by its number, then waits,
and so on. The sampler of OpenTelemetry's SDK keeps one trace in ten, so the only span that is known to be open on an event loop
is mostly not the one of the request that computes. A sample in a function of one request must not have the link of another one;
samples of the pool must have the link of their request wherever its span was kept. Prints how many links are wrong.

Needs the packages opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http in this interpreter, and those of otel_traces.py for
Node in the folder, and the right to sample a process of the same user. Uses loopback only, on ports that the system chooses.
"""

import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from common import PATIENCE, Profbridge, expect
from linking import EXAMPLE, PYTHON, START

PYTHON_PROGRAM = """
import asyncio, concurrent.futures, os, random, sys, threading, time
sys.path.insert(0, sys.argv[2])
from native_thread import NativeThread
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

mode, gap, seconds = sys.argv[3], float(sys.argv[4]), float(sys.argv[5])
resource = Resource.create({"service.name": "shop", "process.pid": os.getpid()})
provider = TracerProvider(resource=resource, sampler=ParentBased(TraceIdRatioBased(0.1)))
provider.add_span_processor(NativeThread())
exporter = OTLPSpanExporter(endpoint=sys.argv[1] + "/v1/traces")
provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=500))
tracer = provider.get_tracer("interop")
lines, functions, chance = [], [], random.Random(1)

def function_of(request):
    name = f"busy_{request}"
    own = {"time": time}
    exec(f"def {name}(end):\\n    while time.monotonic() < end: sum(range(500))", own)
    return own[name]

def said(span, request, begin):
    context = span.get_span_context()
    ids = f"{context.trace_id:032x} {context.span_id:016x}"
    lines.append(f"{ids} {request} {int(span.is_recording())} {begin} {time.time_ns()}")

async def handle(request, rounds):
    busy, begin = function_of(request), time.time_ns()
    with tracer.start_as_current_span("request") as span:
        for computes, waits in rounds:
            with tracer.start_as_current_span("part") as part:
                busy(time.monotonic() + computes)
                await asyncio.sleep(waits)
                said(part, request, begin)
        said(span, request, begin)

def handle_on_thread(request, rounds):
    busy, begin = function_of(request), time.time_ns()
    with tracer.start_as_current_span("request") as span:
        for computes, waits in rounds:
            with tracer.start_as_current_span("part") as part:
                busy(time.monotonic() + computes)
                time.sleep(waits)
                said(part, request, begin)
        said(span, request, begin)

def rounds():
    return [(chance.uniform(0.002, 0.03), chance.uniform(0.01, 0.15)) for _ in range(chance.randint(1, 4))]

async def on_a_loop():
    end, tasks, request = time.monotonic() + seconds, set(), 0
    while time.monotonic() < end:
        task = asyncio.ensure_future(handle(request, rounds()))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        request += 1
        await asyncio.sleep(chance.expovariate(1 / gap))
    await asyncio.gather(*tasks)

def on_threads():
    end, request = time.monotonic() + seconds, 0
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        pending = set()
        while time.monotonic() < end:
            pending.add(pool.submit(handle_on_thread, request, rounds()))
            request += 1
            if len(pending) > 8:
                _, pending = concurrent.futures.wait(pending, return_when=concurrent.futures.FIRST_COMPLETED)

print("ready", flush=True)
sys.stdin.readline()
asyncio.run(on_a_loop()) if mode == "loop" else on_threads()
provider.shutdown()
with open("truth", "w") as file:
    file.write("\\n".join(lines))
# The sampler sees the end of the last span before the program is gone.
time.sleep(1)
"""

NODE_PROGRAM = """
const { writeFileSync } = require("node:fs");
const [, , endpoint, example, , gapText, secondsText] = process.argv;
const { NativeThread } = require(`${example}/native_thread.js`);
const sdk = require("@opentelemetry/sdk-trace-node");
const { OTLPTraceExporter } = require("@opentelemetry/exporter-trace-otlp-proto");
const { resourceFromAttributes } = require("@opentelemetry/resources");

const [gap, seconds] = [Number(gapText) * 1000, Number(secondsText)];
const provider = new sdk.NodeTracerProvider({
  resource: resourceFromAttributes({ "service.name": "shop", "process.pid": process.pid }),
  sampler: new sdk.ParentBasedSampler({ root: new sdk.TraceIdRatioBasedSampler(0.1) }),
  spanProcessors: [
    new NativeThread(),
    new sdk.BatchSpanProcessor(new OTLPTraceExporter({ url: `${endpoint}/v1/traces` }), { scheduledDelayMillis: 500 }),
  ],
});
provider.register();
const tracer = provider.getTracer("interop");
const lines = [];
const between = (low, high) => low + Math.random() * (high - low);
const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

function said(span, request, begin) {
  const { traceId, spanId } = span.spanContext();
  lines.push(`${traceId} ${spanId} ${request} ${Number(span.isRecording())} ${begin}000000 ${Date.now() + 1}000000`);
}

function functionOf(request) {
  return new Function("end", `
    return (function busy_${request}(end) {
      let sum = 0;
      while (Date.now() < end) for (let number = 0; number < 3000; number += 1) sum += number * number;
      return sum;
    })(end)`);
}

async function handle(request) {
  const [busy, begin] = [functionOf(request), Date.now()];
  await tracer.startActiveSpan("request", async (span) => {
    const rounds = 1 + Math.floor(Math.random() * 4);
    for (let round = 0; round < rounds; round += 1) {
      await tracer.startActiveSpan("part", async (part) => {
        busy(Date.now() + between(2, 30));
        await sleep(between(10, 150));
        said(part, request, begin);
        part.end();
      });
    }
    said(span, request, begin);
    span.end();
  });
}

console.log("ready");
process.stdin.once("data", async () => {
  const end = Date.now() + seconds * 1000;
  const all = [];
  for (let request = 0; Date.now() < end; request += 1) {
    all.push(handle(request));
    await sleep(-Math.log(1 - Math.random()) * gap);
  }
  await Promise.all(all);
  await provider.shutdown();
  writeFileSync("truth", lines.join("\\n"));
  // The sampler sees the end of the last span before the program is gone.
  setTimeout(() => process.exit(0), 1000);
});
"""

CONFIG = """
receivers:
  otlp: {protocols: {http: {endpoint: "127.0.0.1:0"}}}
  ptrace:
    export_interval: 1s
    control: {enabled: false}
    targets: {shop: {pid: PID}}
processors: {link_spans: {profile_wait: 4s}}
exporters: {file: {path: all.json, format: json}}
service: {pipelines: {everything: {receivers: [otlp, ptrace], processors: [link_spans], exporters: [file]}}}
"""

SECONDS = float(os.environ.get("SAMPLED_TRACES_SECONDS", "15"))


def samples(path):
    """What each observation says: the request in whose function its thread ran, its link and its time."""
    with open(path) as file:
        for line in file:
            request = json.loads(line)
            if "resourceProfiles" not in request:
                continue
            tables = request["dictionary"]
            strings = tables["stringTable"]
            names = [strings[function.get("nameStrindex", 0)] for function in tables["functionTable"]]
            busy = [re.search(r"\bbusy_(\d+)", name) for name in names]
            of_location = [
                next((busy[of["functionIndex"]] for of in location.get("lines", []) if busy[of.get("functionIndex", 0)]), None)
                for location in tables["locationTable"]
            ]
            scopes = [scope for resource in request["resourceProfiles"] for scope in resource["scopeProfiles"]]
            for sample in [of for scope in scopes for profile in scope["profiles"] for of in profile.get("samples", [])]:
                stack = tables["stackTable"][sample["stackIndex"]].get("locationIndices", [])
                ran = next((of_location[at] for at in stack if of_location[at]), None)
                link = tables["linkTable"][sample["linkIndex"]] if sample.get("linkIndex") else None
                link = link and (link["traceId"], link["spanId"])
                # What is seen of threads that wait, such as for the interpreter, may have been seen a while before.
                said = [tables["attributeTable"][index] for index in sample["attributeIndices"]]
                states = [of["value"]["stringValue"] for of in said if strings[of["keyStrindex"]] == "profbridge.thread.state"]
                for time in sample["timestampsUnixNano"]:
                    yield ran.group(1) if ran and states == ["running"] else None, link, int(time)


def run(binary, interpreter, text, mode, gap, environment=None):
    """Runs a program, which begins a request each `gap` seconds. What became of the samples in a request's function, and how
    many others have a link."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "shop")
        with open(path, "w") as file:
            file.write(text)
        start = os.path.join(folder, "start.py")
        with open(start, "w") as file:
            file.write(START)
        inherited = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
        environment = {**inherited, **(environment or {})}
        command = [sys.executable, "-u", start]
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment, cwd=folder)
        try:
            with Profbridge(binary, CONFIG.replace("PID", str(program.pid))) as profbridge:
                address = f"http://{profbridge.address('otlp/http')}"
                line = " ".join([*interpreter, path, address, EXAMPLE, mode, str(gap), str(SECONDS)])
                program.stdin.write(line.encode() + b"\n")
                profbridge.wait_for_log("belongs to shop: it is sampled")
                assert program.stdout.readline() == b"ready\n"
                program.stdin.write(b"\n")
                assert program.wait(PATIENCE + SECONDS) == 0
                assert profbridge.stop() == 0
                found = list(samples(os.path.join(profbridge.folder, "all.json")))
        finally:
            program.kill()
            program.wait()
        with open(os.path.join(folder, "truth")) as file:
            said = [line.split() for line in file.read().splitlines()]
    request_of = {(trace, span): request for trace, span, request, *_ in said}
    kept = {request for _, _, request, is_kept, *_ in said if is_kept == "1"}
    times = {}
    for *_, request, _, begin, end in said:
        times[request] = int(begin), max(int(end), times.get(request, (0, 0))[1])
    counts = collections.Counter()
    for ran, link, at in found:
        if ran is None:
            counts["others linked"] += link is not None
        elif not times[ran][0] <= at <= times[ran][1]:
            # Samples of a thread give way to each other, so on a busy machine some lie beside the time of their request.
            counts["beside the time of their request"] += 1
        elif link is None:
            counts["without link, of a kept request" if ran in kept else "without link, of another request"] += 1
        else:
            counts["right" if request_of[link] == ran else "wrong"] += 1
    counts["requests"] = len(times)
    counts["kept requests"] = len(kept)
    return counts


def check(name, counts):
    print(f"{name}: {dict(sorted(counts.items()))}", flush=True)
    seen = counts["without link, of another request"]
    expect(seen > 20 and counts["kept requests"] > 0, f"{name}: {seen} samples are in functions of requests whose traces are not kept")
    expect(counts["wrong"] == 0, f"{name}: no link names a span that did not run")


def main():
    binary, modules = (*sys.argv[1:], "")[:2]
    for load, gap in (("low", 0.15), ("high", 0.03)):
        check(f"asyncio, {load} load", run(binary, PYTHON, PYTHON_PROGRAM, "loop", gap))
    if modules and os.path.isdir(modules) and shutil.which("node"):
        environment = {"NODE_PATH": os.path.abspath(os.path.join(modules, "node_modules"))}
        for load, gap in (("low", 0.15), ("high", 0.03)):
            check(f"Node, {load} load", run(binary, [shutil.which("node")], NODE_PROGRAM, "loop", gap, environment))
    else:
        print("there is no Node with OpenTelemetry's SDK, not checked")
    counts = run(binary, PYTHON, PYTHON_PROGRAM, "threads", 0)
    check("threads", counts)
    of_kept = counts["right"] + counts["without link, of a kept request"]
    expect(counts["right"] > 0.9 * of_kept > 0, f"threads: {counts['right']} of {of_kept} samples of kept requests are linked")
    print("sampled_traces: everything agrees")


if __name__ == "__main__":
    main()
