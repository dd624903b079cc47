#!/usr/bin/env python3
"""Services that know nothing but a DSN send spans as OTLP to profbridge's receiver `sentry`, beside the sampler.

Usage: sentry_otlp.py PATH_TO_PROFBRIDGE [PYTHON|FOLDER_WITH_NODE_MODULES]...

A Django service with `OTLPIntegration` of sentry-sdk, and an Express service with `otlpIntegration` of
@sentry/node-core 10 or the endpoint that @sentry/node 11 makes of the DSN, serve requests, some of which continue
another service's trace. They write down their spans with the system's id of the thread. In the Sentry of this script,
which reads OTLP and containers, each span must arrive once, as a segment where it is the first of its service, with the
profiler of the process and the thread on which it ran, whose functions in its time are those that the service spun in;
spans of the SDK's own posts must be gone. The Express service then does the same with the spans of Sentry's SDK.

The Django service also makes one trace three times: with the spans of sentry-sdk, and with OpenTelemetry's, which
profbridge sends as OTLP and as containers. The script applies Relay's rules for spans, prints what is not equal then
with the reason, and fails where it knows none.

A Python has sentry-sdk 3, Django and opentelemetry-{sdk,exporter-otlp-proto-http,instrumentation-{django,urllib,
urllib3}}, this interpreter opentelemetry-proto. A folder has express, @opentelemetry/{api,sdk-trace-node,
exporter-trace-otlp-http,instrumentation,instrumentation-http,instrumentation-express} and @sentry/node-core 10 or
@sentry/node 11. Uses loopback only, on ports that the system chooses.
"""

import json
import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from common import expect
from linking import EXAMPLE, adapted, beside_the_sampler, check_spans, items
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from sentry_sdks import KEY
from sentry_streams import version

DJANGO = """
import contextlib, http.client, json, os, sys, threading, time, urllib.request
from concurrent.futures import ThreadPoolExecutor
mode, dsn, example, path = sys.argv[1:5]
sys.path.insert(0, example)
import sentry_sdk
from native_thread import NativeThread
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.instrumentation.django import DjangoInstrumentor
from opentelemetry.instrumentation.urllib import URLLibInstrumentor
from opentelemetry.instrumentation.urllib3 import URLLib3Instrumentor
from django.conf import settings
settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="x", LOGGING_CONFIG=None)

said = open(path, "w", buffering=1)

class Said(SpanProcessor):
    threads = {}

    def on_start(self, span, parent_context=None):
        self.threads[span.context.span_id] = threading.get_native_id()

    def on_end(self, span):
        said.write(json.dumps({
            "span_id": f"{span.context.span_id:016x}", "name": span.name,
            "thread": self.threads.pop(span.context.span_id),
            "start": span.start_time, "end": span.end_time, "parent": span.parent and span.parent.span_id,
            "remote": bool(span.parent and span.parent.is_remote), "url": span.attributes.get("http.url", ""),
        }) + "\\n")

def traced(url):
    # A service that is used has the name and version that its SDK of Sentry would have as the release.
    resource = Resource.create({
        "service.name": "shop", "service.version": "1.2", "deployment.environment.name": "lab",
        "process.pid": os.getpid(),
    } if url else {})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(Said())
    if mode != "bare":
        provider.add_span_processor(NativeThread())
    if url:
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))
    trace.set_tracer_provider(provider)
    DjangoInstrumentor().instrument()
    URLLibInstrumentor().instrument()
    return provider

provider = None
if mode == "sentry":
    sentry_sdk.init(dsn=dsn, release="shop@1.2", environment="lab", traces_sample_rate=1.0)
    part = sentry_sdk.traces.start_span
else:
    if mode == "opentelemetry":
        provider = traced(dsn)
    else:
        from sentry_sdk.integrations.otlp import OTLPIntegration
        provider = traced(None)
        sentry_sdk.init(dsn=dsn, integrations=[OTLPIntegration()])
        URLLib3Instrumentor().instrument()
    part = trace.get_tracer("shop").start_as_current_span

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

def things(request, name):
    with part(f"work {name}"):
        (busy_in_one if name == "one" else busy_in_two)(time.monotonic() + 1)
    said.write(json.dumps({"served": threading.get_native_id()}) + "\\n")
    if mode in ("sentry", "opentelemetry"):
        with contextlib.suppress(ValueError), part("fails"):
            raise ValueError("expected")
        database()
    else:
        sentry_sdk.capture_message(f"served {name}")
    urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/stock?q=1").read()
    return HttpResponse("done")

def database():
    query = {"db.system.name": "sqlite", "db.query.text": "SELECT 1 + 1"}
    with part("SELECT 1 + 1", attributes={**query, **({"sentry.op": "db"} if mode == "sentry" else {})}):
        time.sleep(0.01)

def stock(request):
    said.write(json.dumps({"served": threading.get_native_id()}) + "\\n")
    return HttpResponse("some")

urlpatterns = [route("things/<str:name>", things), route("stock", stock)]

class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass

# Threads that are there before the first request, as those of most web servers.
pool = ThreadPoolExecutor(4)
met = threading.Barrier(4)
for _ in range(4):
    pool.submit(met.wait)

class Pooled(ThreadedWSGIServer):
    def process_request(self, request, client_address):
        pool.submit(self.process_request_thread, request, client_address)

server = Pooled(("127.0.0.1", 0), Quiet)
server.set_app(get_wsgi_application())
threading.Thread(target=server.serve_forever, daemon=True).start()

def ask(name, times):
    for number in range(times):
        client = http.client.HTTPConnection(*server.server_address)
        # As another service with an SDK of Sentry would call it.
        headers = {"sentry-trace": f"{number:016x}{len(name):016x}-00000000000000aa-1"} if number else {}
        client.request("GET", f"/things/{name}", headers=headers)
        assert client.getresponse().status == 200

sys.stdin.readline()
if mode in ("sentry", "opentelemetry"):
    ask("one", 1)
else:
    clients = [threading.Thread(target=ask, args=(name, 2)) for name in ("one", "two")]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
sentry_sdk.get_client().close(10)
if provider:
    provider.shutdown()
# The sampler sees the end of the last span before the program is gone.
time.sleep(1)
"""

EXPRESS = """
const fs = require("node:fs");
const [, , mode, dsn, , path] = process.argv;
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
      end: nanos(span.endTime), parent: parent?.spanId ?? null, remote: Boolean(parent?.isRemote),
      url: span.attributes["url.full"] ?? "",
    }) + "\\n");
  },
  forceFlush: async () => {},
  shutdown: async () => {},
};
fs.writeFileSync(path, "");

let Sentry, provider, part;
if (mode === "sentry") {
  Sentry = require("@sentry/node");
  Sentry.init({ dsn, tracesSampleRate: 1, traceLifecycle: "stream" });
  part = (name, work) => Sentry.startSpan({ name }, work);
} else {
  let otlp;
  try {
    otlp = require("@sentry/node-core/light/otlp").otlpIntegration();
  } catch {}
  Sentry = require(otlp ? "@sentry/node-core/light" : "@sentry/node");
  const { OTLPTraceExporter } = require("@opentelemetry/exporter-trace-otlp-http");
  const exporter = otlp ? [] : [new BatchSpanProcessor(new OTLPTraceExporter(Sentry.getOtlpTracesEndpoint(dsn)))];
  provider = new NodeTracerProvider({ spanProcessors: [said, ...exporter] });
  provider.register();
  registerInstrumentations({
    tracerProvider: provider, instrumentations: [new HttpInstrumentation(), new ExpressInstrumentation()],
  });
  Sentry.init({ dsn, integrations: otlp ? [otlp] : [] });
  part = (name, work) => trace.getTracer("shop").startActiveSpan(name, (span) => {
    work();
    span.end();
  });
}
const express = require("express");

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
  part(`work ${name}`, () => (name === "one" ? busy_in_one : busy_in_two)(Date.now() + 2000));
  Sentry.captureMessage(`served ${name}`);
  response.send("done");
});

process.stdin.once("data", () => {
  const server = app.listen(0, "127.0.0.1", async () => {
    const { port } = server.address();
    const ask = (name, number) => new Promise((resolve) => {
      const client = require("node:net").connect(port, "127.0.0.1");
      // As another service would call it.
      const parent = number ? "traceparent: 00-771a43a4192642f0b136d5159a501700-00000000000000aa-01\\r\\n" : "";
      client.write(`GET /things/${name} HTTP/1.0\\r\\nHost: shop\\r\\n${parent}\\r\\n`);
      client.on("data", () => {});
      client.on("close", resolve);
    });
    for (let number = 0; number < 2; number += 1) for (const name of ["one", "two"]) await ask(name, number);
    await new Promise((resolve) => setTimeout(resolve, 300));
    await Sentry.close(10000);
    await provider?.shutdown();
    // The sampler sees the end of the last span before the program is gone.
    setTimeout(() => process.exit(0), 1000);
  });
});
"""

CONFIG = adapted("sentry-sdk.yaml", {
    ":9000": ":0",
    "    compression: none": "    compression: none\n    spans: FORM",
    "  ptrace:\n": '  otlp: {protocols: {http: {endpoint: "127.0.0.1:0"}}}\n  ptrace:\n',
    "[sentry, ptrace]": "[sentry, otlp, ptrace]",
})


def plain(value):
    """A value of OTLP."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(one) for one in value.array_value.values]
    return None if kind is None else getattr(value, kind)


def of_otlp(span, shared):
    """A span of OTLP as Relay makes it one of a container."""
    kinds = ["", "internal", "server", "client", "producer", "consumer"]
    attributes = {one.key: plain(one.value) for one in span.attributes}
    assert len(attributes) == len(span.attributes), "each attribute once"
    found = {
        "trace_id": span.trace_id.hex(), "span_id": span.span_id.hex(), "name": span.name,
        "parent_span_id": span.parent_span_id.hex() or None, "status": "error" if span.status.code == 2 else "ok",
        "is_segment": not span.parent_span_id or span.flags & 0x300 == 0x300,
        "start_timestamp": span.start_time_unix_nano / 1e9, "end_timestamp": span.end_time_unix_nano / 1e9,
        "attributes": {"sentry.origin": "auto.otlp.spans", "sentry.kind": kinds[span.kind], **shared, **attributes},
    }
    # The other names of languages are not of those that run here.
    language = shared.get("resource.telemetry.sdk.language")
    found["attributes"].setdefault("sentry.platform", "node" if language == "nodejs" else language)
    if found["is_segment"]:
        found["attributes"] |= {"sentry.segment.id": found["span_id"], "sentry.segment.name": span.name}
    return found


def spans(sentry):
    """The spans in both forms as those of a container, with plain attributes, and the form as `form`."""
    found = []
    for request in list(sentry.requests):
        for item, payload in request.items():
            if item["type"] == "span":
                for span in json.loads(payload)["items"]:
                    attributes = {key: one["value"] for key, one in span.get("attributes", {}).items()}
                    found.append({"form": "streamed", **span, "attributes": attributes})
        if "/integration/otlp/" in request.path:
            assert request.path.rstrip("/") == "/api/42/integration/otlp/v1/traces", request.path
            assert KEY in request.headers["x-sentry-auth"]
            message = trace_service_pb2.ExportTraceServiceRequest.FromString(request.plain())
            for resource in message.resource_spans:
                shared = {f"resource.{one.key}": plain(one.value) for one in resource.resource.attributes}
                all_of_it = [span for scope in resource.scope_spans for span in scope.spans]
                found += [{"form": "otlp", **of_otlp(span, shared)} for span in all_of_it]
    return found


def serve(binary, sdk, mode, form, count):
    """Runs a service beside the sampler until as many spans as `count` says of what it wrote are in the Sentry. Returns
    its spans, the chunks, what it wrote, and its process id."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "said")

        def said():
            with open(path) as file:
                return [json.loads(line) for line in file]

        def arguments(profbridge):
            if mode == "opentelemetry":
                return [mode, f"http://{profbridge.address('otlp/http')}/v1/traces", EXAMPLE, path]
            return [mode, f"http://{KEY}@{profbridge.address('sentry/http')}/42", EXAMPLE, path]

        interpreter, text, environment = [sdk, "-u"], DJANGO, {}
        if os.path.isdir(sdk):
            interpreter = ["/usr/bin/env", "node", "--perf-basic-prof", "--interpreted-frames-native-stack"]
            environment, text = {"NODE_PATH": os.path.abspath(os.path.join(sdk, "node_modules"))}, EXPRESS
        config = CONFIG.replace("FORM", form)
        sentry, pid = beside_the_sampler(
            binary, config, text, arguments, lambda: count(said()), interpreter, environment, spans,
        )
        return spans(sentry), items(sentry, "profile_chunk"), said(), pid


def is_own_post(span):
    return "/api/42/envelope/" in span["url"]


def compare(binary, label, sdk, mode, form):
    """Runs a service, and checks its spans against what it wrote."""
    name = f"{label}, {mode}, {form}" if mode == "bare" else f"{label}, {form}"
    found, chunks, made, _ = serve(
        binary, sdk, mode, form, lambda made: sum("span_id" in one and not is_own_post(one) for one in made),
    )
    made = {one["span_id"]: one for one in made if "span_id" in one}
    posts = {span_id for span_id, one in made.items() if is_own_post(one)}
    # Sentry's SDK continues traces with spans of its own.
    arrived = {span["span_id"]: span for span in found if span["span_id"] in made}
    expect(len(arrived) == sum(span["span_id"] in made for span in found), f"{name}: each span arrived once")
    expect(posts and not posts & set(arrived), f"{name}: none of {len(posts)} spans of the SDK's own posts did")
    expect(set(arrived) == set(made) - posts, f"{name}: all other {len(arrived)} spans arrived")
    expect({span["form"] for span in arrived.values()} == {form}, f"{name}: in this form")
    profilers = {chunk["profiler_id"] for chunk in chunks}
    counts = {"profiler": 0, "thread": 0, "wrong": 0}
    for span_id, span in arrived.items():
        one, attributes = made[span_id], span["attributes"]
        assert span["is_segment"] == (one["parent"] is None or one["remote"]), (one, span)
        assert "unknown_service" not in attributes.get("sentry.release", ""), "no release is made of a placeholder"
        profiler, thread = attributes.get("sentry.profiler_id"), attributes.get("thread.id")
        assert attributes.get("sentry.thread.id") == thread, attributes
        counts["profiler"] += profiler in profilers
        counts["thread"] += thread == str(one["thread"])
        counts["wrong"] += profiler not in {None, *profilers} or thread not in {None, str(one["thread"])}
        if one["name"].startswith("work ") and thread:
            work = one["name"].removeprefix("work ")
            place = profiler, thread, one["start"] / 1e9, one["end"] / 1e9
            # Node moves code and does not say when in its list of names: one may be of what lay there before.
            check_spans(work, [place], chunks, {f"busy_in_{work}"}, 0.2 if os.path.isdir(sdk) else 0)
    expect(counts["wrong"] == 0, f"{name}: no span names a wrong profiler or thread")
    expect(counts["profiler"] == len(arrived), f"{name}: {counts['profiler']} of {len(arrived)} name the profiler")
    # Nothing says on which thread a span of Python ran, unless the span processor of the example does.
    known = 0 if mode == "bare" else len(arrived)
    expect(counts["thread"] == known, f"{name}: {counts['thread']} of {len(arrived)} name their thread")


# Attributes that Relay copies to those of today, and of which it makes a description: the first of the operation's that
# are all there (getsentry/sentry-conventions `model/attributes`, `model/description`, as Relay 26.9 has them).
RENAMED = {
    "http.method": "http.request.method", "http.url": "url.full",
    "db.system": "db.system.name", "db.statement": "db.query.text",
}
DESCRIPTIONS = {
    "http.client": [("http.request.method", "url.full")],
    "http.server": [("http.request.method", key) for key in ("http.route", "url.template", "url.path", "url.full")],
    "db": [("db.query.text",)],
}


def part_of(span):
    """What of the trace a span is, or nothing for one that only one kind of instrumentation makes."""
    attributes = span["attributes"]
    if span["name"] in ("work one", "fails", "SELECT 1 + 1"):
        return span["name"]
    if "/stock" in attributes.get("url.full", ""):
        return "the request in it" if span["is_segment"] else "the call"
    return "the request" if span["is_segment"] and "/things" in attributes.get("url.full", "") else None


def normalised(span):
    """What Sentry has of a span that Relay took, by the rules for spans of a container."""
    attributes = span["attributes"]
    for old, new in RENAMED.items():
        if old in attributes:
            attributes.setdefault(new, attributes[old])
    op = attributes.get("sentry.op")
    if not op and "http.request.method" in attributes:
        op = {"client": "http.client", "server": "http.server"}.get(attributes.get("sentry.kind"), "http")
    op = op or ("db" if "db.system.name" in attributes else "default")
    whole = [keys for keys in DESCRIPTIONS.get(op, []) if set(keys) <= set(attributes)]
    made = [" ".join(attributes[key] for key in keys) for keys in whole]
    of_origin = [span["name"]] if attributes.get("sentry.origin") == "manual" else []
    return {
        "op": op, "description": next(iter([*of_origin, *made]), None), "name": span["name"], "status": span["status"],
        "is_segment": span["is_segment"], "segment": attributes.get("sentry.segment.id"),
        "segment name": attributes.get("sentry.segment.name"), "release": attributes.get("sentry.release"),
        "environment": attributes.get("sentry.environment"), "platform": attributes.get("sentry.platform"),
        "profiler": attributes.get("sentry.profiler_id"), "thread": attributes.get("thread.id"),
    }


# Why a field differs, by the field and what of the trace it is of.
REASONS = {
    "name": ({"the request", "the request in it", "the call"}, "each instrumentation has names of its own"),
    "segment name": (None, "the same, and in OTLP only a segment names itself: Sentry finds that of the others"),
    "segment": ({"work one", "fails", "SELECT 1 + 1", "the call"}, "in OTLP only a segment names itself, likewise"),
    "description": (
        {"work one", "fails", "the request", "the request in it"},
        "Relay takes the name only where the origin is `manual`; each instrumentation writes a route its own way",
    ),
    "platform": (
        {"work one", "fails", "SELECT 1 + 1", "the call"}, "Sentry's SDK says it of segments, and Sentry copies it",
    ),
}


def trace(binary, sdk, mode, form):
    """The fields of each part of the trace in Sentry. What is another in each run has a name instead."""
    found, chunks, made, _ = serve(binary, sdk, mode, form, lambda _: 6)
    assert {span["form"] for span in found} == {form}
    normal = [(normalised(span), span) for span in found]
    rows = [(part_of(span), span["span_id"], row) for row, span in normal if part_of(span)]
    assert len({part for part, _, _ in rows}) == len(rows) == 6, rows
    threads = [str(one["served"]) for one in made if "served" in one]
    names = {span_id: f"that of {part}" for part, span_id, _ in rows}
    names |= {chunk["profiler_id"]: "the profiler" for chunk in chunks}
    names |= dict(zip(threads, ["its thread", "its thread"]))
    in_it = dict(zip(["the request", "the request in it"], threads))
    parts = {}
    for part, _, row in rows:
        assert row["thread"] == in_it.get(part, threads[0]), (part, row["thread"], threads)
        parts[part] = {field: names.get(value, re.sub(r":\d+/", ":PORT/", str(value))) for field, value in row.items()}
        assert parts[part]["profiler"] == "the profiler" and parts[part]["thread"] == "its thread", row
    return parts


def same_trace(binary, label, sdk):
    """Makes one trace with each, and compares what Sentry has of it."""
    kinds = [(label, "sentry", "streamed")]
    kinds += [(f"as {form}", "opentelemetry", form) for form in ("otlp", "streamed")]
    traces = {name: trace(binary, sdk, mode, form) for name, mode, form in kinds}
    equal, unexplained = 0, []
    for part, row in traces[label].items():
        for field in row:
            values = {name: parts[part][field] for name, parts in traces.items()}
            if len(set(values.values())) == 1:
                equal += 1
                continue
            of, reason = REASONS.get(field, (set(), "NO REASON"))
            if of is not None and part not in of:
                unexplained.append((part, field))
            print(f"{field} of {part}: {', '.join(f'{name} {value!r}' for name, value in values.items())}: {reason}")
    said = f"{equal} fields are equal, the others have a reason"
    expect(not unexplained, f"{label} and OpenTelemetry: {said} {unexplained or ''}")


def streams(binary, label, sdk):
    """Runs the service with the spans of its SDK for Node, which say no thread."""
    found, chunks, _, pid = serve(binary, sdk, "sentry", "streamed", lambda _: 8)
    profilers = {chunk["profiler_id"] for chunk in chunks}
    places = [(span["attributes"].get("sentry.profiler_id"), span["attributes"].get("thread.id")) for span in found]
    right = sum(profiler in profilers and thread == str(pid) for profiler, thread in places)
    expect(right == len(found), f"{label}, sentry: {right} of {len(found)} spans name the profiler and the main thread")


def main():
    binary = sys.argv[1]
    work = []
    for sdk in sys.argv[2:]:
        label = version(sdk)
        if label is None:
            print(f"there is no SDK of Sentry in {sdk}: not run")
        elif os.path.isdir(sdk):
            form = "otlp" if label.startswith("@sentry/node 10") else "streamed"
            work += [(compare, label, sdk, "services", form), (streams, label, sdk)]
        else:
            work += [(compare, label, sdk, "bare", "otlp"), (compare, label, sdk, "services", "streamed")]
            work += [(same_trace, label, sdk)]
    with ThreadPoolExecutor(max_workers=2) as pool:
        for one in [pool.submit(check, binary, *which) for check, *which in work]:
            one.result()
    print("sentry_otlp: everything agrees")


if __name__ == "__main__":
    main()
