//! The sampling thread on real processes, without the sampler process around it.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

#[path = "traps/refusal.rs"]
mod refusal;
mod repeated;
mod sampling {
    pub(crate) mod session;
    pub(crate) mod target;
}

use std::collections::HashSet;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use profbridge_sampler::message::{Detached, Level, Location, Mode, Sample, Settings, Stops, Trust};
use refusal::without_events;
use sampling::session::{Report, Session};
use sampling::target::Target;

/// So many ticks are a session in these tests, where nothing else decides.
const TICKS: u64 = 100;

fn settings(mode: Mode) -> Settings {
    Settings { mode, ..Settings::default() }
}

/// Running threads are stopped.
fn stopping() -> Settings {
    Settings { stops: Stops::Always, ..Settings::default() }
}

/// Whether the kernel permits to see so much of a running thread. Tests that need it have nothing to show where it does
/// not, and this says so.
fn sees(report: &Report, level: Level) -> bool {
    let (permitted, enough) = (report.status.level, report.status.level >= level);
    if !enough {
        let why = format_args!("untested here: the kernel permits {permitted:?} of perf events, and not {level:?}\n");
        std::io::Write::write_fmt(&mut std::io::stderr(), why).ok();
    }
    enough
}

/// The same of what a running thread does in the kernel, too.
fn sees_the_kernel(report: &Report) -> bool {
    sees(report, Level::Kernel)
}

/// Guarantees: a thread that spends its time in long system calls gets all of each, is never stopped, and is sampled
/// inside of them, with the kernel's calls in front of its own.
#[test]
fn long_calls_are_whole() {
    for rate_hertz in [101.0, 997.0] {
        let mut target = Target::start("read_much");
        let session = Session::start(&target, Settings { rate_hertz, max_cpu: 1.0, ..Settings::default() });
        session.until("samples", |report| report.status.observations > 100);
        target.wait_for_count(20);
        let report = session.end();
        if !sees_the_kernel(&report) {
            return;
        }
        assert_eq!(target.counts().1, 0, "{:?}", report.status);
        assert_eq!(report.status.stops, 0);
        // On a busy machine the sampler may be too late for some, which is counted.
        let sampled = report.weight() > report.blocked_weight() + 2 * report.status.not_sampled_nano;
        assert!(sampled || report.status.lost_samples > 0, "{:?}", report.status);
        let mut calls = 0;
        for stack in report.stacks() {
            let (kernel, program) = stack.split_at(stack.iter().take_while(|location| location.is_kernel()).count());
            if !kernel.is_empty() {
                calls += 1;
                assert!(program.iter().all(|location| location.mapping().is_some()), "{stack:x?}");
                assert!(kernel.len() > 1 && program.len() > 1, "{stack:x?}");
            }
        }
        assert!(calls > 0);
        report.assert_accounted();
    }
}

/// Guarantees: a thread that works for a millisecond and waits for four has the processor time that the kernel counted,
/// nearly all of it with the stacks of its work, and what it waited, which has the stack of its wait, is not part of
/// it.
#[test]
fn processor_time_of_a_thread_that_waits() {
    repeated::by_some_run(sample_a_thread_that_waits);
}

fn sample_a_thread_that_waits() -> Result<(), String> {
    let mut target = Target::start("duty");
    target.wait_for_count(10);
    let session = Session::start(&target, settings(Mode::Wall));
    session.until("a first batch", |report| !report.batches.is_empty());
    let before = target.cpu();
    let weight_before = session.running_weight();
    let enough = |report: &Report| report.weight() - report.blocked_weight() > 500_000_000;
    session.until("ticks", |report| report.status.ticks > 5 * TICKS && enough(report));
    let report = session.end();
    let used = (target.cpu() - before).as_nanos() as u64;
    if !sees_the_kernel(&report) {
        return Ok(());
    }
    assert_eq!(report.status.stops, 0);
    report.assert_accounted();
    let weight = report.weight() - report.blocked_weight() - weight_before;
    // The process's figure comes in steps of 10 ms, and batches every half second.
    if weight.abs_diff(used) >= used / 4 {
        return Err(format!("{weight} ns in samples, {used} ns used: {:?}", report.status));
    }
    let running = report.weight() - report.blocked_weight();
    // On a busy machine the thread may be in step with the samples for a while.
    if report.status.not_sampled_nano * 5 >= running {
        return Err(format!("{running} ns: {:?}", report.status));
    }
    // Both call from one function each: the frame below tells which.
    let of = |blocked| report.program_stacks(target.pid(), blocked).into_iter();
    let calls = |stack: &[Location]| stack.get(1).copied();
    let waits: HashSet<_> = of(true).map(|(stack, _)| calls(&stack)).collect();
    assert_eq!(waits.len(), 1, "{waits:x?}");
    let (mut work, mut wait) = (0, 0);
    for (stack, weight) in of(false) {
        assert!(stack.len() > 1, "{stack:x?}");
        *if waits.contains(&calls(&stack)) { &mut wait } else { &mut work } += weight;
    }
    // What the kernel does at each switch counts as time in the wait.
    if work > 0 && wait * 5 < running {
        return Ok(());
    }
    Err(format!("{work} ns of work, {wait} ns in the wait, {running} ns"))
}

/// Guarantees: where events are refused and without stops, threads are sampled while they are blocked, and all the time
/// for which they run is said as what it is.
#[test]
fn neither_events_nor_stops() {
    // The process's figure comes in steps of 10 ms of two kinds, and the counters of a running thread are late by up to
    // one of the kernel's timer ticks.
    const LATE: u64 = 60_000_000;
    let target = Target::start("duty");
    let at_most = target.cpu();
    let settings = Settings { stops: Stops::Never, ..Settings::default() };
    let session = without_events(libc::EPERM, || Session::start(&target, settings));
    session.until("a first batch", |report| !report.batches.is_empty());
    let at_least = target.cpu();
    session.until("processor time", |report| report.status.not_sampled_nano > 1_000_000_000);
    let at_least = (target.cpu() - at_least).as_nanos() as u64;
    let report = session.end();
    let at_most = (target.cpu() - at_most).as_nanos() as u64;
    let status = report.status;
    assert_eq!((status.level, status.stops), (Level::None, 0));
    report.assert_accounted();
    assert!(!report.program_stacks(target.pid(), true).is_empty());
    assert_eq!(report.program_stacks(target.pid(), false), [], "nobody saw it run");
    let running = report.weight() - report.blocked_weight();
    assert_eq!(running, status.not_sampled_nano);
    assert!(running + LATE >= at_least && running <= at_most + LATE, "{at_least} to {at_most} ns: {status:?}");
}

/// Guarantees: a thread that computes is sampled with complete stacks although it is never stopped, and its samples
/// stand for all the time that passed.
#[test]
fn busy_thread_that_is_not_stopped() {
    let target = Target::start("busy");
    let session = Session::start(&target, settings(Mode::Wall));
    session.until("samples", |report| report.status.observations > 100);
    let report = session.end();
    if !sees(&report, Level::User) {
        return;
    }
    let status = report.status;
    assert_eq!(status.stops, 0);
    assert!(status.complete * 100 >= status.observations * 99, "{status:?}");
    report.assert_accounted();
}

/// Guarantees: where threads are stopped, one that runs is sampled by that, with complete stacks, and its samples stand
/// for all the time that passed; it is never taken to be blocked, but for waiting for a processor.
#[test]
fn busy_thread() {
    let target = Target::start("busy");
    let session = Session::start(&target, stopping());
    session.until("stops", |report| report.status.stops > 50);
    let report = session.end();
    let status = report.status;
    assert_eq!(status.refused_stops, 0);
    assert!(status.complete * 100 >= status.observations * 99, "{status:?}");
    report.assert_accounted();
    for batch in &report.batches {
        for sample in batch.samples.iter().filter(|sample| sample.blocked) {
            let leaf = batch.stacks[sample.stack as usize].locations[0];
            assert!(batch.locations[leaf as usize].explanation().is_some(), "{sample:?}");
        }
    }
}

/// Guarantees: threads that are blocked are sampled with complete stacks although none is ever stopped; what does not
/// change is one sample for each batch, and stands for all the time that passed.
#[test]
fn blocked_threads() {
    let target = Target::start("blocked");
    target.wait_until_blocked(4);
    let session = Session::start(&target, settings(Mode::Wall));
    session.until("a second batch", |report| report.batches.len() > 1 && report.status.ticks > TICKS);
    let report = session.end();
    let status = report.status;
    assert_eq!(status.stops, 0, "{status:?}");
    assert_eq!(status.threads, 4);
    assert_eq!(status.complete, status.observations, "{status:?}");
    report.assert_accounted();
    let mut observations = 0;
    for batch in &report.batches {
        assert!(batch.samples.len() <= 4 && batch.stacks.len() <= 2, "{batch:?}");
        assert!(batch.samples.iter().all(|sample| sample.blocked));
        assert!(batch.stacks.iter().all(|stack| stack.trust == Trust::Complete));
        observations += batch.samples.iter().map(|sample| u64::from(sample.observations)).sum::<u64>();
    }
    assert_eq!(observations, status.observations);
    assert!(observations > TICKS, "{status:?}");
}

/// Guarantees: in mode cpu, the samples stand for the time that the process used, and for nothing else.
#[test]
fn processor_time() {
    let mut target = Target::start("work");
    let session = Session::start(&target, settings(Mode::Cpu));
    session.until("ticks", |report| report.status.ticks > 0);
    target.go_on();
    let used = target.line().strip_prefix("done ").unwrap().parse::<u64>().unwrap();
    // What a thread used before it waits is sampled after it has waited for a second of ticks.
    let done = session.ticks();
    session.until("what is left", |report| report.status.ticks > done + 4 * TICKS);
    let weight = session.end().weight();
    assert!(weight.abs_diff(used) < used / 20, "{weight} {used}");
}

/// Guarantees: a call that fails with EINTR when its thread is stopped does not fail, even for a thread that begins one
/// all the time, nearly whenever it is asked to stop.
#[test]
fn calls_are_not_interrupted() {
    let mut target = Target::start("short_waits");
    let fast = Settings { rate_hertz: 1000.0, max_cpu: 1.0, max_stopped: 1.0, ..stopping() };
    let session = Session::start(&target, fast);
    session.until("stops", |report| report.status.stops > 100);
    target.wait_for_count(1000);
    session.end();
    let (_, interrupted) = target.counts();
    assert_eq!(interrupted, 0);
}

/// Guarantees: no signal is lost and none is made up for a target that gets a thousand a second.
#[test]
fn signals() {
    let mut target = Target::start("signals");
    let session = Session::start(&target, stopping());
    session.until("stops", |report| report.status.stops > 50);
    session.end();
    let (raised, handled) = target.counts();
    assert!(raised > 20, "a stop at most of the others met none: {raised}");
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
    let session = Session::start(&target, settings(Mode::Wall));
    session.until("observations", |report| report.status.observations > 0 && report.status.ticks > TICKS);
    let report = session.end();
    assert_eq!(target.state(), 'T');
    assert_eq!(target.cpu(), before);
    assert_eq!(report.status.stops, 0);
    kill(pid, Signal::SIGCONT).unwrap();
    target.wait_for_state('R');
}

/// Guarantees: stopping a process while it is sampled keeps it stopped.
#[test]
fn process_stopped_while_sampled() {
    let target = Target::start("busy");
    let session = Session::start(&target, stopping());
    session.wait_for_running(5);
    kill(Pid::from_raw(target.pid() as i32), Signal::SIGSTOP).unwrap();
    target.wait_for_state('T');
    let before = target.cpu();
    let ticks = session.ticks();
    session.until("ticks", |report| report.status.ticks > ticks + TICKS);
    session.end();
    assert_eq!(target.state(), 'T');
    assert_eq!(target.cpu(), before);
}

/// Guarantees: a process that executes another program, or ends, is let go with what was sampled until then, and the
/// reason.
#[test]
fn exec_and_exit() {
    let ends = [("exec", Detached::Executed), ("exit", Detached::Exited)];
    for ((kind, why), settings) in ends.into_iter().flat_map(|end| [(end, stopping()), (end, Settings::default())]) {
        let mut target = Target::start(kind);
        let session = Session::start(&target, settings);
        session.wait_for_running(5);
        target.go_on();
        let report = session.until_gone();
        assert_eq!(report.gone, Some(why), "{kind}");
        assert!(report.weight() > 0);
    }
}

/// Guarantees: the parent of a process that ends while it is sampled gets its exit code, although the process was
/// traced.
#[test]
fn exit_code_is_not_taken() {
    for _ in 0..20 {
        let mut target = Target::start_in_shell("exit");
        let session = Session::start(&target, stopping());
        session.wait_for_running(1);
        target.go_on();
        assert_eq!(target.line(), "code 7");
        assert_eq!(session.until_gone().gone, Some(Detached::Exited));
    }
}

/// Guarantees: a process that is sampled from its start begins with events of processors, which show threads that are
/// gone before they could be looked at.
#[test]
fn brief_threads() {
    // What the first samples meet on a busy machine is chance.
    repeated::by_some_run(sample_brief_threads);
}

fn sample_brief_threads() -> Result<(), String> {
    let mut target = Target::start("brief");
    let session = Session::start_from_start(&target, settings(Mode::Cpu));
    target.wait_for_count(10);
    session.until("a first batch", |report| !report.batches.is_empty());
    let report = session.end();
    if !sees_the_kernel(&report) {
        return Ok(());
    }
    assert_eq!(report.status.stops, 0);
    let first = &report.batches[0];
    let seen = |sample: &Sample| first.threads[sample.thread as usize].id != target.pid();
    if first.samples.iter().any(seen) { Ok(()) } else { Err(format!("{first:?}")) }
}

/// Guarantees: threads that come and go by the thousand neither stop sampling nor keep the target or its threads from
/// ending.
#[test]
fn thread_churn() {
    let mut target = Target::start("churn");
    let session = Session::start(&target, settings(Mode::Wall));
    target.wait_for_count(1000);
    let ticks = session.ticks();
    session.until("ticks", |report| report.status.ticks > ticks + TICKS);
    assert!(session.end().gone.is_none());
    let (before, _) = target.counts();
    target.wait_for_count(before + 1000);
}
