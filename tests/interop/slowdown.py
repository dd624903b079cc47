#!/usr/bin/env python3
"""Checks that `profbridge diff` finds a function that became 10 % slower, and nothing in two runs of one program.

Usage: slowdown.py PATH_TO_PROFBRIDGE [PAIRS]

A Python program with six functions, which take about 1 to 8 ms for each call, is sampled 1000 times a second from its
start to its end, and, in a loop without one, for a fixed time. In each pair one function does a tenth more work in the
second run: `diff` has to list it as slower, and no other. Two runs of the same program must differ in nothing. Both
are counted and have to be right for all PAIRS, 20 unless said. Shorter functions need more samples, as the
last line of `diff` says.
"""

import os
import re
import subprocess
import sys
import tempfile

from common import PATIENCE, expect

FUNCTIONS = {"parse": 23000, "route": 46000, "load": 92000, "render": 115000, "sign": 69000, "send": 34000}
PROGRAM = "import sys\nslower, times = float(sys.argv[1]), int(sys.argv[2])\n" + "".join(f"""
def {name}():
    found = 0
    for number in range(int({rounds} * {"slower" if name == "load" else 1})):
        found += number * number % 7
""" for name, rounds in FUNCTIONS.items()) + """
while times:
    for function in (parse, route, load, render, sign, send):
        function()
    times -= 1
"""
PLANTED = "load"
SECONDS = 10


def sample(binary, folder, name, arguments, ends):
    """Samples a run of the program to its end, or for a fixed time."""
    duration = [] if ends else ["-d", str(SECONDS)]
    command = [binary, "sample", "--rate", "1000", "-o", f"{name}.otlp", *duration]
    with subprocess.Popen([*command, "--", sys.executable, "program.py", *arguments], cwd=folder,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        if not ends:
            # What is sampled for a fixed time is waited for: it would never end.
            for line in run.stdout:
                if line.startswith("wrote "):
                    run.terminate()
        run.communicate(timeout=PATIENCE)
    assert os.path.exists(os.path.join(folder, f"{name}.otlp")), f"{name}.otlp is written"
    return f"{name}.otlp"


def listed(binary, folder, before, after):
    """The functions that became slower and faster, and the text."""
    command = [binary, "diff", before, after]
    text = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    slower, faster = re.search(r"^slower:(.*)^faster:(.*)^noise:", text, re.S | re.M).groups()
    return [re.findall(r" ->\s+\S+ \S+  (\S+) \(", part) for part in (slower, faster)], text


def check(binary, pairs, folder, how):
    ends = how == "total time"
    # About as long as the fixed time.
    times = str(SECONDS * 28) if ends else "-1"
    base = sample(binary, folder, "base-0", ["1", times], ends)
    found = equal = 0
    for pair in range(1, pairs + 1):
        slower = sample(binary, folder, f"slower-{pair}", ["1.1", times], ends)
        again = sample(binary, folder, f"base-{pair}", ["1", times], ends)
        (more, less), text = listed(binary, folder, base, slower)
        is_found = more == [PLANTED] and not less and how in text
        found += is_found
        differs, same = listed(binary, folder, base, again)
        equal += differs == [[], []]
        if not is_found or differs != [[], []]:
            print(f"pair {pair}:\n{text if not is_found else same}", flush=True)
        base = again
    print(f"by {how}: found {found} of {pairs}, without a false alarm {equal} of {pairs}", flush=True)
    return found == equal == pairs


def main():
    binary, pairs = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "program.py"), "w") as file:
            file.write(PROGRAM)
        right = [check(binary, pairs, folder, how) for how in ("total time", "shares of the whole")]
        expect(all(right), "diff finds what is slower, and nothing else")
    print("interop: everything agrees")


if __name__ == "__main__":
    main()
