#!/usr/bin/env python3
"""A Python program that is profiled by Sentry's own SDK and by profbridge at the same time: both send the same frames.

Usage: python_frames.py PATH_TO_PROFBRIDGE PYTHON_WITH_SENTRY_SDK...

The program's DSN names this script, which keeps the chunks of sentry-sdk. `profbridge sample` writes those of the same run. Of the
program's stacks (from its outermost frame to the innermost own one, each with function, module, both paths, line and in_app), whatever
either profiler saw often must be among what the other saw. Needs the right to sample a process of the same user. Uses loopback only.
"""

import collections
import glob
import itertools
import os
import subprocess
import sys
import tempfile

from sinks import ChunkSink, chunks

PATIENCE = 120
# What is in so many samples of one profiler is in one of the other's. Each part of the program takes far more time than that.
OFTEN = 8
RATE = "397"

MAIN = """
import functools, os, random, sys, threading, time
import sentry_sdk

sentry_sdk.init(
    dsn=sys.argv[1], release="interop@1.0", traces_sample_rate=0, default_integrations=False,
    profile_session_sample_rate=1.0, profile_lifecycle="manual",
)

# The SDK's thread has to wait for so long for its turn, which no part of the program may be shorter than.
sys.setswitchinterval(0.0005)

import vendored
from shop import cart, work
from shop.deep import inner
import shop


def spin(start):
    total = start
    for number in range(40000):
        total = (total * 31 + number) & 0xffff
    return total


class Base:
    def inherited(self):
        return spin(1)

    def template(self):
        return self.part()


class Derived(Base):
    def part(self):
        return spin(2)

    @classmethod
    def made(cls):
        return spin(3)

    @staticmethod
    def alone():
        return spin(4)

    @property
    def size(self):
        return spin(5)

    def __call__(self):
        return spin(6)

    @work.traced
    def decorated(self):
        return spin(7)

    class Nested:
        def method(self):
            return spin(8)


def outer():
    def within():
        return spin(9)
    return within()


def with_comprehensions():
    listed = [spin(number) for number in range(2)]
    listed += {spin(number): number for number in range(2)}
    return sum(spin(number) for number in listed[:2])


def numbers():
    for number in range(2):
        yield spin(number)


def recurse(depth):
    return spin(10) if depth == 0 else recurse(depth - 1)


def over_lines():
    return [
        spin(11),
        spin(
            12
        ),
    ]


@functools.lru_cache(maxsize=None)
def cached(key):
    return spin(key)


def run(end):
    derived, nested = Derived(), Derived.Nested()
    parts = [
        lambda: derived.inherited(),
        lambda: derived.template(),
        lambda: Derived.made(),
        lambda: derived.made(),
        lambda: Derived.alone(),
        lambda: derived.size,
        lambda: derived(),
        lambda: derived.decorated(),
        lambda: nested.method(),
        outer,
        with_comprehensions,
        lambda: list(numbers()),
        lambda: [None for _ in numbers()],
        lambda: recurse(5),
        over_lines,
        lambda: cached(int(time.time() * 1e6)),
        lambda: sorted(range(2), key=lambda number: spin(number)),
        functools.partial(spin, 14),
        lambda: cart.Cart().total(),
        lambda: cart.Cart.of(3),
        inner.deepest,
        shop.of_package,
        work.run_asyncio,
        vendored.packaged,
        lambda: exec("spin(15)"),
    ]
    while time.time() < end:
        # The SDK's profiler gets its turn at certain moments, which should be of all parts.
        random.shuffle(parts)
        for part in parts:
            part()


if __name__ == "__main__":
    sentry_sdk.profiler.start_profiler()
    end = time.time() + SECONDS
    thread = threading.Thread(target=run, args=(end,))
    thread.start()
    run(end)
    thread.join()
    sentry_sdk.profiler.stop_profiler()
    for thread in threading.enumerate():
        if "profiler" in thread.name:
            thread.join(10)
    sentry_sdk.flush(10)
    # Its threads would keep the interpreter from ending for a while.
    sys.stdout.flush()
    os._exit(0)
"""

SPIN = """
def spin(start):
    total = start
    for number in range(40000):
        total = (total * 31 + number) & 0xffff
    return total
"""

FILES = {
    "program.py": MAIN,
    "shop/__init__.py": SPIN + """
def of_package():
    return spin(1)
""",
    "shop/cart.py": """
from shop import spin


class Cart:
    def total(self):
        return sum(map(self.one, range(2)))

    def one(self, number):
        return spin(number)

    @classmethod
    def of(cls, count):
        made = cls()
        return [made.one(number) for number in range(count)]
""",
    "shop/work.py": """
import asyncio
import functools

from . import spin


def traced(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)

    return wrapper


async def leaf(number):
    await asyncio.sleep(0)
    return spin(number)


async def tree():
    return await leaf(1) + sum(await asyncio.gather(leaf(2), leaf(3)))


def run_asyncio():
    return asyncio.run(tree())
""",
    "shop/deep/__init__.py": "",
    "shop/deep/inner.py": """
import shop


def deepest():
    return shop.spin(1)
""",
    "lib/site-packages/vendored.py": SPIN + """
def packaged():
    return spin(1)
""",
}


def in_app(frame):
    """Sentry's own rule, where a frame does not say it (getsentry/vroom `internal/frame/frame.go`)."""
    path = frame.get("abs_path", "")
    return frame.get("in_app", not ("-packages/" in path or path.startswith("/usr/local/") or "/lib/python3" in path))


# A frame of which we say that its function could not be told, or proven.
UNKNOWN = ("unknown",) * 6


def said(frame, platform):
    """What is compared of a frame. The SDK puts code without a file into its working folder; native frames are ours alone."""
    if frame.get("platform", platform) != "python":
        return UNKNOWN if frame["function"] == "_PyEval_EvalFrameDefault" else None
    if frame["function"] == "[unknown function]":
        return UNKNOWN
    filename = frame.get("filename", "")
    path = None if filename.startswith("<") else frame.get("abs_path")
    return frame["function"], frame.get("module"), filename, path, frame.get("lineno"), in_app(frame)


def calls(found, folder):
    """How many samples have each of the program's calls: two frames, of which the outer one called the inner one, and nothing the
    outermost one. Goes up to the innermost frame of one of the program's files, of which the line is left out in the second counter."""
    with_line, without = collections.Counter(), collections.Counter()
    for chunk in found:
        profile = chunk["profile"]
        listed = profile["frames"]
        for sample in profile["samples"]:
            frames = [listed[index] for index in reversed(profile["stacks"][sample["stack_id"]])]
            frames = [frame for frame in map(said, frames, itertools.repeat(chunk["platform"])) if frame]
            own = [position for position, (*_, path, _, _) in enumerate(frames) if path and path.startswith(folder)]
            # The SDK's profiler begins and ends within the program.
            if not any(frame[:2] == ("run", "__main__") for frame in frames):
                continue
            frames = frames[:own[-1] + 1]
            last = (*frames[-1][:4], None, frames[-1][5])
            for counter, inner in ((with_line, frames), (without, [*frames[:-1], last])):
                counter.update({call for call in zip([None, *frames], inner) if UNKNOWN not in call})
    return with_line, without


def contradictions(calls, others):
    """The frames of calls of which the other profiler says something else: the same function of the same file, by the
    name of its code, and never with the same name, module, paths and in_app. A frame that the other one has not seen at
    all is none."""
    def code(frame):
        return frame[0].rsplit(".", 1)[-1], frame[2]

    def said(frame):
        return *frame[:4], frame[5]

    seen = {frame for call in others for frame in call if frame}
    known, same = {code(frame) for frame in seen}, {said(frame) for frame in seen}
    # There are several functions without a name of their own in a file, so one of these may not have been seen.
    frames = {frame for call in calls for frame in call if frame and "<" not in code(frame)[0]}
    return sorted({said(frame) for frame in frames if code(frame) in known and said(frame) not in same}, key=str)


def check(binary, python, seconds):
    """Whether all that was seen often is in both, or there is nothing to compare. What was not seen may be chance: how
    often each of two profilers looks at a part of the program, and whether at the same moments, is the machine's.
    Raises where they contradict."""
    question = "import sys, sentry_sdk; print('%d.%d.%d' % sys.version_info[:3])"
    is_there = os.access(python, os.X_OK)
    version = subprocess.run([python, "-c", question], capture_output=True, text=True) if is_there else None
    if version is None or version.returncode != 0:
        print(f"{python}: untested here, there is no sentry-sdk")
        return True
    sink = ChunkSink()
    with tempfile.TemporaryDirectory() as temporary:
        folder = os.path.realpath(temporary)
        for name, text in FILES.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(text.replace("SECONDS", str(seconds)))
        environment = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
        environment["PYTHONPATH"] = os.path.join(folder, "lib", "site-packages")
        output = os.path.join(folder, "out.envelope")
        dsn = f"http://0123456789abcdef0123456789abcdef@127.0.0.1:{sink.server_port}/1"
        command = [binary, "sample", "--rate", RATE, "--stops", "always", "--mode", "cpu", "-o", output, "--", python, os.path.join(folder, "program.py"), dsn]
        done = subprocess.run(command, cwd=folder, env=environment, timeout=PATIENCE, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        ours = []
        for name in glob.glob(os.path.join(folder, "out*.envelope")):
            with open(name, "rb") as file:
                ours += chunks(file.read())
        (theirs, theirs_without), (ours, ours_without) = calls(sink.kept, folder), calls(ours, folder)
    sink.shutdown()
    name = f"{python} {version.stdout.strip()}"
    if sum(theirs.values()) <= 1000 or sum(ours.values()) <= 1000:
        seen = f"{sum(theirs.values())} by the SDK, {sum(ours.values())} by us"
        print(f"{name}: too little was seen: {seen}; {done.stderr}", flush=True)
        return False
    only_theirs = {call: count for call, count in theirs.items() if count >= OFTEN and call not in ours}
    # The SDK's thread gets its turn where the running one lets go of the interpreter, at the end of a loop's body or at a call. So the
    # innermost line is another one at times.
    only_ours = {call: count for call, count in ours_without.items() if count >= OFTEN and call not in theirs_without}
    both = [call for call in theirs if call in ours]
    both_ours = [call for call in ours_without if call in theirs_without]
    print(f"{name}: {len(both)} calls are in both, {sum(theirs[call] for call in both) * 100 / sum(theirs.values()):.2f} % of the SDK's "
          f"{sum(theirs.values())} and {sum(ours_without[call] for call in both_ours) * 100 / sum(ours_without.values()):.2f} % of our "
          f"{sum(ours_without.values())}", flush=True)
    for title, only in (("the SDK has and we have not", only_theirs), ("we have and the SDK has not", only_ours)):
        for (outer, inner), count in sorted(only.items(), key=lambda one: -one[1]):
            print(f"  {title}, {count} times: {outer}\n    calls {inner}")
    wrong = contradictions(only_theirs, ours), contradictions(only_ours, theirs_without)
    assert not any(wrong), f"{name}: said in another way by the other one: {wrong}"
    return not only_theirs and not only_ours


def main():
    binary, *pythons = sys.argv[1:]
    # One of three runs: what is wrong in profbridge is wrong each time.
    results = [any(check(os.path.abspath(binary), python, 8) for _ in range(3)) for python in pythons]
    print("python_frames: everything agrees" if all(results) else "python_frames: there are differences")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
