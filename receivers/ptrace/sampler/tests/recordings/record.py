"""Records what the sampler reads of program.py, for each Python that is named.

    cargo build -p profbridge-sampler --example runtime
    python3 record.py ../../../../../target/debug/examples/runtime 3.8=/path/to/python3.8 3.14=/path/to/python3.14 ...

Each recording is NAME.bin in this folder. What the frames have to be is in `src/runtime/python/tests.rs`.
"""

import os
import shlex
import shutil
import subprocess
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
# The path of the program is in the recordings, so it is the same for all.
PROGRAM = "/tmp/recorded/program.py"
os.makedirs(os.path.dirname(PROGRAM), exist_ok=True)
shutil.copy(os.path.join(FOLDER, "program.py"), PROGRAM)

for argument in sys.argv[2:]:
    name, python = argument.split("=", 1)
    program = subprocess.Popen([*shlex.split(python), PROGRAM], stdout=subprocess.PIPE, env={"HOME": "/tmp"})
    try:
        program.stdout.readline()
        pid = str(program.pid)
        # Until it is blocked in its sleep.
        while open(f"/proc/{pid}/syscall").read().startswith("running"):
            pass
        out = os.path.join(FOLDER, f"{name}.bin")
        print(name, subprocess.check_output([sys.argv[1], pid, pid, out], text=True))
    finally:
        program.kill()
        program.wait()
