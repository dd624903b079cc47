//! Programs whose functions have no names for a native profiler, and the hints about it.

use std::io::Write;
use std::process::{Command, Stdio};

use super::{alone, by_some_run, measured, stops};
use crate::process::run;

/// Computes for two seconds of its own processor time.
const NODE: &str = "function hot(n) { let x = 0; for (let i = 0; i < n; i++) { x = (x * 31 + i) | 0; } return x; }
let sum = 0;
while (process.cpuUsage().user < 2e6) { sum += hot(100000); }
console.log(sum);
";

const JAVA: &str = "public class Hot {
    static int hot(int n) { int x = 0; for (int i = 0; i < n; i++) { x = x * 31 + i + (x >> 3); } return x; }
    public static void main(String[] arguments) {
        var times = java.lang.management.ManagementFactory.getThreadMXBean();
        int sum = 0;
        while (times.getCurrentThreadCpuTime() < 2_000_000_000L) { sum += hot(100000); }
        System.out.println(sum);
    }
}
";

fn is_there(program: &str, argument: &str) -> bool {
    let found = Command::new(program).arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        writeln!(std::io::stderr(), "untested here: there is no `{program}`").ok();
    }
    found.is_ok()
}

fn sampled(folder: &std::path::Path, command: &[&str]) -> String {
    let alone = alone();
    let finished = run(folder, &[&["sample", "-o", "out.svg"], stops(), &["--"], command].concat());
    drop(alone);
    assert!(finished.status.success(), "{}", finished.stderr);
    finished.stderr
}

/// Guarantees: for a Node program that is read from memory no flag is suggested, whether it was started with one or
/// not.
#[test]
fn node() {
    if !is_there("node", "--version") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("hot.js"), NODE).unwrap();
    let flags = ["node", "--perf-basic-prof", "--interpreted-frames-native-stack", "hot.js"];
    for command in [&["node", "hot.js"][..], &flags] {
        by_some_run(|| {
            let said = sampled(folder.path(), command);
            // Functions read late on a busy machine have no names, which is reported above a threshold.
            let is_named = !said.contains("of running time is in functions without names");
            measured!(is_named && said.contains("  hot"), "{said}");
            Ok(())
        });
    }
}

/// Guarantees: for a Java program the report says how to get names for its methods and complete stacks.
#[test]
fn java() {
    if !is_there("java", "-version") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("Hot.java"), JAVA).unwrap();
    let said = sampled(folder.path(), &["java", "Hot.java"]);
    for part in
        ["runs Java (HotSpot); ", "jcmd PID Compiler.perfmap", "-XX:+DumpPerfMapAtExit", "-XX:+PreserveFramePointer"]
    {
        assert!(said.contains(part), "no `{part}`: {said}");
    }
}
