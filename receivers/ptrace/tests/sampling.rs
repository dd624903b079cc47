//! The sampling thread on real processes, without the sampler process around it.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod sampling {
    pub(crate) mod session;
    pub(crate) mod target;
}

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use profbridge_ptrace::message::{Detached, Mode, Settings, Trust};
use sampling::session::Session;
use sampling::target::Target;

/// The time that a session lasts in these tests.
const WHILE: Duration = Duration::from_millis(1500);

fn settings(mode: Mode) -> Settings {
    Settings { mode, ..Settings::default() }
}

/// Guarantees: a thread that runs is sampled at every tick by stopping it shortly, with complete stacks, and its samples stand for all the time that passed.
#[test]
fn busy_thread() {
    let target = Target::start("busy");
    let report = Session::start(&target, settings(Mode::Wall)).run(WHILE);
    let status = report.status;
    assert!(status.stops > 50, "{status:?}");
    assert_eq!(status.refused_stops, 0);
    assert!(status.complete * 100 >= status.observations * 99, "{status:?}");
    let passed = report.took.as_nanos() as u64;
    let period = report.batches[0].period_nano;
    assert!(report.weight().abs_diff(passed) < period * 4, "{} {passed}", report.weight());
    assert!(report.blocked_weight() * 5 < report.weight());
}

/// Guarantees: threads that are blocked are sampled with complete stacks although none is ever stopped; what does not change is one sample for each batch, and stands for all
/// the time that passed.
#[test]
fn blocked_threads() {
    let target = Target::start("blocked");
    let report = Session::start(&target, settings(Mode::Wall)).run(WHILE);
    let status = report.status;
    assert_eq!(status.stops, 0, "{status:?}");
    assert_eq!(status.threads, 4);
    assert_eq!(status.complete, status.observations, "{status:?}");
    let passed = 4 * report.took.as_nanos() as u64;
    let period = report.batches[0].period_nano;
    assert!(report.weight().abs_diff(passed) < period * 16, "{} {passed}", report.weight());
    for batch in &report.batches {
        assert_eq!(batch.samples.len(), 4, "{batch:?}");
        assert!(batch.samples.iter().all(|sample| sample.blocked && sample.observations > 1));
        assert_eq!(batch.stacks.len(), 2, "{batch:?}");
        assert!(batch.stacks.iter().all(|stack| stack.trust == Trust::Complete));
    }
}

/// Guarantees: in mode cpu, the samples stand for the time that the process used, and for nothing else.
#[test]
fn processor_time() {
    let target = Target::start("short_waits");
    let before = target.cpu();
    let report = Session::start(&target, settings(Mode::Cpu)).run(WHILE);
    let used = target.cpu() - before;
    let weight = Duration::from_nanos(report.weight());
    assert!(weight.abs_diff(used) < used / 5 + Duration::from_millis(60), "{weight:?} {used:?}");
}

/// Guarantees: a call that fails with EINTR when its thread is stopped does not fail, even for a thread that begins one all the time, nearly whenever
/// it is asked to stop.
#[test]
fn calls_are_not_interrupted() {
    let target = Target::start("short_waits");
    let fast = Settings { rate_hertz: 1000.0, max_cpu: 1.0, max_stopped: 1.0, ..Settings::default() };
    let report = Session::start(&target, fast).run(WHILE);
    assert!(report.status.stops > 100, "{:?}", report.status);
    let (calls, interrupted) = target.counts();
    assert!(calls > 1000);
    assert_eq!(interrupted, 0);
}

/// Guarantees: no signal is lost and none is made up for a target that gets a thousand a second.
#[test]
fn signals() {
    let target = Target::start("signals");
    let report = Session::start(&target, settings(Mode::Wall)).run(WHILE);
    assert!(report.status.stops > 20, "{:?}", report.status);
    let (raised, handled) = target.counts();
    assert!(raised > 100);
    assert_eq!(raised, handled);
}

/// Guarantees: a stopped process stays stopped, is sampled nevertheless, and goes on when it is told to.
#[test]
fn stopped_process() {
    let target = Target::start("busy");
    let pid = Pid::from_raw(target.pid() as i32);
    kill(pid, Signal::SIGSTOP).unwrap();
    target.wait_for_state('T');
    let before = target.cpu();
    let report = Session::start(&target, settings(Mode::Wall)).run(WHILE);
    assert_eq!(target.state(), 'T');
    assert_eq!(target.cpu(), before);
    assert_eq!(report.status.stops, 0);
    assert!(report.status.observations > 0);
    kill(pid, Signal::SIGCONT).unwrap();
    target.wait_for_state('R');
}

/// Guarantees: stopping a process while it is sampled keeps it stopped.
#[test]
fn process_stopped_while_sampled() {
    let target = Target::start("busy");
    let session = Session::start(&target, settings(Mode::Wall));
    session.wait_for_stops(5);
    kill(Pid::from_raw(target.pid() as i32), Signal::SIGSTOP).unwrap();
    target.wait_for_state('T');
    let before = target.cpu();
    session.run(WHILE);
    assert_eq!(target.state(), 'T');
    assert_eq!(target.cpu(), before);
}

/// Guarantees: a process that executes another program, or ends, is let go with what was sampled until then, and the reason.
#[test]
fn exec_and_exit() {
    for (kind, why) in [("exec", Detached::Executed), ("exit", Detached::Exited)] {
        let mut target = Target::start(kind);
        let session = Session::start(&target, settings(Mode::Wall));
        session.wait_for_stops(5);
        target.go_on();
        let report = session.until_gone();
        assert_eq!(report.gone, Some(why), "{kind}");
        assert!(report.weight() > 0);
    }
}

/// Guarantees: the parent of a process that ends while it is sampled gets its exit code, although the process was traced.
#[test]
fn exit_code_is_not_taken() {
    for _ in 0..20 {
        let mut target = Target::start_in_shell("exit");
        let session = Session::start(&target, settings(Mode::Wall));
        session.wait_for_stops(1);
        target.go_on();
        assert_eq!(target.line(), "code 7");
        assert_eq!(session.until_gone().gone, Some(Detached::Exited));
    }
}

/// Guarantees: threads that come and go by the thousand neither stop sampling nor keep the target or its threads from ending.
#[test]
fn thread_churn() {
    let target = Target::start("churn");
    let report = Session::start(&target, settings(Mode::Wall)).run(WHILE);
    assert!(report.gone.is_none());
    assert!(report.status.ticks > 50, "{:?}", report.status);
    let (started, _) = target.counts();
    assert!(started > 100);
}
