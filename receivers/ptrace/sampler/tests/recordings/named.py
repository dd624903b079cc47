"""Runs a program in the last of three threads with names in `threading`; one thread object has a dictionary."""

import sys
import threading
import time

with open(sys.argv[1], encoding="utf-8") as file:
    code = compile(file.read(), sys.argv[1], "exec")
threading.Thread(name="plain", target=time.sleep, args=(1000,)).start()
thread = threading.Thread(name="Wörker-1", target=exec, args=(code, {"__name__": "__main__"}))
vars(thread)
thread.start()
time.sleep(1000)
