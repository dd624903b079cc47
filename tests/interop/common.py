"""What the interop scripts share: profiles built with Python's opentelemetry-proto, and profbridge as a child process."""

import base64
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

from google.protobuf import json_format
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2 as service
from opentelemetry.proto.common.v1 import common_pb2 as common

PATIENCE = 60
PERIOD = 50_000_000
START = (int(time.time()) // 60 - 5) * 60 * 1_000_000_000
"""Minutes ago: a receiver replaces times that are more than a day from their arrival."""


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


IDS = ("traceId", "spanId", "parentSpanId", "profileId")


def with_ids(value, change):
    """The same JSON with its ids changed."""
    if isinstance(value, list):
        return [with_ids(element, change) for element in value]
    if isinstance(value, dict):
        return {key: change(of) if key in IDS else with_ids(of, change) for key, of in value.items()}
    return value


def to_otlp_json(message):
    """A message in OTLP/JSON: protobuf's JSON, but for ids, which are hexadecimal."""
    value = json_format.MessageToDict(message)
    return json.dumps(with_ids(value, lambda text: base64.b64decode(text).hex())).encode()


def from_otlp_json(text):
    """A request in OTLP/JSON, of whose fields protobuf has to know all."""
    value = with_ids(json.loads(text), lambda digits: base64.b64encode(bytes.fromhex(digits)).decode())
    return json_format.ParseDict(value, service.ExportProfilesServiceRequest())


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


def by_some_run(run):
    """Runs what measures until it returns nothing that is wrong, three times at most: what a busy machine shows of a
    program is chance, and what is wrong in profbridge is wrong each time. What is never right, such as a wrong name, a
    run raises."""
    said = []
    for _ in range(3):
        measured = run()
        if not measured:
            return
        said.append(measured)
        print(f"once more, since measured: {measured}", flush=True)
    raise AssertionError(f"in no run: {said}")


def build_workload(source, path):
    """Compiles a C program that needs no library."""
    subprocess.run(["cc", "-O1", "-static", "-x", "c", "-o", path, "-"], input=source.encode(), check=True)


def libraries(binary):
    """The paths of the libraries that a program is loaded with."""
    listed = subprocess.run(["ldd", binary], check=True, capture_output=True, text=True).stdout
    return re.findall(r"(/\S+) \(0x", listed)


def envelopes(folder):
    """The profile chunks in a folder of envelope files: (item header, payload)."""
    found = []
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            header, item, payload = file.read().split(b"\n")[:3]
        json.loads(header)
        found.append((json.loads(item), json.loads(payload)))
    return found


# How programs mark a line that says that something is not as it should be: profbridge, the Collector, slog and logrus.
COMPLAINT = re.compile(r"^\S+Z\s+(WARN|ERROR)\s|\t(warn|error)\t|level=(warn|error)", re.IGNORECASE)


class Program:
    """A program that logs to standard error and runs until it is asked to stop. Fails at its end where it complained of
    anything but what matches one of the patterns in `expected`."""

    def __init__(self, command, folder, environment=None, expected=()):
        self.expected = expected
        inherited = {k: v for k, v in os.environ.items() if k.lower() not in ("sentry_dsn", "http_proxy", "https_proxy")}
        self.process = subprocess.Popen(
            command, cwd=folder, stderr=subprocess.PIPE, text=True, env={**inherited, **(environment or {})}
        )
        self.lines = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(iter(self.process.stderr.readline, "")), daemon=True)
        self.reader.start()

    def log(self):
        return "".join(self.lines)

    def wait_for_log(self, pattern):
        """Waits for a line that matches, and returns the match."""

        def look():
            if self.process.poll() is not None:
                raise AssertionError(f"{self.process.args[0]} ended with {self.process.returncode}:\n{self.log()}")
            return re.search(pattern, self.log())

        return wait_for(f"log line {pattern}", look)

    def stop(self):
        """Asks it to stop and returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def __enter__(self):
        return self

    def complaints(self):
        """The lines that it should not have written."""
        return [
            line for line in self.lines
            if COMPLAINT.search(line) and not any(re.search(pattern, line) for pattern in self.expected)
        ]

    def __exit__(self, kind, value, trace):
        self.stop()
        self.reader.join(PATIENCE)
        if value is not None:
            sys.stderr.write(self.log())
        elif self.complaints():
            raise AssertionError(f"{self.process.args[0]} complained:\n" + "".join(self.complaints()))


class Profbridge(Program):
    """profbridge with a configuration, in a temporary folder, once it listens. Its metrics and health are on ports of their own."""

    def __init__(self, binary, config, environment=None, expected=()):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = self.temporary.name
        with open(os.path.join(self.folder, "config.yaml"), "w") as file:
            file.write(config)
        command = [os.path.abspath(binary), "run"]
        for part in ("metrics", "health"):
            command += ["--set", f"service.telemetry.{part}.address=127.0.0.1:0"]
        super().__init__(command, self.folder, environment, expected)
        self.wait_for_log("profbridge is running")

    def address(self, name):
        """Where a part of it listens, such as `otlp/grpc`."""
        return self.wait_for_log(re.escape(name) + r" listening on (\S+)").group(1)

    def __exit__(self, kind, value, trace):
        try:
            super().__exit__(kind, value, trace)
        finally:
            self.temporary.cleanup()
