//! Sampling without perf events: which threads are stopped, and how that affects their system calls.

use std::{collections::BTreeMap, time::Duration};

use nix::sys::signal::{Signal, kill};
use profbridge_sampler::{
    message::{Level, ProblemKind, Select, Settings, Stops},
    owner::Ending,
};

use crate::{compile, process, refusal::without_events, runner::tests, session::TrapSession, target::RunningTarget};

tests![
    long_calls_are_whole,
    dd_writes_everything,
    own_code_is_sampled_after_two_seconds,
    a_thread_that_begins_long_calls_is_left_alone,
    never_stops_nobody,
    always_cuts_calls_and_counts_them,
    signals_in_a_wait_are_neither_made_up_nor_swallowed,
    data_is_whole_when_the_sampler_is_killed,
    data_is_whole_when_the_sampler_is_killed_among_signals,
    registers_are_left_as_they_are,
];

/// Budgets that never lower the rate, so that there are as many stops as possible.
const OFTEN: Settings = Settings {
    rate_hertz: 997.0,
    mode: profbridge_sampler::message::Mode::Wall,
    max_cpu: 1.0,
    max_stopped: 1.0,
    max_stack: 256 << 10,
    max_processes: 64,
    subprocesses: false,
    stops: Stops::UserBound,
    interpreters: true,
};

/// Starts a sampler process whose kernel refuses perf events with this error.
fn session(error: i32) -> TrapSession {
    without_events(error, || TrapSession::start_with(true))
}

/// Guarantees: if events are refused, threads that only transfer tens of MiB with each call (read, pread, write, send,
/// sendfile, getrandom) are never stopped: no call returns early, and all their time is reported as not sampled.
fn long_calls_are_whole() {
    for (error, rate_hertz) in [(libc::EPERM, 101.0), (libc::ENOSYS, 997.0)] {
        let mut target = RunningTarget::start(&compile::c("long_calls"), &[]);
        let mut session = session(error);
        session.watch(Select::Pid(target.pid()), Settings { rate_hertz, ..OFTEN });
        session.ticks(200);
        target.ask_until("least", 5);
        // This is more processor time than another thread needs before it may be stopped.
        session.until("processor time", |seen| seen.last().status.not_sampled_nano > 10_000_000_000);
        assert_eq!(target.ask("short"), 0, "of {} calls", target.ask("calls"));
        let seen = session.finish();
        let status = seen.last().status;
        assert_eq!((status.level, status.stops, status.cut_calls), (Level::None, 0, 0), "{status:?}");
        assert!(seen.has(ProblemKind::Events) && !seen.has(ProblemKind::CutCall));
    }
}

/// Guarantees: if events are refused, `dd` reads and writes complete blocks of 64 MiB when the sampler starts it and
/// samples it from its first instruction.
fn dd_writes_everything() {
    const BLOCKS: u64 = 6;
    for rate_hertz in [101.0, 997.0] {
        let file = compile::folder().join("dd");
        let mut session = session(libc::EPERM);
        let words = [
            "dd".to_owned(),
            "if=/dev/zero".to_owned(),
            format!("of={}", file.display()),
            "bs=64M".to_owned(),
            format!("count={BLOCKS}"),
            "status=none".to_owned(),
        ];
        session.watch(Select::Command(words.map(Into::into).to_vec()), Settings { rate_hertz, ..OFTEN });
        session.until("its end", |seen| !seen.ended.is_empty());
        let written = std::fs::metadata(&file).unwrap().len();
        std::fs::remove_file(&file).unwrap();
        assert_eq!((session.seen.ended[0].1, written), (0, BLOCKS * (64 << 20)));
        let seen = session.finish();
        let status = seen.last().status;
        assert_eq!((status.stops, status.cut_calls), (0, 0), "{status:?}");
    }
}

/// Guarantees: if events are refused, a thread that stays in its own code is stopped for samples, with complete stacks,
/// once it has used two seconds of processor time; these two seconds are reported as not sampled and never added to
/// stacks, and the total equals the processor time that the thread used.
fn own_code_is_sampled_after_two_seconds() {
    let target = RunningTarget::start(&compile::c("busy"), &["1", "1"]);
    let mut session = session(libc::EPERM);
    session.watch(Select::Pid(target.pid()), Settings::default());
    session.until("a first tick", |seen| seen.lives.last().is_some_and(|life| life.status.ticks > 0));
    let before = process::cpu_ticks(target.pid());
    // A few observations are enough: on a busy machine a stop waits until its thread has a processor, and the next stop
    // waits a hundred times as long.
    session.observe("leaf", 3);
    let used = (process::cpu_ticks(target.pid()) - before) * 10_000_000;
    let seen = session.finish();
    let life = seen.last();
    let status = life.status;
    assert!(status.stops > 0 && status.cut_calls == 0, "{status:?}");
    life.assert_accounted();
    let running: Vec<_> = life.samples.iter().filter(|observed| !observed.sample.blocked).collect();
    let sampled: u64 = running.iter().map(|observed| observed.sample.weight_nano).sum();
    assert!(running.iter().all(|observed| life.names(observed).contains(&"outer".to_owned())), "{}", life.top());
    let share = life.complete_share(running.iter().copied());
    assert!(share >= 0.99, "{share}\n{}", life.top());
    // The thread's history is counted in ticks of 10 ms from its first examination on, and the counter of its running
    // time is late by up to one of the kernel's timer ticks.
    assert!(status.not_sampled_nano >= 1_970_000_000, "{status:?}");
    // Samples may cover more: sampling continues after the second reading of the kernel's clock.
    let said = sampled + status.not_sampled_nano;
    assert!(said + 60_000_000 >= used, "{said} ns said, {used} ns used: {status:?}");
}

/// Guarantees: a thread that stayed in its own code and begins to make long calls is stopped in at most one of them,
/// which is counted, and then no longer stopped.
fn a_thread_that_begins_long_calls_is_left_alone() {
    let mut target = RunningTarget::start(&compile::c("long_calls"), &["gated"]);
    let mut session = session(libc::ENOSYS);
    session.watch(Select::Pid(target.pid()), OFTEN);
    session.observe("own_code", 3);
    target.say("read");
    target.line();
    target.ask_until("calls", 20);
    // Counters are sent once a second, so wait for the next ones.
    session.ticks(1500);
    let stops = session.seen.last().status.stops;
    let calls = target.ask("calls");
    target.ask_until("calls", calls + 20);
    session.ticks(1500);
    let short = target.ask("short");
    let seen = session.finish();
    let status = seen.last().status;
    assert_eq!(status.stops, stops, "{status:?}");
    assert!(short <= 1 && status.cut_calls == short, "{short}: {status:?}");
    assert_eq!(seen.has(ProblemKind::CutCall), short > 0);
}

/// Guarantees: with `never` no thread is stopped, whatever it does and for however long; exactly the processor time
/// that it used is reported as not sampled.
fn never_stops_nobody() {
    // The process's CPU time has two parts, each counted in steps of 10 ms, and the counters of a running thread are
    // late by up to one of the kernel's timer ticks.
    const LATE: u64 = 60_000_000;
    let target = RunningTarget::start(&compile::c("busy"), &["1", "1"]);
    let used = || process::cpu_ticks(target.pid()) * 10_000_000;
    let mut session = session(libc::EPERM);
    let before = used();
    session.watch(Select::Pid(target.pid()), Settings { stops: Stops::Never, ..Settings::default() });
    session.until("a first tick", |seen| seen.lives.last().is_some_and(|life| life.status.ticks > 0));
    let sampled_from = used();
    // This is twice the time after which the thread would otherwise be stopped.
    session.until("processor time", |seen| {
        seen.lives.last().is_some_and(|life| life.status.not_sampled_nano > 4_000_000_000)
    });
    let at_least = used() - sampled_from;
    let seen = session.finish();
    let at_most = used() - before;
    let life = seen.last();
    assert_eq!((life.status.stops, life.status.refused_stops), (0, 0), "{:?}", life.status);
    life.assert_accounted();
    assert!(life.samples.iter().all(|observed| observed.sample.blocked), "{}", life.top());
    let said: u64 = life.explained["[processor time not sampled]"];
    assert_eq!(said, life.status.not_sampled_nano);
    assert!(
        (at_least.saturating_sub(LATE)..=at_most + LATE).contains(&said),
        "{said} ns, {at_least} to {at_most} used"
    );
}

/// Guarantees: with `always` threads are stopped wherever they are, even if the kernel permits events; each call that
/// returns early is counted, and the problem is reported.
fn always_cuts_calls_and_counts_them() {
    let mut target = RunningTarget::start(&compile::c("long_calls"), &["gated"]);
    target.say("read");
    target.line();
    let settings = Settings { stops: Stops::Always, ..Settings::default() };
    let mut session = TrapSession::with(target.pid(), settings);
    session.until("cut calls", |seen| seen.lives.last().is_some_and(|life| life.status.cut_calls > 10));
    let seen = session.finish();
    let status = seen.last().status;
    // The call that the last stop ended early may not have returned yet; and a stop in progress at the end is no longer
    // reported.
    target.ask_until("short", status.cut_calls - 1);
    let short = target.ask("short");
    assert!(short == status.cut_calls || short == status.cut_calls + 1, "{short}: {status:?}");
    assert_eq!(status.level, Level::None);
    assert!(seen.has(ProblemKind::CutCall));
}

/// Guarantees: a call fails with EINTR exactly if a signal handler that was installed without SA_RESTART ran: never
/// because of a stop alone, although the thread is stopped hundreds of times just when it begins to wait.
fn signals_in_a_wait_are_neither_made_up_nor_swallowed() {
    let mut target = RunningTarget::start(&compile::c("storm"), &[]);
    let mut session = TrapSession::with(target.pid(), Settings { stops: Stops::Always, rate_hertz: 1000.0, ..OFTEN });
    session.until("stops", |seen| seen.lives.last().is_some_and(|life| life.status.stops > 500));
    target.ask_until("waits", 10_000);
    session.finish();
    assert!(target.ask("interrupted") > 1000);
    assert_eq!((target.ask("false"), target.ask("swallowed")), (0, 0));
}

/// Guarantees: a thread that computes with a different value in every register never finds one changed, however often
/// it is sampled by an event or stopped.
fn registers_are_left_as_they_are() {
    let mut target = RunningTarget::start(&compile::c("registers"), &[]);
    for stops in [Stops::UserBound, Stops::Always] {
        let mut session = TrapSession::with(target.pid(), Settings { stops, ..OFTEN });
        session.observe("marked", 1000);
        let rounds = target.ask("rounds");
        target.ask_until("rounds", rounds + 1);
        let seen = session.finish();
        assert_eq!(target.ask("changed"), 0, "{stops:?}: {:?}", seen.last().status);
        assert!(stops != Stops::Always || seen.last().status.stops > 500, "{:?}", seen.last().status);
    }
}

/// Guarantees: a sampler that is killed at any moment, forty times in all, while it stops threads wherever they are,
/// damages no data: a thread reads what another one writes in blocks of a MiB, no call fails, and all threads continue,
/// without a tracer.
fn data_is_whole_when_the_sampler_is_killed() {
    let mut target = RunningTarget::start(&compile::c("stream"), &[]);
    for round in 0..40_u64 {
        let stops = if round % 4 == 3 { Stops::UserBound } else { Stops::Always };
        let settings = Settings { stops, ..OFTEN };
        let mut session = session(libc::EPERM);
        session.watch(Select::Pid(target.pid()), settings);
        session.until("an attached process", |seen| !seen.lives.is_empty());
        session.listen(Duration::from_micros(round * 7919 % 50_000));
        kill_beside_a_stream(session, &mut target, round);
    }
}

/// Guarantees: the same holds, eight times, if only threads that stay in their own code are stopped, while the writer
/// and the reader get a signal each millisecond, whose handler was installed without SA_RESTART: the writer is stopped
/// while it computes, and sometimes in a call.
fn data_is_whole_when_the_sampler_is_killed_among_signals() {
    let mut target = RunningTarget::start(&compile::c("stream"), &["signals"]);
    // Before its first stop in each round, the writer uses two seconds of processor time.
    for round in 0..8_u64 {
        let mut session = session(libc::EPERM);
        session.watch(Select::Pid(target.pid()), OFTEN);
        session.until("stops", |seen| seen.lives.last().is_some_and(|life| life.status.stops > 0));
        session.listen(Duration::from_micros(round * 7919 % 50_000));
        kill_beside_a_stream(session, &mut target, round);
    }
    assert!(target.ask("signals") > 10_000);
}

/// Kills a sampler that samples a `stream`, and asserts that the target continues unaffected.
fn kill_beside_a_stream(mut session: TrapSession, target: &mut RunningTarget, round: u64) {
    kill(session.sampler(), Signal::SIGKILL).unwrap();
    session.until("the end of the sampler process", |seen| seen.ending.is_some());
    assert_eq!(session.seen.ending, Some(Ending::Killed(9)));
    assert!(target.lives(), "the target died in round {round}");
    assert!(process::is_left_alone(target.pid()), "round {round}");
    let before: BTreeMap<&str, u64> = ["mebibytes", "work"].map(|name| (name, target.ask(name))).into();
    for (name, count) in before {
        target.ask_until(name, count);
    }
    assert_eq!((target.ask("breaks"), target.ask("failed")), (0, 0), "round {round}");
}
