"""What the scripts share that have a traced program beside profbridge's sampler: running both, and reading what came."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time

from common import PATIENCE, Profbridge, expect, wait_for
from sentry_sdks import Server, takes

EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "linking")

# Starts another program in its own process once it is told the command, and what that program begins with.
START = "import os, sys\ncommand = sys.stdin.readline().split()\nos.execv(command[0], command)\n"

# What the functions of a Python program do while they take the time of a span.
SPIN = """
def busy_in_one(end):
    while time.monotonic() < end:
        sum(range(500))

def busy_in_two(end):
    while time.monotonic() < end:
        sum(range(500))

async def busy_in_three(end):
    while time.monotonic() < end:
        sum(range(500))
        await asyncio.sleep(0)

async def busy_in_four(end):
    while time.monotonic() < end:
        sum(range(500))
        await asyncio.sleep(0)
"""

# What both do with it: two spans on threads, then two in turns on one, with `work` and `work_in_turns` of the program.
WORK = """\
async def all_in_turns():
    await asyncio.gather(work_in_turns("three", busy_in_three), work_in_turns("four", busy_in_four))

sys.stdin.readline()
threads = [threading.Thread(target=work, args=("one", busy_in_one)), threading.Thread(target=work, args=("two", busy_in_two))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
asyncio.run(all_in_turns())
"""


def items(sentry, kind):
    """The payloads of a kind that the Sentry was sent."""
    found = []
    for request in list(sentry.requests):
        found += [json.loads(payload) for item, payload in request.items() if item["type"] == kind]
    return found


def adapted(name, replaced):
    """The text of an example's configuration, with ports that the system chooses, the process PID as the sampler's target,
    fast, without compression, and what else is replaced. All that is replaced must be there."""
    with open(os.path.join(EXAMPLE, name)) as file:
        text = file.read()
    usual = {
        "export_interval: 5s": "export_interval: 1s\n    control: {enabled: false}",
        'command_line: "python3*shop.py"': "pid: PID",
        "dsn: ${env:SENTRY_DSN}": 'dsn: "DSN"\n    compression: none',
    }
    for old, new in {**usual, **replaced}.items():
        assert old in text, f"{name} has no {old}"
        text = text.replace(old, new)
    return text


PYTHON = [sys.executable, "-u"]


def transactions(sentry):
    return items(sentry, "transaction")


def beside_the_sampler(
    binary, config, text, arguments, count, interpreter=PYTHON, environment=None, found=transactions,
):
    """Runs a program beside profbridge until `count`, which may be a function, transactions, or what else `found`
    finds, are in the Sentry that it returns, with the program's process id. PID, DSN and UPSTREAM in the configuration
    are replaced; `arguments` makes those of the program of the running profbridge. The program reads a line when it may
    begin."""
    sentry = Server(takes)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "shop")
        with open(path, "w") as file:
            file.write(text)
        # The address is known once profbridge listens, which it does once it knows the process.
        start = os.path.join(folder, "start.py")
        with open(start, "w") as file:
            file.write(START)
        inherited = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
        environment = {**inherited, **(environment or {})}
        command = [sys.executable, "-u", start]
        # Node writes what it logs of its code to where it is.
        program = subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0, env=environment, cwd=folder)
        try:
            config = config.replace("DSN", sentry.dsn).replace("UPSTREAM", f"http://{sentry.address}")
            with Profbridge(binary, config.replace("PID", str(program.pid))) as profbridge:
                line = " ".join([*interpreter, path, *arguments(profbridge)])
                program.stdin.write(line.encode() + b"\n")
                time.sleep(2)
                program.stdin.write(b"\n")
                expect(program.wait(PATIENCE) == 0, "the program ended well")
                expected = count() if callable(count) else count
                wait_for("everything is in Sentry", lambda: len(found(sentry)) >= expected)
                assert profbridge.stop() == 0
                return sentry, program.pid
        finally:
            program.kill()
            program.wait()
            # What Node leaves behind where it was told to list its functions.
            with contextlib.suppress(FileNotFoundError):
                os.remove(f"/tmp/perf-{program.pid}.map")


def functions(chunks, profiler, thread, start, end):
    """How often each function was innermost on a thread in a stretch of time, of those that the program spins in."""
    counts = {}
    for chunk in chunks:
        profile = chunk["profile"]
        for sample in profile["samples"]:
            if chunk["profiler_id"] == profiler and sample["thread_id"] == thread and start <= sample["timestamp"] <= end:
                frames = [profile["frames"][frame]["function"] for frame in profile["stacks"][sample["stack_id"]]]
                own = next((found for found in (re.search("busy_in_[a-z]+", frame) for frame in frames) if found), None)
                if own:
                    counts[own.group()] = counts.get(own.group(), 0) + 1
    return counts


def check_spans(name, spans, chunks, may_see, misnamed=0):
    """Whether spans name the profiler that has chunks, and their thread, which shows the functions that it may see in their
    time and no other; what the span itself spins in among them. A span is (profiler, thread, start, end). `misnamed` is the
    part of the samples that may have the name of another function."""
    for profiler, thread, start, end in spans:
        known = {chunk["profiler_id"] for chunk in chunks}
        assert profiler in known, f"{name}: its profiler {profiler} has chunks: {known}"
        counts = functions(chunks, profiler, thread, start, end)
        where = f"{name}: samples of its thread {thread} in its time are in {counts}"
        others = sum(count for function, count in counts.items() if function not in may_see)
        expect(counts.get(f"busy_in_{name}", 0) >= 5 and others <= misnamed * sum(counts.values()), where)
