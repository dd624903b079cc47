#!/usr/bin/env python3
"""Checks profbridge against an independent implementation: the Python codec and gRPC stubs of opentelemetry-proto.

Usage: python_otlp.py PATH_TO_PROFBRIDGE

Starts the binary with an `otlp` receiver, an `otlp` exporter whose peer is a gRPC server of grpcio in this script, and
`file` exporters for Sentry envelopes and for lines of JSON. Sends a profile that Python encoded over gRPC (plain and
gzip) and over HTTP (protobuf and JSON), and compares what comes out on all sides with what went in. Uses loopback only, on ports that the system chooses.
"""

import gzip
import os
import queue
import sys
import urllib.request
from concurrent import futures

import grpc
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2_grpc as stubs

from common import (
    PATIENCE, Profbridge, build, envelopes, expect, from_otlp_json, observations, service, to_otlp_json,
)


class Sink(stubs.ProfilesServiceServicer):
    """Takes what profbridge exports."""

    def __init__(self):
        self.received = queue.Queue()

    def Export(self, request, context):
        self.received.put(request)
        return service.ExportProfilesServiceResponse()


def main():
    sink = Sink()
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2), options=[("grpc.max_receive_message_length", 64 << 20)])
    stubs.add_ProfilesServiceServicer_to_server(sink, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    # One request is broken.
    expected = [r"1 request was not taken \(malformed\).*function_index"]
    with Profbridge(sys.argv[1], CONFIG.replace("SINK", f"127.0.0.1:{port}"), expected=expected) as profbridge:
        check(profbridge, sink)
    server.stop(None)
    print("interop: everything agrees")


def check(profbridge, sink):
    grpc_address = profbridge.address("otlp/grpc")
    http_address = profbridge.address("otlp/http")

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
    for name, encode in [("http-json", lambda b: b), ("http-json-gzip", gzip.compress)]:
        message = build(name)
        message.resource_profiles[0].scope_profiles[0].profiles[0].profile_id = name.encode().ljust(16, b"!")
        message.dictionary.link_table.add(trace_id=bytes(range(16)), span_id=bytes(range(8)))
        headers = {"Content-Type": "application/json"}
        if name.endswith("gzip"):
            headers["Content-Encoding"] = "gzip"
        url = f"http://{http_address}/v1development/profiles"
        post = urllib.request.Request(url, encode(to_otlp_json(message)), headers, method="POST")
        with urllib.request.urlopen(post, timeout=PATIENCE) as response:
            expect(response.headers["Content-Type"] == "application/json", f"{name}: answers in the request's type")
            expect(response.read() == b"{}", f"{name}: full success leaves partialSuccess unset")
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

    expect(profbridge.stop() == 0, "SIGTERM drains, and it ends with status 0")

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

    lines = {}
    with open(os.path.join(profbridge.folder, "profiles.json"), "rb") as file:
        for line in file:
            message = from_otlp_json(line)
            attributes = {a.key: a.value for a in message.resource_profiles[0].resource.attributes}
            lines[attributes["service.instance.id"].string_value] = message
    expect(sorted(lines) == sorted(sent), "each request is a line of JSON that Python's protobuf reads")
    for name, wanted in sent.items():
        expect(observations(lines[name]) == wanted, f"{name}: which says what was sent")
    kept = lines["http-json"].resource_profiles[0].scope_profiles[0].profiles[0].profile_id
    expect(kept == b"http-json".ljust(16, b"!"), "ids come through JSON as they are")

    chunks = {}
    for item, chunk in envelopes(os.path.join(profbridge.folder, "envelopes")):
        expect(item["platform"] == chunk["platform"] == "python", "the item header's platform equals the payload's")
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
    # Each request stands for a process of another machine.
    resource: {local_host: false}
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
  file/json:
    path: profiles.json
    format: json
service:
  pipelines:
    profiles/otlp: {receivers: [otlp], processors: [dedup], exporters: [otlp]}
    profiles/json: {receivers: [otlp], processors: [], exporters: [file/json]}
    profiles/sentry: {receivers: [otlp], processors: [dedup, chunk], exporters: [file]}
"""

if __name__ == "__main__":
    main()
