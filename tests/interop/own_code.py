#!/usr/bin/env python3
"""Checks that the hot function of a web service is on the first screen, whatever the language and the framework.

Usage: own_code.py PATH_TO_PROFBRIDGE PYTHON FOLDER

Services with one hot function of their own are sampled while they answer requests. The function and its file are in the
first ten lines of the text, in the first lines of `top`, and in the first rows of the flame graph; for each the row is
said. PYTHON has the packages flask, fastapi, uvicorn, django and gunicorn, FOLDER has the npm package express. What is
not there is left out, which is said. Uses loopback only, on ports that the system chooses.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request
import xml.etree.ElementTree as xml

from common import PATIENCE, expect

HOT = "hot_function"
FIRST_LINES = 10
FIRST_PIXELS = 400

PYTHON_HOT = """
import json
def hot_function(rounds):
    found = 0
    for number in range(rounds):
        found += number * number % 7
    return found
def answer():
    return json.dumps({"found": hot_function(200000)})
"""

FLASK = PYTHON_HOT + """
import flask, werkzeug.serving
app = flask.Flask("shop")
@app.get("/")
def shop():
    return answer()
server = werkzeug.serving.make_server("127.0.0.1", 0, app)
print("port", server.server_port, flush=True)
import logging; logging.getLogger("werkzeug").setLevel(logging.ERROR)
server.serve_forever()
"""

FASTAPI = PYTHON_HOT + """
import fastapi, socket, uvicorn
app = fastapi.FastAPI()
@app.get("/")
async def shop():
    return answer()
listener = socket.create_server(("127.0.0.1", 0))
print("port", listener.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])
"""

DJANGO = PYTHON_HOT + """
import django, socket, gunicorn.app.base
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse
from django.urls import path
def shop(request):
    return HttpResponse(answer())
urlpatterns = [path("", shop)]
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="x")
django.setup()
class Server(gunicorn.app.base.BaseApplication):
    def load_config(self):
        listener = socket.create_server(("127.0.0.1", 0))
        print("port", listener.getsockname()[1], flush=True)
        os_fd = listener.detach()
        self.cfg.set("bind", f"fd://{os_fd}")
        self.cfg.set("workers", 1)
        self.cfg.set("loglevel", "error")
    def load(self):
        return WSGIHandler()
Server().run()
"""

EXPRESS = """
const express = require("express");
function hot_function(rounds) {
  let found = 0;
  for (let number = 0; number < rounds; number++) found += number * number % 7;
  return found;
}
const app = express();
app.get("/", (request, response) => response.json({found: hot_function(1000000)}));
const server = app.listen(0, "127.0.0.1", () => console.log("port", server.address().port));
"""

JAVA = """
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
public class Shop {
    static long hot_function(long rounds) {
        long found = 0;
        for (long number = 0; number < rounds; number++) found += number * number % 7;
        return found;
    }
    public static void main(String[] arguments) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        server.createContext("/", exchange -> {
            byte[] body = Long.toString(hot_function(1000000)).getBytes();
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        System.out.println("port " + server.getAddress().getPort());
        server.start();
    }
}
"""

GO = """
package main

import ("fmt"; "net"; "net/http")

//go:noinline
func hot_function(rounds int) int {
	found := 0
	for number := 0; number < rounds; number++ { found += number * number % 7 }
	return found
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil { panic(err) }
	fmt.Println("port", listener.Addr().(*net.TCPAddr).Port)
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, hot_function(1000000)) })
	http.Serve(listener, nil)
}
"""

RUST = """
use std::io::{Read, Write};
#[inline(never)]
fn hot_function(rounds: u64) -> u64 {
    (0..std::hint::black_box(rounds)).fold(0, |found, number| found + std::hint::black_box(number * number % 7))
}
fn answer(mut stream: std::net::TcpStream) {
    let _ = stream.read(&mut [0; 4096]);
    let _ = stream.write_all(format!("HTTP/1.0 200 OK\\r\\n\\r\\n{}", hot_function(1_000_000)).as_bytes());
}
fn main() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    println!("port {}", listener.local_addr().unwrap().port());
    for stream in listener.incoming().flatten() { answer(stream) }
}
"""

CPP = """
#include <arpa/inet.h>
#include <cstdio>
#include <map>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
namespace shop {
template <class Key> struct Ranker {
    std::map<Key, long> known;
    __attribute__((noinline)) long hot_function(Key rounds) {
        long found = 0;
        for (Key number = 0; number < rounds; number++) found += number * number % 7 + known[number % 16];
        return found;
    }
};
}
int main() {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    bind(listener, (sockaddr *)&address, length);
    getsockname(listener, (sockaddr *)&address, &length);
    listen(listener, 16);
    printf("port %d\\n", ntohs(address.sin_port));
    fflush(stdout);
    shop::Ranker<long> ranker;
    for (;;) {
        int client = accept(listener, 0, 0);
        char request[4096];
        if (read(client, request, sizeof request) < 0) return 1;
        std::string answer = "HTTP/1.0 200 OK\\r\\n\\r\\n" + std::to_string(ranker.hot_function(300000));
        if (write(client, answer.data(), answer.size()) < 0) return 1;
        close(client);
    }
}
"""


PHP = """
<?php
function hot_function($rounds) {
    $found = 0;
    for ($number = 0; $number < $rounds; $number++) $found += $number * $number % 7;
    return $found;
}
echo json_encode(["found" => hot_function(1000000)]);
"""

RUBY = """
require "webrick"
def hot_function(rounds)
  found = 0
  number = 0
  while number < rounds
    found += number * number % 7
    number += 1
  end
  found
end
server = WEBrick::HTTPServer.new(BindAddress: "127.0.0.1", Port: 0, AccessLog: [], Logger: WEBrick::Log.new(File::NULL))
server.mount_proc("/") { |request, response| response.body = hot_function(400000).to_s }
puts "port #{server.config[:Port]}"
$stdout.flush
server.start
"""


class Requests:
    """Sends requests, one after the other, until it is closed."""

    def __init__(self, port):
        self.url, self.ends, self.answered, self.count = f"http://127.0.0.1:{port}/", threading.Event(), threading.Event(), 0
        self.thread = threading.Thread(target=self.send, daemon=True)
        self.thread.start()
        assert self.answered.wait(PATIENCE), "the service answers"

    def send(self):
        while not self.ends.is_set():
            try:
                urllib.request.urlopen(self.url, timeout=PATIENCE).read()
                self.count += 1
                # By then a compiler at run time has compiled what is hot.
                if self.count >= 30:
                    self.answered.set()
            except OSError:
                self.ends.wait(0.05)

    def close(self):
        self.ends.set()
        self.thread.join()


def position(lines, place):
    """The number of the first line with the function and its place."""
    wanted = re.compile(rf"\b{HOT}\b.*{re.escape(place)}" if place else rf"\b{HOT}\b")
    return next((number for number, line in enumerate(lines, 1) if wanted.search(line)), None)


def shown(row, lines):
    """The lines, where the function is not among the first ones."""
    return "" if row is not None and row <= FIRST_LINES else ":\n" + "\n".join(lines)


def run(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=10 * PATIENCE)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def look(binary, name, command, place, folder):
    """Samples a service. `place` stands behind the function's name."""
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as service:
        try:
            port = next((line.split()[1] for line in service.stdout if line.startswith("port ")), None)
            expect(port is not None, f"{name}: the service starts")
            requests = Requests(port)
            if name == "java":
                run(["jcmd", str(service.pid), "Compiler.perfmap"], folder)
            which = ["--subprocesses", "--pid", str(service.pid)]
            text = run([binary, "sample", *which, "-d", "3", "-o", "own.svg"], folder).splitlines()
            top = run([binary, "top", *which, "-d", "3"], folder).split("\n\n")
            requests.close()
        finally:
            service.kill()
            subprocess.run(["pkill", "-KILL", "-P", str(service.pid)], check=False)
    row = position(text, place)
    expect(row is not None and row <= FIRST_LINES, f"{name}: {HOT} ({place}) is in line {row} of the text" + shown(row, text))
    last = top[-2 if len(top) > 1 else -1].splitlines()
    row = position(last, place)
    expect(row is not None and row <= FIRST_LINES, f"{name}: and in line {row} of top" + shown(row, last))
    root = xml.parse(os.path.join(folder, "own.svg")).getroot()
    space = "{http://www.w3.org/2000/svg}"
    cells = [(float(cell.find(f"{space}rect").get("y")), float(cell.find(f"{space}rect").get("width")))
             for cell in root.iter(f"{space}g") if re.search(rf"\b{HOT}\b", (cell.findtext(f"{space}title") or "").split("\n")[0])]
    widest = max(cells, key=lambda cell: cell[1], default=(None, 0))
    expect(widest[0] is not None and widest[0] <= FIRST_PIXELS, f"{name}: and {widest[0]} pixels from the top of the picture")


def succeeds(command):
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(text)
    return path


def services(python, packages, folder):
    """Each service: its name, its command, and what stands behind the function's name; or why it is left out."""
    for name, needs, text in [("flask", ["flask"], FLASK), ("fastapi", ["fastapi", "uvicorn"], FASTAPI),
                              ("django", ["django", "gunicorn"], DJANGO)]:
        missing = [need for need in needs if not succeeds([python, "-c", f"import {need}"])]
        script = write(folder, f"shop_{name}.py", text)
        yield name, [python, script], f"shop_{name}.py:", missing
    express = os.path.join(packages, "node_modules", "express")
    os.symlink(os.path.join(packages, "node_modules"), os.path.join(folder, "node_modules"))
    yield "express", ["node", write(folder, "shop.js", EXPRESS)], "shop.js:", [] if os.path.isdir(express) else [express]
    # PHP's server does not say which port the system chose for it.
    port, script = free_port(), write(folder, "shop.php", PHP.lstrip())
    yield "php", ["sh", "-c", f"echo port {port}; exec php -S 127.0.0.1:{port} {script}"], "shop.php:", (
        [] if shutil.which("php") else ["php"])
    has_webrick = shutil.which("ruby") and succeeds(["ruby", "-e", "require 'webrick'"])
    yield "ruby", ["ruby", write(folder, "shop.rb", RUBY)], "shop.rb:", [] if has_webrick else ["ruby with webrick"]
    write(folder, "Shop.java", JAVA)
    write(folder, "shop.go", GO)
    write(folder, "shop.rs", RUST)
    write(folder, "shop.cpp", CPP)
    for name, build, command, place in [
        ("java", ["javac", "Shop.java"], ["java", "-XX:+PreserveFramePointer", "Shop"], ""),
        ("go", ["go", "build", "-o", "shop_go", "shop.go"], ["./shop_go"], "shop.go:"),
        ("rust", ["rustc", "-g", "-O", "-o", "shop_rust", "shop.rs"], ["./shop_rust"], "shop.rs:"),
        ("c++", ["g++", "-g", "-O1", "-o", "shop_cpp", "shop.cpp"], ["./shop_cpp"], "shop.cpp:"),
    ]:
        missing = [] if shutil.which(build[0]) else [build[0]]
        if not missing:
            run(build, folder)
        yield name, command, place, missing


def main():
    binary, python, packages = os.path.abspath(sys.argv[1]), sys.argv[2], os.path.abspath(sys.argv[3])
    with tempfile.TemporaryDirectory() as folder:
        for name, command, place, missing in services(python, packages, folder):
            if missing:
                print(f"{name} is left out: there is no {', '.join(missing)}")
            else:
                look(binary, name, command, place, folder)
    print("interop: everything agrees")


if __name__ == "__main__":
    main()
