//! Programs with known results.

use std::collections::HashMap;

use super::{Sampling, Stacks, by_some_run, measured, permitted, sample_known, stops, until_met};
use crate::process::{Finished, run};
use crate::targets::{TargetProgram, known};

/// The program's own measurement: nanoseconds of processor time by function or thread.
fn own_times(finished: &Finished) -> HashMap<&str, u64> {
    let entry = |(name, nano): (_, &str)| (name, nano.parse().unwrap());
    finished.stdout.lines().map(|line| line.split_once(' ').map(entry).unwrap()).collect()
}

/// Guarantees: for a program that spends 70 %, 20 % and 10 % of its processor time in three functions and measures this
/// itself, the result is within two percentage points.
#[test]
fn shares() {
    let folder = tempfile::tempdir().unwrap();
    // If threads have to be stopped, a saturated machine gives fewer samples in the same time.
    let seconds = if permitted() { "8" } else { "25" };
    by_some_run(|| {
        let (finished, stacks) = sample_known(folder.path(), &["--mode", "cpu"], "shares", seconds);
        let truth = own_times(&finished);
        let all: u64 = truth.values().sum();
        let sampled = stacks.sampled();
        assert_eq!(truth.len(), 3, "{}", finished.stdout);
        for (name, nano) in truth {
            let expected = nano as f64 * 100.0 / all as f64;
            let measured = sampled.percent(sampled.total(name));
            measured!((measured - expected).abs() < 2.0, "{name}: {measured:.2} %, expected {expected:.2} %");
        }
        let sum = stacks.nano() as f64;
        measured!((sum / all as f64 - 1.0).abs() < 0.1, "{sum} of {all} ns were measured");
        assert_eq!(sampled.hottest(), "seventy");
        Ok(())
    });
}

/// Guarantees: at one sample per second the result has as much running time as the program used, up to its end.
#[test]
fn one_sample_in_a_second() {
    let folder = tempfile::tempdir().unwrap();
    by_some_run(|| {
        let (finished, stacks) = sample_known(folder.path(), &["--mode", "cpu", "--rate", "1"], "shares", "2");
        let all: u64 = own_times(&finished).values().sum();
        let sum = stacks.nano();
        measured!((sum as f64 / all as f64 - 1.0).abs() < 0.1, "{sum} of {all} ns");
        Ok(())
    });
}

/// Guarantees: each recursive call is a frame, down to the root, and the function is one row in the list of functions.
#[test]
fn recursion() {
    let folder = tempfile::tempdir().unwrap();
    by_some_run(|| {
        // Processor time, because the program's start-up time on a busy machine has nothing to do with its calls.
        let (finished, stacks) = sample_known(folder.path(), &["--mode", "cpu"], "recursion", "4");
        let deep = |stack: &[String]| stack.iter().filter(|name| *name == "descend").count() == 20;
        let stacks = stacks.sampled();
        let whole: u64 = stacks.0.iter().filter(|(stack, _)| deep(stack)).map(|(_, nano)| nano).sum();
        measured!(stacks.percent(whole) > 95.0, "{:.1} %", stacks.percent(whole));
        let rows: Vec<&str> =
            finished.stderr.lines().filter(|line| line.starts_with("  ") && line.contains("descend")).collect();
        assert!(rows.len() <= 1 && !rows[0].contains("descend > descend"), "{rows:?}");
        let percent: f64 = rows[0].split_whitespace().next().unwrap().parse().unwrap();
        measured!((95.0..=100.0).contains(&percent), "{rows:?}");
        Ok(())
    });
}

/// Guarantees: inlined functions have their own frames, in the order of their calls.
#[test]
fn inlined() {
    let folder = tempfile::tempdir().unwrap();
    by_some_run(|| {
        let (_, stacks) = sample_known(folder.path(), &["--mode", "cpu"], "inlined", "1");
        let wanted = ["main", "outermost", "middle", "innermost"];
        let in_order = |stack: &[String]| stack.windows(4).any(|window| window == wanted);
        let found: u64 = stacks.0.iter().filter(|(stack, _)| in_order(stack)).map(|(_, nano)| nano).sum();
        let share = found as f64 / stacks.total("outermost") as f64;
        // Of a second of processor time.
        measured!(share > 0.95 && found > 500_000_000, "{share:.3}: {:?}", stacks.0);
        Ok(())
    });
}

/// Guarantees: each thread's time has its name and its function, and equals the processor time that the thread measured
/// itself, except for the time after its last sample. With a hundred samples, each of a duration that varies by a
/// third, a single thread may be off by a few of them, and all threads together by less.
#[test]
fn threads() {
    let folder = tempfile::tempdir().unwrap();
    by_some_run(|| {
        let (finished, stacks) = sample_known(folder.path(), &["--mode", "cpu"], "threads", "1");
        let truth = own_times(&finished);
        let (mut all, mut used) = (0, 0);
        for (thread, function) in [("first", "first_work"), ("second", "second_work"), ("third", "third_work")] {
            let own = stacks.under(thread);
            let sampled = own.sampled();
            measured!(sampled.percent(sampled.total(function)) > 90.0, "{thread}: {:?}", own.0);
            let share = own.nano() as f64 / truth[thread] as f64;
            measured!((0.8..1.1).contains(&share), "{thread} used {} ns, {} were measured", truth[thread], own.nano());
            (all, used) = (all + own.nano(), used + truth[thread]);
        }
        let share = all as f64 / used as f64;
        measured!((0.8..1.05).contains(&share), "the threads used {used} ns, {all} were measured");
        Ok(())
    });
}

/// Guarantees: eight sleeping threads do not hide the running one: it is first in the list, and the sleepers are listed
/// by what they wait for and where, with all of their time: eight times that of the running thread, which runs or waits
/// for a CPU meanwhile.
#[test]
fn sleep_and_spin() {
    let folder = tempfile::tempdir().unwrap();
    by_some_run(|| {
        let mut program = TargetProgram::start(std::process::Command::new(known()).args(["sleep", "0"]));
        assert_eq!(program.line(), "ready\n");
        let sampling = Sampling::start(folder.path(), &["--mode", "wall", "--pid", &program.pid(), "-o", "out.folded"]);
        program.tell();
        assert_eq!(program.line(), "seen\n");
        let finished = sampling.end("-INT");
        assert!(finished.status.success(), "{}", finished.stderr);
        assert!(program.is_alive());
        program.end();
        let stacks = Stacks::read(&folder.path().join("out.folded"));
        let (running, waiting) = (stacks.under("[running]"), stacks.under("[waiting]"));
        let sampled = running.sampled();
        measured!(sampled.hottest() == "first_work", "{:?}", sampled.0);
        measured!(sampled.percent(sampled.total("spin")) > 90.0, "{:?}", sampled.0);
        let (sleeping, queued) = (waiting.total("doze"), waiting.total("[waiting for a processor]"));
        measured!(waiting.percent(sleeping + queued) > 95.0, "{:?}", waiting.0);
        let times = sleeping as f64 / (running.nano() + queued) as f64;
        measured!((7.0..9.0).contains(&times), "eight sleep while one runs; measured {times:.1} times its time");
        let list: Vec<&str> = finished.stdout.lines().skip_while(|line| !line.starts_with("running: ")).collect();
        measured!(list[1].starts_with("hottest: ") && list[1].contains("first_work"), "{list:?}");
        let waits = list.iter().position(|line| line.starts_with("waiting: ")).unwrap();
        assert!(list[waits + 1].contains("  sleeping  ") && list[waits + 1].contains("doze (known"), "{list:?}");
        Ok(())
    });
}

/// Guarantees: a Python program that computes hashes is shown doing so, although Python 3.11 does not reveal its own
/// functions to a native profiler. `python3` may be a script that executes the interpreter: the run follows it.
#[test]
fn python_hashes() {
    let folder = tempfile::tempdir().unwrap();
    let program = "import hashlib, time
data = bytes(32 << 20)
end = time.process_time() + 2
while time.process_time() < end:
    hashlib.sha256(data).digest()
";
    by_some_run(|| {
        let finished = run(
            folder.path(),
            &[&["sample", "-m", "cpu", "-o", "out.folded"], stops(), &["--", "python3", "-c", program]].concat(),
        );
        if finished.status.code() == Some(127) {
            let why = format_args!("untested here: there is no python3\n");
            std::io::Write::write_fmt(&mut std::io::stderr(), why).ok();
            return Ok(());
        }
        assert!(finished.status.success(), "{}", finished.stderr);
        let stacks = Stacks::read(&folder.path().join("out.folded")).sampled();
        let hottest = stacks.hottest().to_lowercase();
        // Distributions strip the names of OpenSSL's assembler functions; then its file name is shown.
        assert!(hottest.contains("sha256") || hottest.contains("libcrypto"), "{hottest}\n{}", finished.stderr);
        let inside: u64 = stacks
            .0
            .iter()
            .filter(|(stack, _)| stack.iter().any(|name| name.starts_with("EVP_") || name.starts_with("Py")))
            .map(|(_, nano)| nano)
            .sum();
        // The interpreter's start-up has other callers, and its share depends on the machine.
        measured!(stacks.percent(inside) > 90.0, "callers are known: {:.1} %", stacks.percent(inside));
        Ok(())
    });
}

/// Guarantees: functions of a running Rust program are shown as written in the source; no unrequested file is written.
#[test]
fn rust_by_pid() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = TargetProgram::hot("600");
    program.tell();
    let pid = program.pid();
    let arguments = [&["sample", "--pid", &pid, "--duration", "2"], stops()].concat();
    by_some_run(|| {
        let finished = until_met(|| run(folder.path(), &arguments));
        assert!(finished.status.success(), "{}", finished.stderr);
        assert!(program.is_alive(), "it goes on as if nothing had happened");
        let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(files, [format!("profile-{pid}.svg").as_str()]);
        let path = folder.path().join(&files[0]);
        let svg = std::fs::read_to_string(&path).unwrap();
        // Each run starts with an empty folder.
        std::fs::remove_file(&path).unwrap();
        let list: Vec<&str> = finished.stdout.lines().collect();
        assert!(list[0].starts_with("running: "), "{list:?}");
        assert!(list.last().unwrap().contains(&format!("profile-{pid}.svg")), "{list:?}");
        // A parked thread waits in the kernel; the useful information is where the program parked it.
        let waits = list.iter().skip_while(|line| !line.starts_with("waiting: "));
        assert!(waits.clone().any(|line| line.contains("hot::main")), "{list:?}");
        assert!(svg.contains("<title>waiting\n"), "{list:?}");
        // If other programs used the CPUs for two seconds, the program may hardly have run.
        let is_first = list[1].starts_with("hottest: ") && list[1].contains("hot::crunch::hot_function");
        measured!(is_first && svg.contains("hot::crunch::hot_function"), "{list:?}");
        Ok(())
    });
    program.end();
}
