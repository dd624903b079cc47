"""One thread computes and counts its rounds; the main thread answers each line of its input with `work ROUNDS`."""
import sys
import threading

rounds = 0


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def compute_forever():
    global rounds
    while True:
        fibonacci(6)
        rounds += 1


threading.Thread(target=compute_forever, daemon=True).start()
print("ready", flush=True)
for _ in sys.stdin:
    print(f"work {rounds}", flush=True)
