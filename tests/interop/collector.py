#!/usr/bin/env python3
"""Runs the OpenTelemetry Collector in front of profbridge and behind it.

Usage: collector.py PATH_TO_COLLECTOR PATH_TO_PROFBRIDGE

The Collector must hold the otlp receiver and the otlp exporter with profiles (see README.md beside this script). Two
passes, each with profiles from Python's opentelemetry-proto:

1. Python -> Collector -> profbridge -> envelope files
2. Python -> profbridge -> Collector -> a gRPC server of grpcio

Uses loopback only. The Collector cannot choose its port itself, so a free one is taken for it.
"""

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
    return Program(command, folder)


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


def behind(collector_binary, profbridge_binary):
    """profbridge sends to the Collector."""
    received = queue.Queue()

    class Sink(stubs.ProfilesServiceServicer):
        def Export(self, request, context):
            received.put(request)
            return service.ExportProfilesServiceResponse()

    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    stubs.add_ProfilesServiceServicer_to_server(Sink(), server)
    sink = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        with collector(collector_binary, folder, port, f"127.0.0.1:{sink}"):
            with Profbridge(profbridge_binary, TO_OTLP.replace("COLLECTOR", f"127.0.0.1:{port}")) as profbridge:
                message = build("collector-behind")
                send(profbridge.address("otlp/grpc"), message)
                arrived = received.get(timeout=PATIENCE)
                expect(observations(arrived) == observations(message), "what left the Collector is what Python sent")
                expect(profbridge.stop() == 0, "profbridge ends with status 0")
    server.stop(None)


def scrape(address, metric):
    import urllib.request

    with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE) as response:
        return "\n".join(line for line in response.read().decode().splitlines() if line.startswith(metric))


COLLECTOR = """
receivers:
  otlp: {protocols: {grpc: {endpoint: "127.0.0.1:PORT"}}}
exporters:
  otlp: {endpoint: TARGET, tls: {insecure: true}}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    profiles: {receivers: [otlp], exporters: [otlp]}
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
  otlp: {protocols: {grpc: {endpoint: "127.0.0.1:0"}}}
exporters:
  otlp: {endpoint: COLLECTOR, tls: {insecure: true}}
service:
  pipelines:
    profiles: {receivers: [otlp], exporters: [otlp]}
"""


if __name__ == "__main__":
    in_front(*sys.argv[1:3])
    behind(*sys.argv[1:3])
    print("interop: the Collector and profbridge agree in both directions")
