"""Runs a program in a separate thread, whose stack has only the program's functions."""

import _thread
import sys
import time

with open(sys.argv[1], encoding="utf-8") as file:
    code = compile(file.read(), sys.argv[1], "exec")
_thread.start_new_thread(exec, (code, {"__name__": "__main__"}))
time.sleep(1000)
