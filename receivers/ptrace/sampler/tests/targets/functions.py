"""Python functions whose names the sampler has to find. The first argument selects them:

* `mixed`: six functions of 15 to 40 us each in turn, with loops, methods, comprehensions, generators and call-backs.
* `pairs BYTES`: two functions, which each call their own native function three times on this many bytes, and a
  third one, which two others call with one of these native functions each: the native function shows the right caller.
* `thrown`: functions that are compiled, called and deleted; the name, file and line of each contain its number.
* `thrown-native BYTES`: such functions, called from C; those with odd numbers call one native function on this
  many bytes, those with even numbers the other one.
* `shares`: three functions with 70, 20 and 10 % of the CPU time. Answers a line of input with the time of each.
"""
import select
import sys
import time
import zlib


def numbers(n):
    total = 0
    for i in range(n):
        total += i * 3 % 7
    return total


def words(n):
    out = []
    for i in range(n):
        out.append(str(i))
    return ",".join(out)


def table(n):
    counts = {}
    for i in range(n):
        counts[i & 15] = counts.get(i & 15, 0) + i
    return counts


class Point:
    def __init__(self, x):
        self.x = x

    def step(self, y):
        self.x = self.x + y
        return self.x


def objects(n):
    point = Point(0)
    for i in range(n):
        point.step(i)
    return point.x


def pieces(n):
    return [x * 2 for x in range(n)] + sorted({x % 5 for x in range(n)}, key=lambda x: -x)


def squares(n):
    for i in range(n):
        yield i * i


def flows(n):
    return sum(squares(n))


def mixed():
    while True:
        numbers(500)
        words(250)
        table(220)
        objects(220)
        pieces(180)
        flows(300)


crc32, adler32 = zlib.crc32, zlib.adler32


def by_crc32(data):
    for _ in range(3):
        crc32(data)


def by_adler32(data):
    for _ in range(3):
        adler32(data)


def either(call, data):
    for _ in range(3):
        call(data)


def calls_crc32(data):
    either(crc32, data)


def calls_adler32(data):
    either(adler32, data)


def pairs(size):
    data = bytes(size)
    while True:
        by_crc32(data)
        by_adler32(data)
        calls_crc32(data)
        calls_adler32(data)


def compiled(number, source):
    # A wrong line shows a mistaken function: the first line depends on the number, and repeats after 1000 numbers.
    source = "\n" * (number % 1000) + f"def thrown_{number}{source}"
    space = {}
    exec(compile(source, f"/thrown/{number}.py", "exec"), space)
    return space[f"thrown_{number}"]


def thrown():
    number = 0
    while True:
        number += 1
        function = compiled(number, "(n):\n t = 0\n while n:\n  n -= 1; t += n * 3\n return t")
        # Some functions end before they can be read, others run for a while.
        function(300 + number % 8 * 300)


def thrown_native(size):
    number, data = 0, bytes(size)
    while True:
        number += 1
        function = compiled(number, "(call, data):\n for _ in range(3):\n  call(data)\n return 0")
        # The function is called from C, so that its native frame is not shared with a caller.
        list(map(function, (crc32 if number % 2 else adler32,), (data,)))


def seventy(end):
    return work(end)


def twenty(end):
    return work(end)


def ten(end):
    return work(end)


def work(end):
    total = 0
    while time.thread_time() < end:
        for i in range(50):
            total += i
    return total


def shares():
    spent = {"seventy": 0.0, "twenty": 0.0, "ten": 0.0}
    while True:
        for function, milliseconds in ((seventy, 7), (twenty, 2), (ten, 1)):
            start = time.thread_time()
            function(start + milliseconds / 1000)
            spent[function.__name__] += time.thread_time() - start
        if select.select([sys.stdin], [], [], 0)[0]:
            if not sys.stdin.readline():
                return
            print(*(f"{name} {seconds}" for name, seconds in spent.items()), flush=True)


print("ready", flush=True)
name, sizes = sys.argv[1], map(int, sys.argv[2:])
{"mixed": mixed, "pairs": pairs, "thrown": thrown, "thrown-native": thrown_native, "shares": shares}[name](*sizes)
