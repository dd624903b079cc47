#!/usr/bin/env python3
"""Runs a command of `cargo test`, and tests that fail once more, by themselves.

Some tests sample real processes and measure times. A machine that gives its processors to others for a while fails one
of them now and then; what is wrong in the code fails the second time as well. Each test that needed that is named at
the end, so that it can be mended.
"""

import re
import subprocess
import sys

RESULT = re.compile(r"^test (\S+)(?: .*)? \.\.\. (ok|FAILED)")
TARGET = re.compile(r"^error: test failed, to rerun pass `-p \S+ (.*)`")
MOST = 8
"""So many tests fail of a busy machine at most. More are a defect."""


def run(command):
    """Runs a command and shows what it prints.

    Returns its status, the failed tests with the target that they are in, and the passed ones.
    """
    failed, names, passed = [], [], set()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            if (test := RESULT.match(line)) and test[2] == "ok":
                passed.add(test[1])
            elif test:
                names.append(test[1])
            elif target := TARGET.match(line):
                failed.append((target[1], names))
                names = []
    return process.returncode, failed, passed


def main(command):
    status, failed, _ = run(command + ["--no-fail-fast"])
    if status == 0:
        return 0
    tests = [name for _, names in failed for name in names]
    # Without a name it did not compile, or a program of tests did not come to its end.
    if not failed or not all(names for _, names in failed) or len(tests) > MOST:
        return status
    for target, names in failed:
        print(f"\n== once more, by themselves: {' '.join(names)}", flush=True)
        # The whole workspace, so that nothing is built anew with fewer features.
        again = ["cargo", "test", "--workspace", *target.split(), "--", "--exact", "--test-threads=1", *names]
        status, _, passed = run(again)
        if status != 0 or not passed.issuperset(names):
            return status or 1
    print(f"\n== failed once, and passed by themselves: {' '.join(tests)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
