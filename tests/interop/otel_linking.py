#!/usr/bin/env python3
"""Programs traced by OpenTelemetry's own SDKs run beside profbridge's sampler: their transactions name their profiles.

Usage: otel_linking.py PATH_TO_PROFBRIDGE [FOLDER_WITH_NODE_MODULES [FOLDER_WITH_JARS]]

The one in Python has threads, each of which spends the time of its span in a function of its own, and coroutines that take turns
on the main thread while their spans are open. In the Sentry of this script every span must name the profiler of the program's
chunks and the thread on which it ran, and the functions that the chunk shows on that thread in the span's time must be those
that the program says. The one in Node does the same on its main thread and on a worker, that in Java on threads of one name,
whose functions the sampler does not know, so that there only the threads are compared; all with the span processors of
examples/linking. Needs the packages opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http in this interpreter, those of
otel_traces.py for Node in the first folder, io.opentelemetry:opentelemetry-{sdk,exporter-otlp}:1.50.0 with what they need in the
second, and the right to sample a process of the same user. Uses loopback only, on ports that the system chooses.
"""

import os
import shutil
import subprocess
import sys
import tempfile

from common import expect
from linking import EXAMPLE, PYTHON, SPIN, WORK, adapted, beside_the_sampler, check_spans, items

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

""" + WORK + """\
provider.shutdown()
# The sampler sees the end of the last span before the program is gone.
time.sleep(1)
"""

NODE = """
const { Worker, isMainThread, workerData } = require("node:worker_threads");
const [, , endpoint, example] = process.argv;
const { NativeThread } = require(`${example}/native_thread.js`);
const { NodeTracerProvider, BatchSpanProcessor } = require("@opentelemetry/sdk-trace-node");
const { OTLPTraceExporter } = require("@opentelemetry/exporter-trace-otlp-proto");
const { resourceFromAttributes } = require("@opentelemetry/resources");

const provider = new NodeTracerProvider({
  resource: resourceFromAttributes({ "service.name": "shop", "process.pid": process.pid }),
  spanProcessors: [
    new NativeThread(),
    new BatchSpanProcessor(new OTLPTraceExporter({ url: `${endpoint}/v1/traces` })),
  ],
});
const tracer = provider.getTracer("interop");

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

async function work(name, spin) {
  tracer.startActiveSpan(name, (span) => {
    spin(Date.now() + 2000);
    span.end();
  });
  await provider.shutdown();
}

if (!isMainThread) {
  work("two", busy_in_two);
} else {
  process.stdin.once("data", async () => {
    const worker = new Worker(__filename, { argv: [endpoint, example] });
    await work("one", busy_in_one);
    await new Promise((done) => worker.once("exit", done));
    // The sampler sees the end of the last span before the program is gone.
    setTimeout(() => process.exit(0), 1000);
  });
}
"""

JAVA = """
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.exporter.otlp.http.trace.OtlpHttpSpanExporter;
import io.opentelemetry.sdk.resources.Resource;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.export.BatchSpanProcessor;

public final class Shop {
  static double sum;

  static void spin(long milliseconds) {
    long end = System.currentTimeMillis() + milliseconds;
    while (System.currentTimeMillis() < end) {
      for (int number = 0; number < 3000; number++) {
        sum += (double) number * number;
      }
    }
  }

  static Thread work(Tracer tracer, String name) {
    // All threads have one name, as those of a pool may.
    Thread thread = new Thread(() -> {
      Span span = tracer.spanBuilder(name).startSpan();
      spin(2000);
      span.end();
    }, "worker");
    thread.start();
    return thread;
  }

  public static void main(String[] arguments) throws Exception {
    Attributes attributes = Attributes.of(
        AttributeKey.stringKey("service.name"), "shop",
        AttributeKey.longKey("process.pid"), ProcessHandle.current().pid());
    SdkTracerProvider provider = SdkTracerProvider.builder()
        .setResource(Resource.getDefault().merge(Resource.create(attributes)))
        .addSpanProcessor(new NativeThread())
        .addSpanProcessor(BatchSpanProcessor.builder(
            OtlpHttpSpanExporter.builder().setEndpoint(arguments[1] + "/v1/traces").build()).build())
        .build();
    System.in.read();
    Tracer tracer = provider.get("interop");
    for (String name : new String[] {"one", "two"}) {
      work(tracer, name).join();
    }
    provider.shutdown().join(10, java.util.concurrent.TimeUnit.SECONDS);
    // The sampler sees the end of the last span before the program is gone.
    Thread.sleep(1000);
    System.exit(0);
  }
}
"""

CONFIG = adapted("sampled.yaml", {":4318": ":0", "  transactions:\n": "  transactions: {wait: 1s}\n"})

# Which functions the thread of a span runs while the span is open.
MAY_SEE = {
    "one": {"busy_in_one"}, "two": {"busy_in_two"},
    "three": {"busy_in_three", "busy_in_four"}, "four": {"busy_in_three", "busy_in_four"},
}


def run(binary, text, count, interpreter=PYTHON, environment=None):
    """Runs a program. Returns its transactions as name and span, the chunks, and its process id."""

    def arguments(profbridge):
        return [f"http://{profbridge.address('otlp/http')}", EXAMPLE]

    sentry, pid = beside_the_sampler(binary, CONFIG, text, arguments, count, interpreter, environment)
    spans = {}
    for event in items(sentry, "transaction"):
        thread = event["contexts"]["trace"]["data"]["thread.id"]
        profiler = event["contexts"].get("profile", {}).get("profiler_id")
        spans[event["transaction"]] = profiler, thread, event["start_timestamp"], event["timestamp"]
    return spans, items(sentry, "profile_chunk"), pid


def python(binary):
    spans, chunks, pid = run(binary, PROGRAM, len(MAY_SEE))
    for name, span in spans.items():
        check_spans(name, [span], chunks, MAY_SEE[name])
    threads = {name: thread for name, (_, thread, _, _) in spans.items()}
    expect(threads["three"] == threads["four"] == str(pid), "coroutines ran on the main thread")
    expect(len(set(threads.values())) == 3, "each thread has an id of its own")


def node(binary, modules):
    interpreter = [shutil.which("node"), "--perf-basic-prof", "--interpreted-frames-native-stack"]
    environment = {"NODE_PATH": os.path.abspath(os.path.join(modules, "node_modules"))}
    spans, chunks, pid = run(binary, NODE, 2, interpreter, environment)
    for name, span in spans.items():
        # Node moves code and does not say when in its list of names, so a name may be that of what lay there before.
        check_spans(name, [span], chunks, MAY_SEE[name], misnamed=0.1)
    expect(spans["one"][1] == str(pid) != spans["two"][1], "one ran on the main thread, two on a worker")


def java(binary, libraries):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "Shop.java"), "w") as file:
            file.write(JAVA)
        path = os.path.join(os.path.abspath(libraries), "*")
        sources = [os.path.join(folder, "Shop.java"), os.path.join(EXAMPLE, "NativeThread.java")]
        subprocess.run(["javac", "-cp", path, "-d", folder, *sources], check=True)
        spans, chunks, pid = run(binary, "", 2, [shutil.which("java"), "-cp", f"{folder}:{path}", "Shop"])
    threads = {thread for _, thread, _, _ in spans.values()}
    expect(len(threads) == 2 and str(pid) not in threads, "each span ran on a thread of its own")
    for name, (profiler, thread, start, end) in spans.items():
        busy = set()
        for chunk in chunks:
            for sample in chunk["profile"]["samples"]:
                if chunk["profiler_id"] == profiler and start + 0.2 <= sample["timestamp"] <= end - 0.2:
                    # An empty stack says that the thread did not run.
                    if chunk["profile"]["stacks"][sample["stack_id"]]:
                        busy.add(sample["thread_id"])
        expect(thread in busy, f"{name}: the chunk has its thread {thread} in its time")
        expect(not busy & (threads - {thread}), f"{name}: and not that of the other span")


def main():
    binary, modules, libraries = (*sys.argv[1:], "", "")[:3]
    python(binary)
    if modules and os.path.isdir(modules) and shutil.which("node"):
        node(binary, modules)
    else:
        print("there is no Node with OpenTelemetry's SDK, not checked")
    if libraries and os.path.isdir(libraries) and shutil.which("javac"):
        java(binary, libraries)
    else:
        print("there is no Java with OpenTelemetry's SDK, not checked")
    print("otel_linking: everything agrees")


if __name__ == "__main__":
    main()
