"""Forks before and after it has other threads, and a child of the child; each process waits in functions of its own."""

import os
import sys
import threading
import time


def waits(seconds):
    time.sleep(seconds)


def in_thread(seconds):
    waits(seconds)


def in_grandchild(seconds):
    waits(seconds)


def in_first_child(seconds):
    forked(in_grandchild, seconds)
    thread = threading.Thread(target=in_thread, args=(seconds,))
    thread.start()
    thread.join()


def in_second_child(seconds):
    waits(seconds)


def in_parent(seconds):
    waits(seconds)


def forked(function, seconds):
    if os.fork() == 0:
        function(seconds)
        os._exit(0)


seconds = float(sys.argv[1])
forked(in_first_child, seconds)
thread = threading.Thread(target=in_thread, args=(seconds,))
thread.start()
forked(in_second_child, seconds)
in_parent(seconds)
thread.join()
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
