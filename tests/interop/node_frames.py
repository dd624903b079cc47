#!/usr/bin/env python3
"""A Node program that is profiled by Sentry's own SDK and by profbridge at the same time: both send the same frames.

Usage: node_frames.py PATH_TO_PROFBRIDGE FOLDER_WITH_NODE_MODULES [NODE...]

The program's DSN names this script, which keeps the chunks of @sentry/profiling-node. `profbridge sample` writes those of the same
run. Of the program's own functions, whatever either profiler saw often must be in what the other saw, with the same function, module,
file, line and in_app: without inlining. With inlining, the SDK often says only the function that others were inlined into, and
profbridge says these as well: whatever the SDK saw often must be in what profbridge saw. Runs with each NODE (without any, the one on the path and those of PROFBRIDGE_TEST_NODES).
Needs @sentry/node and @sentry/profiling-node in the folder, and the right to sample a process of the same user. Uses loopback only.
"""

import collections
import glob
import os
import shutil
import subprocess
import sys
import tempfile

from sinks import ChunkSink, chunks

PATIENCE = 120
# A frame that is in so many stacks of one profiler, and such a part of its stacks' frames, is in one of the other's. Functions take far more
# time than that. The SDK takes an instruction of Sparkplug for the one before it at times, and so its line.
OFTEN = 10
PART = 100
# The samples of a second.
RATE = "397"

# Node 18 has no Maglev, and its inlining no flag.
WITHOUT_INLINING = ["--no-turbo-inlining", "--max-inlined-bytecode-size=0", "--max-inlined-bytecode-size-cumulative=0"]

PROGRAM = """
"use strict";
const Sentry = require("@sentry/node");
const { nodeProfilingIntegration } = require("@sentry/profiling-node");
Sentry.init({
  dsn: process.argv[2], release: "interop@1.0", tracesSampleRate: 0, defaultIntegrations: false,
  integrations: [nodeProfilingIntegration()], profileSessionSampleRate: 1, profileLifecycle: "manual",
});
Sentry.profiler.startProfiler();

class Shop {
  constructor(count) {
    this.lots = this.fill(count);
  }
  static open(count) {
    return new Shop(count);
  }
  fill(count) {
    const lots = [];
    for (let number = 0; number < count; number += 1) {
      lots.push(spin(number));
    }
    return lots;
  }
  get size() {
    return spin(this.lots.length) +
      spin(2);
  }
}

function spin(start) {
  let sum = start;
  for (let number = 0; number < 4000; number += 1) {
    sum = (sum * 31 + number) | 0;
    if (sum % 5 === 0) {
      sum += helper(sum);
    }
  }
  return sum;
}

function helper(value) {
  let bits = value;
  for (let number = 0; number < 20; number += 1) bits ^= bits << 3;
  return bits;
}

function* numbers(count) {
  for (let number = 0; number < count; number += 1) yield spin(number);
}

const arrow = (start) => spin(start);
const shelf = {
  method() {
    return arrow(3);
  },
};
Shop.prototype.later = async function (start) {
  await null;
  return spin(start);
};

function recurse(depth) {
  return depth === 0 ? spin(1) : recurse(depth - 1) + 1;
}

async function main(end) {
  while (Date.now() < end) {
    const shop = Shop.open(10);
    shop.size;
    for (const number of numbers(5)) if (number === 0.5) return;
    for (let turn = 0; turn < 5; turn += 1) {
      shelf.method();
      recurse(5);
    }
    for (let turn = 0; turn < 5; turn += 1) await shop.later(turn);
    (function () {
      spin(4);
      (() => spin(5) + spin(6))();
    })();
  }
}

main(Date.now() + 10000).then(async () => {
  Sentry.profiler.stopProfiler();
  await Sentry.close(10000);
  process.exit(0);
});
"""


def is_own(frame):
    """Sentry's own rule, where a frame does not say it (getsentry/vroom `internal/frame/frame.go`)."""
    path = frame.get("abs_path") or frame.get("filename", "")
    return frame.get("in_app", not path.startswith("node:") and "/node_modules/" not in path)


def frames(found, path):
    """How many stacks have each of the program's own frames, and all that is said of it."""
    count = collections.Counter()
    for chunk in found:
        profile = chunk["profile"]
        listed = profile["frames"]
        for sample in profile["samples"]:
            stack = {index for index in profile["stacks"][sample["stack_id"]] if listed[index].get("filename") == path}
            # The SDK's profiler starts and ends within the program.
            if not any(listed[index]["function"] in ("main", "Shop.later") for index in stack):
                continue
            said = ((listed[index].get(key, "") for key in ("function", "module", "filename", "lineno")) for index in stack)
            # Sentry aggregates no frame without a function, so we call what has no name as V8 does; the SDK leaves it empty.
            count.update({(one[0] or "<anonymous>", *one[1:], is_own(listed[index])) for one, index in zip(map(tuple, said), stack)})
    return count


def contradictions(frames, others, flags):
    """The frames of which the other profiler says something else: the same function at the same line, and never with
    the same module, file and in_app; or that line, and never with the same function. A line that the other one has not
    seen at all is none."""
    functions = {(function, line) for function, _, _, line, _ in others}
    # With inlining, the function that others were inlined into may have their lines.
    lines = {line for _, _, _, line, _ in others} if flags else set()
    return [frame for frame in frames if (frame[0], frame[3]) in functions or frame[3] in lines]


def check(binary, modules, node, flags):
    """Whether all that was seen often is in both. What was not seen may be chance: how often each of two profilers
    looks at a part of the program, and whether at the same moments, is the machine's. Raises where they contradict."""
    version = subprocess.run([node, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    sink = ChunkSink()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(os.path.realpath(folder), "program.js")
        with open(path, "w") as file:
            file.write(PROGRAM)
        environment = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
        environment["NODE_PATH"] = os.path.abspath(os.path.join(modules, "node_modules"))
        output = os.path.join(folder, "out.envelope")
        dsn = f"http://0123456789abcdef0123456789abcdef@127.0.0.1:{sink.server_port}/1"
        command = [binary, "sample", "--rate", RATE, "--mode", "cpu", "-o", output, "--", node, *flags, path, dsn]
        done = subprocess.run(command, cwd=folder, env=environment, timeout=PATIENCE, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        ours = []
        for name in glob.glob(os.path.join(folder, "out*.envelope")):
            with open(name, "rb") as file:
                ours += chunks(file.read())
        theirs, ours = frames(sink.kept, path), frames(ours, path)
    sink.shutdown()
    if sum(theirs.values()) <= 500 or sum(ours.values()) <= 500:
        seen = f"{sum(theirs.values())} by the SDK, {sum(ours.values())} by us"
        print(f"{node} {version}: too little was seen: {seen}; {done.stderr}", flush=True)
        return False
    only_theirs = {frame: count for frame, count in theirs.items() if count >= max(OFTEN, sum(theirs.values()) // PART) and frame not in ours}
    only_ours = {frame: count for frame, count in ours.items() if flags and count >= max(OFTEN, sum(ours.values()) // PART) and frame not in theirs}
    both = [frame for frame in theirs if frame in ours]
    print(f"{node} {version} {' '.join(flags)}: {len(both)} frames are in both, in {sum(theirs[frame] for frame in both) * 100 / sum(theirs.values()):.2f} % of "
          f"the SDK's stacks' frames and {sum(ours[frame] for frame in both) * 100 / sum(ours.values()):.2f} % of ours", flush=True)
    for title, only in (("the SDK has and we have not", only_theirs), ("we have and the SDK has not", only_ours)):
        for frame, count in sorted(only.items(), key=lambda one: -one[1]):
            print(f"  {title}: {frame}, {count} times")
    wrong = [*contradictions(only_theirs, ours, flags), *contradictions(only_ours, theirs, flags)]
    assert not wrong, f"{node} {version}: said in another way by the other one: {wrong}"
    return not only_theirs and not only_ours


def main():
    binary, modules, *nodes = sys.argv[1:]
    others = [path for path in os.environ.get("PROFBRIDGE_TEST_NODES", "").split(":") if os.access(path, os.X_OK)]
    nodes = nodes or [shutil.which("node"), *others]
    if not nodes[0] or not os.path.isdir(os.path.join(modules, "node_modules", "@sentry", "profiling-node")):
        print("there is no Node with Sentry's SDK, untested here")
        return 0
    # One of three runs: what is wrong in profbridge is wrong each time.
    results = [
        any(check(os.path.abspath(binary), modules, node, flags) for _ in range(3))
        for node in nodes for flags in (WITHOUT_INLINING, [])
    ]
    print("node_frames: everything agrees" if all(results) else "node_frames: there are differences")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
