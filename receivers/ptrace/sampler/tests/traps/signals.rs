//! Signals: those that stop a process, and those that arrive while its threads are examined.

use nix::sys::{
    signal::Signal,
    wait::{WaitPidFlag, WaitStatus, waitpid},
};
use profbridge_sampler::message::{ProblemKind, Settings, Stops};

use crate::{
    compile, process,
    runner::tests,
    session::{SeenEvents, TrapSession, usual},
    target::RunningTarget,
};

tests![stopped_before, stopped_meanwhile, a_thousand_signals_a_second];

/// Settings with which running threads are stopped.
const ALWAYS: fn() -> Settings = || Settings { stops: Stops::Always, ..Settings::default() };

/// Stops a target, and waits until its parent is notified.
fn stop(target: &RunningTarget, signal: Signal) {
    target.signal(signal);
    let status = waitpid(target.nix_pid(), Some(WaitPidFlag::WUNTRACED)).unwrap();
    assert!(matches!(status, WaitStatus::Stopped(_, with) if with == signal), "{status:?}");
}

/// Asserts that a stopped target stays stopped while it is sampled: each thread, and without using processor time.
fn stays_stopped(session: &mut TrapSession, target: &RunningTarget) {
    // A thread that was being examined when the signal arrived stops as soon as it has a processor, and executes only
    // kernel code before.
    let settled = |_: &SeenEvents| process::states(target.pid()).chars().all(|state| matches!(state, 'T' | 't'));
    session.until("all threads are stopped", settled);
    let before = process::cpu_ticks(target.pid());
    session.ticks(70);
    let states = process::states(target.pid());
    // `t` is a thread that a tracer has stopped: the sampler may be examining it, and must release it in the stopped
    // state.
    assert!(states.chars().all(|state| matches!(state, 'T' | 't')), "{states}");
    assert_eq!(process::cpu_ticks(target.pid()), before, "a stopped process ran");
    session.until("time that says that it was stopped", |seen| stopped_nano(seen) > 0);
}

/// The time that was reported as stopped and not as waiting, in nanoseconds.
fn stopped_nano(seen: &SeenEvents) -> u64 {
    seen.lives.last().and_then(|life| life.explained.get("[stopped]").copied()).unwrap_or(0)
}

/// Continues a stopped target, and asserts that it runs and is sampled.
fn runs_again(session: &mut TrapSession, target: &mut RunningTarget) {
    target.signal(Signal::SIGCONT);
    let count = session.seen.lives.last().map_or(0, |life| life.count("leaf"));
    session
        .until("samples after SIGCONT", |seen| seen.lives.last().is_some_and(|life| life.count("leaf") >= count + 50));
    target.works();
}

/// Guarantees: a process that is stopped before it is attached is reported, stays stopped, uses no processor time, and
/// is sampled as soon as it is continued, whether running threads are sampled by events or by stopping them.
fn stopped_before() {
    for settings in [usual(), ALWAYS()] {
        let mut target = RunningTarget::start(&compile::c("busy"), &["2", "2"]);
        stop(&target, Signal::SIGSTOP);
        let mut session = TrapSession::with(target.pid(), settings);
        let message = session.problem(ProblemKind::Stopped);
        assert!(message.contains("kill -CONT"), "{message}");
        stays_stopped(&mut session, &target);
        runs_again(&mut session, &mut target);
        session.finish();
    }
}

/// Guarantees: a process that any signal stops repeatedly while it is sampled stays stopped each time and uses no
/// processor time; the time is reported as stopped, not as waiting; when the process is continued, it is sampled again.
fn stopped_meanwhile() {
    for settings in [usual(), ALWAYS()] {
        let mut target = RunningTarget::start(&compile::c("busy"), &["2", "2"]);
        let mut session = TrapSession::with(target.pid(), settings);
        session.observe("leaf", 20);
        assert_eq!(stopped_nano(&session.seen), 0, "waiting threads were not stopped");
        // The second one is the signal of a terminal's suspend key.
        for signal in [Signal::SIGSTOP, Signal::SIGTSTP, Signal::SIGSTOP] {
            stop(&target, signal);
            stays_stopped(&mut session, &target);
            runs_again(&mut session, &mut target);
        }
        session.finish();
    }
}

/// Guarantees: if a thread gets a thousand queued signals a second, sampling loses, repeats or reorders none of them,
/// and the thread is still sampled, by events or by stopping it.
fn a_thousand_signals_a_second() {
    for settings in [usual(), ALWAYS()] {
        let mut target = RunningTarget::start(&compile::c("signals"), &[]);
        let mut session = TrapSession::with(target.pid(), settings);
        session.observe("worked_on", 200);
        target.ask_until("sent", 500);
        let (sent, handled, disordered) = (target.ask("sent"), target.ask("handled"), target.ask("disordered"));
        assert!(handled >= sent, "{handled} of {sent} were handled");
        assert_eq!(disordered, 0);
        session.finish();
    }
}
