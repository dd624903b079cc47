//! Programs whose profiles are known beforehand.

use std::collections::BTreeSet;

use profbridge_sampler::message::{Detached, Mode, Select, Settings};

use crate::{
    compile, repeated,
    runner::{Outcome, tests},
    session::{Life, Observed, Session, usual},
    target::Target,
};

tests![shares_within_two_points, threads_recursion_and_sleep, short_commands, libraries_of_a_command];

fn weight_at_leaf(life: &Life, function: &str) -> f64 {
    let found = life.samples.iter().filter(|observed| {
        // The clock is read through the vDSO below the function: its time is the function's.
        let own = |name: &String| ["seventy", "twenty", "ten"].contains(&name.as_str());
        life.names(observed).into_iter().find(own).as_deref() == Some(function)
    });
    found.map(|observed| observed.sample.weight_nano as f64).sum()
}

/// Guarantees: a thread that spends 70 %, 20 % and 10 % of its processor time in three functions is measured within two
/// points.
fn shares_within_two_points() -> Outcome {
    let target = Target::start(&compile::c("shares"), &[]);
    repeated::by_some_run(|| {
        let life = measure_shares(&target);
        let weights = ["seventy", "twenty", "ten"].map(|function| weight_at_leaf(&life, function));
        let all: f64 = weights.iter().sum();
        let shares = weights.map(|weight| weight / all);
        if shares.iter().zip([0.70, 0.20, 0.10]).all(|(share, wanted)| (share - wanted).abs() <= 0.02) {
            return Ok(());
        }
        Err(format!("{shares:.3?}\n{}", life.top()))
    });
    Ok(())
}

/// Some seconds of a program's life.
fn measure_shares(target: &Target) -> Life {
    // 2500 samples: three standard deviations of the largest share are 2.7 points at random, but ticks are not random.
    let settings = Settings { rate_hertz: 500.0, mode: Mode::Cpu, max_cpu: 1.0, max_stopped: 1.0, ..usual() };
    let mut session = Session::with(target.pid(), settings);
    session.until("2500 observations", |seen| {
        seen.lives.last().is_some_and(|life| life.samples.iter().map(|o| o.sample.observations).sum::<u32>() >= 2500)
    });
    session.finish().lives.pop().expect("a life")
}

/// Guarantees: each thread's samples show its own function and no other's; a recursion has all of its levels; a thread
/// that sleeps is seen asleep for all of the time.
fn threads_recursion_and_sleep() -> Outcome {
    let target = Target::start(&compile::c("shares"), &["all"]);
    let mut session = Session::of(target.pid());
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
    // From its first sample on; the thread that spins may wait for a processor, and how long depends on the machine.
    let begins = life.with("sleeper").map(|observed| observed.sample.time_unix_nano);
    let ends = life.with("sleeper").map(|observed| observed.sample.time_unix_nano + observed.sample.weight_nano);
    let span = ends.max().unwrap() - begins.min().unwrap();
    let asleep: u64 = life.with("sleeper").map(|observed| observed.sample.weight_nano).sum();
    assert!(asleep * 10 >= span * 9 && asleep <= span + span / 100, "{asleep} of {span}\n{}", life.top());
    assert!(life.with("sleeper").all(|observed| observed.sample.blocked), "{}", life.top());
    Ok(())
}

/// Guarantees: a program that the sampler starts and that ends as soon as it was observed once has been seen: its
/// sample, its exit code and its end are told, in one life, although it ends between two ticks.
fn short_commands() -> Outcome {
    let life = shell(1);
    assert!(!life.samples.is_empty(), "{:?}", life.status);
    Ok(())
}

/// Guarantees: nothing of a program that starts is unknown code, although its libraries are mapped after the first look
/// at its maps.
fn libraries_of_a_command() -> Outcome {
    let life = shell(4);
    let known = |observed: &Observed| !observed.locations.iter().any(|location| location.is_generated());
    let unknown: Vec<_> = life.samples.iter().filter(|observed| !known(observed)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    Ok(())
}

/// The life of a shell that spins from its start until the sampler has told so many samples of it, and then ends with
/// code 7.
fn shell(samples: usize) -> Life {
    let folder = tempfile::tempdir_in(compile::folder()).unwrap();
    let seen = folder.path().join("seen");
    let script = format!("until [ -e {} ]; do :; done; exit 7", seen.display());
    let mut session = Session::start_with(true);
    let command = ["/bin/sh", "-c", &script].map(Into::into).to_vec();
    let id = session.watch(Select::Command(command), usual());
    session.until("samples", |seen| seen.lives.last().is_some_and(|life| life.samples.len() >= samples));
    std::fs::write(&seen, "").unwrap();
    session.until("the end of the command", |seen| !seen.ended.is_empty());
    session.until("the end of the process", |seen| seen.last().detached.is_some());
    let mut seen = session.finish();
    assert_eq!(seen.ended, [(id, 7)]);
    assert_eq!(seen.lives.len(), 1);
    assert_eq!(seen.last().detached, Some(Detached::Exited));
    seen.lives.pop().expect("a life")
}
