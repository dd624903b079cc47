"""Compares the frames that the sampler reads with those of py-spy and with those that the program itself says it has,
thread by thread, of programs that stand still.

    python3 py_spy.py RUNTIME PROFBRIDGE PY_SPY [PYTHON...]

RUNTIME is the example `runtime` of the crate profbridge-sampler, whose frames have whole paths; what `profbridge dump`
shows, with the names of files alone, is compared as well. PY_SPY is the program of that name, and each PYTHON an
interpreter (a path, or a command with arguments). Each runs a program whose threads stand in methods, generators,
lambdas that C code calls, coroutines, recursions and exceptions. Name (without what stands before its last dot, which
py-spy does not have), file and line of every frame have to be equal. Each program is run three times, and more often
until 400 stacks were compared. Without any PYTHON, those of pyenv and the system's are taken, from 3.8 on. What cannot
be had is said, and is no failure. Builds without the global lock, which py-spy 0.4.3 cannot read, are compared with
what they say themselves alone.
"""

import glob
import json
import os
import re
import shlex
import shutil
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

def frames(frame):
    while frame:
        yield frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back

own = threading.get_ident()
while True:
    stacks = {ident: list(frames(frame)) for ident, frame in sys._current_frames().items() if ident != own}
    # Until all of them sleep.
    if all(stack[0][::2] == ("stand", stand.__code__.co_firstlineno + 2) for stack in stacks.values()):
        break
    time.sleep(0.01)
print(json.dumps({thread.native_id: stacks[thread.ident] for thread in threading.enumerate() if thread.ident != own}))
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


def is_shown(stack, shown):
    """Whether `profbridge dump` shows the whole stack, or says that callers are missing above the first 400 frames: before
    Python 3.11 the machine's stack of a deep recursion is larger than what is read."""
    stack = [(name, os.path.basename(file), line) for name, file, line in stack]
    if shown and shown[-1] == "    [callers not known]":
        return len(shown) > 400 and stack[:len(shown) - 1] == shown[:-1]
    return shown == stack


def dumped(profbridge, pid):
    """The frames of each thread in what `profbridge dump` shows."""
    text = subprocess.run([profbridge, "dump", "--pid", str(pid)], capture_output=True, text=True, check=True).stdout
    threads = {}
    for line in text.splitlines():
        if thread := re.match(r"thread (\d+)", line):
            frames = threads[int(thread[1])] = []
        elif frame := re.match(r"    (.*) \((.*):(\d+)\)$", line):
            frames.append((frame[1].rsplit(".", 1)[-1], frame[2], int(frame[3])))
        elif threads:
            frames.append(line)
    return threads


def compare(runtime, profbridge, py_spy, python):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        program = subprocess.Popen([*shlex.split(python), path], stdout=subprocess.PIPE)
        try:
            own = json.loads(program.stdout.readline())
            own = {int(tid): [tuple(frame) for frame in stack] for tid, stack in own.items()}
            assert program.stdout.readline() == b"ready\n"
            time.sleep(0.2)
            os.kill(program.pid, signal.SIGSTOP)
            time.sleep(0.1)
            expected = []
            if has_global_lock(python):
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
            shown = dumped(profbridge, program.pid)
            dumps = sum(is_shown(stack, shown.get(tid)) for tid, stack in own.items())
            for tid, stack in own.items():
                if not is_shown(stack, shown.get(tid)):
                    print("itself:", stack[:6], "\ndump:", shown.get(tid, [])[:6])
            for thread in expected:
                frames = [(one["name"].rsplit(".", 1)[-1], one["filename"], one["line"]) for one in thread["frames"]]
                # Before 3.11 py-spy may not know the thread's id.
                tid = thread.get("os_thread_id")
                found = read.get(tid) == frames if tid in read else frames in stacks
                equal += found
                unequal += not found
                if not found:
                    print("py-spy:", frames[:6], "\nprofbridge:", read.get(tid, [])[:6])
            said = sum(read.get(tid) == stack for tid, stack in own.items())
            for tid, stack in own.items():
                if read.get(tid) != stack:
                    print("itself:", stack[:6], "\nprofbridge:", read.get(tid, [])[:6])
            by_py_spy = f"{equal} of {equal + unequal} threads equal to py-spy's"
            print(f"{python}: {by_py_spy}, {said} of {len(own)} to the program's own, {len(read)} read, "
                  f"{dumps} dumped", flush=True)
            as_py_spy = unequal == 0 and equal in ([len(read)] if expected else [0])
            is_right = as_py_spy and dumps == said == len(own) >= 20 and len(read) == said + 1
            return (is_right, equal, equal + unequal) if expected else (is_right, said, len(own))
        finally:
            program.kill()
            program.wait()


def has_global_lock(python):
    question = "import sys; sys.exit('t' in sys.abiflags)"
    return subprocess.call([*shlex.split(python), "-c", question]) == 0


# How often each program is run at least, and how many stacks are compared at least.
ROUNDS = 3
STACKS = 400


def pythons_here():
    """The Pythons of pyenv and of the system that py-spy knows and whose functions are named."""
    candidates = sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3"))) + ["/usr/bin/python3"]
    question = "import sys; sys.exit(not (3, 8) <= sys.version_info[:2] <= (3, 13))"
    return [python for python in candidates if os.path.exists(python) and not subprocess.call([python, "-c", question])]


def main():
    runtime, profbridge, py_spy, *pythons = sys.argv[1:]
    if not shutil.which(py_spy):
        print("untested here: there is no py-spy")
        return
    pythons = pythons or pythons_here()
    good = programs = equal = stacks = rounds = 0
    while pythons and (rounds < ROUNDS or stacks < STACKS) and good == programs:
        for python in pythons:
            is_good, more_equal, more = compare(runtime, profbridge, py_spy, python)
            good, programs = good + is_good, programs + 1
            equal, stacks = equal + more_equal, stacks + more
        rounds += 1
    print(f"{good} of {programs} programs are equal, {equal} of {stacks} stacks")
    sys.exit(0 if programs and good == programs else 1)


if __name__ == "__main__":
    main()
