//! A child process that another thread of this program traces.

use std::process::{Command, Stdio};

use super::*;
use crate::stop::{self, StoppedThread};

const PATIENCE: Duration = Duration::from_secs(60);

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look() {
            Some(found) => return found,
            None if Instant::now() > deadline => panic!("did not happen: {what}"),
            None => std::thread::yield_now(),
        }
    }
}

/// Guarantees: asking for the status of a living child does not consume the stop that its tracer, another thread,
/// waits for.
#[test]
#[allow(clippy::zombie_processes, reason = "its status is what is taken here")]
fn stops_are_left_to_the_tracer() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let process = PidFd::open(pid).unwrap();
    let (stopped, is_stopped) = std::sync::mpsc::channel();
    let (asked, is_asked) = std::sync::mpsc::channel();
    let tracer = std::thread::spawn(move || {
        if stop::request(pid).is_err() {
            stopped.send(false).unwrap();
            return;
        }
        wait_for("the stop", || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat.contains(") t ").then_some(())
        });
        stopped.send(true).unwrap();
        is_asked.recv().unwrap();
        let held = wait_for("the tracer's turn", StoppedThread::next);
        assert!(held.thread() == pid && held.release());
    });
    if is_stopped.recv().unwrap() {
        assert_eq!(process.take_status(), None);
        asked.send(()).unwrap();
    } else {
        std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("untested here: tracing is not allowed\n")).ok();
    }
    let traced = tracer.join();
    drop(child.stdin.take());
    traced.unwrap();
    let status = wait_for("the end", || process.take_status());
    assert_eq!(status, ChildStatus::Exited(0));
}
