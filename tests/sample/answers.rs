//! Programs with known results.

use std::collections::HashMap;

use super::{CollapsedStacks, Sampling, by_some_run, measured, sample_known, stops, until_met};
use crate::process::{Finished, run};
use crate::targets::{TargetProgram, known};

/// The program's own measurement: nanoseconds of processor time by function or thread.
fn own_times(finished: &Finished) -> HashMap<&str, u64> {
    let entry = |(name, nano): (_, &str)| (name, nano.parse().unwrap());
    finished.stdout.lines().map(|line| line.split_once(' ').map(entry).unwrap()).collect()
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

/// Guarantees: eight sleeping threads do not hide the running one: it is first in the list, and the sleepers are listed
/// by what they wait for and where, with all of their time: eight times that of the running thread, which runs or waits
/// for a CPU the whole time.
#[test]
fn sleep_and_spin() {
    let folder = tempfile::tempdir().unwrap();
    by_some_run(|| {
        let mut program = TargetProgram::start(std::process::Command::new(known()).args(["sleep", "0"]));
        assert_eq!(program.line(), "ready\n");
        let sampling = Sampling::start(folder.path(), &["--mode", "wall", "--pid", &program.pid(), "-o", "out.folded"]);
        program.write_line();
        assert_eq!(program.line(), "seen\n");
        let finished = sampling.end("-INT");
        assert!(finished.status.success(), "{}", finished.stderr);
        assert!(program.is_alive());
        program.end();
        let stacks = CollapsedStacks::read(&folder.path().join("out.folded"));
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
        assert!(list[waits + 1].contains("  signal  ") && list[waits + 1].contains("doze (known"), "{list:?}");
        Ok(())
    });
}

/// Guarantees: functions of a running Rust program are shown as written in the source; no unrequested file is written.
#[test]
fn rust_by_pid() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = TargetProgram::hot("600");
    program.write_line();
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
