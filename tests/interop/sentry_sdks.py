#!/usr/bin/env python3
"""Puts profbridge between Sentry's own SDKs for Python and Node and a Sentry in this script.

Usage: sentry_sdks.py PATH_TO_PROFBRIDGE FOLDER_WITH_NODE_MODULES

Every program runs twice: straight to a Sentry, and through profbridge. What arrives must be the same items, and through
profbridge byte for byte what the SDK sent, which a recorder in front of profbridge says. Then the Sentry sets limits,
and the SDK must stop. Needs sentry-sdk 2.75.0 in this interpreter, and @sentry/node and @sentry/profiling-node 10.75.3
in the folder. Uses loopback only, on ports that the system chooses.
"""

import gzip
import http.client
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from common import PATIENCE, Profbridge, expect

KEY = "0123456789abcdef0123456789abcdef"

# Headers that say how one connection transports a request, not what it is.
OF_TRANSPORT = {"connection", "transfer-encoding", "content-length", "accept-encoding", "keep-alive"}

PYTHON = """
import sys, threading, time
import sentry_sdk
import sentry_sdk.crons, sentry_sdk.logger, sentry_sdk.metrics

mode, dsn = sys.argv[1], sys.argv[2]
profiling = {
    "manual": {"profile_session_sample_rate": 1.0, "profile_lifecycle": "manual"},
    "trace": {"profile_session_sample_rate": 1.0, "profile_lifecycle": "trace"},
    "v1": {"profiles_sample_rate": 1.0},
    "limited": {},
}[mode]
sentry_sdk.init(dsn=dsn, release="interop@1.0", traces_sample_rate=1.0, enable_logs=True, server_name="here",
                default_integrations=False, **profiling)

def compute(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(number * number for number in range(1000))

if mode == "limited":
    for number in range(300):
        sentry_sdk.capture_message(f"number {number}")
        sentry_sdk.flush(10)
    sys.exit()
if mode == "manual":
    sentry_sdk.profiler.start_profiler()
with sentry_sdk.start_transaction(op="task", name="work"):
    with sentry_sdk.start_span(op="part", name="half"):
        compute(0.6)
if mode == "manual":
    sentry_sdk.profiler.stop_profiler()
    try:
        1 / 0
    except ZeroDivisionError:
        sentry_sdk.capture_exception()
    with sentry_sdk.new_scope() as scope:
        scope.add_attachment(bytes=bytes(range(256)) * 50, filename="all.bin")
        sentry_sdk.capture_message("with an attachment")
    sentry_sdk.logger.warning("a log, {count}", count=3)
    sentry_sdk.metrics.count("things", 2)
    sentry_sdk.crons.capture_checkin(monitor_slug="nightly", status="ok", duration=3)
    with sentry_sdk.isolation_scope() as scope:
        scope.start_session()
        scope.end_session()
if mode == "trace":
    # The profiler ends with the last transaction, in a thread of its own, and has the rest of the chunk then.
    for thread in threading.enumerate():
        if "profiler" in thread.name:
            thread.join(10)
sentry_sdk.flush(10)
sentry_sdk.get_client().close(10)
"""

NODE = """
const Sentry = require("@sentry/node");
const { nodeProfilingIntegration } = require("@sentry/profiling-node");

const [mode, dsn] = process.argv.slice(2);
const profiling = {
  manual: { profileSessionSampleRate: 1, profileLifecycle: "manual" },
  trace: { profileSessionSampleRate: 1, profileLifecycle: "trace" },
  v1: { profilesSampleRate: 1 },
  limited: {},
}[mode];
Sentry.init({
  dsn, release: "interop@1.0", tracesSampleRate: 1, enableLogs: true, serverName: "here",
  integrations: [nodeProfilingIntegration()], ...profiling,
});

function compute(milliseconds) {
  const end = Date.now() + milliseconds;
  let sum = 0;
  while (Date.now() < end) for (let number = 0; number < 300; number += 1) sum += number * number;
  return sum;
}

async function main() {
  if (mode === "limited") {
    for (let number = 0; number < 300; number += 1) {
      Sentry.captureMessage(`number ${number}`);
      await Sentry.flush(10000);
    }
    return;
  }
  if (mode === "manual") Sentry.profiler.startProfiler();
  await Sentry.startSpan({ op: "task", name: "work" }, async () => {
    Sentry.startSpan({ op: "part", name: "half" }, () => compute(600));
    await new Promise((resolve) => setTimeout(resolve, 50));
  });
  if (mode === "manual") {
    Sentry.profiler.stopProfiler();
    Sentry.captureException(new Error("expected"));
    Sentry.withScope((scope) => {
      scope.addAttachment({ filename: "all.bin", data: new Uint8Array(12800).map((_, index) => index) });
      Sentry.captureMessage("with an attachment");
    });
    Sentry.logger.warn("a log", { count: 3 });
    Sentry.metrics.count("things", 2);
    Sentry.captureCheckIn({ monitorSlug: "nightly", status: "ok", duration: 3 });
    Sentry.startSession();
    Sentry.endSession();
  }
  await Sentry.close(10000);
}

main().then(() => process.exit(0));
"""

# What each mode must bring, beside whatever else the SDK sends.
WANTED = {
    ("python", "manual"): {
        "profile_chunk", "transaction", "event", "attachment", "log", "trace_metric", "check_in", "session",
    },
    ("python", "trace"): {"profile_chunk", "transaction"},
    ("python", "v1"): {"profile", "transaction"},
    ("node", "manual"): {
        "profile_chunk", "transaction", "event", "attachment", "log", "trace_metric", "check_in", "session",
    },
    ("node", "trace"): {"profile_chunk", "transaction"},
    ("node", "v1"): {"profile", "transaction"},
}


class Request:
    """One request as it was sent: its headers in lower case, its body, and the status that it was answered with."""

    def __init__(self, path, headers, body, status):
        self.path, self.headers, self.body, self.status = path, headers, body, status

    def plain(self):
        coding = self.headers.get("content-encoding")
        if coding is None:
            return self.body
        assert coding == "gzip", coding
        return gzip.decompress(self.body)

    def items(self):
        """The items as (header, payload), read by the letter of Sentry's documentation; none where it is no envelope."""
        if not self.path.split("?")[0].endswith("/envelope/"):
            return []
        header, _, rest = self.plain().partition(b"\n")
        assert isinstance(json.loads(header), dict)
        items = []
        while rest:
            line, _, rest = rest.partition(b"\n")
            item = json.loads(line)
            length = item.get("length")
            if length is None:
                payload, _, rest = rest.partition(b"\n")
            else:
                payload, rest = rest[:length], rest[length:]
                assert len(payload) == length and rest[:1] in (b"", b"\n"), "an item's length is true"
                rest = rest[1:]
            items.append((item, payload))
        return items

    def kinds(self):
        return [item["type"] for item, _ in self.items()]


class Server:
    """Records requests and answers them as `answer` says: it is given the request and returns status, headers, body."""

    def __init__(self, answer):
        server = self
        self.requests, self.answer = [], answer

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(self.path, headers, self.read_body(headers), None)
                request.status, answer_headers, body = server.answer(request)
                server.requests.append(request)
                self.send_response(request.status)
                for name, value in answer_headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def read_body(self, headers):
                if headers.get("transfer-encoding") != "chunked":
                    return self.rfile.read(int(headers["content-length"]))
                parts = []
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(parts)

            def log_message(self, *_):
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *_):
                """Who goes away without a word is no error."""

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"127.0.0.1:{self.server.server_port}"

    @property
    def dsn(self):
        return f"http://{KEY}@{self.address}/42"


def takes(_request):
    return 200, [("Content-Type", "application/json")], b"{}"


def recorder(address):
    """A server that hands each request on to another one, and the answer back."""

    def hand_on(request):
        connection = http.client.HTTPConnection(address, timeout=PATIENCE)
        headers = {name: value for name, value in request.headers.items() if name not in OF_TRANSPORT}
        chunked = "chunked" in request.headers.get("transfer-encoding", "")
        if chunked:
            headers["Transfer-Encoding"] = "chunked"
        body = iter([request.body]) if chunked else request.body
        connection.request("POST", request.path, body, headers, encode_chunked=chunked)
        answer = connection.getresponse()
        kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in OF_TRANSPORT | {"date"}]
        result = answer.status, kept, answer.read()
        connection.close()
        return result

    return Server(hand_on)


def run(language, mode, dsn, modules):
    """Runs a program to its end."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
        if language == "python":
            path, text, program = os.path.join(folder, "program.py"), PYTHON, sys.executable
        else:
            path, text, program = os.path.join(folder, "program.js"), NODE, "node"
            environment["NODE_PATH"] = os.path.join(modules, "node_modules")
        with open(path, "w") as file:
            file.write(text)
        command = [program, path, mode, dsn]
        subprocess.run(command, cwd=folder, env=environment, check=True, timeout=PATIENCE, stdout=subprocess.DEVNULL)


ID = re.compile(r"\b[0-9a-f]{32}\b|\b[0-9a-f]{16}\b|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(Z|\+00:00)?")


def alike(value):
    """A payload without what two runs of a program do not have in common: ids, times, numbers, and where files lie."""
    match value:
        case dict():
            return {("DIGITS" if key.isdigit() else key): alike(inner) for key, inner in sorted(value.items())}
        case list():
            return [alike(inner) for inner in value]
        case bool() | None:
            return value
        case int() | float():
            return "NUMBER"
        case str():
            text = TIME.sub("TIME", ID.sub("ID", value))
            text = re.sub(r"/\S*/", "FOLDER/", re.sub(r"0x[0-9a-f]+", "ADDRESS", text))
            return re.sub(r"\d+(\.\d+)?", "NUMBER", text)


def shape(item, payload):
    """An item as another run of the program should send it."""
    keys = tuple(sorted(item))
    if item["type"] == "attachment":
        return item["type"], keys, payload
    content = json.loads(payload)
    if item["type"] in ("profile", "profile_chunk"):
        # What was on the stack is never the same.
        content["profile"] = sorted(content["profile"])
        content.pop("debug_meta", None)
        content["measurements"] = sorted(content.get("measurements") or [])
    content.get("contexts", {}).pop("device", None)
    content.get("contexts", {}).pop("app", None)
    return item["type"], keys, json.dumps(alike(content), sort_keys=True)


def shapes(requests):
    """Everything that arrived but the SDK's reports about itself, which come when they come."""
    items = [pair for request in requests for pair in request.items()]
    return {shape(item, payload) for item, payload in items if item["type"] != "client_report"}


def check_chunk(chunk):
    """The rules of Sample Format V2 that Sentry refuses chunks for."""
    for key in ("chunk_id", "profiler_id"):
        assert re.fullmatch(r"[0-9a-f]{32}", chunk[key]), key
    assert chunk["version"] == "2" and chunk["client_sdk"]["name"] and chunk["client_sdk"]["version"]
    profile = chunk["profile"]
    samples, stacks, frames = profile["samples"], profile["stacks"], profile["frames"]
    assert all(0 <= frame < len(frames) for stack in stacks for frame in stack)
    times = [sample["timestamp"] for sample in samples]
    assert all(isinstance(time, (int, float)) and math.isfinite(time) for time in times)
    assert max(times) - min(times) <= 66
    threads = {}
    for sample in samples:
        assert isinstance(sample["thread_id"], str) and 0 <= sample["stack_id"] < len(stacks)
        threads[sample["thread_id"]] = threads.get(sample["thread_id"], 0) + bool(stacks[sample["stack_id"]])
    assert max(threads.values()) >= 2, "a thread has two samples"


def check_request(request):
    """What Sentry refuses requests and envelopes for."""
    assert request.path.split("?")[0] == "/api/42/envelope/", request.path
    forms = re.findall(r"sentry_key=([0-9a-f]{32})\b", request.headers.get("x-sentry-auth", "") + " " + request.path)
    assert forms == [KEY], "one form of authentication"
    items = request.items()
    assert sum(item["type"] in ("profile", "profile_chunk") for item, _ in items) <= 1
    assert sum(item["type"] in ("event", "transaction") for item, _ in items) <= 1
    for item, payload in items:
        if item["type"] == "profile_chunk":
            chunk = json.loads(payload)
            assert item["platform"] == chunk["platform"], "the header's platform is the chunk's"
            check_chunk(chunk)
        if item["type"] == "profile":
            assert "transaction" in request.kinds(), "a V1 profile comes with its transaction"
        if "item_count" in item:
            assert len(json.loads(payload)["items"]) == item["item_count"], "item_count is true"


def client(request):
    """What a client calls itself in its authentication."""
    text = request.headers.get("x-sentry-auth", "") + " " + request.path
    return re.search(r"sentry_client=([^,& ]+)", text).group(1).replace("%2F", "/")


def check_bytes(name, sent, arrived):
    """What the SDK sent to profbridge is what arrived at Sentry."""
    expect(
        sorted(request.body for request in sent) == sorted(request.body for request in arrived),
        f"{name}: each of {len(sent)} bodies arrived byte for byte",
    )
    by_body = {request.body: request for request in arrived}
    for request in sent:
        behind = by_body[request.body]
        for header in ("user-agent", "content-encoding"):
            assert request.headers.get(header) == behind.headers.get(header), header
        assert client(request) == client(behind)
        # An address of this machine tells a Sentry elsewhere nothing.
        assert "x-forwarded-for" not in behind.headers, behind.headers["x-forwarded-for"]


# What profbridge says where it has no `public_keys`.
ANYBODY = "can send to any project"


def compare(binary, modules, language, mode):
    """Runs a program straight and through profbridge."""
    name = f"{language}, {mode}"
    straight, behind = Server(takes), Server(takes)
    run(language, mode, straight.dsn, modules)
    with Profbridge(binary, CONFIG.replace("UPSTREAM", f"http://{behind.address}"), expected=[ANYBODY]) as profbridge:
        front = recorder(profbridge.address("sentry/http"))
        run(language, mode, front.dsn, modules)
        assert profbridge.stop() == 0
        assert KEY not in profbridge.log()
    assert all(request.status == 200 for request in front.requests)
    check_bytes(name, front.requests, behind.requests)
    for request in straight.requests + behind.requests:
        check_request(request)
    kinds = {kind for request in behind.requests for kind in request.kinds()}
    missing = WANTED[language, mode] - kinds
    expect(not missing, f"{name}: {', '.join(sorted(missing or kinds))} {'did not arrive' if missing else 'arrived'}")
    one, other = shapes(straight.requests), shapes(behind.requests)
    for only in one ^ other:
        print(("only straight: " if only in one else "only through profbridge: ") + str(only)[:3000], file=sys.stderr)
    expect(one == other, f"{name}: the {len(one)} kinds of items are those that arrive without profbridge")


# What Sentry says where it takes no errors: with limits of a kind, and with none, which are limits of every kind.
LIMITS = {
    "limits": [("Retry-After", "600"), ("X-Sentry-Rate-Limits", "600:error:organization:quota")],
    "no limits": [("Retry-After", "600")],
}


# What profbridge says then.
EXPECTED = [ANYBODY, "answers 429", "sentry limits", "sent nothing of what it was given"]


def limited(binary, modules, language, said):
    """A Sentry that limits errors: the SDK behind profbridge stops sending them."""

    def limits(request):
        return (429, LIMITS[said], b"{}") if "event" in request.kinds() else takes(request)

    behind = Server(limits)
    config = CONFIG.replace("UPSTREAM", f"http://{behind.address}")
    with Profbridge(binary, config, expected=EXPECTED) as profbridge:
        front = recorder(profbridge.address("sentry/http"))
        run(language, "limited", front.dsn, modules)
        # 1 where nothing at all was sent.
        assert profbridge.stop() in (0, 1)
    events = [request.status for request in front.requests if "event" in request.kinds()]
    stopped = events.count(429) == 1 and events[-1] == 429
    expect(stopped, f"{language}, {said}: after the first 429 none of 300 errors is sent")
    reached = sum("event" in request.kinds() for request in behind.requests)
    expect(1 <= reached < len(events), f"{language}, {said}: Sentry was asked {reached} times, then no more")


CONFIG = """
receivers: {sentry: {endpoint: "127.0.0.1:0"}}
exporters: {sentry: {upstream: "UPSTREAM"}}
service: {pipelines: {envelopes: {receivers: [sentry], exporters: [sentry]}}}
"""


def main():
    binary, modules = sys.argv[1], os.path.abspath(sys.argv[2])
    languages = ["python"]
    if os.path.isdir(os.path.join(modules, "node_modules", "@sentry", "profiling-node")):
        languages.append("node")
    else:
        print(f"Node's SDK is not in {modules}: not run")
    with ThreadPoolExecutor(max_workers=2) as pool:
        wanted = [which for which in WANTED if which[0] in languages]
        work = [pool.submit(compare, binary, modules, *which) for which in wanted]
        for language in languages:
            work += [pool.submit(limited, binary, modules, language, said) for said in LIMITS]
        for one in work:
            one.result()
    print("sentry_sdks: everything agrees")


if __name__ == "__main__":
    main()
