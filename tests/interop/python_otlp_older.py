#!/usr/bin/env python3
"""Sends profiles in an earlier layout of OTLP, by a real producer of it, and holds what reaches Sentry against today's.

Usage: python_otlp_older.py PATH_TO_PROFBRIDGE PYTHON_WITH_THE_OLDER_RELEASE

This interpreter has today's release of PyPI's opentelemetry-proto, the other one 1.40.0, whose generated code has the
layout 1.9. The same data, built by the code of each, is sent to a profbridge of its own over HTTP, with a Sentry in this
script behind it. Every chunk has to be equal, byte for byte, and so do the headers of its item. Uses loopback only, on
ports that the system chooses.
"""

import json
import os
import re
import subprocess
import sys

from common import PATIENCE, Profbridge, expect
from sentry_sdks import KEY, Server, takes

HERE = os.path.dirname(os.path.abspath(__file__))

# What each interpreter runs: it sends what it is told to be, and says how its samples are numbered.
PRODUCER = """
import json, sys, urllib.request
sys.path.insert(0, sys.argv[1])
from common import PATIENCE, PERIOD, START, build
from opentelemetry.proto.profiles.v1development import profiles_pb2

def with_values(message):
    # As sampling profilers send them: the time that each observation stands for, beside when it was.
    profile = message.resource_profiles[0].scope_profiles[0].profiles[0]
    profile.sample_type.type_strindex = profile.period_type.type_strindex
    profile.sample_type.unit_strindex = profile.period_type.unit_strindex
    for sample in profile.samples:
        sample.values.extend([PERIOD] * len(sample.timestamps_unix_nano))
    return message

def with_totals(message):
    # Without times, as of a pprof profile.
    for sample in with_values(message).resource_profiles[0].scope_profiles[0].profiles[0].samples:
        total = sum(sample.values)
        del sample.values[:], sample.timestamps_unix_nano[:]
        sample.values.append(total)
    return message

def with_links(message):
    message.dictionary.link_table.add(trace_id=bytes(range(1, 17)), span_id=bytes(range(1, 9)))
    for sample in message.resource_profiles[0].scope_profiles[0].profiles[0].samples[::2]:
        sample.link_index = 1
    return message

ways = {"times": lambda message: message, "values": with_values, "totals": with_totals, "links": with_links}
for name, change in ways.items():
    body = change(build(name)).SerializeToString()
    headers = {"Content-Type": "application/x-protobuf"}
    post = urllib.request.Request(f"http://{sys.argv[2]}/v1development/profiles", body, headers, method="POST")
    with urllib.request.urlopen(post, timeout=PATIENCE) as response:
        answer = response.read()
        if answer:
            sys.exit(f"{name}: not all of it was taken: {answer!r}")
numbers = {field.name: field.number for field in profiles_pb2.Sample.DESCRIPTOR.fields}
print(json.dumps({"numbers": numbers, "sent": list(ways)}))
"""

# Numbers of `Sample` (opentelemetry-proto `profiles.proto` of 1.9 and of 1.10).
OLDER = {"stack_index": 1, "values": 2, "attribute_indices": 3, "link_index": 4, "timestamps_unix_nano": 5}
TODAYS = {"stack_index": 1, "attribute_indices": 2, "link_index": 3, "values": 4, "timestamps_unix_nano": 5}

CONFIG = """
receivers:
  otlp:
    resource: {local_host: false}
    protocols:
      http: {endpoint: "127.0.0.1:0"}
processors:
  chunk:
exporters:
  sentry: {dsn: "http://KEY@SENTRY/1", compression: none}
service:
  pipelines:
    profiles: {receivers: [otlp], processors: [chunk], exporters: [sentry]}
"""


def chunks(binary, interpreter, numbers):
    """The chunks that reach a Sentry when this interpreter sends, each with the header of its item, and what the log
    says of the layout."""
    sentry = Server(takes)
    config = CONFIG.replace("KEY", KEY).replace("SENTRY", sentry.address)
    # A producer that is old is told to its user.
    with Profbridge(binary, config, expected=[r"opentelemetry-proto 1\.9"]) as profbridge:
        producer = subprocess.run(
            [interpreter, "-c", PRODUCER, HERE, profbridge.address("otlp/http")],
            check=True, capture_output=True, text=True, timeout=PATIENCE,
        )
        said = json.loads(producer.stdout)
        expect(said["numbers"] == numbers, f"{interpreter} writes samples with {numbers}")
        expect(profbridge.stop() == 0, "SIGTERM drains, and it ends with status 0")
        log = profbridge.log()
    found = []
    for request in sentry.requests:
        _header, item, payload = request.body.split(b"\n")[:3]
        if json.loads(item)["type"] == "profile_chunk":
            found.append((json.loads(item), payload))
    expect(len(found) >= len(said["sent"]), f"{len(found)} chunks reach Sentry, of {len(said['sent'])} processes")
    return sorted(found, key=lambda chunk: chunk[1]), log


def main():
    binary, older = sys.argv[1:3]
    before, log = chunks(binary, older, OLDER)
    after, _ = chunks(binary, sys.executable, TODAYS)
    expect(re.search(r"opentelemetry-proto 1\.9", log), "the log names the layout of the older producer")
    expect(len({json.loads(payload)["profiler_id"] for _, payload in before}) == 4, "each process has its profiler")
    samples = sum(len(json.loads(payload)["profile"]["samples"]) for _, payload in before)
    expect(before == after, f"all {samples} samples of the older layout are in the chunks of today's, byte for byte")
    print("interop: everything agrees")


if __name__ == "__main__":
    main()
