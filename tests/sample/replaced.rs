//! Code that appears, disappears and changes at one address: names are those at the time of the sample.

use std::path::Path;

use super::{CollapsedStacks, alone, by_some_run, measured, stops};
use crate::process::run;
use crate::targets::replaced;

/// The tolerance for a share of the time, in percentage points: four times the expected deviation of some 200 samples.
const TOLERANCE: f64 = 14.0;

/// Samples the program. Returns the stacks, and the functions' processor times by its own clock.
fn sample(folder: &Path, arguments: &[&str]) -> (CollapsedStacks, Vec<(String, u64)>) {
    let program = replaced().to_str().unwrap();
    let options = ["sample", "-o", "out.folded", "--mode", "cpu"];
    let alone = alone();
    let finished = run(folder, &[&options, stops(), &["--", program], arguments].concat());
    drop(alone);
    assert!(finished.status.success(), "{}", finished.stderr);
    let stacks = CollapsedStacks::read(&folder.join("out.folded")).sampled();
    let spent = finished.stdout.lines().map(|line| {
        let (name, nano) = line.split_once(' ').unwrap();
        (name.to_owned(), nano.parse().unwrap())
    });
    (stacks, spent.collect())
}

/// Checks that each function has its share of the total time.
fn are_right(stacks: &CollapsedStacks, spent: &[(String, u64)]) -> Result<(), String> {
    let all: u64 = spent.iter().map(|(_, nano)| nano).sum();
    for (name, nano) in spent {
        let (shown, right) = (stacks.percent(stacks.total(name)), *nano as f64 * 100.0 / all as f64);
        measured!((shown - right).abs() < TOLERANCE, "{name}: {shown} %, not {right} %: {:?}", stacks.by_leaf());
    }
    Ok(())
}

/// Guarantees: code compiled at an address that other code had before has its own name from then on, and the earlier
/// code keeps its name, whether the names are in a perf map or a jitdump file.
#[test]
fn code_at_one_address() {
    let folder = tempfile::tempdir().unwrap();
    for how in ["compiled", "dumped"] {
        by_some_run(|| {
            let (stacks, spent) = sample(folder.path(), &[how]);
            are_right(&stacks, &spent)
        });
    }
}

/// Guarantees: text that a program moves to memory without a file keeps its names and callers, whether or not the
/// kernel reports the move.
#[test]
fn moved_text() {
    let folder = tempfile::tempdir().unwrap();
    for how in ["moved", "mapped"] {
        by_some_run(|| {
            let (stacks, _) = sample(folder.path(), &[how]);
            let with = |names: &[&str]| {
                let all = |stack: &[String]| names.iter().all(|name| stack.iter().any(|known| known == name));
                stacks.percent(stacks.0.iter().filter(|(stack, _)| all(stack)).map(|(_, nano)| nano).sum())
            };
            let (named, called) = (with(&["moved_work"]), with(&["moved_work", "moved_caller", "moved"]));
            measured!(named > 90.0, "{how}: {named} % named: {:?}", stacks.by_leaf());
            measured!(called > 80.0, "{how}: {called} % with callers: {:?}", stacks.0);
            Ok(())
        });
    }
}
