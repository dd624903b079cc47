"""Records what the sampler reads of program.rb, for each Ruby in the arguments.

    cargo build -p profbridge-sampler --features recordings --example runtime
    python3 record_ruby.py ../../../../../target/debug/examples/runtime ruby-3.1="/usr/bin/ruby3.1 --disable-gems" ...

Each recording is NAME.bin in this folder, and NAME.txt the stack as Ruby itself reports it: path, line and label of
each frame, the innermost first. The two are compared in `src/runtime/ruby/tests.rs`.
"""

import os
import shlex
import shutil
import subprocess
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
# The path of the program is part of the recordings, so it is the same in all of them.
PROGRAM = "/tmp/recorded/program.rb"
os.makedirs(os.path.dirname(PROGRAM), exist_ok=True)
shutil.copy(os.path.join(FOLDER, "program.rb"), PROGRAM)

for argument in sys.argv[2:]:
    name, ruby = argument.split("=", 1)
    command = [*shlex.split(ruby), PROGRAM]
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        said = iter(program.stdout.readline, "end\n")
        with open(os.path.join(FOLDER, f"{name}.txt"), "w") as own:
            own.writelines(said)
        pid = str(program.pid)
        # Waits until the program is blocked reading its input.
        while open(f"/proc/{pid}/syscall").read().startswith("running"):
            pass
        out = os.path.join(FOLDER, f"{name}.bin")
        print(name, subprocess.check_output([sys.argv[1], pid, pid, out], text=True))
    finally:
        program.kill()
        program.wait()
