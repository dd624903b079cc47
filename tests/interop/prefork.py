#!/usr/bin/env python3
"""gunicorn beside profbridge's sampler: all workers are named, also those that are forked while it runs, and each has its own functions.

Usage: prefork.py PATH_TO_PROFBRIDGE PYTHON_WITH_GUNICORN

Each worker makes functions with its own process id in their names, as well as functions that the master has loaded before it
forked (`--preload`). Under load, with sync and gthread workers, from the master's id on (`--pid`, `--subprocesses`) and as a command,
and with workers that end after some requests (`--max-requests`), each worker that answered for long enough has the functions
of its requests in their order, and none of another worker's or of another request's.

Where the second argument has no gunicorn (no package could be had), this is said and nothing is tested. Needs the right to
sample a process of the same user. Uses loopback only.
"""

import collections
import http.client
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

from common import PATIENCE, expect, wait_for

APPLICATION = """
import os, time

SOURCE = '''
def spin_{0}(seconds):
    used = time.thread_time() + seconds
    while time.thread_time() < used:
        sum(range(300))

def of_{0}(seconds):
    spin_{0}(seconds)
'''

def loaded_a():
    of_worker()

def loaded_b():
    of_worker()

made = {}

def of_worker():
    pid = os.getpid()
    if pid not in made:
        names = {"time": time}
        exec(SOURCE.format(pid), names)
        made[pid] = names["of_%d" % pid]
    made[pid](0.01)

def application(environ, start_response):
    {"/a": loaded_a, "/b": loaded_b}[environ["PATH_INFO"]]()
    body = str(os.getpid()).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""

# The options, whether profbridge starts the command or is told the master's id, and how many workers have to answer: more than there
# are at a time, where they end.
RUNS = [
    (["--workers", "3", "--preload"], False, 3),
    (["--workers", "2", "--worker-class", "gthread", "--threads", "2", "--preload"], False, 2),
    (["--workers", "2", "--preload", "--max-requests", "300"], True, 6),
    (["--workers", "2", "--max-requests", "300"], False, 6),
]
# Whose answers are so many, and cover so much time, has been found and has been sampled, on a busy machine as well.
# Each of them computes for 10 ms.
ANSWERS = 150


def ask(port, stop, answers):
    """Sends one request after the other, and remembers who answered when."""
    turn = 0
    while not stop.is_set():
        turn += 1
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            connection.request("GET", "/ab"[0] + "ab"[turn % 2])
            answer = connection.getresponse().read()
            connection.close()
        except (OSError, http.client.HTTPException):
            # A worker that ends lets go of what it has not accepted.
            time.sleep(0.01)
            continue
        answers[int(answer)] += 1


def stacks(path):
    """The running stacks: process, functions, nanoseconds."""
    with open(path, encoding="utf-8") as file:
        for line in file.read().splitlines():
            stack, nanoseconds = line.rsplit(" ", 1)
            names = stack.split(";")
            process = re.search(r"\(pid (\d+)\)$", names[1])
            if process and names[0] == "[running]":
                yield int(process[1]), names[2:], int(nanoseconds)


def run(binary, python, options, is_command, wanted):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "service.py"), "w") as file:
            file.write(APPLICATION)
        log = os.path.join(folder, "gunicorn.log")
        gunicorn = [python, "-m", "gunicorn", "--bind", "127.0.0.1:0", "--log-file", log, *options, "service:application"]
        out = os.path.join(folder, "stacks.folded")
        sample = [os.path.abspath(binary), "sample", "--subprocesses", "-o", out]
        if is_command:
            sample += ["--", *gunicorn]
        else:
            server = subprocess.Popen(gunicorn, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stop, answers, before, clients = threading.Event(), collections.Counter(), collections.Counter(), []
        profbridge = master = None
        try:
            if is_command:
                profbridge = Sampling(sample, folder)

            def listening():
                text = open(log).read() if os.path.exists(log) else ""
                return re.search(r"Listening at: http://127.0.0.1:(\d+) \((\d+)\)", text)

            port, master = map(int, wait_for("gunicorn listens", listening).groups())
            clients = [threading.Thread(target=ask, args=(port, stop, answers)) for _ in range(4)]
            for client in clients:
                client.start()
            if not is_command:
                wait_for("a worker answers", lambda: sum(answers.values()) > 20)
                profbridge = Sampling([*sample, "--pid", str(master)], folder)
            # Until the first ones are sampled. Those that come later are found at once.
            wait_for("workers are sampled", lambda: profbridge.said().count(" as well, ") >= 2)
            before = collections.Counter(answers)
            wait_for("workers answer", lambda: sum(count >= ANSWERS for count in (answers - before).values()) >= wanted)
        finally:
            stop.set()
            for client in clients:
                client.join(PATIENCE)
            answers = answers - before
            if profbridge:
                # A command's end is profbridge's.
                profbridge.end(is_command and master or profbridge.process.pid)
            if not is_command:
                server.send_signal(signal.SIGTERM)
                server.wait(PATIENCE)
        expect(profbridge.process.returncode == 0, f"the sampler ends well: {profbridge.process.returncode}")
        check(options, answers, list(stacks(out)))


class Sampling:
    """A run of profbridge."""

    def __init__(self, command, folder):
        self.lines = []
        self.process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.reader = threading.Thread(target=lambda: self.lines.extend(iter(self.process.stderr.readline, "")), daemon=True)
        self.reader.start()

    def said(self):
        return "".join(self.lines)

    def end(self, pid):
        """Ends it, by way of this process."""
        os.kill(pid, signal.SIGTERM)
        self.process.wait(PATIENCE)
        self.reader.join(PATIENCE)


def check(options, answers, found):
    """What each process has is its own, in the order of its calls, and all workers that worked are there."""
    wrong, named, total = [], collections.Counter(), collections.Counter()
    for process, names, nanoseconds in found:
        own = [name for name in names if re.match(r"(loaded_[ab]|of_worker|of_\d+|spin_\d+)\b", name)]
        own = [name.split(" ")[0] for name in own]
        wanted = [["loaded_a", "loaded_b"], ["of_worker"], [f"of_{process}"], [f"spin_{process}"]]
        # The frames of a request are a piece of this: none is doubled, out of order or of another process. Callers that began later than
        # the sample are left out.
        position, right = 0, True
        for name in own:
            while position < len(wanted) and name not in wanted[position]:
                position += 1
            right = right and position < len(wanted)
            position += 1
        if not right:
            wrong.append((process, own))
        is_running = any(name.startswith("_PyEval") or name in own for name in names)
        total[process] += nanoseconds if is_running else 0
        named[process] += nanoseconds if f"spin_{process}" in own else 0
    expect(not wrong, f"{options}: no stack has functions of two workers, or in another order: {wrong[:5]}")
    worked = [pid for pid, count in answers.items() if count >= ANSWERS]
    expect(len(worked) >= 2, f"{options}: workers answer: {dict(answers)}")
    missing = [(pid, answers[pid], named[pid]) for pid in worked if named[pid] < answers[pid] * 10e6 / 4]
    expect(not missing, f"{options}: workers that answered have the functions of their requests: {missing}")
    share = sum(named.values()) / sum(total.values())
    expect(share > 0.8, f"{options}: most of the running time is in named functions: {share:.2%}")
    print(f"prefork.py: {' '.join(options)}: {len(answers)} workers answered, all {len(worked)} that did so {ANSWERS} times are named, "
          f"{share:.1%} of the running time in their functions, no stack of two")


def main():
    binary, python = sys.argv[1:]
    if subprocess.run([python, "-c", "import gunicorn"], capture_output=True).returncode != 0:
        print("prefork.py: untested here, there is no gunicorn")
        return
    for options, is_command, wanted in RUNS:
        run(binary, os.path.abspath(python), options, is_command, wanted)


main()
