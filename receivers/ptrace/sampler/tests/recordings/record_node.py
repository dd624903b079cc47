"""Records what the sampler reads of program.js, for each Node that is named.

    cargo build -p profbridge-sampler --features recordings --example runtime
    python3 record_node.py ../../../../../target/debug/examples/runtime node-20=/usr/bin/node ...

Each recording is NAME.bin in this folder. What the frames have to be is in `src/runtime/v8/tests/recordings.rs`.
"""

import os
import shlex
import shutil
import subprocess
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
# The path of the program is in the recordings, so it is the same for all.
PROGRAM = "/tmp/recorded/program.js"
os.makedirs(os.path.dirname(PROGRAM), exist_ok=True)
shutil.copy(os.path.join(FOLDER, "program.js"), PROGRAM)
# Code is compiled when the program asks for it.
FLAGS = ["--allow-natives-syntax", "--no-concurrent-recompilation"]

for argument in sys.argv[2:]:
    name, node = argument.split("=", 1)
    program = subprocess.Popen([*shlex.split(node), *FLAGS, PROGRAM], stdout=subprocess.PIPE, text=True)
    try:
        # In which tiers the functions are.
        while not (tiers := program.stdout.readline().strip()).startswith("tiers"):
            pass
        pid = str(program.pid)
        # Until it is blocked in its wait.
        while open(f"/proc/{pid}/syscall").read().startswith("running"):
            pass
        out = os.path.join(FOLDER, f"{name}.bin")
        print(name, tiers, subprocess.check_output([sys.argv[1], pid, pid, out], text=True))
    finally:
        program.kill()
        program.wait()
