#!/usr/bin/env python3
"""A gevent program beside profbridge's sampler: each greenlet's stack is complete and has that greenlet's functions only.

Usage: greenlets.py PATH_TO_PROFBRIDGE PYTHON_WITH_GEVENT

Greenlets take turns on one stack, so what lies above a greenlet's own part belongs to others. The program has four greenlets,
each with functions of its own, of which one computes and one waits in the event loop's turn.

The second argument is a Python that has the package gevent. Where it has none (no package could be had), this is said and
nothing is tested. Needs the right to sample a process of the same user.
"""

import os
import re
import subprocess
import sys
import tempfile

from common import by_some_run, expect

PROGRAM = """
import gevent, sys, time

def compute():
    until = time.perf_counter() + 0.01
    while time.perf_counter() < until:
        sum(range(200))

SOURCE = '''
def work_{0}():
    while True:
        compute()
        gevent.sleep(0)

def begin_{0}():
    work_{0}()
'''
for number in range(4):
    exec(SOURCE.format(number))
greenlets = [gevent.spawn(globals()[f"begin_{number}"]) for number in range(4)]
print("ready", flush=True)
gevent.get_hub().threadpool.apply(sys.stdin.readline)
"""


def run(binary, python):
    """Returns what is wrong by what was measured."""
    program = subprocess.Popen([python, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        expect(program.stdout.readline() == "ready\n", "the program starts")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "stacks.folded")
            arguments = ["sample", "--pid", str(program.pid), "--duration", "4s", "-o", path]
            done = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=60)
            expect(done.returncode == 0, f"the sampler ends well: {done.stderr}")
            with open(path, encoding="utf-8") as file:
                lines = [line.rsplit(" ", 1) for line in file.read().splitlines()]
    finally:
        program.stdin.close()
        program.wait(30)
    time, of, mixed = 0, {}, []
    for stack, nanoseconds in lines:
        if ";compute" in stack:
            functions = re.findall(r";(begin|work)_([0-3])\b", stack)
            numbers = {number for _, number in functions}
            # Callers that began later than the sample are left out, so some may be missing.
            if len(numbers) > 1 or [name for name, _ in functions] not in ([], ["begin"], ["begin", "work"]):
                mixed.append(stack)
            for number in numbers:
                of[number] = of.get(number, 0) + int(nanoseconds)
            time += int(nanoseconds)
    expect(not mixed, f"no stack has functions of two greenlets, or in another order: {mixed}")
    complete = re.search(r"([0-9.]+) % complete", done.stderr + done.stdout)
    expect(complete, "how many stacks are complete is said")
    wrong = []
    for is_right, what in [
        (time > 2_500_000_000, f"the greenlets compute for most of four seconds: {time} ns"),
        (all(of.get(number, 0) > time / 8 for number in "0123"), f"all of them, and alike: {of}"),
        (float(complete[1]) >= 97, f"stacks are complete: {complete[1]} %"),
    ]:
        if is_right:
            print(f"ok: {what}")
        else:
            wrong.append(what)
    if not wrong:
        print(f"greenlets.py: stacks of four greenlets, {complete[1]} % complete, none with functions of two")
    return wrong


def main():
    binary, python = sys.argv[1:]
    if subprocess.run([python, "-c", "import gevent"], capture_output=True).returncode != 0:
        print("greenlets.py: untested here, there is no gevent")
        return
    by_some_run(lambda: run(binary, python))


main()
