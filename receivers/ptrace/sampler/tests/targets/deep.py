"""One thread computes, ten functions deep, and three wait: for a lock, for a pipe, and for the standard input."""
import os
import sys
import threading


def eighth(n):
    total = 0
    for i in range(n):
        total += i * 3 % 7
    return total


def seventh(n):
    # The calls end and begin again, as in ordinary programs.
    return sum(eighth(n) for _ in range(20))


def sixth(n):
    return seventh(n) + 1


def fifth(n):
    return sixth(n) + 1


def fourth(n):
    return fifth(n) + 1


def third(n):
    return fourth(n) + 1


def second(n):
    return third(n) + 1


def first(n):
    return second(n) + 1


def until_end():
    while sys.stdin.readline():
        pass
    os._exit(0)


lock = threading.Lock()
lock.acquire()
pipe = os.pipe()
for wait in (lock.acquire, lambda: os.read(pipe[0], 1), until_end):
    threading.Thread(target=wait, daemon=True).start()
print("ready", flush=True)
while True:
    first(2000)
