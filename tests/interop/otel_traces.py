#!/usr/bin/env python3
"""Programs traced by OpenTelemetry's own SDKs for Python and Node send to profbridge, with a Sentry in this script behind it.

Usage: otel_traces.py PATH_TO_PROFBRIDGE FOLDER_WITH_NODE_MODULES

Each program serves a request, makes it, asks a database and fails once, under the SDK's own instrumentation, and says
itself which spans it made. Every span must arrive in Sentry, exactly once and in the right transaction, with its ids,
times, operation, status and data. The same spans leave through an exporter `otlp` as they came. Needs the packages
opentelemetry-sdk, -exporter-otlp-proto-grpc, -exporter-otlp-proto-http and -instrumentation-{wsgi,urllib,sqlite3} in
this interpreter, and @opentelemetry/{api,sdk-trace-node,exporter-trace-otlp-proto,instrumentation,instrumentation-http,
resources} in the folder. Uses loopback only, on ports that the system chooses.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

from common import PATIENCE, Profbridge, expect, wait_for
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from sentry_sdks import KEY, Server, takes

PYTHON = """
import json, sqlite3, sys, threading, urllib.request
from wsgiref.simple_server import WSGIRequestHandler, make_server
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.instrumentation.sqlite3 import SQLite3Instrumentor
from opentelemetry.instrumentation.urllib import URLLibInstrumentor
from opentelemetry.instrumentation.wsgi import OpenTelemetryMiddleware

protocol, endpoint = sys.argv[1:3]
if protocol == "grpc":
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=True)
else:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    exporter = OTLPSpanExporter(endpoint=endpoint + "/v1/traces")

class Said(SpanProcessor):
    def on_end(self, span):
        parent = span.parent
        # In one piece: spans end in several threads.
        sys.stdout.write(json.dumps({
            "name": span.name, "kind": span.kind.name,
            "trace_id": f"{span.context.trace_id:032x}", "span_id": f"{span.context.span_id:016x}",
            "parent": f"{parent.span_id:016x}" if parent else None, "remote": bool(parent and parent.is_remote),
            "start": span.start_time, "end": span.end_time, "error": span.status.status_code.name == "ERROR",
            "attributes": dict(span.attributes),
        }) + "\\n")
        sys.stdout.flush()

resource = Resource.create({"service.name": "shop", "service.version": "1.2", "deployment.environment.name": "interop",
                            "host.name": "here"})
provider = TracerProvider(resource=resource)
provider.add_span_processor(Said())
provider.add_span_processor(BatchSpanProcessor(exporter))
trace.set_tracer_provider(provider)
SQLite3Instrumentor().instrument()
URLLibInstrumentor().instrument()
tracer = trace.get_tracer("interop")

def app(environ, start_response):
    connection = sqlite3.connect(":memory:")
    connection.cursor().execute("SELECT 1 + 1")
    try:
        with tracer.start_as_current_span("fails"):
            raise ValueError("expected")
    except ValueError:
        pass
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"done"]

class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass

server = make_server("127.0.0.1", 0, OpenTelemetryMiddleware(app), handler_class=Quiet)
thread = threading.Thread(target=server.handle_request)
thread.start()
with tracer.start_as_current_span("job"):
    urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/things?page=2").read()
thread.join()
provider.shutdown()
"""

NODE = """
const { trace, SpanStatusCode, SpanKind } = require("@opentelemetry/api");
const { NodeTracerProvider, BatchSpanProcessor } = require("@opentelemetry/sdk-trace-node");
const { OTLPTraceExporter } = require("@opentelemetry/exporter-trace-otlp-proto");
const { registerInstrumentations } = require("@opentelemetry/instrumentation");
const { HttpInstrumentation } = require("@opentelemetry/instrumentation-http");
const { resourceFromAttributes, defaultResource } = require("@opentelemetry/resources");

const endpoint = process.argv[3];
const nanos = ([seconds, rest]) => String(BigInt(seconds) * 1000000000n + BigInt(rest));
const said = {
  onStart() {},
  onEnd(span) {
    const parent = span.parentSpanContext;
    console.log(JSON.stringify({
      name: span.name, kind: SpanKind[span.kind],
      trace_id: span.spanContext().traceId, span_id: span.spanContext().spanId,
      parent: parent ? parent.spanId : null, remote: Boolean(parent && parent.isRemote),
      start: nanos(span.startTime), end: nanos(span.endTime), error: span.status.code === SpanStatusCode.ERROR,
      attributes: span.attributes,
    }));
  },
  forceFlush: async () => {}, shutdown: async () => {},
};
const provider = new NodeTracerProvider({
  resource: defaultResource().merge(resourceFromAttributes({
    "service.name": "shop", "service.version": "1.2", "deployment.environment.name": "interop", "host.name": "here",
  })),
  spanProcessors: [said, new BatchSpanProcessor(new OTLPTraceExporter({ url: endpoint + "/v1/traces" }))],
});
provider.register();
registerInstrumentations({
  tracerProvider: provider,
  instrumentations: [new HttpInstrumentation({
    ignoreOutgoingRequestHook: (options) => String(options.path).startsWith("/v1/"),
  })],
});
const http = require("http");
const tracer = trace.getTracer("interop");

const server = http.createServer((request, response) => {
  tracer.startActiveSpan("fails", (span) => {
    span.recordException(new Error("expected"));
    span.setStatus({ code: SpanStatusCode.ERROR, message: "expected" });
    span.end();
  });
  response.end("done");
});
server.listen(0, "127.0.0.1", () => {
  tracer.startActiveSpan("job", (span) => {
    http.get({ host: "127.0.0.1", port: server.address().port, path: "/things?page=2" }, (response) => {
      response.resume();
      response.on("end", async () => {
        span.end();
        server.close();
        await new Promise((resolve) => setImmediate(resolve));
        await provider.shutdown();
      });
    });
  });
});
"""

CONFIG = """
receivers: {otlp: {protocols: {grpc: {endpoint: "127.0.0.1:0"}, http: {endpoint: "127.0.0.1:0"}}}}
processors: {transactions: {}}
exporters:
  sentry: {dsn: "DSN", compression: none}
  otlp_http: {endpoint: "http://BACKEND", compression: none}
service:
  pipelines:
    traces: {receivers: [otlp], processors: [transactions], exporters: [sentry]}
    traces/on: {receivers: [otlp], exporters: [otlp_http]}
"""


def run(language, protocol, endpoint, modules):
    """Runs a program to its end: the spans that it says it made."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
        if language == "python":
            path, text, program = os.path.join(folder, "program.py"), PYTHON, sys.executable
        else:
            path, text, program = os.path.join(folder, "program.js"), NODE, "node"
            environment["NODE_PATH"] = os.path.join(modules, "node_modules")
        with open(path, "w") as file:
            file.write(text)
        command = [program, path, protocol, endpoint]
        done = subprocess.run(command, cwd=folder, env=environment, check=True, timeout=PATIENCE, stdout=subprocess.PIPE)
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def is_local_root(span):
    return span["parent"] is None or span["remote"] or span["kind"] in ("SERVER", "CONSUMER")


def same_time(seconds, nanos):
    # Times are written in microseconds, and read as a number that is as coarse.
    return abs(seconds * 1e9 - int(nanos)) <= 2000


def check_span(span, sent):
    """A span of a transaction, or its trace context, beside what the program made."""
    assert (span["trace_id"], span["span_id"]) == (sent["trace_id"], sent["span_id"])
    assert span.get("parent_span_id") == sent["parent"], (span, sent)
    data = span["data"]
    for key, value in sent["attributes"].items():
        found = data[key]
        assert found == value or list(found) == list(value), (key, found, value)
    op = {"SERVER": "http.server", "CLIENT": "http.client"}.get(sent["kind"])
    if "db.system" in sent["attributes"] or "db.system.name" in sent["attributes"]:
        op = "db"
    if op:
        assert span["op"] == op, (span["op"], sent)
    status = span.get("status", "ok")
    assert (status != "ok") == sent["error"], (status, sent)


def check_transaction(event, header, root, children):
    """A transaction beside the local root that it is made of, and the spans below it."""
    assert event["type"] == "transaction" and re.fullmatch(r"[0-9a-f]{32}", event["event_id"])
    assert header["event_id"] == event["event_id"]
    assert header["trace"]["trace_id"] == root["trace_id"] and header["trace"]["public_key"] == KEY
    trace = event["contexts"]["trace"]
    check_span(trace, root)
    assert same_time(event["start_timestamp"], root["start"]) and same_time(event["timestamp"], root["end"])
    assert (event["release"], event["environment"], event["server_name"]) == ("shop@1.2", "interop", "here")
    assert event["platform"] in ("python", "node") and event["sdk"]["name"] == "profbridge.rust"
    assert event["transaction"] and event["transaction_info"]["source"]
    assert "client_sample_rate" not in trace
    by_id = {span["span_id"]: span for span in event["spans"]}
    assert set(by_id) == {child["span_id"] for child in children}, "the spans below a local root are in its transaction"
    for child in children:
        span = by_id[child["span_id"]]
        check_span(span, child)
        assert same_time(span["start_timestamp"], child["start"]) and same_time(span["timestamp"], child["end"])
    if root["kind"] == "SERVER":
        assert event["request"]["method"] == "GET" and "/things" in event["request"]["url"], event.get("request")
        assert event["contexts"]["response"]["status_code"] == 200


def transactions(sentry):
    """The transactions that arrived, with the headers of their envelopes, by the id of their root."""
    found = {}
    for request in list(sentry.requests):
        header = json.loads(request.plain().partition(b"\n")[0])
        for item, payload in request.items():
            if item["type"] == "transaction":
                event = json.loads(payload)
                root = event["contexts"]["trace"]["span_id"]
                assert root not in found, "a transaction arrives once"
                found[root] = event, header
    return found


def compare(binary, modules, language, protocol):
    name = f"{language}, {protocol}"
    sentry, backend = Server(takes), Server(lambda _: (200, [("Content-Type", "application/x-protobuf")], b""))
    config = CONFIG.replace("DSN", sentry.dsn).replace("BACKEND", backend.address)
    with Profbridge(binary, config) as profbridge:
        address = profbridge.address(f"otlp/{protocol}")
        sent = run(language, protocol, address if protocol == "grpc" else f"http://{address}", modules)
        wait_for("all spans are in Sentry", lambda: sum(
            1 + len(event["spans"]) for event, _ in transactions(sentry).values()) >= len(sent))
        assert profbridge.stop() == 0
        assert KEY not in profbridge.log()
    arrived = transactions(sentry)
    roots = [span for span in sent if is_local_root(span)]
    expect({root["span_id"] for root in roots} == set(arrived), f"{name}: {len(roots)} local roots are transactions")
    by_id = {span["span_id"]: span for span in sent}

    def root_of(span):
        while not is_local_root(span):
            span = by_id[span["parent"]]
        return span["span_id"]

    for root in roots:
        children = [span for span in sent if not is_local_root(span) and root_of(span) == root["span_id"]]
        check_transaction(*arrived[root["span_id"]], root, children)
    failed = [span for event, _ in arrived.values() for span in event["spans"] if span.get("status", "ok") != "ok"]
    expect(len(failed) >= 1, f"{name}: ids, times, operations, states and data of {len(sent)} spans are those of the program")
    left = []
    for request in backend.requests:
        assert request.path == "/v1/traces", request.path
        message = trace_service_pb2.ExportTraceServiceRequest.FromString(request.body)
        for resource in message.resource_spans:
            left += [span for scope in resource.scope_spans for span in scope.spans]
    of = sorted((span.span_id.hex(), span.name, span.start_time_unix_nano, span.end_time_unix_nano) for span in left)
    made = sorted((span["span_id"], span["name"], int(span["start"]), int(span["end"])) for span in sent)
    expect(of == made, f"{name}: the exporter otlp sent the same {len(made)} spans on")


def main():
    binary, modules = sys.argv[1], os.path.abspath(sys.argv[2])
    compare(binary, modules, "python", "http")
    compare(binary, modules, "python", "grpc")
    if os.path.isdir(os.path.join(modules, "node_modules", "@opentelemetry", "sdk-trace-node")):
        compare(binary, modules, "node", "http")
    else:
        print(f"Node's SDK is not in {modules}: not run")
    print("otel_traces: everything agrees")


if __name__ == "__main__":
    main()
