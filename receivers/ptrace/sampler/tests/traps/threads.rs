//! Processes with many threads, or with short-lived ones.

use std::collections::{BTreeMap, BTreeSet};

use profbridge_sampler::message::{Level, Settings};

use crate::{compile, process, runner::tests, session::TrapSession, target::RunningTarget};

tests![
    leader_ends_first,
    sleepers_have_their_pointers,
    two_thousand_threads,
    two_thousand_threads_that_wake,
    thousands_of_threads_a_second,
];

/// Guarantees: a process whose first thread has ended is still sampled, its other threads with complete stacks under
/// their own ids.
fn leader_ends_first() {
    let target = RunningTarget::start(&compile::c("leader"), &[]);
    let mut session = TrapSession::of(target.pid());
    session.observe("survivor", 100);
    let seen = session.finish();
    let life = seen.last();
    assert!(life.samples.iter().all(|observed| observed.thread.id != target.pid()), "{}", life.top());
    let share = life.complete_share(life.samples.iter());
    assert!(share >= 0.99, "{share}\n{}", life.top());
}

/// Guarantees: a sleeping thread has its thread pointer from its first sample on, the same that it reads itself, and is
/// not stopped for that.
fn sleepers_have_their_pointers() {
    let mut target = RunningTarget::launch(&mut std::process::Command::new(compile::c("sleepers")));
    let lines = target.lines_until("ready");
    let numbers = |line: &String| {
        let numbers: Vec<u64> = line.split(' ').skip(1).map(|word| word.parse().unwrap()).collect();
        (u32::try_from(numbers[0]).unwrap(), numbers[1])
    };
    let own: BTreeMap<u32, u64> = lines.iter().map(numbers).collect();
    assert_eq!(own.len(), 4);
    // The threads still run for a moment after they printed their pointers, until each is in its last system call,
    // `pause` or `read`.
    let sleeps = |thread: &u32| matches!(process::system_call(target.pid(), *thread), Some(0 | 34));
    while !own.keys().all(sleeps) {
        std::thread::yield_now();
    }
    let mut session = TrapSession::of(target.pid());
    session.until("samples of each", |seen| {
        let life = seen.lives.last();
        life.is_some_and(|life| own.keys().all(|id| life.samples.iter().any(|observed| observed.thread.id == *id)))
    });
    let seen = session.finish();
    let life = seen.last();
    for observed in &life.samples {
        assert_eq!(observed.thread.pointer, own[&observed.thread.id], "{:?}", observed.thread);
    }
    assert_eq!(life.status.stops, 0, "{}", life.top());
}

/// Guarantees: 2000 idle threads and a busy one are all sampled; the busy one's CPU time is either sampled or counted
/// as not sampled, and the sampler stays within its budget of CPU time.
fn two_thousand_threads() {
    let target = RunningTarget::start(&compile::c("busy"), &["1", "2000"]);
    let budget = Settings::default().max_cpu;
    let mut session = TrapSession::of(target.pid());
    session.until("a first tick", |seen| seen.lives.last().is_some_and(|life| life.status.ticks > 0));
    let before_all = process::cpu_ticks(target.pid());
    session.until("all threads", |seen| {
        let life = seen.lives.last();
        let threads =
            life.map(|life| life.samples.iter().map(|observed| observed.thread.id).collect::<BTreeSet<u32>>());
        threads.is_some_and(|threads| threads.len() >= 2002)
    });
    // Examining 2000 threads for the first time costs more, and lowering the rate, if necessary, takes a while.
    let mut before = (session.seen.last().status, std::time::Instant::now());
    session.until("a second within the budget", |seen| {
        let (status, now) = (seen.last().status, std::time::Instant::now());
        if status.ticks == before.0.ticks || now - before.1 < std::time::Duration::from_secs(1) {
            return false;
        }
        let cpu = (status.sampler_cpu_nano - before.0.sampler_cpu_nano) as f64 / (now - before.1).as_nanos() as f64;
        before = (status, now);
        cpu <= budget * 1.1
    });
    session.observe("leaf", 10);
    let used = (process::cpu_ticks(target.pid()) - before_all) * 10_000_000;
    let seen = session.finish();
    let life = seen.last();
    assert_eq!(life.status.threads, 2002);
    let sampled: u64 = life
        .samples
        .iter()
        .filter(|observed| !observed.sample.blocked)
        .map(|observed| observed.sample.weight_nano)
        .sum();
    let busy: u64 = life.with("leaf").map(|observed| observed.sample.weight_nano).sum();
    assert!(busy * 10 >= sampled * 9, "{busy} of {sampled}: {:?}", life.status);
    let all = sampled + life.status.not_sampled_nano;
    // Samples may have more time than was used: they extend beyond the last reading of the kernel's counters.
    assert!(all + 60_000_000 >= used, "{all} ns said, {used} ns used: {:?}", life.status);
}

/// Guarantees: if two thousand threads are woken ten thousand times a second, each function has the share of their time
/// that the threads measure themselves, and nearly all of the time has a place. Where per-CPU events are permitted, the
/// time comes from their records and not from sums.
fn two_thousand_threads_that_wake() {
    let mut target = RunningTarget::start(&compile::c("wakes"), &["2000"]);
    let mut session = TrapSession::of(target.pid());
    session.until("all threads", |seen| seen.lives.last().is_some_and(|life| life.status.threads == 2001));
    session.ticks(4);
    target.say("8");
    session.until("the end of all threads", |seen| seen.last().status.threads == 1);
    let lines = target.lines_until("done");
    let seen = session.finish();
    let life = seen.last();
    let took = |line: &String| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
    let [long, short] = [took(&lines[0]), took(&lines[1])];
    let said = |function| life.with(function).map(|observed| observed.sample.weight_nano).sum::<u64>() as f64;
    let [said_long, said_short] = [said("waits_long"), said("waits_short")];
    let found = (said_long + said_short) / (long + short);
    let part = [long / (long + short), said_long / (said_long + said_short)];
    let status = life.status;
    assert!(found > 0.9, "{found}: {status:?}\n{}", life.top());
    assert!((part[0] - part[1]).abs() < 0.02, "{part:?}: {status:?}");
    if status.level == Level::Processors {
        assert!(status.recorded_nano > status.counted_nano, "{status:?}");
    }
}

/// Guarantees: even if thousands of threads a second start and end, none fails to be created, and lasting threads are
/// still sampled. No thread is stopped where the kernel permits events, and the time that short-lived threads used is
/// counted as not sampled.
fn thousands_of_threads_a_second() {
    let mut target = RunningTarget::start(&compile::c("churn"), &[]);
    let mut session = TrapSession::of(target.pid());
    session.observe("steady", 200);
    target.ask_until("created", 2000);
    // All of these threads end before a tick can find them.
    session.until("time of threads that are gone", |seen| seen.last().status.not_sampled_nano > 100_000_000);
    assert_eq!(target.ask("failed"), 0);
    assert!(target.lives());
    let seen = session.finish();
    let life = seen.last();
    assert!(life.status.stops == 0 || life.status.level == Level::None, "{:?}", life.status);
    assert!(life.explained["[processor time not sampled]"] > 100_000_000, "{:?}", life.explained);
}
