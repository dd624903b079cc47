"""Waits in functions that are called in each way that Python has, a thread for each, and says how it stands there.

Prints a line of JSON: by the id of each thread, the function, file and line of its frames, the outermost first.
"""

import asyncio
import functools
import json
import os
import re
import sys
import threading
import time
import weakref

gate = threading.Lock()
gate.acquire()
forms = []


def form(function):
    forms.append(function)
    return function


def waits_here():
    gate.acquire()  # the line that waits
    gate.release()
    return 1


@form
def recursion(depth=100):
    return recursion(depth - 1) if depth else waits_here()


@form
def generators():
    def inner():
        yield waits_here()

    def outer():
        yield from inner()

    return [one for one in outer()]


@form
def generator_that_goes_on():
    def steps():
        yield 1
        yield waits_here()

    steps = steps()
    next(steps)
    return next(steps)


@form
def coroutines():
    async def leaf():
        await asyncio.sleep(0)
        return waits_here()

    async def root():
        return (await asyncio.gather(leaf()))[0]

    return asyncio.run(root())


@form
def asynchronous_generator():
    async def steps():
        yield waits_here()

    async def root():
        return [one async for one in steps()]

    return asyncio.run(root())


@form
def sort_key():
    return sorted([1], key=lambda one: waits_here())


@form
def mapped():
    return list(map(lambda one: waits_here(), filter(None, [1])))


@form
def substituted():
    return re.sub("a", lambda found: str(waits_here()), "a")


@form
def reduced():
    return functools.reduce(lambda one, other: waits_here(), [1, 2])


@form
def partial():
    return functools.partial(lambda one, other: waits_here(), 1)(other=2)


@form
def cached():
    return functools.lru_cache(maxsize=None)(lambda: waits_here())()


@form
def json_hook():
    return json.loads('{"a": 1}', object_hook=lambda found: waits_here())


@form
def constructor():
    class Base:
        def __init__(self, one, two=2):
            waits_here()

    class Made(Base):
        def __new__(cls, *arguments, **named):
            return super().__new__(cls)

        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)

    return Made(1, two=3)


@form
def metaclass():
    class Meta(type):
        def __call__(cls, *arguments):
            waits_here()
            return super().__call__(*arguments)

    class Made(metaclass=Meta):
        pass

    return Made()


@form
def properties():
    class Shop:
        @property
        def price(self):
            return waits_here()

        @classmethod
        def all(cls):
            return cls().price

        @staticmethod
        def any():
            return Shop.all()

        def __getattr__(self, name):
            return Shop.any()

        def __getitem__(self, index):
            return getattr(self, "missing")

        def __call__(self, *arguments):
            return self[arguments]

        def __add__(self, other):
            return self(other)

    return Shop() + 1


@form
def decorated():
    def decorator(function):
        @functools.wraps(function)
        def wrapper(*arguments, **named):
            return function(*arguments, **named)

        return wrapper

    @decorator
    @decorator
    def inner(one):
        return waits_here()

    return inner(one=1)


@form
def context_manager():
    class Manager:
        def __enter__(self):
            return self

        def __exit__(self, *what):
            waits_here()
            return True

    with Manager():
        raise ValueError


@form
def exception():
    try:
        try:
            raise KeyError
        except KeyError as error:
            raise ValueError from error
    except ValueError:
        return waits_here()
    finally:
        pass


@form
def executed():
    names = {"waits_here": waits_here}
    exec(compile("def made():\n    return waits_here()\n\n\nmade()\n", "made.py", "exec"), names)


@form
def evaluated():
    return eval("[waits_here() for _ in range(1)]")


@form
def comprehensions():
    return {a: [b for b in (waits_here() for _ in "a")] for a in "a"}


@form
def closed_over():
    def one(value):
        def two():
            def three():
                return waits_here() + value

            return three()

        return two()

    return one(1)


@form
def finalizer():
    class Gone:
        def __del__(self):
            waits_here()

    gone = Gone()
    del gone


@form
def weak_callback():
    class Gone:
        pass

    gone = Gone()
    reference = weakref.ref(gone, lambda reference: waits_here())
    del gone
    return reference


@form
def größe_ж_𝔘():
    class Größe:
        def ж(self):
            return waits_here()

    return Größe().ж()


def waiting_line():
    with open(__file__, encoding="utf-8") as source:
        return 1 + next(at for at, line in enumerate(source) if "the line that " + "waits" in line)


def frames(frame):
    found = []
    while frame is not None:
        code = frame.f_code
        # As Sentry's SDK tells files.
        file = os.path.abspath(code.co_filename) if code.co_filename.endswith(".py") else code.co_filename
        found.append((getattr(code, "co_qualname", code.co_name), file, frame.f_lineno))
        frame = frame.f_back
    return found[::-1]


def main(seconds):
    native = {}

    def run(function):
        native[threading.get_ident()] = threading.get_native_id()
        function()

    threads = [threading.Thread(target=run, args=(function,)) for function in forms]
    for thread in threads:
        thread.start()
    line = waiting_line()
    while True:
        stacks = {ident: frames(frame) for ident, frame in sys._current_frames().items() if ident in native}
        if len(stacks) == len(forms) and all(stack[-1][0] == "waits_here" and stack[-1][2] == line for stack in stacks.values()):
            break
        time.sleep(0.01)
    print(json.dumps({native[ident]: stack for ident, stack in stacks.items()}), flush=True)
    time.sleep(seconds)
    gate.release()
    for thread in threads:
        thread.join()


main(float(sys.argv[1]))
