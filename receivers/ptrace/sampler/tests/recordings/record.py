"""Records what the sampler reads of program.py or program.php, for each Python or PHP in the arguments.

    cargo build -p profbridge-sampler --features recordings --example runtime
    python3 record.py ../../../../../target/debug/examples/runtime 3.8=/path/to/python3.8 php-8.2=/usr/bin/php8.2 ...

Each recording is NAME.bin in this folder; those of PHP have names that begin with `php`. The expected frames are
in `src/runtime/python/tests.rs` and `src/runtime/php/tests.rs`.

An interpreter may have arguments. `3.14t-thread=/path/to/python3.14t thread.py` records the program in a thread that
is not the first one: without the global lock only the first one executes the instructions of code objects themselves.
`3.12-named="/path/to/python3.12 named.py"` records what the names of all threads are read from, and no frames.
The two Pythons 3.14t were built from the sources of 3.14.0rc1, with the release level of a release.
"""

import os
import shlex
import shutil
import subprocess
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
# The path of the program is part of the recordings, so it is the same in all of them.
RECORDED = "/tmp/recorded"
os.makedirs(RECORDED, exist_ok=True)

for argument in sys.argv[2:]:
    name, interpreter = argument.split("=", 1)
    program = os.path.join(RECORDED, "program.php" if name.startswith("php") else "program.py")
    shutil.copy(os.path.join(FOLDER, os.path.basename(program)), program)
    environment = {**os.environ, "HOME": "/tmp"}
    command = [*shlex.split(interpreter), program]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=FOLDER)
    try:
        process.stdout.readline()
        pid = str(process.pid)
        # thread.py and named.py start the program in their last thread.
        tid = max(os.listdir(f"/proc/{pid}/task"), key=int)
        # Waits until the thread is blocked in its sleep.
        while open(f"/proc/{pid}/task/{tid}/syscall").read().startswith("running"):
            pass
        out = os.path.join(FOLDER, f"{name}.bin")
        what = ["names"] if name.endswith("-named") else []
        print(name, subprocess.check_output([sys.argv[1], pid, tid, out, *what], text=True))
    finally:
        process.kill()
        process.wait()
