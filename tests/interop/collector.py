#!/usr/bin/env python3
"""Runs the OpenTelemetry Collector in front of profbridge and behind it.

Usage: collector.py PATH_TO_COLLECTOR PATH_TO_PROFBRIDGE [PATH_TO_OLDER_COLLECTOR]

The Collector must hold the otlp receiver and the otlp exporter with profiles (see README.md beside this script). The
passes, each with profiles from Python's opentelemetry-proto:

1. Python -> Collector -> profbridge -> envelope files
2. Python -> profbridge -> Collector -> a gRPC server of grpcio. The Collector answers compressed.
3. Python -> Collector -> profbridge -> the gRPC server: attributes that refer to the string table arrive written out.
4. As 3, with the older Collector, where there is one, between profbridge and the server.
5. Python -> profbridge -> the gRPC server, which compresses its answer and rejects a part.

A warning in the log of either side is a failure. Uses loopback only. The Collector cannot choose its port itself, so a
free one is taken for it.
"""

import contextlib
import os
import queue
import socket
import sys
import tempfile
from concurrent import futures

import grpc
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2_grpc as stubs

from common import PATIENCE, Profbridge, Program, build, envelopes, expect, observations, service, wait_for


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def collector(binary, folder, port, target):
    config = os.path.join(folder, "collector.yaml")
    with open(config, "w") as file:
        file.write(COLLECTOR.replace("PORT", str(port)).replace("TARGET", target))
    command = [os.path.abspath(binary), "--config", config, "--feature-gates=+service.profilesSupport"]
    program = Program(command, folder)
    # Who sends before it listens has to try again, and says so.
    program.wait_for_log("Everything is ready")
    return program


def send(address, message, compression=grpc.Compression.NoCompression):
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(PATIENCE)
        answer = stubs.ProfilesServiceStub(channel).Export(message, timeout=PATIENCE, compression=compression)
        expect(answer.partial_success.rejected_profiles == 0, "the request is accepted in full")


def in_front(collector_binary, profbridge_binary):
    """The Collector sends to profbridge."""
    with Profbridge(profbridge_binary, TO_SENTRY) as profbridge, tempfile.TemporaryDirectory() as folder:
        port = free_port()
        with collector(collector_binary, folder, port, profbridge.address("otlp/grpc")):
            message = build("collector-in-front")
            send(f"127.0.0.1:{port}", message)
            wanted = observations(message)
            metrics = profbridge.address("metrics/telemetry")
            wait_for("profbridge has it", lambda: "} %d" % len(wanted) in scrape(metrics, "profbridge_observations_in"))
        expect(profbridge.stop() == 0, "profbridge ends with status 0")
        chunks = envelopes(os.path.join(profbridge.folder, "envelopes"))
        expect(len(chunks) == 1, "one process gives one chunk")
        profile = chunks[0][1]["profile"]
        found = sum(1 for sample in profile["samples"] if profile["stacks"][sample["stack_id"]])
        expect(found == len(wanted), f"the chunk holds the {len(wanted)} observations that Python sent to the Collector")


class Sink(stubs.ProfilesServiceServicer):
    """A gRPC server of grpcio that keeps what it gets and gives one answer."""

    def __init__(self, answer=None, compression=grpc.Compression.NoCompression):
        self.answer = answer or service.ExportProfilesServiceResponse()
        self.received = queue.Queue()
        self.server = grpc.server(futures.ThreadPoolExecutor(max_workers=2), compression=compression)
        stubs.add_ProfilesServiceServicer_to_server(self, self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def Export(self, request, context):
        self.received.put(request)
        return self.answer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stop(None)


def behind(collector_binary, profbridge_binary):
    """profbridge sends to the Collector."""
    with Sink() as sink, tempfile.TemporaryDirectory() as folder:
        port = free_port()
        with collector(collector_binary, folder, port, sink.address):
            with Profbridge(profbridge_binary, TO_OTLP.replace("COLLECTOR", f"127.0.0.1:{port}")) as profbridge:
                message = build("collector-behind")
                send(profbridge.address("otlp/grpc"), message)
                arrived = sink.received.get(timeout=PATIENCE)
                expect(observations(arrived) == observations(message), "what left the Collector is what Python sent")
                # An answer that could not be read would be a warning.
                expect(profbridge.stop() == 0, "profbridge ends with status 0")


def references(collector_binary, profbridge_binary, older_collector=None):
    """profbridge stands between a Collector and somebody who need not know references to the string table."""
    with Sink() as sink, tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        target = sink.address
        if older_collector:
            port = free_port()
            older = stack.enter_context(tempfile.TemporaryDirectory())
            stack.enter_context(collector(older_collector, older, port, target))
            target = f"127.0.0.1:{port}"
        profbridge = stack.enter_context(Profbridge(profbridge_binary, TO_OTLP.replace("COLLECTOR", target)))
        port = free_port()
        stack.enter_context(collector(collector_binary, folder, port, profbridge.address("otlp/grpc")))
        message = build("references")
        # With an id nothing has to be filled in: what came would be passed on as it is, but for the references.
        message.resource_profiles[0].scope_profiles[0].profiles[0].profile_id = bytes(range(1, 17))
        send(f"127.0.0.1:{port}", message)
        arrived = sink.received.get(timeout=PATIENCE)
        attributes = {a.key: a.value for a in arrived.resource_profiles[0].resource.attributes}
        expect(attributes["service.name"].string_value == "interop", "the service's name arrives written out")
        wanted = {a.key for a in message.resource_profiles[0].resource.attributes}
        expect(attributes.keys() == wanted, "so do all keys of the resource")
        expect(observations(arrived) == observations(message), "and the observations are those that Python sent")


def compressed_partial_success(profbridge_binary):
    """A sink answers as it was asked: compressed. What it rejected is counted."""
    partial = service.ExportProfilesPartialSuccess(rejected_profiles=1, error_message="no room for it")
    answer = service.ExportProfilesServiceResponse(partial_success=partial)
    with Sink(answer, grpc.Compression.Gzip) as sink:
        config = TO_OTLP.replace("COLLECTOR", sink.address)
        expected = ["the destination remarks: .*no room for it", "nothing of what was taken was sent"]
        with Profbridge(profbridge_binary, config, expected=expected) as profbridge:
            message = build("partial")
            send(profbridge.address("otlp/grpc"), message)
            sink.received.get(timeout=PATIENCE)
            metrics = profbridge.address("metrics/telemetry")
            count = 'reason="rejected_by_peer"} %d' % len(observations(message))
            wait_for("it is counted", lambda: count in scrape(metrics, "profbridge_dropped_observations"))
            print("ok: what a compressed answer rejects is counted")


def scrape(address, metric):
    import urllib.request

    with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE) as response:
        return "\n".join(line for line in response.read().decode().splitlines() if line.startswith(metric))


COLLECTOR = """
receivers:
  otlp: {protocols: {grpc: {endpoint: "127.0.0.1:PORT"}}}
exporters:
  otlp_grpc: {endpoint: TARGET, tls: {insecure: true}}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    profiles: {receivers: [otlp], exporters: [otlp_grpc]}
"""

TO_SENTRY = """
receivers:
  otlp: {protocols: {grpc: {endpoint: "127.0.0.1:0"}}}
processors: {dedup: , chunk: }
exporters:
  file: {path: envelopes, format: sentry}
service:
  pipelines:
    profiles: {receivers: [otlp], processors: [dedup, chunk], exporters: [file]}
"""

TO_OTLP = """
receivers:
  otlp: {protocols: {grpc: {endpoint: "127.0.0.1:0"}}, resource: {local_host: false}}
exporters:
  otlp: {endpoint: COLLECTOR, tls: {insecure: true}}
service:
  pipelines:
    profiles: {receivers: [otlp], exporters: [otlp]}
"""


if __name__ == "__main__":
    in_front(*sys.argv[1:3])
    behind(*sys.argv[1:3])
    references(*sys.argv[1:3])
    if len(sys.argv) > 3:
        references(*sys.argv[1:4])
    compressed_partial_success(sys.argv[2])
    print("interop: the Collector and profbridge agree in both directions")
