#!/usr/bin/env python3
"""Checks what profbridge writes for people to look at against the tools that they look with.

Usage: viewers.py PATH_TO_PROFBRIDGE PATH_TO_SPEEDSCOPE

A program is sampled, and what OTLP holds of the same run is converted. Then
* `go tool pprof -top` reads the pprof files;
* speedscope (the npm package `speedscope`, whose folder is named) opens its files in Chromium, without a window, and says
  which functions it found, and how much time they had;
* the files for the Firefox Profiler are read here: the stacks are put together again from the tables. The profiler is a
  web site and no package, so it is not run itself;
* Chromium runs the script of the flame graph: the other state, zooming in, searching;
* Chromium opens the page, from a file and on screens of two widths, and does with it what a person would do. A page of a
  million samples and one with hostile names are opened too; how long that takes is said.

What is there is compared with the collapsed stacks of the same run. Without Go, Chromium or speedscope the parts that need
them are left out, which is said. Uses loopback only, on a port that the system chooses.
"""

import functools
import html
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as xml

from common import PATIENCE, expect

PROGRAM = """
import threading, time

def outer_function():
    return hot_function(20000)

def hot_function(rounds):
    return sum(i * i % 7 for i in range(rounds))

def idle_function():
    time.sleep(60)

def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        outer_function()

# The main thread is there for longer, so it is what viewers show first.
work(0.6)
threading.Thread(target=idle_function, daemon=True).start()
work(1.4)
"""

HOT = "hot_function"


def run(command, folder, **more):
    """What a command writes to standard output."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=10 * PATIENCE, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def folded(path):
    """The stacks of a file, as lists of names, with their nanoseconds."""
    with open(path) as file:
        lines = [line.rstrip("\n").rsplit(" ", 1) for line in file]
    return [(stack.split(";"), int(weight)) for stack, weight in lines]


def share(stacks):
    """Which part of the time is spent in the hot function, of stacks that pass through it or do not."""
    total = sum(weight for _, weight in stacks)
    return sum(weight for stack, weight in stacks if any(HOT in name for name in stack)) / total


def look_at_pprof(path, is_close):
    """Checks what go tool pprof says of a file."""
    top = run(["go", "tool", "pprof", "-top", "-cum", "-nodecount=1000", path], None)
    rows = [line.split() for line in top.splitlines() if re.match(r"\s*\S+\s+\S+%\s+\S+%\s+\S+\s+\S+%\s", line)]
    name = os.path.basename(path)
    expect("Type: cpu" in top and "File: python" in top and rows, f"go tool pprof reads {name}: {len(rows)} functions")
    hot = [float(row[4].rstrip("%")) / 100 for row in rows if row[5] == HOT]
    expect(hot and is_close(hot[0]), f"go tool pprof: {hot[0]:.1%} of {name} is spent in {HOT}")


def firefox_stacks(thread):
    """The stacks of a thread, with their milliseconds."""
    strings, samples = thread["stringArray"], thread["samples"]
    table, frames, functions = thread["stackTable"], thread["frameTable"], thread["funcTable"]
    stacks = []
    expect(samples["length"] == len(samples["stack"]) == len(samples["weight"]) == len(samples["timeDeltas"]),
           "Firefox: the columns of samples are equally long")
    for stack, weight in zip(samples["stack"], samples["weight"]):
        names = []
        while stack is not None:
            names.append(strings[functions["name"][frames["func"][table["frame"][stack]]]])
            before, stack = stack, table["prefix"][stack]
            assert stack is None or stack < before, "a stack's prefix comes before it"
        stacks.append((names[::-1], weight))
    return stacks


def look_at_firefox(path, is_close):
    """Rebuilds the stacks of a file. `is_close` says whether a share of the hot function is right."""
    with open(path) as file:
        profile = json.load(file)
    name = os.path.basename(path)
    categories = {category["name"] for category in profile["meta"]["categories"]}
    expect({"own code", "library", "kernel", "interpreter"} <= categories, f"Firefox: {name} has categories by module")
    ran = [thread for thread in profile["threads"] if not thread["name"].endswith("[waiting]")]
    stacks = [stack for thread in ran for stack in firefox_stacks(thread)]
    expect(is_close(share(stacks)), f"Firefox: {share(stacks):.1%} of the time in {name} is in {HOT}")
    shown = {profile["threads"][index]["name"] for index in profile["meta"]["initialVisibleThreads"]}
    expect(shown and not any(thread.endswith("[waiting]") for thread in shown), f"Firefox: {name} opens with what ran")
    for thread in ran:
        ran_for, deltas = sum(thread["samples"]["threadCPUDelta"]) / 1000, sum(thread["samples"]["timeDeltas"])
        assert ran_for <= deltas + 0.001, "nobody runs for longer than time passes"


class Chromium:
    """Chromium without a window, and the server that its pages come from."""

    def __init__(self, browser, root):
        handler = functools.partial(QuietHandler, directory=root)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.browser, self.root = browser, root

    def page(self, path, place=None, patience=20_000):
        """The page of the server, or of another place, as it is after so many milliseconds for its scripts, or at once
        when it is loaded."""
        with tempfile.TemporaryDirectory() as data:
            flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
                     "--disable-background-networking", "--disable-component-update", f"--user-data-dir={data}",
                     # Of long tables only the rows that are seen are in the page.
                     "--window-size=1400,6000", *[f"--virtual-time-budget={patience}"][:patience], "--dump-dom"]
            url = f"{place or f'http://127.0.0.1:{self.server.server_port}'}/{path}"
            return run([self.browser, *flags, url], self.root)

    def close(self):
        self.server.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files, and says nothing of it."""

    def log_message(self, *_):
        pass


def words(page):
    """The texts of a page, each by itself."""
    page = re.sub(r"(?s)<(script|style).*?</\1>", " ", page)
    texts = (html.unescape(re.sub(r"\s+", " ", text)).strip() for text in re.split(r"<[^>]*>", page))
    return [text for text in texts if text]


def look_at_speedscope(chromium, name, is_close):
    """Opens a file in speedscope, and reads the table of functions that it makes."""
    with open(os.path.join(chromium.root, name)) as file:
        told = json.load(file)
    # On a busy machine the page may be taken before its table has its rows.
    for _ in range(3):
        said = words(chromium.page(f"speedscope/index.html#profileURL=/{name}&view=sandwich"))
        if HOT in said:
            break
    expect("Symbol Name" in said, f"speedscope opens {name}")
    first = told["profiles"][0]["name"]
    expect(said[said.index(f"(1/{len(told['profiles'])})") - 1] == first, f"speedscope: what is seen first is {first}")
    expect(not first.endswith("[waiting]"), "speedscope: which is no waiting time")
    # Each row of the table has the time in a function and what it called, that of its own, and its name.
    total = [said[at - 2] for at, word in enumerate(said) if word == HOT]
    # Nearly all of it is written as >99%.
    found = re.fullmatch(r"[\d.]+(?:ns|µs|ms|s) \(>?([\d.]+)%\)", total[0] if total else "")
    expect(found and is_close(float(found.group(1)) / 100), f"speedscope: {total} of it is in {HOT}")


ACTS = """
<!doctype html><meta charset="utf-8"><body>SVG<script>
var said = [], svg = document.querySelector("svg"), failed = [];
function button(start) {
  return Array.from(svg.querySelectorAll(".button")).find(function (one) { return one.textContent.indexOf(start) === 0; });
}
function shown() {
  return Array.from(svg.querySelectorAll(".view")).filter(function (one) { return one.style.display !== "none"; });
}
function cell(name) {
  return Array.from(shown()[0].children).find(function (one) { return one.querySelector("title").textContent.split("\\n")[0] === name; });
}
function click(one) { one.dispatchEvent(new MouseEvent("click", {bubbles: true})); }
function wide(one) { return one.querySelector("rect").getBoundingClientRect().width; }
function check(what, holds) { (holds ? said : failed).push(what); }
try {
  check("it shows running time first", shown().length === 1 && shown()[0].dataset.name === "running");
  check("it is as wide as the window", Math.abs(wide(cell("running")) - (window.innerWidth - 36)) < 40);
  var before = wide(cell("hot_function")), whole = wide(cell("running"));
  click(cell("hot_function"));
  check("a click zooms in", wide(cell("hot_function")) > before && Math.abs(wide(cell("hot_function")) - whole) < 1);
  check("callers make room, and are told", wide(cell("running")) === 0 && / > hot_function/.test(svg.querySelector(".about").textContent));
  click(button("show all"));
  check("and out again", Math.abs(wide(cell("hot_function")) - before) < 1);
  window.prompt = function () { return "HOT_func"; };
  click(button("search"));
  check("search finds a function and says its part", cell("hot_function").getAttribute("class").indexOf("found") >= 0 &&
    /HOT_func|hot_func.*\\d\\d.\\d\\d %/i.test(svg.querySelector(".about").textContent));
  cell("hot_function").dispatchEvent(new MouseEvent("mouseenter"));
  check("a function is told with its time", /^hot_function, .*\\d m?s, [\\d.]+ %$/.test(svg.querySelector(".about").textContent));
  var cut = Array.from(shown()[0].querySelectorAll("text")).filter(function (one) { return /\\u2026/.test(one.textContent); });
  check("long names keep both ends", cut.every(function (one) { return /[^\\u2026]\\u2026[^\\u2026]/.test(one.textContent); }));
  check("no name leaves its cell", Array.from(shown()[0].children).every(function (one) {
    var text = one.querySelector("text"), rect = one.querySelector("rect").getBoundingClientRect();
    return !text || !text.textContent || one.style.display === "none" || text.getBoundingClientRect().right <= rect.right + 1;
  }));
  click(button("waiting"));
  check("the other button shows waiting time", shown().length === 1 && shown()[0].dataset.name === "waiting" && !!cell("idle_function"));
} catch (error) { failed.push(String(error)); }
document.body.innerHTML = "<p id=result></p>";
document.getElementById("result").textContent = JSON.stringify({said: said, failed: failed});
</script>
"""


ACTS_ON_PAGE = """
<!doctype html><meta charset="utf-8"><iframe src="PAGE" style="border:0;width:WIDTHpx;height:1000px"></iframe>
<p id="result"></p><script>
var said = [], failed = [];
function check(what, holds) { (holds ? said : failed).push(what); }
var frame = document.querySelector("iframe");
frame.addEventListener("load", function () {
  var page = frame.contentDocument, find = function (id) { return page.getElementById(id); };
  function named(selector, start) {
    return Array.from(page.querySelectorAll(selector)).find(function (one) { return one.textContent.indexOf(start) === 0; });
  }
  function click(one) { one.dispatchEvent(new frame.contentWindow.MouseEvent("click", {bubbles: true})); }
  function set(id, value, kind) {
    find(id).value = value;
    find(id).dispatchEvent(new frame.contentWindow.Event(kind));
  }
  // The time in the answer, in milliseconds.
  function time() {
    var said = find("answer").textContent.match(/, ([\\d.]+) (m?s)$/);
    return Number(said[1]) * (said[2] === "s" ? 1000 : 1);
  }
  function ends(one) { return one.getBoundingClientRect().bottom; }
  try { (function () { ACTS })(); } catch (error) { failed.push(String(error)); }
  var loaded = frame.contentWindow.performance.getEntriesByType("navigation")[0].domComplete;
  document.getElementById("result").textContent = JSON.stringify({said: said, failed: failed, loaded: loaded});
});
</script>
"""

ON_PROFILE = """
check("the hot function and its line are named first, in the first 1000 pixels",
  /hot_function\\S* \\(program.py:8\\)/.test(find("answer").textContent) && ends(find("answer")) < 1000);
check("it is in the flame graph and in the table there", ends(named(".cell", "hot_function")) < 1000 &&
  ends(named("#body tr.own button", "hot_function")) < 1000 && page.documentElement.scrollWidth <= frame.clientWidth);
click(named(".cell", "outer_function"));
check("a click zooms in, and the way back is there", !!named("#crumbs button", "running") && !named(".cell", "running"));
check("it shows callers and callees", !!named("#calls button", "work") && !!named("#calls button", "hot_function"));
set("search", "HOT_func", "input");
check("search finds a function, and says its part", named(".cell.found", "hot_function") &&
  page.querySelectorAll("#body tr").length < 3 && /HOT_func. is in \\d/.test(find("about").textContent));
click(find("reset"));
click(named("#views button", "waiting"));
var idle = Array.from(find("thread").querySelectorAll("option")).slice(1).map(function (one) { return one.value; });
check("a thread can be chosen", idle.some(function (thread) {
  set("thread", thread, "change");
  return /idle_function/.test(find("answer").textContent);
}));
click(find("reset"));
click(named("#views button", "running"));
var whole = find("path").textContent, before = time();
set("to", find("to").value / 2, "change");
check("and a time, with less of it", time() > 0 && time() < 0.9 * before);
check("the time line has what ran in its colours, in the order of time", page.querySelectorAll(".strip path").length > 1);
click(find("reset"));
click(find("raw"));
check("frames as sampled are there", /hot_function/.test(find("answer").textContent) && find("path").textContent !== whole);
"""

ON_DIFFERENCE = """
check("a difference says what it compares", /compared by totals: both are of a command/.test(find("path").textContent) && !!named(".cell", "hot_function"));
"""

HOSTILE = ["</script><script>document.title='owned'</script>", "<img src=x onerror=document.title='owned'>", "a\u202eb", "x&lty"]

ON_HOSTILE = """
click(find("raw"));
var names = Array.from(page.querySelectorAll("#body button")).map(function (one) { return one.textContent; });
check("names stay text", names.indexOf("\\x3c/script>\\x3cscript>document.title='owned'\\x3c/script>") >= 0 &&
  names.indexOf("\\x3cimg src=x onerror=document.title='owned'>") >= 0 && names.indexOf("x&lty") >= 0);
check("and run nothing", page.title !== "owned" && page.images.length === 0 && page.scripts.length === 2);
check("no character turns the text around", page.documentElement.textContent.indexOf("\\u202e") < 0 && names.length === 5);
"""

ON_LARGE = """
click(find("raw"));
check("the page has its table, and deep stacks", page.querySelectorAll("#body tr").length === 200);
click(page.querySelector("#body button"));
check("and answers to a click", find("calls").children.length > 0);
set("search", "deep1999", "input");
check("and to a search", page.querySelectorAll("#body tr").length === 1);
"""


def look_at_page(chromium, name, acts, width=1280):
    """Does with a page what a person would do, in a window of this width."""
    with open(os.path.join(chromium.root, "acts.html"), "w") as file:
        file.write(ACTS_ON_PAGE.replace("PAGE", name, 1).replace("WIDTH", str(width)).replace("ACTS", acts))
    # Without patience, time is that of the clock.
    shown = re.search(r'<p id="result">(.*?)</p>', chromium.page("acts.html", patience=0)).group(1)
    expect(shown, f"{name}, {width} pixels wide: it is loaded")
    result = json.loads(html.unescape(shown))
    print(f"{name}, {width} pixels wide: it was loaded within {result['loaded'] / 1000:.2f} s")
    for what in result["said"]:
        expect(True, f"{name}, {width} pixels wide: {what}")
    expect(not result["failed"], f"{name}: all of it holds ({', '.join(result['failed']) or 'nothing failed'})")


def look_at_pages(binary, chromium, folder):
    """Pages of a sampled program, of a difference, of hostile names, and of more than a browser could draw."""
    for width in [1280, 390]:
        look_at_page(chromium, "sampled.html", ON_PROFILE, width)
    run([binary, "diff", "sampled.otlp", "sampled.otlp", "-o", "difference.html"], folder)
    look_at_page(chromium, "difference.html", ON_DIFFERENCE)
    with open(os.path.join(folder, "hostile.folded"), "w") as file:
        file.writelines(f"main;{name} {number + 1}\n" for number, name in enumerate(HOSTILE))
    with open(os.path.join(folder, "large.folded"), "w") as file:
        # A million samples of 100,000 functions, and a stack of 2,000.
        file.writelines(f"main;f{number % 300};g{number} 10\n" for number in range(100_000))
        file.write(";".join(f"deep{number}" for number in range(2_000)) + " 100\n")
    for name in ["hostile", "large"]:
        start = time.monotonic()
        run([binary, "convert", f"{name}.folded", "-o", f"{name}.html"], folder)
        size = os.path.getsize(os.path.join(folder, f"{name}.html"))
        print(f"{name}.html was written in {time.monotonic() - start:.1f} s and has {size / 1e6:.1f} MB")
    look_at_page(chromium, "hostile.html", ON_HOSTILE)
    look_at_page(chromium, "large.html", ON_LARGE)
    said = words(chromium.page("sampled.html", "file://" + folder))
    expect(HOT in said, "sampled.html opens from its file")


def look_at_svg(chromium, name, rows):
    """Does with a flame graph what a person would do. The hot function is in one of the first rows."""
    with open(os.path.join(chromium.root, name)) as file:
        text = file.read()
    root = xml.fromstring(text)
    svg = "{http://www.w3.org/2000/svg}"
    cells = [cell for cell in root.iter(svg + "g") if (cell.findtext(svg + "title") or "").startswith(HOT + "\n")]
    expect(cells, f"{name} is XML and has {HOT} in it")
    # The widest one: a few stacks may lack their callers, which puts the function higher up.
    widest = max((cell.find(svg + "rect") for cell in cells), key=lambda rect: float(rect.get("width")))
    row = round((float(widest.get("y")) - 74) / 17)
    expect(row < rows, f"{name}: {HOT} is in row {row}")
    page = os.path.join(chromium.root, "acts.html")
    with open(page, "w") as file:
        file.write(ACTS.replace("SVG", text[text.index("<svg"):], 1))
    result = json.loads(html.unescape(re.search(r'<p id="result">(.*?)</p>', chromium.page("acts.html")).group(1)))
    for what in result["said"]:
        expect(True, f"{name} in Chromium: {what}")
    expect(not result["failed"], f"{name} in Chromium: all of it holds ({', '.join(result['failed']) or 'nothing failed'})")


def main():
    binary, speedscope = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        look(binary, speedscope, folder)
    print("interop: everything agrees")


def look(binary, speedscope, folder):
    with open(os.path.join(folder, "program.py"), "w") as file:
        file.write(PROGRAM)
    endings = ["speedscope.json", "firefox.json", "pprof", "pb.gz", "svg", "html"]
    for ending in ["otlp", *endings]:
        # Isolated mode leaves out what an environment would add to the program.
        run([binary, "sample", "-o", f"sampled.{ending}", "--", sys.executable, "-I", "program.py"], folder)
    for ending in ["folded", *endings]:
        run([binary, "convert", "sampled.otlp", "-o", f"converted.{ending}"], folder)
    run([binary, "convert", "sampled.otlp", "--native", "-o", "native.svg"], folder)
    # Each run differs a little; what is converted is of one run, and has to say the same in all formats.
    stacks = folded(os.path.join(folder, "converted.folded"))
    running = [(stack, weight) for stack, weight in stacks if stack[0] == "[running]"]
    everywhere, ran = share(stacks), share(running)
    expect(ran > 0.5, f"{ran:.1%} of the running time is spent in {HOT}, {everywhere:.1%} of all")

    def mostly(found):
        return found > 0.5

    def equals(expected):
        return lambda found: abs(found - expected) < 0.02

    if shutil.which("go"):
        for name in ["sampled.pprof", "sampled.pb.gz", "converted.pprof", "converted.pb.gz"]:
            is_close = equals(ran) if name.startswith("converted") else mostly
            look_at_pprof(os.path.join(folder, name), is_close)
    else:
        print("there is no Go here: pprof was not checked")

    look_at_firefox(os.path.join(folder, "sampled.firefox.json"), mostly)
    look_at_firefox(os.path.join(folder, "converted.firefox.json"), equals(ran))

    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        print("there is no Chromium here: speedscope and the script of the flame graph were not checked")
        return
    release = os.path.join(speedscope, "node_modules", "speedscope", "dist", "release")
    if os.path.isdir(release):
        shutil.copytree(release, os.path.join(folder, "speedscope"))
    chromium = Chromium(browser, folder)
    try:
        if os.path.isdir(release):
            look_at_speedscope(chromium, "sampled.speedscope.json", mostly)
            look_at_speedscope(chromium, "converted.speedscope.json", equals(ran))
        else:
            print("there is no speedscope here: its files were not checked")
        # Below the rows of all, of the module and of its two callers.
        look_at_svg(chromium, "sampled.svg", rows=5)
        look_at_svg(chromium, "native.svg", rows=200)
        look_at_pages(binary, chromium, folder)
    finally:
        chromium.close()


if __name__ == "__main__":
    main()
