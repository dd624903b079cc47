import time


class Späte:
    def methode(self, n):
        if n:
            return self.methode(n - 1)
        return sorted([1], key=lambda _: list(outer(2)))


def outer(n):
    yield from inner(n)


def inner(n):
    yield eval("wait()")


def wait():
    print("ready", flush=True)
    time.sleep(
        1000
    )


Späte().methode(3)
