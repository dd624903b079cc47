//! `profbridge sample` on programs whose times are known, and what it says where it cannot sample.

mod answers;
mod ends;
mod errors;

use std::collections::HashMap;
use std::path::Path;

use crate::process::{Finished, run};
use crate::targets::known;

/// Collapsed stacks with their nanoseconds, root first.
struct Stacks(Vec<(Vec<String>, u64)>);

impl Stacks {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let line = |line: &str| {
            let (stack, weight) = line.rsplit_once(' ').unwrap();
            (stack.split(';').map(str::to_owned).collect(), weight.parse().unwrap())
        };
        Self(text.lines().map(line).collect())
    }

    /// The stacks under a root, without it.
    fn under(&self, root: &str) -> Self {
        let inside = self.0.iter().filter(|(stack, _)| stack[0] == root);
        Self(inside.map(|(stack, nano)| (stack[1..].to_vec(), *nano)).collect())
    }

    /// All time.
    fn nano(&self) -> u64 {
        self.0.iter().map(|(_, nano)| nano).sum()
    }

    /// The time with a function anywhere on the stack.
    fn total(&self, function: &str) -> u64 {
        self.0.iter().filter(|(stack, _)| stack.iter().any(|name| name == function)).map(|(_, nano)| nano).sum()
    }

    /// The time by innermost function.
    fn by_leaf(&self) -> HashMap<&str, u64> {
        let mut leaves = HashMap::new();
        for (stack, nano) in &self.0 {
            *leaves.entry(stack.last().unwrap().as_str()).or_default() += nano;
        }
        leaves
    }

    /// The innermost function with most time.
    fn hottest(&self) -> &str {
        self.by_leaf().into_iter().max_by_key(|&(_, nano)| nano).unwrap().0
    }

    /// A part of all time, in percent.
    fn percent(&self, nano: u64) -> f64 {
        nano as f64 * 100.0 / self.nano() as f64
    }
}

/// Samples the known program from start to end into `out.folded`.
fn sample_known(folder: &Path, options: &[&str], what: &str, seconds: &str) -> (Finished, Stacks) {
    let program = known().to_str().unwrap();
    let arguments = [&["sample", "-o", "out.folded"], options, &["--", program, what, seconds]].concat();
    let finished = run(folder, &arguments);
    assert!(finished.status.success(), "{}", finished.stderr);
    let stacks = Stacks::read(&folder.join("out.folded"));
    (finished, stacks)
}
