#!/usr/bin/env python3
"""Runs the OpenTelemetry eBPF profiler against profbridge, beside a Python, a Node and a native workload.

Usage: ebpf_profiler.py PATH_TO_EBPF_PROFILER PATH_TO_PROFBRIDGE [SECONDS]

Needs root, a kernel with BPF and BTF, `node`, and a C compiler. Mounts tracefs in a mount namespace of its own where
it is not mounted. Checks that each workload is a process of its own in Sentry's chunks, that its hot function leads
(by its name where the profiler knows it), and that every chunk passes Sentry's rules.
"""

import collections
import os
import subprocess
import sys
import tempfile
import time

from common import Profbridge, Program, envelopes, expect

PYTHON = """
import sys
def hot_python_function(n):
    return sum(i * i for i in range(n))
while True:
    hot_python_function(20000)
"""

NODE = """
function hotNodeFunction(n) { let s = 0; for (let i = 0; i < n; i++) s += Math.sqrt(i) * (i % 7); return s; }
setInterval(() => hotNodeFunction(20000000), 0);
"""

NATIVE = """
#include <stdint.h>
volatile uint64_t sink;
__attribute__((noinline)) void hot_native_function(void) { for (uint64_t i = 0; i < 1000000; i++) sink += i * i; }
int main(void) { for (;;) hot_native_function(); }
"""

CONFIG = """
receivers:
  otlp: {protocols: {grpc: {endpoint: "127.0.0.1:0"}}}
processors: {dedup: , chunk: }
exporters:
  file: {path: envelopes, format: sentry}
service:
  identity: {window: 20s}
  pipelines:
    profiles: {receivers: [otlp], processors: [dedup, chunk], exporters: [file]}
"""


def main():
    profiler, binary = (os.path.abspath(path) for path in sys.argv[1:3])
    seconds = int(sys.argv[3]) if len(sys.argv) > 3 else 60
    if not os.path.isdir("/sys/kernel/tracing/events"):
        if os.environ.get("PROFBRIDGE_UNSHARED"):
            subprocess.run(["mount", "-t", "tracefs", "tracefs", "/sys/kernel/tracing"], check=True)
        else:
            environment = {**os.environ, "PROFBRIDGE_UNSHARED": "1"}
            os.execvpe("unshare", ["unshare", "--mount", sys.executable, *sys.argv], environment)

    with tempfile.TemporaryDirectory() as folder, Profbridge(binary, CONFIG) as profbridge:
        workloads = start_workloads(folder)
        try:
            target = profbridge.address("otlp/grpc")
            options = ["-disable-tls", "-samples-per-second=20", "-reporter-interval=5s"]
            with Program([profiler, f"-collection-agent={target}", *options], folder) as running:
                running.wait_for_log("Attached sched monitor")
                time.sleep(seconds)
        finally:
            for process in workloads.values():
                process.kill()
                process.wait()
        expect(profbridge.stop() == 0, "profbridge ends with status 0")
        report(profbridge, workloads)


def start_workloads(folder):
    source = os.path.join(folder, "native.c")
    with open(source, "w") as file:
        file.write(NATIVE)
    native = os.path.join(folder, "native_workload")
    subprocess.run(["cc", "-O1", "-o", native, source], check=True)
    return {
        "python": subprocess.Popen([sys.executable, "-c", PYTHON]),
        # V8 leaves no frame of a function that it inlined.
        "node": subprocess.Popen(["node", "--max-inlined-bytecode-size=0", "-e", NODE]),
        "native": subprocess.Popen([native]),
    }


def report(profbridge, workloads):
    wanted = {"python": "hot_python_function", "node": "hotNodeFunction", "native": "[native_workload]"}
    platforms = {"python": "python", "node": "node", "native": "native"}
    folder = os.path.join(profbridge.folder, "envelopes")
    chunks = [chunk for _, chunk in envelopes(folder)]
    expect(chunks, "there are chunks")
    found = {}
    for chunk in chunks:
        profile = chunk["profile"]
        functions = collections.Counter()
        threads = {int(sample["thread_id"]) for sample in profile["samples"]}
        for sample in profile["samples"]:
            functions.update({profile["frames"][f].get("function", "") for f in profile["stacks"][sample["stack_id"]]})
        for name, process in workloads.items():
            if process.pid in threads and functions[wanted[name]]:
                entry = found.setdefault(name, {"ids": set(), "platforms": set(), "hot": 0, "samples": 0, "chunks": 0})
                entry["ids"].add(chunk["profiler_id"])
                entry["platforms"].add(chunk["platform"])
                entry["hot"] += functions[wanted[name]]
                entry["samples"] += sum(1 for s in profile["samples"] if profile["stacks"][s["stack_id"]])
                entry["chunks"] += 1
    for name in workloads:
        expect(name in found, f"{name}: its chunks are there")
        entry = found[name]
        share = entry["hot"] / entry["samples"]
        print(f"{name}: {entry['chunks']} chunks, {entry['samples']} samples, {wanted[name]} in {share:.0%} of them")
        expect(len(entry["ids"]) == 1, f"{name}: one process is one profiler")
        expect(entry["platforms"] == {platforms[name]}, f"{name}: its platform is {platforms[name]}")
        expect(share > 0.8, f"{name}: {wanted[name]} is in most of its samples")
    print(f"{len(chunks)} chunks of {len({c['profiler_id'] for c in chunks})} processes in all")


if __name__ == "__main__":
    main()
