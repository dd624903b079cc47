//! Programs whose profiles are known in advance.

use std::collections::BTreeSet;

use profbridge_sampler::message::{Mode, Settings};

use crate::{
    compile, process, repeated,
    runner::tests,
    session::{ObservedLife, TrapSession, usual},
    target::RunningTarget,
};

tests![shares_within_two_points, threads_recursion_and_sleep];

fn weight_at_leaf(life: &ObservedLife, function: &str) -> f64 {
    let found = life.samples.iter().filter(|observed| {
        // The function reads the clock through the vDSO; that time belongs to the function.
        let own = |name: &String| ["seventy", "twenty", "ten"].contains(&name.as_str());
        life.names(observed).into_iter().find(own).as_deref() == Some(function)
    });
    found.map(|observed| observed.sample.weight_nano as f64).sum()
}

/// Guarantees: a thread that spends 70 %, 20 % and 10 % of its processor time in three functions is measured with an
/// error of at most two percentage points; in cpu mode its samples cover exactly the processor time that the process
/// used.
fn shares_within_two_points() {
    let target = RunningTarget::start(&compile::c("shares"), &[]);
    repeated::by_some_run(|| {
        let (life, used) = measure_shares(&target);
        let weights = ["seventy", "twenty", "ten"].map(|function| weight_at_leaf(&life, function));
        let all: f64 = weights.iter().sum();
        let shares = weights.map(|weight| weight / all);
        let sampled = life.samples.iter().map(|observed| observed.sample.weight_nano).sum::<u64>();
        if sampled < used[0] / 20 * 19 || sampled > used[1] / 20 * 21 {
            return Err(format!("{sampled} ns in samples, {used:?} used: {:?}", life.status));
        }
        if shares.iter().zip([0.70, 0.20, 0.10]).all(|(share, wanted)| (share - wanted).abs() <= 0.02) {
            return Ok(());
        }
        Err(format!("{shares:.3?}\n{}", life.top()))
    });
}

/// Samples a program for some seconds. Returns its samples, and the minimum and maximum of the processor time that it
/// used meanwhile, in nanoseconds.
fn measure_shares(target: &RunningTarget) -> (ObservedLife, [u64; 2]) {
    // 2500 samples: with random ticks, three standard deviations of the largest share would be 2.7 points, but ticks
    // are not random.
    let settings = Settings { rate_hertz: 500.0, mode: Mode::Cpu, max_cpu: 1.0, max_stopped: 1.0, ..usual() };
    let used = || process::cpu_ticks(target.pid()) * 10_000_000;
    let start = used();
    let mut session = TrapSession::with(target.pid(), settings);
    session.until("a first batch", |seen| seen.lives.last().is_some_and(|life| life.batches > 0));
    let first = used();
    session.until("2500 observations", |seen| {
        seen.lives.last().is_some_and(|life| life.samples.iter().map(|o| o.sample.observations).sum::<u32>() >= 2500)
    });
    let at_least = used() - first;
    let life = session.finish().lives.pop().expect("a life");
    (life, [at_least, used() - start])
}

/// Guarantees: each thread's samples show its own function and no other's; a recursion has all of its levels; a
/// sleeping thread has samples of its sleep for the whole time.
fn threads_recursion_and_sleep() {
    let target = RunningTarget::start(&compile::c("shares"), &["all"]);
    let mut session = TrapSession::of(target.pid());
    for function in ["alone_a", "alone_b", "bottom", "sleeper"] {
        session.observe(function, 100);
    }
    let seen = session.finish();
    let life = seen.last();
    for function in ["alone_a", "alone_b", "sleeper", "recursion"] {
        let threads: BTreeSet<u32> = life.with(function).map(|observed| observed.thread.id).collect();
        assert_eq!(threads.len(), 1, "{function} is on one thread\n{}", life.top());
    }
    for observed in life.with("bottom") {
        let levels = life.names(observed).iter().filter(|name| *name == "recursion").count();
        assert_eq!(levels, 50, "{}", life.top());
    }
    // From the thread's first sample on. The other thread may wait for a processor; for how long depends on the
    // machine.
    let begins = life.with("sleeper").map(|observed| observed.sample.time_unix_nano);
    let ends = life.with("sleeper").map(|observed| observed.sample.time_unix_nano + observed.sample.weight_nano);
    let span = ends.max().unwrap() - begins.min().unwrap();
    let asleep: u64 = life.with("sleeper").map(|observed| observed.sample.weight_nano).sum();
    assert!(asleep * 10 >= span * 9 && asleep <= span + span / 100, "{asleep} of {span}\n{}", life.top());
    assert!(life.with("sleeper").all(|observed| observed.sample.blocked), "{}", life.top());
}
