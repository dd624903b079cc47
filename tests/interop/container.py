#!/usr/bin/env python3
"""Samples a process in a container of a real engine: from its host, and from a second container beside it.

Usage: container.py PATH_TO_PROFBRIDGE

Needs root on the engine's host, `docker` with a daemon that runs there, and a C compiler. The image is made from the workload and
from profbridge with the libraries it needs, nothing is downloaded. Checks that a container is found by the first digits of its id,
that it is found again after a restart as another profiler, that names come from files that only the container has, and that the
sidecar says which right it lacks.
"""

import io
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import uuid

from common import Profbridge, build_workload, envelopes, expect, libraries

WORKLOAD = """
#include <stdint.h>
volatile uint64_t sink;
__attribute__((noinline)) void hot_native_function(void) { for (uint64_t i = 0; i < 1000000; i++) sink += i * i; }
int main(void) { for (;;) hot_native_function(); }
"""

CONFIG = """
receivers:
  ptrace: {{targets: {{workload: {{container: {container}}}}}, export_interval: 1s, control: {{enabled: false}}}}
processors: {{chunk: }}
exporters:
  file: {{path: envelopes, format: sentry}}
service:
  identity: {{window: 2s}}
  pipelines:
    profiles: {{receivers: [ptrace], processors: [chunk], exporters: [file]}}
"""

USER = "1000"


def docker(*arguments, given=None, check=True):
    """What the client says, on either stream."""
    done = subprocess.run(["docker", *arguments], input=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = done.stdout.decode(errors="replace").strip()
    if check and done.returncode != 0:
        raise AssertionError(f"docker {arguments[0]} ended with {done.returncode}:\n{text}")
    return text


def image(binary, name):
    """An image of the workload, profbridge and its libraries."""
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "workload")
        build_workload(WORKLOAD, program)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", dereference=True) as tar:
            files = {"app/workload": program, "bin/profbridge": binary, **{path.lstrip("/"): path for path in libraries(binary)}}
            for folder in sorted({str(parent) for path in files for parent in pathlib.PurePath(path).parents} - {"."}):
                entry = tarfile.TarInfo(folder)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            for path, source in files.items():
                tar.add(source, path)
    docker("import", "-", name, given=packed.getvalue())


def share(chunks):
    """In how much of all samples the hot function leads."""
    leads = total = 0
    for chunk in chunks:
        profile = chunk["profile"]
        for sample in profile["samples"]:
            frames = profile["stacks"][sample["stack_id"]]
            total += bool(frames)
            leads += bool(frames) and profile["frames"][frames[0]].get("function") == "hot_native_function"
    return leads / max(total, 1)


def from_the_host(binary, container):
    with Profbridge(binary, CONFIG.format(container=container[:12])) as profbridge:
        first = profbridge.wait_for_log(r"process (\d+) \(/app/workload\) belongs to workload").group(1)
        docker("restart", "--time", "0", container)
        profbridge.wait_for_log(rf"process (?!{first} )(\d+) \(/app/workload\) belongs to workload")
        profbridge.wait_for_log(rf"process {first} of workload ended")
        # Meanwhile there is something of the second life.
        sample(binary, container)
        expect(profbridge.stop() == 0, "profbridge ends with status 0")
        chunks = [chunk for _, chunk in envelopes(os.path.join(profbridge.folder, "envelopes"))]
    expect(len({chunk["profiler_id"] for chunk in chunks}) == 2, "two lives of one container are two profilers")
    expect(share(chunks) > 0.95, f"the hot function leads in {share(chunks):.0%} of the samples")


def sample(binary, container):
    """What `profbridge sample` on the host says about the container's first process in a second."""
    pid = docker("inspect", "--format", "{{.State.Pid}}", container)
    with tempfile.TemporaryDirectory() as folder:
        command = [binary, "sample", "--pid", pid, "--duration", "1s", "-o", os.path.join(folder, "out.folded")]
        return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def from_a_sidecar(name, container):
    def beside(*options):
        command = ["sample", "--pid", "1", "--duration", "1s", "-o", "/out.folded"]
        shared = ["--pid", f"container:{container}", "--network", "none"]
        return docker("run", "--rm", *shared, *options, name, "/bin/profbridge", *command, check=False)

    text = beside()
    expect("--cap-add SYS_PTRACE" in text and f"as user {USER}" in text, "a sidecar without the right says which, and how to get it")
    text = beside("--cap-add", "SYS_PTRACE")
    expect(re.search(r"100\.0 %.*hot_native_function \(workload\)", text), "a sidecar with CAP_SYS_PTRACE names the hot function")
    expect("100.0 % complete" in text, "all its stacks are complete")


def paused(binary, container):
    docker("pause", container)
    try:
        text = sample(binary, container)
    finally:
        docker("unpause", container)
    expect("frozen control group" in text, "of a paused container it is said that it is frozen")


def main():
    binary = os.path.abspath(sys.argv[1])
    name = f"profbridge-interop-{uuid.uuid4().hex[:12]}"
    image(binary, name)
    try:
        try:
            container = docker("run", "--detach", "--network", "none", "--user", USER, "--name", name, name, "/app/workload")
            from_the_host(binary, container)
            from_a_sidecar(name, container)
            paused(binary, container)
        finally:
            docker("rm", "--force", name, check=False)
    finally:
        docker("rmi", name)
    print("container: everything agrees")


if __name__ == "__main__":
    main()
