#!/usr/bin/env python3
"""Checks profbridge against Go's own pprof: `runtime/pprof`, `net/http/pprof` and `go tool pprof`.

Usage: go_pprof.py PATH_TO_PROFBRIDGE

Builds a Go program, which needs nothing but the standard library. It sends profiles of itself to the receiver `pprof`
in a form, as Pyroscope's clients do, and serves them, and profbridge fetches them. What comes out as envelopes and as
OTLP has to show the function that the program spends its time in; what Go wrote and what profbridge writes of it have
to be the same for `go tool pprof`. Uses loopback only, on ports that the system chooses. Without Go it checks nothing.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

from common import PATIENCE, Profbridge, envelopes, expect, wait_for

PROGRAM = r"""
package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"mime/multipart"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"runtime/pprof"
	"strings"
	"time"

	"example.com/shop/v2/cart"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	go http.Serve(listener, nil)
	go pprof.Do(context.Background(), pprof.Labels("worker", "w1"), func(context.Context) {
		for c := (&cart.Cart{}); ; {
			c.Total(1000000)
		}
	})
	fmt.Println(listener.Addr())
	// Each line is a file and a URL: a profile of itself is written and sent there.
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		file, url, _ := strings.Cut(lines.Text(), " ")
		var profile bytes.Buffer
		check(pprof.StartCPUProfile(&profile))
		time.Sleep(time.Second)
		pprof.StopCPUProfile()
		check(os.WriteFile(file, profile.Bytes(), 0o600))
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		part, err := form.CreateFormFile("profile", "profile.pprof")
		check(err)
		part.Write(profile.Bytes())
		check(form.Close())
		response, err := http.Post(url, form.FormDataContentType(), &body)
		check(err)
		fmt.Println(response.StatusCode)
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
"""

CART = r"""
package cart

type Cart struct{ items int }

//go:noinline
func (c *Cart) Total(rounds int) int {
	sum := c.items
	for i := 0; i < rounds; i++ {
		sum += i * i % 7
	}
	return sum
}
"""

CONFIG = """
receivers:
  pprof: RECEIVER
processors:
  chunk:
exporters:
  file: {path: envelopes}
  file/otlp: {path: out.otlp, format: otlp}
service:
  pipelines:
    profiles: {receivers: [pprof], processors: [chunk], exporters: [file]}
    profiles/otlp: {receivers: [pprof], exporters: [file/otlp]}
"""

# The function with its whole name, which a busy machine may find preempted in all samples.
TOTAL = r"example\.com/shop/v2/cart\.\(\*Cart\)\.Total[ ;]"


def build(folder):
    """The path of the program."""
    files = {"go.mod": "module example.com/shop/v2\n\ngo 1.21\n", "main.go": PROGRAM, "cart/cart.go": CART}
    for name, text in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
    environment = {**os.environ, "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"}
    subprocess.run(["go", "build", "-o", "shop", "."], cwd=folder, env=environment, check=True)
    return os.path.join(folder, "shop")


def look_at(chunks, folder, release):
    """Checks the chunks of the program."""
    for header, chunk in chunks:
        expect(header["platform"] == chunk["platform"] == "go", f"{release}: the platform is Go's")
        expect(chunk["release"] == release, f"{release}: so is the release")
        profile = chunk["profile"]
        frames, stacks = profile["frames"], profile["stacks"]
        samples = sorted(profile["samples"], key=lambda sample: sample["timestamp"])
        # A sample owns the time until the next of its thread.
        times = {"own": 0.0, "all": 0.0}
        own = []
        for thread in {sample["thread_id"] for sample in samples}:
            of_thread = [sample for sample in samples if sample["thread_id"] == thread]
            for sample, following in zip(of_thread, of_thread[1:]):
                stack = [frames[frame] for frame in stacks[sample["stack_id"]]]
                if not stack:
                    continue
                time = following["timestamp"] - sample["timestamp"]
                times["all"] += time
                named = [frame for frame in stack if frame.get("module") == "example.com/shop/v2/cart"]
                own += named
                times["own"] += time if named else 0.0
        share = times["own"] / times["all"]
        expect(share > 0.9, f"{release}: {share:.0%} of {times['all']:.2f} s are spent in the package cart")
        expect({leaf["function"] for leaf in own} == {"(*Cart).Total"}, f"{release}: in its method, by its name")
        expect(all(leaf["in_app"] for leaf in own), f"{release}: which is in-app")


def stacks(binary, profile, folder):
    """The lines of a profile's stacks."""
    path = os.path.join(folder, "stacks.folded")
    subprocess.run([binary, "convert", profile, "-o", path], check=True, capture_output=True)
    with open(path) as file:
        return file.read()


def raw(profile):
    """What Go reads in a profile."""
    return subprocess.run(["go", "tool", "pprof", "-raw", profile], check=True, capture_output=True, text=True).stdout


def main():
    if shutil.which("go") is None:
        print("there is no Go here: nothing was checked")
        return
    binary = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        program = subprocess.Popen([build(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            check(binary, folder, program)
        finally:
            program.kill()
            program.wait(PATIENCE)
    print("interop: everything agrees")


def check(binary, folder, program):
    address = program.stdout.readline().strip()

    with Profbridge(binary, CONFIG.replace("RECEIVER", "{push: {endpoint: '127.0.0.1:0'}}")) as profbridge:
        written = os.path.join(folder, "cpu.pb.gz")
        name = "pushed%7B__session_id__%3D1%7D"
        program.stdin.write(f"{written} http://{profbridge.address('pprof/http')}/ingest?name={name}&format=pprof\n")
        program.stdin.flush()
        expect(program.stdout.readline().strip() == "200", "push: a form is taken")
        expect(profbridge.stop() == 0, "push: profbridge ends well")
        look_at(envelopes(os.path.join(profbridge.folder, "envelopes")), folder, "pushed")
        sent = stacks(binary, os.path.join(profbridge.folder, "out.otlp"), folder)
        expect(re.search(TOTAL, sent), "push: the function is in OTLP")
    for way in (["cpu.pprof"], ["cpu.otlp", "cpu.pprof"]):
        source = written
        for name in way:
            result = os.path.join(folder, name)
            subprocess.run([binary, "convert", source, "-o", result], check=True, capture_output=True)
            source = result
        expect(raw(source) == raw(written), f"go tool pprof reads the same behind {' and '.join(way)}")

    receiver = "{scrape: {interval: 1s, duration: 1s, targets: {fetched: {endpoint: 'http://ADDRESS'}}}}"
    with Profbridge(binary, CONFIG.replace("RECEIVER", receiver.replace("ADDRESS", address))) as profbridge:
        out = os.path.join(profbridge.folder, "out.otlp")
        # The file is written whole when profbridge ends; until then it grows by requests.
        wait_for("a profile was fetched", lambda: os.path.exists(out) and os.path.getsize(out) > 0)
        expect(profbridge.stop() == 0, "scrape: profbridge ends well")
        look_at(envelopes(os.path.join(profbridge.folder, "envelopes")), folder, "fetched")
        fetched = stacks(binary, out, folder)
        expect(re.search(TOTAL, fetched), "scrape: the function is in OTLP")


if __name__ == "__main__":
    main()
