//! Unexpected ends of the sampler process.

use std::fs::read_to_string;
use std::process::Command;

use super::{CollapsedStacks, Sampling};
use crate::process::eventually;

const WAITS: &str = "echo ready; exec cat";

impl Sampling {
    /// The id of the sampler process, once it differs from `before`.
    fn sampler(&mut self, before: Option<u32>) -> u32 {
        let pid = self.child.id();
        eventually("a sampler process", || {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
            let lists = tasks.flatten().filter_map(|task| read_to_string(task.path().join("children")).ok());
            let children: Vec<u32> = lists
                .flat_map(|list| list.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<_>>())
                .collect();
            let is_sampler =
                |id: &u32| read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name == "profbridge-smpl\n");
            children.into_iter().find(|id| is_sampler(id) && Some(*id) != before)
        })
    }
}

fn kill(pid: u32) {
    assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
}

/// Guarantees: a killed sampler process is replaced, the command continues undisturbed and its exit status is returned;
/// the result shows the length of the gap, and so does each thread's time in the file. OTLP contains the gap as a frame
/// as well.
#[test]
fn another_one_takes_its_place() {
    for name in ["out.folded", "out.otlp"] {
        let folder = tempfile::tempdir().unwrap();
        let arguments = ["-o", name, "--", "sh", "-c", WAITS];
        let mut sampling = Sampling::start(folder.path(), &arguments);
        assert_eq!(sampling.line(), "ready\n");
        // Samples of the first one may not have arrived yet. Those of the second arrive before it is replaced by the
        // third.
        let first = sampling.sampler(None);
        kill(first);
        sampling.wait_for("ended by itself: signal 9; another one is started");
        sampling.wait_for("note: sampling goes on; ");
        kill(sampling.sampler(Some(first)));
        sampling.wait_for("note: sampling goes on; ");
        let finished = sampling.ended();
        assert_eq!(finished.status.code(), Some(0), "{}", finished.stderr);
        let missing = finished.stderr.lines().find(|line| line.starts_with("missing: ")).unwrap();
        assert!(missing.ends_with(" of the run, since the sampler process ended by itself 2 times"), "{missing}");
        if name == "out.otlp" {
            let converted = crate::process::run(folder.path(), &["convert", name, "-o", "out.folded"]);
            assert!(converted.status.success(), "{}", converted.stderr);
        }
        let stacks = CollapsedStacks::read(&folder.path().join("out.folded"));
        assert!(stacks.total("[no sampler process]") > 0, "{:?}", stacks.0);
    }
}

/// Guarantees: the same for a process that profbridge did not start; if it ends while there is no sampler process, the
/// next sampler process notices.
#[test]
fn a_process_of_somebody_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = crate::targets::TargetProgram::start(Command::new("sh").args(["-c", WAITS]));
    assert_eq!(program.line(), "ready\n");
    let mut sampling = Sampling::start(folder.path(), &["--pid", &program.pid(), "-o", "out.folded"]);
    let first = sampling.sampler(None);
    kill(first);
    sampling.wait_for("note: sampling goes on; ");
    assert!(program.is_alive());
    kill(sampling.sampler(Some(first)));
    program.end();
    let finished = sampling.ended();
    assert_eq!(finished.status.code(), Some(0), "{}", finished.stderr);
    assert!(finished.stdout.contains("ended by itself 2 times"), "{}", finished.stdout);
}

/// Guarantees: a sampler process that fails repeatedly is given up; the samples so far are written, and the command
/// continues to its end.
#[test]
fn not_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["-o", "out.folded", "--", "sh", "-c", "echo ready; cat; exit 7"];
    let mut sampling = Sampling::start(folder.path(), &arguments);
    assert_eq!(sampling.line(), "ready\n");
    let mut last = None;
    for _ in 0..5 {
        let next = sampling.sampler(last);
        kill(next);
        sampling.wait_for("ended by itself: signal 9; another one is started");
        last = Some(next);
    }
    kill(sampling.sampler(last));
    sampling.wait_for("the sampler process ended too often");
    sampling.wait_for("waiting for the command to end");
    let finished = sampling.ended();
    assert_eq!(finished.status.code(), Some(7), "{}", finished.stderr);
}
