//! Node programs, on every Node version found, in each tier of V8.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{CollapsedStacks, alone, by_some_run, measured, stops};
use crate::process::{Finished, run, untested};

/// Functions with known shares of time, and callers of every kind; it prints the shares measured by its own clock.
const SHARES: &str = r#"
'use strict';
class Shop {
  constructor() { this.spent = [0, 0, 0]; this.sum = 0; }
  timed(slot, work, count) {
    const start = used();
    this.sum += work(count);
    this.spent[slot] += used() - start;
  }
  get step() {
    this.timed(0, seventy, 2100000);
    this.timed(1, (count) => twenty(count), 600000);
    [1].forEach(function each() { shop.timed(2, ten, 300000); });
    return this.sum;
  }
}
function seventy(count) { let x = 0; for (let i = 0; i < count; i++) x = (x * 31 + i) | 0; return x; }
function twenty(count) { let x = 0; for (let i = 0; i < count; i++) x = (x * 33 + i) | 0; return x; }
function ten(count) { let x = 0; for (let i = 0; i < count; i++) x = (x * 35 + i) | 0; return x; }
function used() { const { user, system } = process.cpuUsage(); return user + system; }
function* steps() { for (;;) yield shop.step; }
const shop = new Shop();
async function main(end) {
  await null;
  for (const _ of steps()) if (used() > end) break;
  const all = shop.spent.reduce((one, other) => one + other);
  console.log(JSON.stringify(shop.spent.map((part) => part * 100 / all)));
}
main(Number(process.argv[2]) * 1000000);
"#;

/// Two threads: one computes, and the main thread waits.
const THREADS: &str = r#"
'use strict';
const { Worker, isMainThread, workerData } = require('worker_threads');
function computes(end) { let x = 0; while (process.cpuUsage().user < end) for (let i = 0; i < 9999; i++) x = (x * 31 + i) | 0; return x; }
function waits(word) { return Atomics.wait(word, 0, 0, 100000); }
if (isMainThread) {
  const word = new Int32Array(new SharedArrayBuffer(4));
  new Worker(__filename, { workerData: word });
  if (waits(word) !== 'ok') process.exit(3);
} else {
  computes(2000000);
  Atomics.store(workerData, 0, 1);
  Atomics.notify(workerData, 0);
}
"#;

/// Functions that are compiled, run once and discarded: name, file and line have the same number.
const MADE: &str = r#"
'use strict';
const vm = require('vm');
for (let number = 0; process.cpuUsage().user < 2000000; number++) {
  const text = '\n'.repeat(number % 100) + `(function made_${number}(end) {
    let x = 0; while (process.hrtime.bigint() < end) for (let i = 0; i < 99; i++) x += i; return x; })`;
  const made = new vm.Script(text, { filename: `/made/${number}.js` }).runInThisContext();
  made(process.hrtime.bigint() + 1000000n);
}
"#;

/// A module that runs a Python program in the thread that loads it.
const EMBEDS: &str = r#"
#include <dlfcn.h>
#include <stdlib.h>
void *napi_register_module_v1(void *environment, void *exports) {
  void *python = dlopen(getenv("LIBPYTHON"), RTLD_NOW | RTLD_GLOBAL);
  if (!python) abort();
  ((void (*)(int))dlsym(python, "Py_InitializeEx"))(0);
  ((int (*)(const char *))dlsym(python, "PyRun_SimpleString"))(getenv("PROGRAM"));
  return exports;
}
"#;

/// The Nodes of this machine with their major versions: the one on the path, and those named by the environment
/// variable.
fn nodes() -> Vec<(u32, PathBuf)> {
    let named = std::env::var_os("PROFBRIDGE_TEST_NODES").unwrap_or_default();
    let named: Vec<PathBuf> = std::env::split_paths(&named).collect();
    let answer = |node: PathBuf| {
        let said = Command::new(&node).arg("--version").output().ok()?.stdout;
        let said = String::from_utf8(said).ok()?;
        let major = said.trim().strip_prefix('v')?.split('.').next()?.parse().ok()?;
        Some((major, node))
    };
    let found: Vec<_> = std::iter::once(PathBuf::from("node")).chain(named).filter_map(answer).collect();
    for major in [18, 20, 22, 24] {
        if found.iter().all(|(known, _)| *known != major) {
            untested(&format!("there is no Node {major}"));
        }
    }
    found.into_iter().filter(|(major, _)| [18, 20, 22, 24].contains(major)).collect()
}

/// The given flags that a Node supports.
fn known<'a>(node: &Path, flags: &[&'a str]) -> Vec<&'a str> {
    let knows = |flag: &&str| Command::new(node).args([*flag, "-e", "0"]).output().unwrap().status.success();
    flags.iter().copied().filter(knows).collect()
}

/// Samples a program from start to end into a file in this folder.
fn sampled(folder: &Path, node: &Path, output: &str, arguments: &[&str]) -> Finished {
    let options = ["sample", "--verbose", "--rate", "499", "-o", output];
    let arguments = [&options, stops(), &["--", node.to_str().unwrap()], arguments].concat();
    let alone = alone();
    let finished = run(folder, &arguments);
    drop(alone);
    assert!(finished.status.success(), "{node:?}: {}", finished.stderr);
    finished
}

/// The sampled stacks without thread names: Node's main thread is called `main`, like functions of the programs.
fn stacks_of(folder: &Path) -> CollapsedStacks {
    let mut stacks = CollapsedStacks::read(&folder.join("out.folded"));
    stacks.0.iter_mut().for_each(|(stack, _)| drop(stack.remove(1)));
    stacks
}

/// The percentage of unknown functions, relative to the time with `within` on the stack: before the program runs,
/// samples may be in code that is not known yet.
fn untold(stacks: &CollapsedStacks, within: &str) -> f64 {
    let all = stacks.0.iter().filter(|(stack, _)| stack.iter().any(|name| name == within));
    let is_untold = |stack: &[String]| stack.iter().any(|name| name == "[unknown function]" || name == "[unknown]");
    let (mut whole, mut untold) = (0, 0);
    for (stack, nano) in all {
        whole += nano;
        untold += if is_untold(stack) { *nano } else { 0 };
    }
    untold as f64 * 100.0 / whole as f64
}

/// Whether the report divides the running time by quality, with parts that sum up to 100 %.
fn says_quality(finished: &Finished) -> bool {
    let line = finished.stderr.lines().find_map(|line| line.strip_prefix("running time of Node: "));
    let parts = line.unwrap_or_default().split(", ").map(|part| part.split(' ').next()?.parse::<f64>().ok());
    parts.sum::<Option<f64>>().is_some_and(|sum| (sum - 100.0).abs() < 0.2)
}

/// Guarantees: in every version and tier of V8, functions have the share of time that the program's own clock measures;
/// in nine tenths of the time every function is known; and callers are in the right order: getters, arrow functions,
/// built-in functions that call back, generators and asynchronous functions.
#[test]
fn shares() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shares.js"), SHARES).unwrap();
    let tiers: [(&str, &[&str]); 4] = [
        ("Ignition", &["--no-opt", "--no-sparkplug", "--no-maglev", "--max-opt=0"]),
        ("Sparkplug", &["--no-opt", "--no-maglev", "--always-sparkplug"]),
        // Functions inlined by Maglev are not known.
        ("Maglev", &["--maglev", "--max-opt=2", "--no-maglev-inlining"]),
        ("TurboFan", &["--no-maglev-inlining"]),
    ];
    for (major, node) in nodes() {
        for (tier, flags) in tiers {
            let flags = known(&node, flags);
            let arguments = [&flags[..], &["shares.js", "3"]].concat();
            by_some_run(|| {
                let finished = sampled(folder.path(), &node, "out.folded", &arguments);
                assert!(says_quality(&finished), "Node {major}, {tier}: {}", finished.stderr);
                let stacks = stacks_of(folder.path());
                let running =
                    CollapsedStacks(stacks.0.iter().filter(|(stack, _)| stack[0] != "[waiting]").cloned().collect());
                let untold = untold(&running, "main");
                // On a busy machine a new closure may have moved or been freed before it is read.
                measured!(untold < 10.0, "Node {major}, {tier}: {untold:.2} % is not told");
                let said: Vec<f64> = serde_json::from_str(finished.stdout.trim()).unwrap();
                let names = ["seventy", "twenty", "ten"];
                let sum: u64 = names.iter().map(|name| running.total(name)).sum();
                for (name, said) in names.iter().zip(said) {
                    let share = running.total(name) as f64 * 100.0 / sum as f64;
                    // Five times the standard deviation of a thousand samples.
                    measured!(
                        (share - said).abs() < 7.0,
                        "Node {major}, {tier}: {name} has {share:.1} %, and says {said} %"
                    );
                }
                let own: u64 = running.total("main");
                measured!(sum * 100 > own * 90, "Node {major}, {tier}: {sum} of {own} ns");
                for (stack, nano) in &running.0 {
                    let Some(first) = stack.iter().position(|name| name == "main") else { continue };
                    let shown: Vec<&str> = stack[first..].iter().map(String::as_str).collect();
                    let known = |wanted: &[&str]| {
                        let mut shown = shown.iter();
                        wanted.iter().all(|wanted| shown.any(|name| name == wanted))
                    };
                    let in_order = match shown.iter().find(|name| names.contains(name)) {
                        Some(&"seventy") => known(&["main", "steps", "get step", "timed", "seventy"]),
                        Some(&"twenty") => known(&["main", "steps", "get step", "timed", "<anonymous>", "twenty"]),
                        Some(_) => known(&["main", "steps", "get step", "each", "timed", "ten"]),
                        None => true,
                    };
                    // At the instruction where a frame is entered or left, its caller is uncertain.
                    assert!(in_order || *nano * 50 < own, "Node {major}, {tier}: {nano} ns {shown:?}");
                }
                Ok(())
            });
        }
    }
}

/// Guarantees: isolates of other threads are read like the first one; a blocked thread shows the function that waits,
/// and is not stopped, so its wait is not interrupted.
#[test]
fn threads() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("threads.js"), THREADS).unwrap();
    for (major, node) in nodes() {
        by_some_run(|| {
            let finished = sampled(folder.path(), &node, "out.folded", &["threads.js"]);
            assert!(finished.stderr.contains(" 0 stops") || !stops().is_empty(), "Node {major}: {}", finished.stderr);
            let stacks = stacks_of(folder.path());
            let (waiting, running): (Vec<_>, Vec<_>) =
                stacks.0.into_iter().partition(|(stack, _)| stack[0] == "[waiting]");
            let (waits, computes) =
                (CollapsedStacks(waiting).total("waits"), CollapsedStacks(running).total("computes"));
            // The program's start is part of its two seconds, and a busy machine samples rarely.
            measured!(waits > 500_000_000 && computes > 500_000_000, "Node {major}: {waits} and {computes} ns");
            Ok(())
        });
    }
}

/// Guarantees: functions that are constantly compiled and discarded never get the file or the line of another one.
#[test]
fn thrown_away() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("made.js"), MADE).unwrap();
    for (major, node) in nodes() {
        // Of all runs together: a busy machine rarely samples functions that last for a millisecond.
        let mut seen = BTreeSet::new();
        by_some_run(|| {
            sampled(folder.path(), &node, "out.envelope", &["made.js"]);
            let text = std::fs::read_to_string(folder.path().join("out.envelope")).unwrap();
            for chunk in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
                for frame in chunk["profile"]["frames"].as_array().into_iter().flatten() {
                    let (name, file) =
                        (frame["function"].as_str().unwrap_or(""), frame["filename"].as_str().unwrap_or(""));
                    // TurboFan may have inlined other functions into it, which its frame shows.
                    let name = name.strip_suffix(" [with inlined functions]").unwrap_or(name);
                    let of_name = name.strip_prefix("made_");
                    let of_file = file.strip_prefix("/made/").and_then(|file| file.strip_suffix(".js"));
                    if name.is_empty() || (of_name.is_none() && of_file.is_none()) {
                        continue;
                    }
                    // The script itself, whose value is the function. It is compiled without positions, so it only has
                    // a line if V8 needed one.
                    if name == "<anonymous>" && matches!(frame["lineno"].as_u64(), None | Some(1)) {
                        continue;
                    }
                    assert_eq!(of_name, of_file, "Node {major}: {frame}");
                    seen.insert(name.to_owned());
                }
            }
            measured!(seen.len() > 5, "Node {major}: {} functions", seen.len());
            Ok(())
        });
    }
}

/// Guarantees: if a function of a Node program calls Python, one stack contains the functions of both, in order.
#[test]
fn with_python() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("embeds.c"), EMBEDS).unwrap();
    let options = ["-shared", "-fPIC", "-o", &path("embeds.node"), &path("embeds.c"), "-ldl"];
    assert!(Command::new("cc").args(options).status().unwrap().success());
    let question = "import sys, sysconfig as s; print(s.get_config_var('LIBDIR') + '/' + s.get_config_var('LDLIBRARY'), sys.base_prefix)";
    let library = |(_, python): &(u32, PathBuf)| {
        let said = Command::new(python).args(["-c", question]).output().ok()?.stdout;
        let (library, prefix) = String::from_utf8(said)
            .ok()?
            .trim()
            .split_once(' ')
            .map(|(one, other)| (one.to_owned(), other.to_owned()))?;
        (library.ends_with(".so") && Path::new(&library).exists()).then_some((library, prefix))
    };
    let Some((library, prefix)) = super::python::pythons().iter().rev().find_map(library) else {
        return untested("there is no Python with a shared library");
    };
    std::fs::write(
        path("calls.js"),
        "function calls() { process.dlopen({ exports: {} }, './embeds.node'); }\ncalls();\n",
    )
    .unwrap();
    let program = "import time\ndef spins():\n    while time.process_time() < 2: sum(range(9999))\nspins()\n";
    for (major, node) in nodes() {
        let environment =
            [format!("LIBPYTHON={library}"), format!("PYTHONHOME={prefix}"), format!("PROGRAM={program}")];
        let environment: Vec<&str> = environment.iter().map(String::as_str).collect();
        let command = [&environment[..], &[node.to_str().unwrap(), "calls.js"]].concat();
        by_some_run(|| {
            sampled(folder.path(), Path::new("/usr/bin/env"), "out.folded", &command);
            let running = stacks_of(folder.path());
            let running: Vec<_> = running.0.into_iter().filter(|(stack, _)| stack[0] != "[waiting]").collect();
            let nano = |wanted: &[&str]| -> u64 {
                let has = |stack: &[String]| {
                    let mut stack = stack.iter();
                    wanted.iter().all(|wanted| stack.any(|name| name == wanted))
                };
                running.iter().filter(|(stack, _)| has(stack)).map(|(_, nano)| nano).sum()
            };
            let (spins, both) = (nano(&["spins"]), nano(&["calls", "spins"]));
            measured!(spins > 1_000_000_000 && both * 100 > spins * 98, "Node {major}: {both} of {spins} ns");
            Ok(())
        });
    }
}
