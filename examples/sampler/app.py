"""A service that works for a while and rests for a while. Only its work is profiled."""

import hashlib
import sys
import time

from profbridge_spans import Announcer


def work(seconds):
    end = time.monotonic() + seconds
    digest = b""
    while time.monotonic() < end:
        digest = hashlib.sha256(digest * 1000 + b"x").digest()
    return digest


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    path = sys.argv[2] if len(sys.argv) > 2 else None
    with Announcer(path) as spans:
        for number in range(rounds):
            # Every second request is sampled, as a tracing SDK would decide.
            with spans.root_span(sampled=number % 2 == 0):
                work(0.5)
            time.sleep(0.5)


if __name__ == "__main__":
    main()
