"""Compares the frames that the sampler reads with those of py-spy, thread by thread, of programs that stand still.

    python3 py_spy.py RUNTIME PY_SPY PYTHON...

RUNTIME is the example `runtime` of the crate profbridge-sampler, PY_SPY the program of that name, and each PYTHON an
interpreter (a path, or a command with arguments). Each runs a program whose threads stand in methods, generators,
lambdas that C code calls, coroutines, recursions and exceptions. Name (without what stands before its last dot, which
py-spy does not have), file and line of every frame have to be equal.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time

PROGRAM = '''
import asyncio, functools, json, os, re, sys, threading, time

ready = threading.Semaphore(0)

def stand():
    ready.release()
    time.sleep(1000)

class Späte:
    @property
    def wert(self):
        return stand()

    def __init__(self, n):
        if n == 1:
            stand()

    def __repr__(self):
        return stand()

def deep(n):
    if n:
        return deep(n - 1)
    stand()

def gen(n):
    for i in range(n):
        yield stand()

def outer(n):
    yield from gen(n)

async def leaf():
    stand()

async def middle():
    await leaf()

def recover():
    try:
        raise ValueError(1)
    except ValueError:
        stand()

@functools.lru_cache(maxsize=None)
def cached(n):
    stand()

def closure():
    x = 1
    def inner():
        nonlocal x
        x += 1
        stand()
    inner()

def 名前():
    stand()

ways = [
    stand,
    lambda: deep(30),
    lambda: deep(600),
    lambda: list(outer(3)),
    lambda: sorted([1, 2], key=lambda x: stand()),
    lambda: asyncio.run(middle()),
    lambda: Späte(0).wert,
    lambda: Späte(1),
    lambda: repr([Späte(0)]),
    recover,
    lambda: cached(1),
    closure,
    lambda: re.sub("a", lambda m: stand(), "aaa"),
    lambda: json.loads('{"a": 1}', object_hook=lambda d: stand()),
    lambda: eval("stand()"),
    lambda: exec("for i in range(3):\\n    stand()"),
    lambda: [stand() for _ in range(3)],
    lambda: next(x for x in [stand()]),
    名前,
    lambda: functools.reduce(lambda a, b: stand(), [1, 2, 3]),
]
for way in ways:
    threading.Thread(target=way, daemon=True).start()
for _ in ways:
    ready.acquire()
print("ready", flush=True)
time.sleep(1000)
'''


def parse(text):
    frames = []
    for line in text.splitlines()[1:]:
        place, number = line.rsplit(":", 1)
        name, file = place.split(" ", 1) if not place.startswith("<") else place.rsplit(" ", 1)
        frames.append((name.rsplit(".", 1)[-1], file, int(number)))
    return frames


def compare(runtime, py_spy, python):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        program = subprocess.Popen([*shlex.split(python), path], stdout=subprocess.PIPE)
        try:
            assert program.stdout.readline() == b"ready\n"
            time.sleep(0.2)
            os.kill(program.pid, signal.SIGSTOP)
            time.sleep(0.1)
            dump = [py_spy, "dump", "--json", "--nonblocking", "--pid", str(program.pid)]
            expected = json.loads(subprocess.check_output(dump))
            equal = unequal = 0
            tids = sorted(int(tid) for tid in os.listdir(f"/proc/{program.pid}/task"))
            read = {}
            for tid in tids:
                done = subprocess.run([runtime, str(program.pid), str(tid)], capture_output=True, text=True)
                if done.returncode == 0:
                    read[tid] = parse(done.stdout)
            stacks = list(read.values())
            for thread in expected:
                frames = [(one["name"].rsplit(".", 1)[-1], one["filename"], one["line"]) for one in thread["frames"]]
                # Before 3.11 py-spy may not know the thread's id.
                tid = thread.get("os_thread_id")
                found = read.get(tid) == frames if tid in read else frames in stacks
                equal += found
                unequal += not found
                if not found:
                    print("py-spy:", frames[:6], "\nprofbridge:", read.get(tid, [])[:6])
            print(f"{python}: {equal} of {equal + unequal} threads equal, {len(read)} read", flush=True)
            return unequal == 0 and equal == len(read) and equal > 20
        finally:
            program.kill()
            program.wait()


def main():
    runtime, py_spy, *pythons = sys.argv[1:]
    results = [compare(runtime, py_spy, python) for python in pythons]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
