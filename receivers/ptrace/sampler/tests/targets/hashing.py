"""Eight threads: two hash in OpenSSL's assembly (the interpreter's lock is released meanwhile), one computes in Python, the rest wait."""
import hashlib
import sys
import threading


def hash_forever():
    block = b"x" * (1 << 20)
    while True:
        hashlib.sha256(block).digest()


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def compute_forever():
    while True:
        fibonacci(18)


def run(*bodies):
    for body in bodies:
        threading.Thread(target=body, daemon=True).start()


kind = sys.argv[1] if len(sys.argv) > 1 else "mixed"
if kind == "hash":
    run(hash_forever)
elif kind == "compute":
    run(compute_forever)
else:
    run(hash_forever, hash_forever, compute_forever, *[threading.Event().wait] * 5)
print("ready", flush=True)
sys.stdin.read()
