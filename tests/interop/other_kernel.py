#!/usr/bin/env python3
"""Samples in an emulated machine, whose rules about tracing and whose clock may be changed.

Usage: other_kernel.py PATH_TO_PROFBRIDGE PATH_TO_KERNEL

Needs `qemu-system-x86_64`, a statically linked `busybox`, a C compiler, and a kernel (bzImage) built with CONFIG_SECURITY_YAMA, as
those of the distributions are. The machine is emulated without any help of the processor, so that this runs everywhere, and has no
network. Checks for kernel.yama.ptrace_scope 0 to 3, as a user and as root, by process id and for a command, that profbridge
samples what the kernel allows, and otherwise says which rule forbids it and what allows it; and that nothing is lost, and no process
becomes another, when the clock is put an hour forward and two hours back.
"""

import gzip
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile

from common import build_workload, expect, libraries

WORKLOAD = """
#include <stdint.h>
#include <time.h>
volatile uint64_t sink;
__attribute__((noinline)) void hot_native_function(void) { for (uint64_t i = 0; i < 100000; i++) sink += i * i; }
int main(int count, char **arguments) {
    (void)arguments;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    time_t end = now.tv_sec + (count > 1 ? 4 : 60);
    while (now.tv_sec < end) {
        hot_native_function();
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
}
"""

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp; chmod 1777 /tmp
echo
echo "case: clock"
date -s "2026-11-21 12:00:00"
/bin/workload & process=$!
cd /tmp; profbridge run --config /etc/clock.yaml 2>&1 & bridge=$!
sleep 5; date -s "2026-11-21 13:00:00"; sleep 5; date -s "2026-11-21 11:00:00"; sleep 5
kill $bridge; wait $bridge; echo "status $?"
ls /tmp/envelopes; kill $process; wait $process
for scope in 0 1 2 3; do
    echo $scope > /proc/sys/kernel/yama/ptrace_scope
    for user in user root; do
        su user -c /bin/workload & sleep 1
        process=$(pidof workload)
        rm -f /tmp/out.folded
        echo "case: $scope $user process"
        su $user -c "profbridge sample --pid $process --duration 1s -o /tmp/out.folded" 2>&1
        rm -f /tmp/out.folded
        echo "case: $scope $user command"
        su $user -c "profbridge sample --duration 1s -o /tmp/out.folded -- /bin/workload briefly" 2>&1
        echo "case: $scope $user alive"
        kill -0 $process && echo "still runs"
        kill $process
    done
done
echo "case: end"
poweroff -f
"""

CLOCK = """
receivers: {ptrace: {targets: {workload: {executable: workload}}, export_interval: 1s, control: {enabled: false}}}
processors: {chunk: {lateness: 2s}}
exporters: {file: {path: envelopes}}
service:
  identity: {window: 2s}
  pipelines: {profiles: {receivers: [ptrace], processors: [chunk], exporters: [file]}}
"""

WITHOUT = {
    (1, "user", "process"): ("ptrace_scope is 1", "command of profbridge"),
    (2, "user", "process"): ("ptrace_scope is 2", "CAP_SYS_PTRACE"),
    (2, "user", "command"): ("ptrace_scope is 2", "CAP_SYS_PTRACE"),
    **{(3, user, way): ("ptrace_scope is 3", "next boot") for user in ("user", "root") for way in ("process", "command")},
}


def archive(entries):
    """An initramfs, as the kernel's Documentation/driver-api/early-userspace/buffer-format.rst describes it."""
    out = bytearray()

    def member(path, mode, data):
        name = path.encode() + b"\0"
        fields = [0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0]
        out.extend(b"070701" + "".join(f"{field:08x}" for field in fields).encode() + name)
        out.extend(b"\0" * (-len(out) % 4) + data)
        out.extend(b"\0" * (-len(out) % 4))

    folders = {"dev", "proc", "sys", "tmp"}
    for path in entries:
        while path := os.path.dirname(path):
            folders.add(path)
    for folder in sorted(folders):
        member(folder, stat.S_IFDIR | 0o755, b"")
    for path, data in entries.items():
        member(path, stat.S_IFREG | 0o755, data)
    member("TRAILER!!!", 0, b"")
    return gzip.compress(bytes(out), 1)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def machine(binary, kernel):
    """What the machine says while it runs."""
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "workload")
        build_workload(WORKLOAD, program)
        entries = {
            "init": INIT.encode(),
            "etc/clock.yaml": CLOCK.encode(),
            "etc/passwd": b"root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n",
            "etc/group": b"root:x:0:\nuser:x:1000:\n",
            "bin/busybox": read(shutil.which("busybox")),
            "bin/workload": read(program),
            "bin/profbridge": read(binary),
        }
        for library in libraries(binary):
            entries[library.lstrip("/")] = read(library)
        image = os.path.join(folder, "initramfs")
        with open(image, "wb") as file:
            file.write(archive(entries))
        command = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "1024", "-smp", "2", "-nographic", "-no-reboot"]
        command += ["-nic", "none", "-kernel", kernel, "-initrd", image, "-append", "console=ttyS0 quiet panic=-1 rdinit=/init"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=600)
        return done.stdout.replace("\r", "\n")


def clock(said):
    taken = re.search(r"receiver ptrace: (\d+) observations", said)
    expect("status 0" in said and taken, "profbridge ends with status 0" if taken else said)
    went = re.search(rf"pipeline profiles: {taken[1]} in, {taken[1]} out", said)
    sent = re.search(rf"exporter file: {taken[1]} in, \d+ synthesized, (\d+) sent", said)
    expect(went and sent, f"all of {taken[1]} observations arrive, whatever the clock does" if went and sent else said)
    chunks = re.findall(r"20261121T(\d\d)\d{4}\.\d+Z-(\w+)-\w+\.envelope", said)
    expect({hour for hour, _ in chunks} == {"11", "12", "13"}, "there are chunks from before and after each change of the clock")
    expect(len({profiler for _, profiler in chunks}) == 1, "they are of one profiler")


def main():
    binary, kernel = sys.argv[1:3]
    said = machine(binary, kernel)
    parts = dict(re.findall(r"^case: (.+)\n((?:(?!case: ).*\n)*)", said, re.MULTILINE))
    if "end" not in parts:
        sys.exit(f"the machine did not come to its end:\n{said}")
    clock(parts["clock"])
    for scope in range(4):
        for user in ("user", "root"):
            for way in ("process", "command"):
                text = parts[f"{scope} {user} {way}"]
                words = WITHOUT.get((scope, user, way))
                if words:
                    error = re.search(r"^error: .*", text, re.MULTILINE)
                    right = error and all(word in error[0] for word in words)
                    expect(right, f"scope {scope}, {user}, {way}: refused, and it is said why" if right else text)
                else:
                    hot = re.search(r"^ +([0-9.]+) %.*hot_native_function", text, re.MULTILINE)
                    right = hot and float(hot[1]) > 80
                    expect(right, f"scope {scope}, {user}, {way}: the hot function leads with {hot[1]} %" if right else text)
            expect("still runs" in parts[f"{scope} {user} alive"], f"scope {scope}, {user}: the process still runs")
    print("other kernel: everything agrees")


if __name__ == "__main__":
    main()
