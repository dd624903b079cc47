//! Without perf events: which threads are stopped, and what that does to their system calls.

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

/// A sampler process whose kernel refuses events.
fn session(error: i32) -> TrapSession {
    without_events(error, || TrapSession::start_with(true))
}

/// Guarantees: where events are refused, threads that do nothing but move tens of MiB with each call (read, pread,
/// write, send, sendfile, getrandom) are never stopped: no call comes back short, and all their time is said not to be
/// sampled.
fn long_calls_are_whole() {
    for (error, rate_hertz) in [(libc::EPERM, 101.0), (libc::ENOSYS, 997.0)] {
        let mut target = RunningTarget::start(&compile::c("long_calls"), &[]);
        let mut session = session(error);
        session.watch(Select::Pid(target.pid()), Settings { rate_hertz, ..OFTEN });
        session.ticks(200);
        target.ask_until("least", 5);
        // More processor time than another thread would need before it may be stopped.
        session.until("processor time", |seen| seen.last().status.not_sampled_nano > 10_000_000_000);
        assert_eq!(target.ask("short"), 0, "of {} calls", target.ask("calls"));
        let seen = session.finish();
        let status = seen.last().status;
        assert_eq!((status.level, status.stops, status.cut_calls), (Level::None, 0, 0), "{status:?}");
        assert!(seen.has(ProblemKind::Events) && !seen.has(ProblemKind::CutCall));
    }
}

/// Guarantees: `dd` with blocks of 64 MiB reads and writes all of them where events are refused, started by the sampler
/// and sampled from its first instruction.
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

/// Guarantees: where events are refused, a thread that stays in its own code is sampled by stopping it once it has used
/// two seconds of processor time, with complete stacks; the two seconds are said not to be sampled and never put on
/// other stacks, and all together is the processor time that it used.
fn own_code_is_sampled_after_two_seconds() {
    let target = RunningTarget::start(&compile::c("busy"), &["1", "1"]);
    let mut session = session(libc::EPERM);
    session.watch(Select::Pid(target.pid()), Settings::default());
    session.until("a first tick", |seen| seen.lives.last().is_some_and(|life| life.status.ticks > 0));
    let before = process::cpu_ticks(target.pid());
    // Few: on a busy machine a stop waits until its thread has a processor, and the next one for a hundred times as
    // long.
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
    // Its history is counted in ticks of 10 ms from its first look on, and the counter of its running time is late by
    // up to one of the kernel's timer ticks.
    assert!(status.not_sampled_nano >= 1_970_000_000, "{status:?}");
    // Samples may stand for more: they go on after the second reading of the kernel's clock.
    let said = sampled + status.not_sampled_nano;
    assert!(said + 60_000_000 >= used, "{said} ns said, {used} ns used: {status:?}");
}

/// Guarantees: a thread that stayed in its own code and begins to make long calls is stopped in one of them at most,
/// which is counted, and then left alone.
fn a_thread_that_begins_long_calls_is_left_alone() {
    let mut target = RunningTarget::start(&compile::c("long_calls"), &["gated"]);
    let mut session = session(libc::ENOSYS);
    session.watch(Select::Pid(target.pid()), OFTEN);
    session.observe("own_code", 3);
    target.say("read");
    target.line();
    target.ask_until("calls", 20);
    // Counters are said once a second: those that count come behind what is waited for.
    session.ticks(2500);
    let stops = session.seen.last().status.stops;
    let calls = target.ask("calls");
    target.ask_until("calls", calls + 20);
    session.ticks(2500);
    let short = target.ask("short");
    let seen = session.finish();
    let status = seen.last().status;
    assert_eq!(status.stops, stops, "{status:?}");
    assert!(short <= 1 && status.cut_calls == short, "{short}: {status:?}");
    assert_eq!(seen.has(ProblemKind::CutCall), short > 0);
}

/// Guarantees: with `never` no thread is stopped whatever it does and however long; the processor time that it used, no
/// more and no less, is said not to be sampled.
fn never_stops_nobody() {
    // The process's figure comes in steps of 10 ms of two kinds, and the counters of a running thread are late by up to
    // one of the kernel's timer ticks.
    const LATE: u64 = 60_000_000;
    let target = RunningTarget::start(&compile::c("busy"), &["1", "1"]);
    let used = || process::cpu_ticks(target.pid()) * 10_000_000;
    let mut session = session(libc::EPERM);
    let before = used();
    session.watch(Select::Pid(target.pid()), Settings { stops: Stops::Never, ..Settings::default() });
    session.until("a first tick", |seen| seen.lives.last().is_some_and(|life| life.status.ticks > 0));
    let sampled_from = used();
    // Twice the time after which it would be stopped otherwise.
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

/// Guarantees: with `always` threads are stopped where they are, also where the kernel permits events; calls come back
/// short, each of which is counted, and that is said.
fn always_cuts_calls_and_counts_them() {
    let mut target = RunningTarget::start(&compile::c("long_calls"), &["gated"]);
    target.say("read");
    target.line();
    let settings = Settings { stops: Stops::Always, ..Settings::default() };
    let mut session = TrapSession::with(target.pid(), settings);
    session.until("cut calls", |seen| seen.lives.last().is_some_and(|life| life.status.cut_calls > 10));
    let seen = session.finish();
    let status = seen.last().status;
    // A call that was cut by the last stop may still be on its way back; and a stop that was under way at the end is
    // not told any more.
    target.ask_until("short", status.cut_calls - 1);
    let short = target.ask("short");
    assert!(short == status.cut_calls || short == status.cut_calls + 1, "{short}: {status:?}");
    assert_eq!(status.level, Level::None);
    assert!(seen.has(ProblemKind::CutCall));
}

/// Guarantees: a call that a signal interrupts whose handler was installed without SA_RESTART fails with EINTR where a
/// handler ran, and only there: not for a stop alone, although its thread is stopped hundreds of times just when it
/// begins to wait.
fn signals_in_a_wait_are_neither_made_up_nor_swallowed() {
    let mut target = RunningTarget::start(&compile::c("storm"), &[]);
    let mut session = TrapSession::with(target.pid(), Settings { stops: Stops::Always, rate_hertz: 1000.0, ..OFTEN });
    session.until("stops", |seen| seen.lives.last().is_some_and(|life| life.status.stops > 500));
    target.ask_until("waits", 10_000);
    session.finish();
    assert!(target.ask("interrupted") > 1000);
    assert_eq!((target.ask("false"), target.ask("swallowed")), (0, 0));
}

/// Guarantees: a thread that computes with a value of its own in every register finds each as it left it, however often
/// it is sampled by an event, and however often it is stopped.
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

/// Guarantees: a sampler that is killed at any moment, forty times over, while it stops threads wherever they are harms
/// no data: what a thread writes in blocks of a MiB is what another reads, no call fails, and all threads go on, with
/// no tracer.
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

/// Guarantees: the same where only threads are stopped that stay in their own code, while those that write and read get
/// a signal each millisecond, whose handler was installed without SA_RESTART: the writer is stopped in its computing,
/// and now and then in a call.
fn data_is_whole_when_the_sampler_is_killed_among_signals() {
    let mut target = RunningTarget::start(&compile::c("stream"), &["signals"]);
    for round in 0..40_u64 {
        let mut session = session(libc::EPERM);
        session.watch(Select::Pid(target.pid()), OFTEN);
        session.until("stops", |seen| seen.lives.last().is_some_and(|life| life.status.stops > 0));
        session.listen(Duration::from_micros(round * 7919 % 50_000));
        kill_beside_a_stream(session, &mut target, round);
    }
    assert!(target.ask("signals") > 10_000);
}

/// Kills a sampler that samples a `stream`, and asserts that this goes on as if nothing had been.
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
