//! When the frames of interpreters are read, and when they are not.

use std::process::Command;

use profbridge_sampler::message::{Level, Settings, Stops};

use crate::{
    compile,
    runner::{Outcome, tests},
    session::{SeenEvents, TrapSession, usual},
    target::RunningTarget,
};

tests![frames_are_read_right_behind_samples, frames_are_read_in_stops, reading_can_be_switched_off];

/// Starts a Python program with one thread that computes, in ten nested functions, and three threads that wait.
fn deep() -> RunningTarget {
    let mut target = RunningTarget::launch(Command::new("python3").arg(compile::source("deep.py")));
    target.wait_for("ready");
    target
}

fn count(of: impl Fn(&SeenEvents) -> u64, least: u64) -> impl Fn(&SeenEvents) -> bool {
    move |seen| !seen.lives.is_empty() && of(seen) >= least
}

/// Guarantees: for samples that the kernel takes, the time until the frames were read is counted, at most once per
/// sample, and no thread is stopped.
fn frames_are_read_right_behind_samples() -> Outcome {
    compile::has("python3", "--version")?;
    let target = deep();
    let mut session = TrapSession::with(target.pid(), Settings { stops: Stops::Never, ..Settings::default() });
    session.until("stacks with frames", count(|seen| seen.last().status.interpreted, 50));
    if session.seen.last().status.level >= Level::User {
        session.until("frames behind samples", count(|seen| seen.last().status.read_behind.iter().sum(), 20));
    }
    let status = session.finish().last().status;
    assert!(status.read_behind.iter().sum::<u64>() <= status.observations, "{status:?}");
    assert_eq!((status.stops, status.read_stopped.iter().sum::<u64>()), (0, 0), "{status:?}");
    Ok(())
}

/// Guarantees: if threads are stopped, the time that reading frames adds to a stop is counted, at most once per stop.
fn frames_are_read_in_stops() -> Outcome {
    compile::has("python3", "--version")?;
    let target = deep();
    let mut session = TrapSession::with(target.pid(), Settings { stops: Stops::Always, ..usual() });
    session.until("frames in stops", count(|seen| seen.last().status.read_stopped.iter().sum(), 20));
    let status = session.finish().last().status;
    assert!(status.read_stopped.iter().sum::<u64>() <= status.stops, "{status:?}");
    assert_eq!(status.read_behind.iter().sum::<u64>(), 0, "{status:?}");
    Ok(())
}

/// Guarantees: without the setting `interpreters`, an interpreter's memory is not read, and stacks are native.
fn reading_can_be_switched_off() -> Outcome {
    compile::has("python3", "--version")?;
    let target = deep();
    let mut session = TrapSession::with(target.pid(), Settings { interpreters: false, ..usual() });
    session.until("observations", count(|seen| seen.last().status.observations, 100));
    let seen = session.finish();
    let life = seen.last();
    let read = life.status.read_behind.iter().chain(&life.status.read_stopped).sum::<u64>();
    assert_eq!((life.status.interpreted, read), (0, 0), "{:?}", life.status);
    assert!(
        life.samples.iter().all(|observed| observed
            .locations
            .iter()
            .all(|one| one.mapping().is_some() || one.is_kernel() || observed.is_explained)),
        "{}",
        life.top()
    );
    Ok(())
}
