"""`matrix.py LIBRARY MILLISECONDS`: makes the calls of `matrix.c` in Python threads, and prints their results."""
import ctypes
import sys
import threading

library = ctypes.CDLL(sys.argv[1])
count = library.matrix_begin(ctypes.c_long(int(sys.argv[2])))


def call(index):
    library.matrix_call(index)


def wait(index):
    call(index)


threads = [threading.Thread(target=wait, args=(index,), daemon=True) for index in range(count)]
for thread in threads:
    thread.start()
print("ready", flush=True)
sys.stdin.readline()
library.matrix_wake()
for thread in threads:
    thread.join()
library.matrix_say()
