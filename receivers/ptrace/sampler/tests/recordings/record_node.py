"""Records what the sampler reads of program.js, for each Node in the arguments.

    cargo build -p profbridge-sampler --features recordings --example runtime
    python3 record_node.py ../../../../../target/debug/examples/runtime node-20=/usr/bin/node ...

Each recording is NAME.bin in this folder. The expected frames are in `src/runtime/v8/tests/recordings.rs`.
"""

import os
import shlex
import shutil
import subprocess
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
# The path of the program is part of the recordings, so it is the same in all of them.
PROGRAM = "/tmp/recorded/program.js"
os.makedirs(os.path.dirname(PROGRAM), exist_ok=True)
shutil.copy(os.path.join(FOLDER, "program.js"), PROGRAM)
# Code is compiled exactly when the program requests it.
FLAGS = ["--allow-natives-syntax", "--no-concurrent-recompilation"]

for argument in sys.argv[2:]:
    name, node = argument.split("=", 1)
    program = subprocess.Popen([*shlex.split(node), *FLAGS, PROGRAM], stdout=subprocess.PIPE, text=True)
    try:
        # The program prints the tiers of its functions.
        while not (tiers := program.stdout.readline().strip()).startswith("tiers"):
            pass
        pid = str(program.pid)
        # Waits until the program is blocked.
        while open(f"/proc/{pid}/syscall").read().startswith("running"):
            pass
        out = os.path.join(FOLDER, f"{name}.bin")
        print(name, tiers, subprocess.check_output([sys.argv[1], pid, pid, out], text=True))
    finally:
        program.kill()
        program.wait()
