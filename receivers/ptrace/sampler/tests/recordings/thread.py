"""Runs a program in a thread of its own, whose stack is that of the program alone."""

import _thread
import sys
import time

with open(sys.argv[1], encoding="utf-8") as file:
    code = compile(file.read(), sys.argv[1], "exec")
_thread.start_new_thread(exec, (code, {"__name__": "__main__"}))
time.sleep(1000)
