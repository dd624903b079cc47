#!/usr/bin/env python3
"""Checks what the lock file brings in, without a network: licences, sources, banned crates, and how many there are.

Reads the rules from deny.toml, so that `cargo deny check` and this script cannot disagree.
"""

import json
import re
import subprocess
import sys
import tomllib

MOST_PACKAGES = 300
"""A lock file stays readable below this; every dependency is somebody's work to review."""


def alternatives(expression):
    """Splits an SPDX expression into sets of licences of which one set must be allowed as a whole."""
    expression = expression.replace("/", " OR ")
    tokens = re.findall(r"\(|\)|[^\s()]+", expression)
    tokens = re.sub(r" WITH ", "_WITH_", " ".join(tokens)).split()

    def parse_or(i):
        left, i = parse_and(i)
        while i < len(tokens) and tokens[i] == "OR":
            right, i = parse_and(i + 1)
            left = left + right
        return left, i

    def parse_and(i):
        left, i = parse_atom(i)
        while i < len(tokens) and tokens[i] == "AND":
            right, i = parse_atom(i + 1)
            left = [a | b for a in left for b in right]
        return left, i

    def parse_atom(i):
        if tokens[i] == "(":
            inner, i = parse_or(i + 1)
            return inner, i + 1
        return [{tokens[i].replace("_WITH_", " WITH ")}], i + 1

    return parse_or(0)[0]


def main():
    with open("deny.toml", "rb") as file:
        rules = tomllib.load(file)
    allowed = set(rules["licenses"]["allow"])
    exceptions = {e["crate"]: set(e["allow"]) for e in rules["licenses"].get("exceptions", [])}
    banned = {b["crate"] for b in rules["bans"].get("deny", [])}
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    for target in rules["graph"]["targets"]:
        command += ["--filter-platform", target]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    problems = []
    used = {node["id"] for node in metadata["resolve"]["nodes"]}
    for package in metadata["packages"]:
        if package["id"] not in used:
            continue
        name = package["name"]
        if package["source"] is None:
            continue
        if not package["source"].startswith("registry+"):
            problems.append(f"{name}: comes from {package['source'].split('+')[0]}, not from a registry")
        if name in banned:
            problems.append(f"{name}: is banned by deny.toml")
        expression = package["license"]
        if not expression:
            problems.append(f"{name}: names no licence")
            continue
        may = allowed | exceptions.get(name, set())
        if not any(licences <= may for licences in alternatives(expression)):
            problems.append(f"{name}: licence {expression} is not allowed by deny.toml")
    with open("Cargo.lock", "rb") as file:
        packages = len(tomllib.load(file)["package"])
    if packages >= MOST_PACKAGES:
        problems.append(f"Cargo.lock has {packages} packages, {MOST_PACKAGES} or more")
    for problem in problems:
        print(f"licences: {problem}", file=sys.stderr)
    print(f"licences: {len(used)} packages checked, {packages} in Cargo.lock, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
