#!/usr/bin/env python3
"""Puts profbridge between Sentry's newest SDKs and a Sentry in this script, with streamed spans and transactions.

Usage: sentry_streams.py PATH_TO_PROFBRIDGE [PYTHON|FOLDER_WITH_NODE_MODULES]...

Each Python has sentry-sdk 2.75.0 or newer, each folder @sentry/node 10.78.0 or newer, and @sentry/profiling-node if
there are to be profiles. A program has threads, coroutines, errors, requests on two threads that continue another
service's trace, and 2,500 spans in one trace, most of which leave before their root. It runs twice: straight to a
Sentry, and through profbridge. Every item and span must arrive as the SDK sent it, which a recorder in front of
profbridge says, but for the spans that the SDK made of its own posts, which must be gone; and what arrives must be what
arrives without profbridge. Then the program idles: nothing more may reach Sentry, and neither it nor profbridge may
take time. Uses loopback only, on ports that the system chooses.
"""

import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from common import PATIENCE, Profbridge, expect, wait_for
from sentry_sdks import ANYBODY, CONFIG, Server, check_request, recorder, takes

# The trace of another service, which requests continue, with that service's key, release and rate.
FOREIGN = "771a43a4192642f0b136d5159a501700"
HEADERS = (
    f"sentry-trace: {FOREIGN}-0fedcba987654321-1\\r\\n"
    f"baggage: sentry-trace_id={FOREIGN},sentry-public_key=49d0f7386ad645858ae85020e393bef3,sentry-release=other%401,"
    "sentry-sample_rate=0.25,sentry-sample_rand=0.1,sentry-sampled=true\\r\\n"
)

PYTHON = """
import asyncio, socket, sys, threading, time
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
import sentry_sdk
import sentry_sdk.logger
from sentry_sdk.integrations.wsgi import SentryWsgiMiddleware

mode, dsn = sys.argv[1:3]
# From 3 on that is all there is.
optional = {"trace_lifecycle": mode, "enable_logs": True} if hasattr(sentry_sdk, "start_transaction") else {}
sentry_sdk.init(dsn=dsn, release="interop@1.0", traces_sample_rate=1.0, server_name="here",
                profile_session_sample_rate=1.0, profile_lifecycle="trace", **optional)

if mode == "stream":
    def root(name):
        sentry_sdk.traces.new_trace()
        return sentry_sdk.traces.start_span(name, attributes={"sentry.op": "task"}, parent_span=None)

    def part(name):
        return sentry_sdk.traces.start_span(name, attributes={"sentry.op": "part", "some": [1, 2], "ratio": 0.5})
else:
    def root(name):
        return sentry_sdk.start_transaction(op="task", name=name)

    def part(name):
        return sentry_sdk.start_span(op="part", name=name)

def compute(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))

def fails():
    try:
        1 / 0
    except ZeroDivisionError:
        sentry_sdk.capture_exception()

def in_thread(name):
    with part(name):
        compute(0.2)

async def in_turns(name):
    with part(name):
        for _ in range(5):
            compute(0.02)
            await asyncio.sleep(0.01)

async def both():
    with part("both"):
        await asyncio.gather(in_turns("three"), in_turns("four"))

with sentry_sdk.isolation_scope(), root("job"):
    threads = [threading.Thread(target=in_thread, args=(name,), name=name) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(both())
    with part("fails"):
        fails()
        sentry_sdk.logger.warning("a log, {count}", count=3)
        # Its posts end within the span.
        sentry_sdk.flush(10)

met = threading.Barrier(2)

def app(environ, start_response):
    met.wait()
    with part("work"):
        compute(0.1)
        fails()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"done"]

class Threads(ThreadingMixIn, WSGIServer):
    pass

class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass

server = make_server("127.0.0.1", 0, SentryWsgiMiddleware(app), server_class=Threads, handler_class=Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()

def ask():
    client = socket.create_connection(server.server_address)
    client.sendall(b"GET /things HTTP/1.0\\r\\nHost: shop\\r\\nHEADERS\\r\\n")
    while client.recv(4096):
        pass

clients = [threading.Thread(target=ask) for _ in range(2)]
for client in clients:
    client.start()
for client in clients:
    client.join()

with sentry_sdk.isolation_scope(), root("many"):
    for number in range(2500):
        with part(f"part {number % 7}"):
            pass
    # The spans so far leave, the root does not.
    time.sleep(6 if mode == "stream" else 0)
sentry_sdk.flush(10)
print("done", flush=True)
sys.stdin.readline()
sentry_sdk.get_client().close(10)
"""

NODE = """
const Sentry = require("@sentry/node");
const [mode, dsn] = process.argv.slice(2);
let profiling = {};
try {
  const { nodeProfilingIntegration } = require("@sentry/profiling-node");
  profiling = {
    integrations: [nodeProfilingIntegration()], profileSessionSampleRate: 1, profileLifecycle: "trace",
  };
} catch {}
Sentry.init({
  dsn, release: "interop@1.0", tracesSampleRate: 1, enableLogs: true, serverName: "here", traceLifecycle: mode,
  ...profiling,
});
const http = require("node:http");
const net = require("node:net");

function compute(milliseconds) {
  const end = Date.now() + milliseconds;
  let sum = 0;
  while (Date.now() < end) for (let number = 0; number < 300; number += 1) sum += number * number;
  return sum;
}
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const rootSpan = { op: "task", forceTransaction: true };
const root = (name, work) => Sentry.startNewTrace(() => Sentry.startSpan({ ...rootSpan, name }, work));
const part = (name, work) => Sentry.startSpan({ op: "part", name, attributes: { some: ["a", "b"], ratio: 0.5 } }, work);

async function inTurns(name) {
  await part(name, async () => {
    for (let number = 0; number < 5; number += 1) {
      compute(20);
      await pause(10);
    }
  });
}

let met = 0, both;
const bothMet = new Promise((resolve) => (both = resolve));

async function main() {
  await root("job", async () => {
    await Promise.all([inTurns("three"), inTurns("four")]);
    part("fails", () => {
      Sentry.captureException(new Error("expected"));
      Sentry.logger.warn("a log", { count: 3 });
    });
  });
  const server = http.createServer(async (request, response) => {
    met += 1;
    if (met === 2) both();
    await bothMet;
    part("work", () => {
      compute(100);
      Sentry.captureException(new Error("expected"));
    });
    response.end("done");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const ask = () => new Promise((resolve) => {
    const client = net.connect(server.address().port, "127.0.0.1");
    client.write("GET /things HTTP/1.0\\r\\nHost: shop\\r\\nHEADERS\\r\\n");
    client.on("data", () => {});
    client.on("close", resolve);
  });
  await Promise.all([ask(), ask()]);
  await root("many", async () => {
    for (let number = 0; number < 2500; number += 1) part(`part ${number % 7}`, () => {});
    // The spans so far leave, the root does not.
    await pause(mode === "stream" ? 6000 : 0);
  });
  await Sentry.flush(10000);
  console.log("done");
  await new Promise((resolve) => process.stdin.once("data", resolve));
  await Sentry.close(10000);
  process.exit(0);
}

main();
"""

# How long nothing may happen, in seconds: Python's SDK posts every 5 to 5.5 s while it has something.
IDLE = 12
# How much of a processor an idle program, and profbridge, may take.
IDLE_SHARE = 0.02


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Running:
    """A program that has done its work and idles, until it is told to end."""

    def __init__(self, sdk, mode, dsn):
        text, suffix, command = (NODE, "js", ["node"]) if os.path.isdir(sdk) else (PYTHON, "py", [sdk])
        environment = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
        environment["NODE_PATH"] = os.path.join(os.path.abspath(sdk), "node_modules")
        self.folder = tempfile.TemporaryDirectory()
        path = os.path.join(self.folder.name, f"program.{suffix}")
        with open(path, "w") as file:
            file.write(text.replace("HEADERS", HEADERS))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([*command, path, mode, dsn], cwd=self.folder.name, env=environment, **pipes)
        assert self.process.stdout.readline() == b"done\n", "the program works to its end"

    def end(self):
        self.process.communicate(b"\n", PATIENCE)
        self.folder.cleanup()
        assert self.process.returncode == 0


def contents(requests):
    """The items of requests, each as (kind, headers, value), where a container of spans is its spans. The headers are
    those of the envelope, without the time of its post, and of the item."""
    found = []
    for request in requests:
        header = json.loads(request.plain().partition(b"\n")[0])
        header.pop("sent_at", None)
        for item, payload in request.items():
            kind = item["type"]
            if kind == "span":
                header_of_spans = {key: value for key, value in item.items() if key not in ("item_count", "length")}
                found += [
                    ("span", json.dumps([header, header_of_spans], sort_keys=True), span)
                    for span in json.loads(payload)["items"]
                ]
            else:
                item.pop("length", None)
                text = json.loads(payload) if payload.startswith((b"{", b"[")) else payload.decode("latin-1")
                found.append((kind, json.dumps([header, item], sort_keys=True), text))
    return found


def is_own_post(span, address):
    """Whether an SDK made this span, of a container or a transaction, of its own post to an address."""
    attributes = span.get("attributes") or {}
    name = span.get("name") or span.get("description") or ""
    origin = span.get("origin") or attributes.get("sentry.origin", {}).get("value", "")
    return name.startswith(f"POST http://{address}/api/42/envelope/") and origin.startswith("auto.http")


def without_own_posts(found, address):
    """The contents that are left without the spans of own posts, and how many there were."""
    left, count = [], 0
    for kind, header, value in found:
        if kind == "span" and is_own_post(value, address):
            count += 1
            continue
        if kind == "transaction":
            spans = [span for span in value["spans"] if not is_own_post(span, address)]
            count += len(value["spans"]) - len(spans)
            value = {**value, "spans": spans}
        left.append((kind, header, json.dumps(value, sort_keys=True)))
    return left, count


def check_containers(requests):
    """What Sentry loses all spans of a container for."""
    for request in requests:
        header = json.loads(request.plain().partition(b"\n")[0])
        kinds = request.kinds()
        assert kinds.count("span") <= 1, "one container in an envelope"
        for item, payload in request.items():
            if item["type"] == "span":
                spans = json.loads(payload)["items"]
                assert {span["trace_id"] for span in spans} == {header["trace"]["trace_id"]}, "the trace of the header"
                assert 1 <= len(spans) <= 1000 and item["item_count"] == len(spans), "item_count is true"
                assert len({span["span_id"] for span in spans}) == len(spans), "each span once"


def made(found):
    """What a program made, as another run should: how many of each kind, and of spans also by name and keys."""
    counts = collections.Counter()
    for kind, _, value in found:
        if kind in ("client_report", "profile_chunk", "session", "sessions"):
            continue
        value = json.loads(value)
        if kind == "span":
            # Node's SDK knows the system once it has read a file.
            keys = tuple(key for key in sorted(value["attributes"]) if not key.startswith("os."))
            counts[kind, re.sub(r"\d+", "N", value["name"]), value["status"], value["is_segment"], keys] += 1
        elif kind == "transaction":
            names = collections.Counter(re.sub(r"\d+", "N", str(span.get("description"))) for span in value["spans"])
            counts[kind, value["transaction"], tuple(sorted(names.items()))] += 1
        elif kind == "event":
            counts[kind, value["exception"]["values"][0]["type"]] += 1
        elif kind in ("log", "trace_metric"):
            counts[kind] += len(value["items"])
        else:
            counts[kind] += 1
    return counts


def settled(requests):
    """Waits until nothing but posts about posts has come for a while."""
    counts = []

    def quiet():
        counts.append(len(requests))
        time.sleep(0.5)
        return len(counts) >= 14 and counts[-1] == counts[-14]

    wait_for("the last envelope is in Sentry", quiet)


def check_idle(name, program, profbridge, front, behind):
    """A program that does nothing, and profbridge, which therefore gets nothing to send."""
    settled(behind.requests)
    reached, posted = len(behind.requests), len(front.requests)
    pids = {"the program": program.process.pid, "profbridge": profbridge.process.pid}
    before = {who: cpu_seconds(pid) for who, pid in pids.items()}
    time.sleep(IDLE)
    used = {who: cpu_seconds(pid) - before[who] for who, pid in pids.items()}
    posts = len(front.requests) - posted
    nothing = len(behind.requests) == reached
    expect(nothing, f"{name}: idle, nothing reaches Sentry in {IDLE} s ({posts} posts to profbridge)")
    said = ", ".join(f"{who} {seconds:.2f} s" for who, seconds in used.items())
    expect(max(used.values()) <= IDLE * IDLE_SHARE, f"{name}: of a processor, idle for {IDLE} s took {said}")
    assert posts <= IDLE / 4, "the SDK's own posts are at most one in 5 s"


def compare(binary, sdk, mode, label):
    """Runs a program straight and through profbridge."""
    name = f"{label}, {mode}"
    straight, behind = Server(takes), Server(takes)
    program = Running(sdk, mode, straight.dsn)
    program.end()
    # For what profbridge changes, since this script reads no zstd.
    config = CONFIG.replace('"UPSTREAM"', f'"http://{behind.address}", compression: gzip')
    with Profbridge(binary, config, expected=[ANYBODY]) as profbridge:
        front = recorder(profbridge.address("sentry/http"))
        program = Running(sdk, mode, front.dsn)
        check_idle(name, program, profbridge, front, behind)
        program.end()
        assert profbridge.stop() == 0
    assert all(request.status == 200 for request in front.requests)
    for request in straight.requests + behind.requests:
        check_request(request)
    check_containers(behind.requests)
    sent, own = without_own_posts(contents(front.requests), front.address)
    arrived, left = without_own_posts(contents(behind.requests), front.address)
    expect(left == 0, f"{name}: none of {own} spans of the SDK's own posts reached Sentry")
    spans = sum(kind == "span" for kind, _, _ in sent)
    for side, only in (("sent", set(sent) - set(arrived)), ("arrived", set(arrived) - set(sent))):
        for one in sorted(only)[:5]:
            print(f"only {side}: {str(one)[:1500]}", file=sys.stderr)
    expect(
        collections.Counter(sent) == collections.Counter(arrived),
        f"{name}: {len(sent)} items arrived as they were sent, {spans} of them spans",
    )
    untouched = [request.body for request in front.requests
                 if without_own_posts(contents([request]), front.address)[1] == 0]
    bodies = collections.Counter(request.body for request in behind.requests)
    expect(
        not collections.Counter(untouched) - bodies,
        f"{name}: {len(untouched)} of {len(front.requests)} bodies, those without own posts, arrived byte for byte",
    )
    there, here = made(without_own_posts(contents(straight.requests), straight.address)[0]), made(arrived)
    for only in (there - here) + (here - there):
        print(f"{there[only]} straight, {here[only]} through profbridge: {str(only)[:600]}", file=sys.stderr)
    expect(there == here, f"{name}: {sum(here.values())} items are those that arrive without profbridge")
    foreign = [json.loads(header)[0]["trace"] for _, header, _ in arrived if FOREIGN in header]
    rates = {(trace["public_key"], trace["release"], trace["sample_rate"]) for trace in foreign}
    expect(
        len(rates) == 1 and rates.pop()[:2] == ("49d0f7386ad645858ae85020e393bef3", "other@1"),
        f"{name}: {len(foreign)} items of the continued trace have the header of its first service",
    )


def version(sdk):
    """What an SDK calls itself, or nothing where there is none."""
    if os.path.isdir(sdk):
        manifest = os.path.join(sdk, "node_modules", "@sentry", "node", "package.json")
        if not os.path.exists(manifest):
            return None
        with open(manifest) as file:
            return f"@sentry/node {json.load(file)['version']}"
    try:
        code = "import sentry_sdk; print(sentry_sdk.VERSION, end='')"
        return "sentry-sdk " + subprocess.run([sdk, "-c", code], check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def main():
    binary = sys.argv[1]
    work = []
    for sdk in sys.argv[2:]:
        label = version(sdk)
        if label is None:
            print(f"there is no SDK of Sentry in {sdk}: not run")
            continue
        # Python's 3 has no transactions.
        modes = ["stream"] if label.startswith("sentry-sdk 3") else ["static", "stream"]
        work += [(sdk, mode, label) for mode in modes]
    with ThreadPoolExecutor(max_workers=8) as pool:
        for one in [pool.submit(compare, binary, *which) for which in work]:
            one.result()
    print("sentry_streams: everything agrees")


if __name__ == "__main__":
    main()
