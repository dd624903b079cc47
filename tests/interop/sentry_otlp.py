#!/usr/bin/env python3
"""Services that know nothing but a DSN send OTLP to profbridge's receiver `sentry`, beside the sampler.

Usage: sentry_otlp.py PATH_TO_PROFBRIDGE [PYTHON|FOLDER_WITH_NODE_MODULES]...

A Django service with `OTLPIntegration` of sentry-sdk and an Express service with `otlpIntegration` of @sentry/node-core 10,
or the endpoint that @sentry/node 11 makes of the DSN, serve requests of several threads, some of which continue another
service's trace. Each service writes down its spans, with the system's id of the thread and the times. In the Sentry of this
script, which reads OTLP and containers of spans, each span must arrive once, name the profiler of the process and the
thread on which it ran, whose functions in its time are those that the service spun in.

A Python has sentry-sdk, Django and opentelemetry-{sdk,exporter-otlp-proto-http,instrumentation-{django,urllib3}}, and this
interpreter opentelemetry-proto. A folder has express, @opentelemetry/{api,sdk-trace-node,exporter-trace-otlp-http,
instrumentation,instrumentation-http,instrumentation-express}, and @sentry/node-core 10 or @sentry/node 11. Uses loopback
only, on ports that the system chooses.
"""

import json
import os
import sys
import tempfile

from common import expect
from linking import EXAMPLE, adapted, beside_the_sampler, check_spans, items
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from sentry_sdks import KEY

DJANGO = """
import http.client, json, os, sys, threading, time
dsn, example, path = sys.argv[1:4]
sys.path.insert(0, example)
import sentry_sdk
from sentry_sdk.integrations.otlp import OTLPIntegration
from native_thread import NativeThread
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.instrumentation.django import DjangoInstrumentor
from opentelemetry.instrumentation.urllib3 import URLLib3Instrumentor

said = open(path, "w", buffering=1)

class Said(SpanProcessor):
    threads = {}

    def on_start(self, span, parent_context=None):
        self.threads[span.context.span_id] = threading.get_native_id()

    def on_end(self, span):
        said.write(json.dumps({
            "span_id": f"{span.context.span_id:016x}", "name": span.name, "thread": self.threads.pop(span.context.span_id),
            "start": span.start_time, "end": span.end_time, "trace_id": f"{span.context.trace_id:032x}",
            "parent": f"{span.parent.span_id:016x}" if span.parent else None,
            "remote": bool(span.parent and span.parent.is_remote),
        }) + "\\n")

provider = TracerProvider()
provider.add_span_processor(Said())
provider.add_span_processor(NativeThread())
trace.set_tracer_provider(provider)
sentry_sdk.init(dsn=dsn, integrations=[OTLPIntegration()])
from django.conf import settings
settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="x", LOGGING_CONFIG=None)
URLLib3Instrumentor().instrument()
DjangoInstrumentor().instrument()
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path as route

def busy_in_one(end):
    while time.monotonic() < end:
        sum(range(500))

def busy_in_two(end):
    while time.monotonic() < end:
        sum(range(500))

def work(request, name):
    with trace.get_tracer("shop").start_as_current_span(f"work {name}"):
        (busy_in_one if name == "one" else busy_in_two)(time.monotonic() + 1)
    sentry_sdk.capture_message(f"served {name}")
    return HttpResponse("done")

urlpatterns = [route("things/<str:name>", work)]

class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass

server = ThreadedWSGIServer(("127.0.0.1", 0), Quiet)
server.set_app(get_wsgi_application())
threading.Thread(target=server.serve_forever, daemon=True).start()

def ask(name, times):
    for number in range(times):
        client = http.client.HTTPConnection(*server.server_address)
        # As another service with Sentry's SDK would call it.
        headers = {"sentry-trace": f"{number:016x}{abs(hash(name)):016x}-00000000000000aa-1"} if number else {}
        client.request("GET", f"/things/{name}", headers=headers)
        assert client.getresponse().status == 200

sys.stdin.readline()
clients = [threading.Thread(target=ask, args=(name, 3)) for name in ("one", "two")]
for client in clients:
    client.start()
for client in clients:
    client.join()
sentry_sdk.get_client().close(10)
provider.shutdown()
# The sampler sees the end of the last span before the program is gone.
time.sleep(1)
"""

EXPRESS = """
const fs = require("node:fs");
const [, , dsn, , path] = process.argv;
const { NodeTracerProvider, BatchSpanProcessor } = require("@opentelemetry/sdk-trace-node");
const { registerInstrumentations } = require("@opentelemetry/instrumentation");
const { HttpInstrumentation } = require("@opentelemetry/instrumentation-http");
const { ExpressInstrumentation } = require("@opentelemetry/instrumentation-express");
const { trace } = require("@opentelemetry/api");

const nanos = ([seconds, rest]) => Number(BigInt(seconds) * 1000000000n + BigInt(rest));
const said = {
  onStart() {},
  onEnd(span) {
    const parent = span.parentSpanContext;
    fs.appendFileSync(path, JSON.stringify({
      span_id: span.spanContext().spanId, name: span.name, thread: process.pid, start: nanos(span.startTime),
      end: nanos(span.endTime), trace_id: span.spanContext().traceId, parent: parent?.spanId ?? null,
      remote: Boolean(parent?.isRemote),
    }) + "\\n");
  },
  forceFlush: async () => {},
  shutdown: async () => {},
};
fs.writeFileSync(path, "");

let light, otlp;
try {
  light = require("@sentry/node-core/light");
  otlp = require("@sentry/node-core/light/otlp").otlpIntegration();
} catch {}
let provider;
const instrument = () => registerInstrumentations({
  tracerProvider: provider, instrumentations: [new HttpInstrumentation(), new ExpressInstrumentation()],
});
let Sentry;
if (otlp) {
  provider = new NodeTracerProvider({ spanProcessors: [said] });
  provider.register();
  instrument();
  Sentry = light;
  Sentry.init({ dsn, integrations: [otlp] });
} else {
  Sentry = require("@sentry/node");
  const { getOtlpTracesEndpoint } = Sentry;
  const { OTLPTraceExporter } = require("@opentelemetry/exporter-trace-otlp-http");
  provider = new NodeTracerProvider({
    spanProcessors: [said, new BatchSpanProcessor(new OTLPTraceExporter(getOtlpTracesEndpoint(dsn)))],
  });
  provider.register();
  instrument();
  Sentry.init({ dsn });
}
const express = require("express");
const http = require("node:http");
const tracer = trace.getTracer("shop");

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

for (let number = 0; number < 3; number += 1) {
  busy_in_one(Date.now() + 200);
  busy_in_two(Date.now() + 200);
}

const app = express();
app.get("/things/:name", (request, response) => {
  const { name } = request.params;
  tracer.startActiveSpan(`work ${name}`, (span) => {
    (name === "one" ? busy_in_one : busy_in_two)(Date.now() + 1000);
    span.end();
  });
  Sentry.captureMessage(`served ${name}`);
  response.send("done");
});

process.stdin.once("data", () => {
  const server = app.listen(0, "127.0.0.1", async () => {
    const { port } = server.address();
    const ask = (name) => new Promise((resolve) => {
      const client = require("node:net").connect(port, "127.0.0.1");
      client.write(`GET /things/${name} HTTP/1.0\\r\\nHost: shop\\r\\n\\r\\n`);
      client.on("data", () => {});
      client.on("close", resolve);
    });
    for (let number = 0; number < 2; number += 1) for (const name of ["one", "two"]) await ask(name);
    await new Promise((resolve) => setTimeout(resolve, 300));
    await Sentry.close(10000);
    await provider.shutdown();
    // The sampler sees the end of the last span before the program is gone.
    setTimeout(() => process.exit(0), 1000);
  });
});
"""

FORMS = ("otlp", "streamed")

CONFIG = adapted("sentry-sdk.yaml", {":9000": ":0", "    compression: none": "    compression: none\n    spans: FORM"})


def plain(value):
    """A value of OTLP."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(one) for one in value.array_value.values]
    return None if kind is None else getattr(value, kind)


def spans(sentry):
    """The spans in both forms, each as a dictionary with its `attributes`."""
    found = []
    for request in list(sentry.requests):
        if "/integration/otlp/" not in request.path:
            header = json.loads(request.plain().partition(b"\n")[0])
            for item, payload in request.items():
                if item["type"] == "span":
                    for span in json.loads(payload)["items"]:
                        attributes = {key: one["value"] for key, one in span.get("attributes", {}).items()}
                        assert span["trace_id"] == header["trace"]["trace_id"], "the trace of the header"
                        found.append({**span, "attributes": attributes, "form": "streamed", "header": header})
            continue
        assert request.path.rstrip("/") == "/api/42/integration/otlp/v1/traces", request.path
        assert KEY in request.headers["x-sentry-auth"]
        message = trace_service_pb2.ExportTraceServiceRequest.FromString(request.plain())
        for resource in message.resource_spans:
            shared = {f"resource.{one.key}": plain(one.value) for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    attributes = {one.key: plain(one.value) for one in span.attributes}
                    assert len(attributes) == len(span.attributes), "each key once"
                    remote = span.flags & 0x300 == 0x300
                    found.append({
                        "form": "otlp", "trace_id": span.trace_id.hex(), "span_id": span.span_id.hex(), "name": span.name,
                        "parent_span_id": span.parent_span_id.hex() or None,
                        "is_segment": remote or not span.parent_span_id, "start_timestamp": span.start_time_unix_nano / 1e9,
                        "end_timestamp": span.end_time_unix_nano / 1e9, "status": "error" if span.status.code == 2 else "ok",
                        "attributes": {**shared, **attributes}, "kind": span.kind,
                    })
    return found


def said(path):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [json.loads(line) for line in file]


def run(binary, label, sdk, form):
    """Runs a service, and checks its spans against what it wrote down."""
    name = f"{label}, {form}"
    is_node = os.path.isdir(sdk)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "said")

        def arguments(profbridge):
            return [f"http://{KEY}@{profbridge.address('sentry/http')}/42", EXAMPLE, path]

        def own(sentry):
            return [span for span in spans(sentry) if "/envelope/" in str(span["attributes"])]

        interpreter, environment = [sdk, "-u"], {}
        if is_node:
            interpreter = ["/usr/bin/env", "node", "--perf-basic-prof", "--interpreted-frames-native-stack"]
            environment["NODE_PATH"] = os.path.abspath(os.path.join(sdk, "node_modules"))
        config = CONFIG.replace("FORM", form)
        count = lambda: sum("/envelope" not in span["name"] and span["name"] != "POST" for span in said(path))
        text = EXPRESS if is_node else DJANGO
        sentry, pid = beside_the_sampler(binary, config, text, arguments, count, interpreter, environment, spans)
        made = {span["span_id"]: span for span in said(path)}
    found = spans(sentry)
    chunks = items(sentry, "profile_chunk")
    profilers = {chunk["profiler_id"] for chunk in chunks}

    arrived = {span["span_id"]: span for span in found}
    assert {span["form"] for span in found} == {form}, [(r.path, r.kinds(), r.body[:300]) for r in sentry.requests]
    print({span["name"] for span in made.values()}, len(own(sentry)))
    for span_id in set(made) - set(arrived):
        print("lost:", made[span_id])
    assert len(arrived) == len(found) and set(arrived) <= set(made)
    counts = {"all": len(found)}
    for span_id, span in arrived.items():
        attributes, of = span["attributes"], made[span_id]
        good = attributes.get("sentry.profiler_id") in profilers
        thread = str(of["thread"])
        for key, right in (
            ("profiler", good), ("thread.id", attributes.get("thread.id") == thread),
            ("wrong", attributes.get("thread.id", thread) != thread or attributes.get("sentry.profiler_id") not in {None, *profilers}),
            ("sentry.thread.id", attributes.get("sentry.thread.id") == thread),
            ("segment", span["is_segment"] == (of["parent"] is None or of["remote"])),
        ):
            counts[key] = counts.get(key, 0) + right
    print(name, counts)
    for span in found:
        print(json.dumps(span))
    for span in made.values():
        if span["name"].startswith("work "):
            one = arrived[span["span_id"]]["attributes"]
            place = one.get("sentry.profiler_id"), one.get("thread.id"), span["start"] / 1e9, span["end"] / 1e9
            check_spans(span["name"].removeprefix("work "), [place], chunks, {f"busy_in_{span['name'].removeprefix('work ')}"}, 0.1 if is_node else 0)


def main():
    binary = sys.argv[1]
    for sdk in sys.argv[2:]:
        for form in FORMS:
            run(binary, sdk, sdk, form)
    print("sentry_otlp: everything agrees")


if __name__ == "__main__":
    main()
