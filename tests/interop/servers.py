#!/usr/bin/env python3
"""Checks what sampling does to real servers, and what it shows of them, against perf.

Usage: servers.py PATH_TO_PROFBRIDGE [--seconds 40] [redis nginx postgresql memcached java]

Starts each server from its Debian package in a temporary folder, puts it under load from a client of its own, samples it by `profbridge sample
--pid` at 101 and 997 Hz, with `perf record -a -e cpu-clock -F 101` of the same seconds beside it, and attaches gdb twelve times while it is sampled.
Ends with status 1 where a client saw an error, a thread was stopped, gdb was refused, a sample was lost or sampling took more processor time than its
bound at 101 Hz, or the share of a hot function is more than 3 points from perf's. Needs root (for perf, and as nginx and PostgreSQL want a user of their own), and installs nothing; the packages are:

    apt-get install --no-install-recommends redis-server nginx-light apache2-utils postgresql postgresql-contrib memcached \
        openjdk-17-jdk-headless gdb linux-perf

Listens on loopback, on ports that the system chooses, or on a socket in its folder. Ends the processes that it started, and no others.
"""

import argparse
import collections
import glob
import os
import platform
import pwd
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

PACKAGES = "redis-server nginx-light apache2-utils postgresql postgresql-contrib memcached openjdk-17-jdk-headless gdb linux-perf"
RATES = (101, 997)
PERF_RATE = 101
POINTS = 3.0
TOP = 10
ATTACHES = 12
# So long gdb takes to attach so often to a server that is busy.
GDB_SECONDS = 45
# What a run of profbridge or perf takes besides its seconds.
START = 3
PATIENCE = 60
# Where the kernel is entered: what is nearer to the root than these is the program's own.
ENTRIES = re.compile(r"^(entry_SYS|asm_|syscall_return_via|error_entry|error_return|common_interrupt_return|ret_from_fork|\[kernel)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profbridge")
    parser.add_argument("servers", nargs="*", default=[], help=f"of {', '.join(SERVERS)}; all without any")
    parser.add_argument("--seconds", type=int, default=40)
    arguments = parser.parse_intermixed_args()
    wanted = arguments.servers or list(SERVERS)
    check_programs(wanted)
    print(f"{platform.release()}, {os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f}; {arguments.seconds} s each", flush=True)
    rows, violations = [], []
    for name in wanted:
        with tempfile.TemporaryDirectory(prefix="profbridge-") as folder:
            # Servers that give up their rights have to get into it.
            os.chmod(folder, 0o755)
            with SERVERS[name](folder) as server:
                for row in measure(name, server, arguments, folder):
                    rows.append(row)
                    violations += row.violations
                    print(row.text(), flush=True)
    print()
    print(table(rows))
    for violation in violations:
        print(f"VIOLATED: {violation}")
    return 1 if violations else 0


def check_programs(wanted):
    needed = {"gdb", "perf"}.union(*(SERVERS[name].programs for name in wanted))
    missing = sorted(program for program in needed if not find(program))
    if missing:
        sys.exit(f"{', '.join(missing)} not found; apt-get install --no-install-recommends {PACKAGES}")
    if os.geteuid() != 0:
        sys.exit("must be run by root")


def find(program):
    """Where a program is; Debian keeps those of PostgreSQL outside of the path."""
    newest = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{program}"), key=lambda path: int(path.split("/")[4]))
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin") or (newest[-1] if newest else None)


class Row:
    """What one run of the sampler said and did."""

    def __init__(self, server, what):
        self.server, self.what = server, what
        self.fields = {}
        self.violations = []

    def zero(self, name, value, detail=""):
        self.fields[name] = str(value)
        if value != 0:
            self.violations.append(f"{self.server}, {self.what}: {name} {value}{detail and ': '}{detail}")

    def text(self):
        return f"{self.server}, {self.what}: " + ", ".join(f"{name} {value}" for name, value in self.fields.items())


def table(rows):
    """Markdown, one line for each run."""
    columns = ["server", "run"] + list(dict.fromkeys(name for row in rows for name in row.fields))
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    for row in rows:
        cells = [row.server, row.what] + [row.fields.get(name, "") for name in columns[2:]]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def measure(name, server, arguments, folder):
    seconds = arguments.seconds
    alone = Row(name, "alone")
    with server.load(seconds // 2) as load:
        load.wait()
    count_errors(alone, server, load)
    yield alone
    for rate in RATES:
        row = Row(name, f"{rate} Hz")
        with server.load(seconds + 2 * START) as load:
            time.sleep(START)
            pid = server.pid()
            program = {os.path.basename(os.path.realpath(f"/proc/{pid}/exe")), os.path.basename(server.programs[0])}
            sampled = Sampled(arguments.profbridge, pid, rate, seconds, folder)
            perf = start_perf(seconds, folder)
            sampled.wait()
            if perf.wait(PATIENCE) not in (0, -signal.SIGINT):
                raise RuntimeError("perf record failed")
            load.wait()
        count_errors(row, server, load)
        sampled.add_to(row)
        if rate == RATES[0] and sampled.shares[1] > server.most_cpu:
            row.violations.append(f"{name}, {row.what}: sampling took {sampled.shares[1]:.2f} % of a processor, more than {server.most_cpu} %")
        if server.has_symbols:
            compare(row, sampled, pid, program, folder)
        yield row
    row = Row(name, "gdb at 997 Hz")
    with server.load(max(seconds, GDB_SECONDS)) as load:
        time.sleep(START)
        pid = server.pid()
        sampled = Sampled(arguments.profbridge, pid, RATES[-1], None, folder)
        time.sleep(START)
        attached = sum(gdb_attaches(pid) for _ in range(ATTACHES))
        over = load.ended
        sampled.end()
        load.wait()
    count_errors(row, server, load)
    sampled.add_to(row)
    row.fields["gdb"] = f"{attached} of {ATTACHES}"
    if over:
        row.violations.append(f"{name}: the load ended before gdb had attached {ATTACHES} times (use longer --seconds)")
    elif attached != ATTACHES:
        row.violations.append(f"{name}: gdb attached {attached} of {ATTACHES} times")
    yield row


def count_errors(row, server, load):
    row.fields["operations/s"] = f"{load.operations / max(load.elapsed, 1e-9):.0f}"
    errors, detail = load.errors + server.errors(), "; ".join((load.problems + server.problems())[:3])
    row.zero("errors", errors, detail)


def compare(row, sampled, pid, program, folder):
    """Shares of the functions that ran, by their own code, and of the program's calls into the kernel, against perf's."""
    perf_leaves, perf_calls = perf_script(os.path.join(folder, "perf.data"), pid, program)
    own_leaves, own_calls = folded(sampled.output, program, sampled.exported | set(perf_leaves) | set(perf_calls))
    ours, theirs = shares(own_leaves), shares(perf_leaves)
    top = hottest(ours, theirs)
    differences = {function: abs(ours.get(function, 0) - theirs.get(function, 0)) for function in top}
    worst = max(differences, key=differences.get)
    waits = [shares(calls).get("epoll_wait", 0) for calls in (own_calls, perf_calls)]
    pair = f"{ours.get(worst, 0):.1f} %, perf {theirs.get(worst, 0):.1f} %"
    row.fields["top 10, worst difference in points"] = f"{differences[worst]:.1f} (`{worst}` {pair})"
    row.fields["epoll_wait, with the kernel"] = f"{waits[0]:.1f} %, perf {waits[1]:.1f} %"
    row.fields["perf's samples"] = str(sum(perf_leaves.values()))
    row.fields["not sampled"] = f"{ours.get(NOT_SAMPLED, 0):.1f} %"
    for function, difference in [*differences.items(), ("epoll_wait, with the kernel", abs(waits[0] - waits[1]))]:
        if difference > POINTS:
            row.violations.append(f"{row.server}, {row.what}: {function} is {difference:.1f} points from perf's share")
    if os.environ.get("VERBOSE"):
        for function in top:
            print(f"    {function:<40} {ours.get(function, 0):6.2f} %  perf {theirs.get(function, 0):6.2f} %")


def hottest(ours, theirs):
    """The functions with most of the time, by perf and by profbridge. Time of which only the amount is known is none."""
    tops = [[name for name, _ in collections.Counter(side).most_common(TOP + 1) if name != NOT_SAMPLED][:TOP] for side in (theirs, ours)]
    return list(dict.fromkeys(tops[0] + tops[1]))


def shares(counts):
    whole = max(sum(counts.values()), 1)
    return {name: 100 * count / whole for name, count in counts.items()}


def exported(pid):
    """The functions that files of a process and the kernel have symbols of, as they are called here."""
    with open(f"/proc/{pid}/maps") as maps:
        paths = {fields[5] for line in maps if len(fields := line.split()) > 5 and "x" in fields[1] and fields[5].startswith("/")}
    names = {name for path in paths for name in dynamic_symbols(f"/proc/{pid}/root{path}")}
    with open("/proc/kallsyms") as kallsyms:
        names.update(line.split()[2] for line in kallsyms)
    return {plain(name, ()) for name in names}


def dynamic_symbols(path):
    """The names in the dynamic symbol table of a 64-bit ELF file (ELF-64 Object File Format 1.5, tables 8 and 14)."""
    with open(path, "rb") as file:
        data = file.read()
    sections_at, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, sections_at + size * number) for number in range(count)]
    for section in sections:
        if section[1] == 11:  # SHT_DYNSYM; the section that it links to has the names.
            names_at = sections[section[6]][4]
            for at in range(section[4], section[4] + section[5], 24):
                start = names_at + struct.unpack_from("<I", data, at)[0]
                yield data[start : data.index(b"\0", start)].decode()


def folded(path, program, known):
    """The nanoseconds of threads that ran, by the innermost function, and by the program's innermost function. Functions without a symbol that were
    inlined, of which perf does not know, count for the one that they were inlined into."""
    leaves, calls = collections.Counter(), collections.Counter()
    with open(path) as file:
        for line in file:
            stack, nano = line.rsplit(" ", 1)
            frames = stack.split(";")
            if frames[0] != "[running]":
                continue
            # Behind the thread's name.
            frames = frames[2:]
            entry = next((place for place, frame in enumerate(frames) if ENTRIES.match(frame)), len(frames))
            names = [plain(frame, program) for frame in frames]

            def holder(names):
                return next((name for name in reversed(names) if name in known), names[-1] if names else "[kernel]")

            leaf = NOT_SAMPLED if names[-1] == NOT_SAMPLED else holder(names[entry:]) if entry < len(names) else holder(names)
            leaves[leaf] += int(nano)
            calls[NOT_SAMPLED if leaf == NOT_SAMPLED else holder(names[:entry])] += int(nano)
    return leaves, calls


NOT_SAMPLED = "[processor time not sampled]"


def plain(function, program):
    """A function's name without what tells apart the several that one function of glibc has. Code without a name goes by its file: `nginx+0x1234` is
    `[nginx]`."""
    if function == NOT_SAMPLED:
        return function
    nameless = re.match(r"^(.+)\+0x[0-9a-f]+$", function) or re.match(r"^\[(.+)\]$", function)
    if nameless:
        return "[program]" if nameless[1] in program else f"[{nameless[1]}]"
    function = re.sub(r"^(_*GI_)?_*(libc_)?", "", function.split("@")[0]) or function
    return "[vdso]" if function in VDSO or function.startswith("vdso_") else function


# What the vDSO has in place of system calls; glibc's functions of these names do nothing but call them.
VDSO = {"clock_gettime", "gettimeofday", "time", "clock_getres", "getcpu"}


def perf_script(path, pid, program):
    """The samples that perf took of a process, likewise."""
    command = ["perf", "script", "--pid", str(pid), "--no-inline", "-F", "ip,sym,dso", "-i", path]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    leaves, calls = collections.Counter(), collections.Counter()
    for sample in text.split("\n\n"):
        frames = [re.match(r"^\s*([0-9a-f]+) (.*) \((.*)\)$", line) for line in sample.splitlines()]
        frames = [(int(frame[1], 16), frame[2].strip(), os.path.basename(frame[3]).strip("[]")) for frame in frames if frame]
        if not frames:
            continue
        names = [plain(f"[{file}]" if name == "[unknown]" or file == "vdso" else name, program) for _, name, file in frames]
        leaves[names[0]] += 1
        calls[next((name for name, (address, _, _) in zip(names, frames) if address < 1 << 63), "[kernel]")] += 1
    return leaves, calls


def start_perf(seconds, folder):
    """perf with events of the processors, since events of threads are no reference for a process that is switched thousands of times a second: they
    lengthen each switch, and a timer that was due when a thread was switched away samples it when it is switched to, which is in the kernel's switch."""
    command = ["perf", "record", "-q", "-a", "-e", "cpu-clock", "-F", str(PERF_RATE), "-g"]
    command += ["-o", os.path.join(folder, "perf.data"), "--", "sleep", str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def gdb_attaches(pid):
    """Whether gdb could read a register of the process, and so was its tracer."""
    command = ["gdb", "-nx", "-batch", "-p", str(pid), "-ex", "print $pc"]
    environment = {**os.environ, "DEBUGINFOD_URLS": ""}
    text = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, timeout=PATIENCE).stdout
    return "$1 = (void (*)()) 0x" in text


class Sampled:
    """A run of `profbridge sample`, and the processor time that it takes."""

    def __init__(self, profbridge, pid, rate, seconds, folder):
        self.rate = rate
        self.exported = exported(pid)
        self.output = os.path.join(folder, f"{rate}.folded")
        if os.path.exists(self.output):
            os.unlink(self.output)
        command = [os.path.abspath(profbridge), "sample", "--verbose", "--pid", str(pid), "--rate", str(rate)]
        command += ["-o", self.output, *(["--duration", f"{seconds}s"] if seconds else [])]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.shares = []
        self.ending = threading.Event()
        self.watcher = threading.Thread(target=self.watch, args=(seconds,))
        self.watcher.start()

    def watch(self, seconds):
        """Measures the sampler and its owner, once what comes only once is over, and before names are waited for at the end."""
        time.sleep(START)
        before, started = self.used(), time.monotonic()
        self.ending.wait(max(seconds - START - 2, 1) if seconds else None)
        after, elapsed = self.used(), time.monotonic() - started
        self.shares = [100 * (after[part] - before[part]) / 1e9 / elapsed for part in (0, 1)]

    def used(self):
        """The nanoseconds of the sampler process, and those of all of profbridge."""
        owner = self.process.pid
        with open(f"/proc/{owner}/task/{owner}/children") as file:
            children = file.read().split()
        # Whichever of its threads started it.
        for task in glob.glob(f"/proc/{owner}/task/*/children"):
            with open(task) as file:
                children += file.read().split()
        sampler = sum(processor_time(child) for child in set(children))
        return sampler, sampler + processor_time(owner)

    def end(self):
        """Ends it before its time."""
        self.ending.set()
        self.watcher.join()
        self.process.send_signal(signal.SIGINT)
        self.wait()

    def wait(self):
        self.said = self.process.communicate(timeout=PATIENCE * 4)[0]
        self.watcher.join()
        if self.process.returncode != 0:
            raise RuntimeError(f"profbridge sample ended with {self.process.returncode}:\n{self.said}")

    def add_to(self, row):
        stops = re.search(r"(\d+) stops", self.said)
        row.zero("stops", int(stops[1]) if stops else -1, "" if stops else f"not said in {self.said}")
        way = re.search(r"running threads: (.*)", self.said)
        row.fields["events of"] = "processors" if way and "of processors" in way[1] else "threads" if way else "?"
        complete = re.search(r"([\d.]+) % complete", self.said)
        row.fields["complete"] = f"{complete[1]} %" if complete else "?"
        lost = re.search(r"lost: (.*)", self.said)
        row.fields["lost samples"] = "0" if not lost else re.match(r"\d*", lost[1])[0] or lost[1]
        if lost and self.rate == RATES[0]:
            row.violations.append(f"{row.server}, {row.what}: lost {lost[1]}")
        row.fields["sampler's CPU"] = f"{self.shares[0]:.2f} %"
        row.fields["with its owner"] = f"{self.shares[1]:.2f} %"


def processor_time(pid):
    total = 0
    for schedstat in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        try:
            with open(schedstat) as file:
                total += int(file.read().split()[0])
        except OSError:
            pass  # The thread has just ended.
    return total


class Load:
    """Clients that run for some seconds. `work` takes the time at which to end, and returns (operations, errors, problems)."""

    def __init__(self, work, seconds):
        self.operations, self.errors, self.problems = 0, 0, []
        self.started, self.ended = time.monotonic(), False
        self.thread = threading.Thread(target=self.run, args=(work, self.started + seconds))

    def run(self, work, end):
        try:
            self.operations, self.errors, self.problems = work(end)
        except Exception as error:  # Said as a violation, with what was measured meanwhile.
            self.errors, self.problems = 1, [repr(error)]
        self.elapsed = time.monotonic() - self.started
        self.ended = True

    def wait(self):
        self.thread.join()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, value, trace):
        self.thread.join()


def run_client(command, timeout):
    """Runs a client: its exit status, and all that it wrote."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout + PATIENCE)
    return done.returncode, done.stdout


class Server:
    """A server that runs until the end of a `with`. `log` holds what it wrote."""

    programs = []
    # The processor time that sampling it at 101 Hz may take, with the owner of the sampler, in percent of one.
    most_cpu = 1.0
    # Whether its functions can be told by the symbols of files: code that is made while it runs has none.
    has_symbols = True

    def __init__(self, folder):
        self.folder = folder
        self.log = open(os.path.join(folder, "log"), "w+")
        self.process = None

    def start(self, command, user=None):
        if user:
            entry = pwd.getpwnam(user)
            identity = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        else:
            identity = {}
        self.process = subprocess.Popen(command, cwd=self.folder, stdout=self.log, stderr=subprocess.STDOUT, **identity)

    def pid(self):
        """The process that does the work."""
        return self.process.pid

    def load(self, seconds):
        return Load(self.work, seconds)

    def errors(self):
        """Errors that the server counted or wrote."""
        return len(self.problems())

    def problems(self):
        return []

    def logged(self):
        self.log.flush()
        with open(self.log.name) as file:
            return file.read()

    def wait_until(self, ready):
        end = time.monotonic() + PATIENCE
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.process.args[0]} ended:\n{self.logged()}")
            try:
                if ready():
                    return
            except OSError:
                pass  # It does not listen yet.
            if time.monotonic() > end:
                raise RuntimeError(f"{self.process.args[0]} does not start:\n{self.logged()}")
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.process.poll() is None:
            self.process.send_signal(self.end_signal)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()

    end_signal = signal.SIGTERM


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def connects(port):
    socket.create_connection(("127.0.0.1", port), timeout=1).close()
    return True


class Redis(Server):
    programs = ["redis-server", "redis-benchmark", "redis-cli"]

    def __init__(self, folder):
        super().__init__(folder)
        self.port = free_port()
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.start([find("redis-server"), *options])
        self.wait_until(lambda: connects(self.port))

    def work(self, end):
        operations, errors, problems = 0, 0, []
        while (left := end - time.monotonic()) > 0:
            count = 40_000
            command = ["redis-benchmark", "-h", "127.0.0.1", "-p", str(self.port), "-t", "set,get,incr,lpush,lpop", "-r", "10000"]
            status, text = run_client([*command, "-c", "20", "-d", "64", "-n", str(count), "--csv"], left)
            if status != 0 or re.search(r"error", text, re.IGNORECASE):
                errors, problems = errors + 1, problems + [text[-300:]]
            operations += 5 * count
        return operations, errors, problems

    def problems(self):
        """What the server counted itself: replies that were errors, and connections that it refused."""
        command = ["redis-cli", "-h", "127.0.0.1", "-p", str(self.port), "info", "stats"]
        text = run_client(command, 10)[1]
        counts = {name: int(re.search(rf"{name}:(\d+)", text)[1]) for name in ("total_error_replies", "rejected_connections")}
        return [f"{name} {count}" for name, count in counts.items() if count]


def apache_bench(url, clients, end):
    """Gets a page by so many clients at once until then: the requests, the failed ones, and what was said of them."""
    seconds = max(int(end - time.monotonic()), 1)
    command = ["ab", "-k", "-q", "-c", str(clients), "-t", str(seconds), "-n", "100000000", url]
    status, text = run_client(command, seconds)
    count = lambda name: int(found[1]) if (found := re.search(rf"{name}:\s+(\d+)", text)) else 0
    errors = count("Failed requests") + count("Non-2xx responses") + count("Write errors") + (status != 0)
    return count("Complete requests"), errors, [text[-500:]] if errors else []


class Nginx(Server):
    programs = ["nginx", "ab"]
    end_signal = signal.SIGQUIT

    def __init__(self, folder):
        super().__init__(folder)
        self.port = free_port()
        with open(os.path.join(folder, "page.html"), "w") as page:
            page.write("<p>page</p>\n" * 400)
        with open(os.path.join(folder, "nginx.conf"), "w") as config:
            config.write(NGINX.replace("FOLDER", folder).replace("PORT", str(self.port)))
        self.start([find("nginx"), "-p", folder, "-c", os.path.join(folder, "nginx.conf"), "-e", os.path.join(folder, "error.log")])
        self.wait_until(lambda: connects(self.port))
        self.wait_until(self.pid)

    def pid(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as file:
            children = file.read().split()
        return int(children[0]) if children else 0

    def work(self, end):
        return apache_bench(f"http://127.0.0.1:{self.port}/page.html", 16, end)

    def problems(self):
        with open(os.path.join(self.folder, "error.log")) as file:
            return [line.strip() for line in file if re.search(r"\[(warn|error|crit|alert|emerg)\]", line)]


NGINX = """
daemon off;
worker_processes 1;
error_log FOLDER/error.log warn;
pid FOLDER/nginx.pid;
events { worker_connections 256; }
http {
    access_log FOLDER/access.log;
    client_body_temp_path FOLDER/body;
    proxy_temp_path FOLDER/proxy;
    fastcgi_temp_path FOLDER/fastcgi;
    uwsgi_temp_path FOLDER/uwsgi;
    scgi_temp_path FOLDER/scgi;
    keepalive_requests 1000000000;
    gzip on;
    server { listen 127.0.0.1:PORT; root FOLDER; }
}
"""


class Postgresql(Server):
    programs = ["postgres", "initdb", "pgbench", "psql"]
    # Ends transactions that run, which there are none of.
    end_signal = signal.SIGINT

    def __init__(self, folder):
        super().__init__(folder)
        self.place = os.path.join(folder, "postgresql")
        os.mkdir(self.place)
        shutil.chown(self.place, "postgres", "postgres")
        data = os.path.join(self.place, "data")
        self.own([find("initdb"), "-D", data, "-A", "trust", "-U", "postgres", "--no-sync"])
        options = {"listen_addresses": "", "unix_socket_directories": self.place, "synchronous_commit": "off", "fsync": "off"}
        command = [find("postgres"), "-D", data, *(part for key, value in options.items() for part in ("-c", f"{key}={value}"))]
        self.start(command, "postgres")
        self.wait_until(lambda: run_client(["psql", *self.peer(), "-c", "select 1"], 10)[0] == 0)
        self.own([find("pgbench"), *self.peer(), "-i", "-q", "-s", "5"])
        # What was written while it started is not meant.
        self.seen = len(self.logged())

    def own(self, command):
        entry = pwd.getpwnam("postgres")
        done = subprocess.run(command, cwd=self.place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              user=entry.pw_uid, group=entry.pw_gid, extra_groups=[])
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]}:\n{done.stdout}")

    def peer(self):
        return ["-h", self.place, "-U", "postgres", *(["-d", "postgres"])]

    def pid(self):
        """The backend of the first connection of pgbench."""
        found = []

        def look():
            with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as file:
                for child in file.read().split():
                    with open(f"/proc/{child}/cmdline") as line:
                        # Its connections are local, those of the server's own processes are none.
                        if re.match(r"postgres: postgres postgres \[local\]", line.read()):
                            found.append(int(child))
            return found

        self.wait_until(look)
        return min(found)

    def work(self, end):
        seconds = max(int(end - time.monotonic()), 1)
        command = [find("pgbench"), *self.peer(), "-n", "-c", "2", "-j", "1", "-T", str(seconds), "-b", "select-only@9", "-b", "tpcb-like@1"]
        status, text = run_client(command, seconds)
        done = re.search(r"number of transactions actually processed: (\d+)", text)
        failed = re.search(r"number of failed transactions: (\d+)", text)
        errors = (int(failed[1]) if failed else 1) + (status != 0)
        return int(done[1]) if done else 0, errors, [text[-500:]] if errors else []

    def problems(self):
        return re.findall(r".*(?:ERROR|FATAL|PANIC|WARNING): .*", self.logged()[self.seen :])


class Memcached(Server):
    programs = ["memcached"]

    def __init__(self, folder):
        super().__init__(folder)
        self.port = free_port()
        # Two threads, as many as there are clients.
        self.start([find("memcached"), "-l", "127.0.0.1", "-p", str(self.port), "-U", "0", "-t", "2", "-u", "nobody"])
        self.wait_until(lambda: connects(self.port))

    def work(self, end):
        seconds = max(end - time.monotonic(), 1)
        client = [sys.executable, os.path.abspath(__file__), "--memcached-client", str(self.port), str(seconds)]
        with_seed = [[*client, str(seed)] for seed in (1, 2)]
        started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for command in with_seed]
        texts = [process.communicate(timeout=seconds + PATIENCE)[0] for process in started]
        matches = [re.fullmatch(r"operations (\d+) errors (\d+)\n", text) for text in texts]
        if not all(matches) or any(process.returncode for process in started):
            return 0, 1, texts
        return sum(int(found[1]) for found in matches), sum(int(found[2]) for found in matches), []

    def problems(self):
        return self.logged().splitlines()


def memcached_client(port, seconds, seed):
    """Sets and gets in bulk over one connection, and compares each byte that comes back."""
    connection = socket.create_connection(("127.0.0.1", int(port)))
    stream = connection.makefile("rb")
    operations, errors, turn, end = 0, 0, 0, time.monotonic() + float(seconds)
    while time.monotonic() < end:
        turn += 1
        values = {f"key-{seed}-{number}": f"{turn}-{number}-".encode() * 8 for number in range(100)}
        connection.sendall(b"".join(b"set %s 0 0 %d\r\n%s\r\n" % (key.encode(), len(value), value) for key, value in values.items()))
        errors += sum(stream.readline() != b"STORED\r\n" for _ in values)
        for _ in range(5):
            connection.sendall(b"".join(b"get %s\r\n" % key.encode() for key in values))
            for key, value in values.items():
                expected = b"VALUE %s 0 %d\r\n%s\r\nEND\r\n" % (key.encode(), len(value), value)
                errors += stream.read(len(expected)) != expected
        operations += 6 * len(values)
    print(f"operations {operations} errors {errors}")


class Java(Server):
    """An HTTP server that answers by 25 threads, each of which hashes what it answers."""

    programs = ["java", "ab"]
    most_cpu = 2.0
    has_symbols = False

    def __init__(self, folder):
        super().__init__(folder)
        self.port = free_port()
        with open(os.path.join(folder, "Main.java"), "w") as source:
            source.write(JAVA)
        # The launcher compiles it and runs it in the same process (JEP 330).
        # Without the option each answer waits for the client to acknowledge the one before (JDK-6968351).
        self.start([find("java"), "-XX:+PreserveFramePointer", "-Dsun.net.httpserver.nodelay=true", "Main.java", str(self.port)])
        self.wait_until(lambda: connects(self.port))

    def work(self, end):
        return apache_bench(f"http://127.0.0.1:{self.port}/", 25, end)

    def problems(self):
        return self.logged().splitlines()


JAVA = """
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.security.MessageDigest;
import java.util.concurrent.Executors;

class Main {
    public static void main(String[] arguments) throws Exception {
        var address = new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0]));
        var server = HttpServer.create(address, 128);
        server.setExecutor(Executors.newFixedThreadPool(25));
        server.createContext("/", exchange -> {
            var page = new StringBuilder();
            try {
                var digest = MessageDigest.getInstance("SHA-256");
                for (int line = 0; line < 64; line++) {
                    for (byte part : digest.digest(page.toString().getBytes())) page.append(Integer.toHexString(part & 255));
                    page.setLength(Math.min(page.length(), 512));
                }
            } catch (Exception error) {
                error.printStackTrace();
            }
            // As long each time: a client of HTTP takes other lengths for failures.
            var body = page.substring(0, 256).getBytes();
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }
}
"""


SERVERS = {"redis": Redis, "nginx": Nginx, "postgresql": Postgresql, "memcached": Memcached, "java": Java}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--memcached-client"]:
        memcached_client(*sys.argv[-3:])
    else:
        sys.exit(main())
