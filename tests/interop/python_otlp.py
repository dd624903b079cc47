#!/usr/bin/env python3
"""Checks profbridge against an independent implementation: the Python codec and gRPC stubs of opentelemetry-proto.

Usage: python_otlp.py PATH_TO_PROFBRIDGE

Starts the binary with an `otlp` receiver, an `otlp` exporter whose peer is a gRPC server of grpcio in this script, and
a `file` exporter for Sentry envelopes. Sends a profile that Python encoded over gRPC (plain and gzip) and over HTTP,
and compares what comes out on both sides with what went in. Uses loopback only, on ports that the system chooses.
"""

import gzip
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from concurrent import futures

import grpc
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2 as service
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2_grpc as stubs
from opentelemetry.proto.common.v1 import common_pb2 as common
from opentelemetry.proto.profiles.v1development import profiles_pb2 as profiles

PATIENCE = 60
PERIOD = 50_000_000
START = 1_764_000_000_000_000_000


class Request:
    """Builds an export request, interning what OTLP keeps in tables."""

    def __init__(self):
        self.message = service.ExportProfilesServiceRequest()
        tables = self.message.dictionary
        tables.string_table.append("")
        tables.mapping_table.add()
        tables.location_table.add()
        tables.function_table.add()
        tables.link_table.add()
        tables.attribute_table.add()
        tables.stack_table.add()
        self.tables = tables
        self.strings = {"": 0}

    def string(self, text):
        if text not in self.strings:
            self.strings[text] = len(self.tables.string_table)
            self.tables.string_table.append(text)
        return self.strings[text]

    def location(self, function, filename, line):
        self.tables.function_table.add(
            name_strindex=self.string(function), filename_strindex=self.string(filename)
        )
        attribute = self.attribute("profile.frame.type", common.AnyValue(string_value="cpython"))
        location = self.tables.location_table.add(attribute_indices=[attribute])
        location.lines.add(function_index=len(self.tables.function_table) - 1, line=line)
        return len(self.tables.location_table) - 1

    def attribute(self, key, value):
        self.tables.attribute_table.add(key_strindex=self.string(key), value=value)
        return len(self.tables.attribute_table) - 1

    def stack(self, locations):
        self.tables.stack_table.add(location_indices=locations)
        return len(self.tables.stack_table) - 1


def build(instance):
    """One process, two threads, 20 Hz for two seconds, timestamps only, as the eBPF profiler sends them."""
    request = Request()
    resource = request.message.resource_profiles.add()
    for key, value in [
        ("service.name", common.AnyValue(string_value="interop")),
        ("service.instance.id", common.AnyValue(string_value=instance)),
        ("process.pid", common.AnyValue(int_value=4711)),
    ]:
        resource.resource.attributes.add(key=key, value=value)
    profile = resource.scope_profiles.add().profiles.add(time_unix_nano=START, duration_nano=2_000_000_000)
    profile.sample_type.type_strindex = request.string("samples")
    profile.sample_type.unit_strindex = request.string("count")
    profile.period_type.type_strindex = request.string("cpu")
    profile.period_type.unit_strindex = request.string("nanoseconds")
    profile.period = PERIOD
    root = request.location("main", "/srv/app/main.py", 10)
    leaves = [request.location(name, "/srv/app/work.py", 20 + i) for i, name in enumerate(["parse", "render", "ünïcode"])]
    for thread in (1, 2):
        attribute = request.attribute("thread.id", common.AnyValue(int_value=thread))
        for i, leaf in enumerate(leaves):
            profile.samples.add(
                stack_index=request.stack([leaf, root]),
                attribute_indices=[attribute],
                timestamps_unix_nano=[START + PERIOD * tick for tick in range(i, 40, 3)],
            )
    return request.message


def observations(message):
    """Every observation by value: (thread, stack of function names, timestamp)."""
    tables = message.dictionary
    found = []
    for resource in message.resource_profiles:
        for scope in resource.scope_profiles:
            for profile in scope.profiles:
                for sample in profile.samples:
                    attributes = {
                        tables.string_table[tables.attribute_table[i].key_strindex]: tables.attribute_table[i].value
                        for i in sample.attribute_indices
                    }
                    stack = tuple(
                        tables.string_table[tables.function_table[line.function_index].name_strindex]
                        for index in tables.stack_table[sample.stack_index].location_indices
                        for line in tables.location_table[index].lines
                    )
                    thread = attributes["thread.id"].int_value
                    found += [(thread, stack, time) for time in sample.timestamps_unix_nano]
    return sorted(found)


class Sink(stubs.ProfilesServiceServicer):
    """Takes what profbridge exports."""

    def __init__(self):
        self.received = queue.Queue()

    def Export(self, request, context):
        self.received.put(request)
        return service.ExportProfilesServiceResponse()


def wait_for(description, what):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"did not happen in {PATIENCE} s: {description}")


def expect(condition, message):
    if not condition:
        raise AssertionError(message)
    print(f"ok: {message}")


def main():
    binary = os.path.abspath(sys.argv[1])
    sink = Sink()
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2), options=[("grpc.max_receive_message_length", 64 << 20)])
    stubs.add_ProfilesServiceServicer_to_server(sink, server)
    sink_port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.yaml"), "w") as file:
            file.write(CONFIG.replace("SINK", f"127.0.0.1:{sink_port}"))
        environment = {k: v for k, v in os.environ.items() if k.lower() not in ("sentry_dsn", "http_proxy", "https_proxy")}
        process = subprocess.Popen([binary, "run"], cwd=folder, stderr=subprocess.PIPE, text=True, env=environment)
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(iter(process.stderr.readline, "")), daemon=True)
        reader.start()
        try:
            check(lines, sink, folder, process)
        except BaseException:
            sys.stderr.write("".join(lines))
            raise
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(PATIENCE)
    server.stop(None)
    print("interop: everything agrees")


def check(lines, sink, folder, process):
    def address(name):
        for line in list(lines):
            match = re.search(re.escape(name) + r" listening on (\S+)", line)
            if match:
                return match.group(1)
        return None

    grpc_address = wait_for("gRPC port open", lambda: address("otlp/grpc"))
    http_address = wait_for("HTTP port open", lambda: address("otlp/http"))
    wait_for("it runs", lambda: any("profbridge is running" in line for line in list(lines)))

    sent = {}
    for name, compression in [("grpc", grpc.Compression.NoCompression), ("grpc-gzip", grpc.Compression.Gzip)]:
        with grpc.insecure_channel(grpc_address) as channel:
            message = build(name)
            answer = stubs.ProfilesServiceStub(channel).Export(message, timeout=PATIENCE, compression=compression)
            expect(not answer.HasField("partial_success"), f"{name}: full success leaves partial_success unset")
            sent[name] = observations(message)
    for name, encode in [("http", lambda b: b), ("http-gzip", gzip.compress)]:
        message = build(name)
        headers = {"Content-Type": "application/x-protobuf"}
        if name.endswith("gzip"):
            headers["Content-Encoding"] = "gzip"
        url = f"http://{http_address}/v1development/profiles"
        post = urllib.request.Request(url, encode(message.SerializeToString()), headers, method="POST")
        with urllib.request.urlopen(post, timeout=PATIENCE) as response:
            expect(response.headers["Content-Type"] == "application/x-protobuf", f"{name}: answers in the request's type")
            answer = service.ExportProfilesServiceResponse.FromString(response.read())
            expect(not answer.HasField("partial_success"), f"{name}: full success leaves partial_success unset")
        sent[name] = observations(message)

    with grpc.insecure_channel(grpc_address) as channel:
        broken = build("broken")
        broken.dictionary.location_table[1].lines[0].function_index = 99
        try:
            stubs.ProfilesServiceStub(channel).Export(broken, timeout=PATIENCE)
            raise AssertionError("a broken dictionary was accepted")
        except grpc.RpcError as error:
            expect(error.code() == grpc.StatusCode.INVALID_ARGUMENT, "a broken dictionary is INVALID_ARGUMENT")
            expect("function_index" in error.details(), "and the message names the place")

    process.send_signal(signal.SIGTERM)
    expect(process.wait(PATIENCE) == 0, "SIGTERM drains, and it ends with status 0")

    received = {}
    while not sink.received.empty():
        message = sink.received.get()
        for resource in message.resource_profiles:
            names = {a.key: a.value for a in resource.resource.attributes}
            single = service.ExportProfilesServiceRequest(resource_profiles=[resource], dictionary=message.dictionary)
            received.setdefault(names["service.instance.id"].string_value, []).extend(observations(single))
            expect(all(len(p.profile_id) == 16 for s in resource.scope_profiles for p in s.profiles), "profile ids are filled in")
    for name, wanted in sent.items():
        expect(sorted(received.get(name, [])) == wanted, f"{name}: Python's sink decodes the {len(wanted)} observations that were sent")

    chunks = {}
    for name in os.listdir(os.path.join(folder, "envelopes")):
        with open(os.path.join(folder, "envelopes", name), "rb") as file:
            header, item, payload = file.read().split(b"\n")[:3]
        json.loads(header)
        chunk = json.loads(payload)
        expect(json.loads(item)["platform"] == chunk["platform"] == "python", "the item header's platform equals the payload's")
        chunks[chunk["profiler_id"]] = chunk
    expect(len(chunks) == len(sent), "each process has a profiler_id of its own")
    for chunk in chunks.values():
        profile = chunk["profile"]
        found = sorted(
            (
                int(sample["thread_id"]),
                tuple(profile["frames"][frame]["function"] for frame in profile["stacks"][sample["stack_id"]]),
                round(sample["timestamp"] * 1e6),
            )
            for sample in profile["samples"]
            if profile["stacks"][sample["stack_id"]]
        )
        wanted = sorted((thread, stack, when // 1000) for thread, stack, when in sent["grpc"])
        expect(found == wanted, "the chunk's samples are the observations that were sent")


CONFIG = """
receivers:
  otlp:
    protocols:
      grpc: {endpoint: "127.0.0.1:0"}
      http: {endpoint: "127.0.0.1:0"}
processors:
  dedup:
  chunk:
exporters:
  otlp:
    endpoint: SINK
    tls: {insecure: true}
  file:
    path: envelopes
    format: sentry
service:
  telemetry:
    metrics: {endpoint: "127.0.0.1:0"}
    health: {endpoint: "127.0.0.1:0"}
  pipelines:
    profiles/otlp: {receivers: [otlp], processors: [dedup], exporters: [otlp]}
    profiles/sentry: {receivers: [otlp], processors: [dedup, chunk], exporters: [file]}
"""

if __name__ == "__main__":
    main()
