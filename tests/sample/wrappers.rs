//! Commands that start another one to do the work.

use std::process::{Command, Stdio};

use super::{CollapsedStacks, Sampling};
use crate::process::untested;
use crate::targets::worker;

/// Samples the worker below a wrapper, and ends it once it is sampled.
fn sample(wrapper: &[&str], name: &str) -> Option<(tempfile::TempDir, crate::process::Finished)> {
    if Command::new(wrapper[0]).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        untested(&format!("there is no `{}`", wrapper[0]));
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = worker().to_str().unwrap();
    let shell = format!("{program}; true");
    let words: Vec<&str> = match wrapper {
        [shell_name, "-c"] => vec![shell_name, "-c", &shell],
        wrapper => [wrapper, &[program]].concat(),
    };
    let mut sampling = Sampling::start(folder.path(), &[&["-o", name, "--"], &words[..]].concat());
    sampling.wait_for(" worker (pid ");
    let finished = sampling.ended();
    assert!(finished.status.success(), "{wrapper:?}: {}", finished.stderr);
    Some((folder, finished))
}

/// Guarantees: whether a wrapper executes the working program in its own process or as a child, the work is shown under
/// the program's own name, and none under the wrapper's.
#[test]
fn the_one_that_works_has_the_work() {
    let wrappers: [&[&str]; 9] = [
        &["timeout", "600"],
        &["env", "A=b"],
        &["nice"],
        &["nohup"],
        &["setsid"],
        &["stdbuf", "-o0"],
        &["time"],
        &["sh", "-c"],
        &["timeout", "600", "nice", "timeout", "500"],
    ];
    for wrapper in wrappers {
        let Some((folder, finished)) = sample(wrapper, "out.folded") else { continue };
        let text = std::fs::read_to_string(folder.path().join("out.folded")).unwrap();
        let stacks = CollapsedStacks::read(&folder.path().join("out.folded"));
        let is_of_worker = |frame: &str| frame.starts_with("worker (pid ");
        let toil: Vec<_> = stacks.0.iter().filter(|(stack, _)| stack.iter().any(|name| name == "toil")).collect();
        assert!(!toil.is_empty(), "{wrapper:?}: {text}");
        // A wrapper that executed the program before its first sample is not listed.
        let several = stacks.0.iter().any(|(stack, _)| !is_of_worker(&stack[1]) && stack[1].contains(" (pid "));
        assert!(toil.iter().all(|(stack, _)| !several || is_of_worker(&stack[1])), "{wrapper:?}: {text}");
        if several {
            let first = finished.stderr.lines().skip_while(|line| !line.ends_with("  process")).nth(1).unwrap();
            assert!(first.contains("  worker (pid "), "{wrapper:?}: {}", finished.stderr);
        }
        assert!(!finished.stderr.contains("children:"), "{wrapper:?}: {}", finished.stderr);
    }
}
