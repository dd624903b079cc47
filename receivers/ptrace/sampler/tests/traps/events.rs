//! Perf events of threads: which part of their time is sampled, and how the rest is reported.

use std::{collections::BTreeSet, process::Command, thread};

use profbridge_sampler::message::{Level, Location, Mode, ProblemKind, Select, Settings};

use crate::{
    compile,
    runner::{Outcome, Untested, tests},
    session::{ObservedLife, TrapSession},
    target::RunningTarget,
};

tests![
    threads_that_seldom_run,
    own_code_is_not_the_kernel,
    calls_are_the_kernel,
    calls_are_sampled_in_the_kernel,
    busy_threads_first
];

/// The explanation of time in the kernel where the kernel may not be sampled (`Location::KERNEL_NOT_VISIBLE`).
const NOT_VISIBLE: &str = "[kernel, not visible]";

const CPU: fn() -> Settings = || Settings { mode: Mode::Cpu, ..Settings::default() };

/// Runs a function in a thread without the rights to sample the kernel; processes that the thread starts do not have
/// them either.
///
/// # Errors
///
/// If the rights cannot be given up. The function is not run then.
#[allow(unsafe_code, reason = "nix has no call for the bounding set")]
fn without_the_kernel<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Untested> {
    /// `CAP_SYS_ADMIN` and `CAP_PERFMON` (linux/capability.h).
    const RIGHTS: [libc::c_ulong; 2] = [21, 38];
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let own = status.lines().find_map(|line| line.strip_prefix("CapPrm:")).unwrap();
    let own = u64::from_str_radix(own.trim(), 16).unwrap();
    let bounded = move || {
        // An ordinary user has none of these rights, and does not get them by executing this program again.
        let given = |right: &libc::c_ulong| nix::unistd::geteuid().is_root() || own >> right & 1 == 1;
        for right in RIGHTS.into_iter().filter(given) {
            // SAFETY: the call has numbers only. An executed program has no capability outside of this set
            // (capabilities(7)).
            if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, right, 0, 0, 0) } != 0 {
                let error = std::io::Error::last_os_error();
                return Err(Untested(format!("rights cannot be given up: {error}")));
            }
        }
        Ok(work())
    };
    thread::scope(|scope| scope.spawn(bounded).join().unwrap())
}

/// Starts a sampler process that may not sample the kernel, and samples this target.
fn beneath_the_kernel(target: &RunningTarget) -> Result<TrapSession, Untested> {
    let mut session = without_the_kernel(TrapSession::start)?;
    session.watch(Select::Pid(target.pid()), CPU());
    session.until("a level", |seen| seen.lives.last().is_some_and(|life| life.status.ticks > 0));
    match session.seen.last().status.level {
        Level::User => Ok(session),
        level => Err(Untested(format!("the kernel permits another level without rights: {level:?}"))),
    }
}

/// The running time of a process, in nanoseconds: sampled in its own code, and reported as spent in the kernel.
fn program_and_kernel(life: &ObservedLife) -> (u64, u64) {
    let sampled = life.samples.iter().filter(|observed| !observed.sample.blocked);
    let kernel = life.explained.get(NOT_VISIBLE).copied().unwrap_or(0);
    (sampled.map(|observed| observed.sample.weight_nano).sum(), kernel)
}

/// Guarantees: a thread that runs for 0.3 of every 20 milliseconds, far less than a period between two examinations,
/// has samples in proportion to its running time.
fn threads_that_seldom_run() -> Outcome {
    let target = RunningTarget::start(&compile::c("duty"), &["300", "20000"]);
    let mut session = TrapSession::with(target.pid(), CPU());
    session.until("a level", |seen| seen.lives.last().is_some_and(|life| life.status.ticks > 0));
    if session.seen.last().status.level == Level::None {
        return Err(Untested("the kernel permits no perf events".to_owned()));
    }
    session.observe("serve", 20);
    let seen = session.finish();
    let (life, (program, _)) = (seen.last(), program_and_kernel(seen.last()));
    assert_eq!(life.status.stops, 0);
    assert!(program > 10 * life.status.not_sampled_nano, "{program}: {:?}", life.status);
    Ok(())
}

/// Guarantees: if the kernel may not be sampled, the time of a thread that is mostly in its own code, in short turns,
/// is not reported as time in the kernel.
fn own_code_is_not_the_kernel() -> Outcome {
    let target = RunningTarget::start(&compile::c("duty"), &["1000", "20000"]);
    let mut session = beneath_the_kernel(&target)?;
    session.observe("work", 25);
    let seen = session.finish();
    let (program, kernel) = program_and_kernel(seen.last());
    assert!(kernel * 2 < program, "{kernel} ns in the kernel, {program} ns not: {:?}", seen.last().status);
    Ok(())
}

/// Guarantees: if the kernel may not be sampled, the time of a program that transfers tens of MiB with each call is
/// reported as time in the kernel, and no call returns early.
fn calls_are_the_kernel() -> Outcome {
    let mut target = RunningTarget::start(&compile::c("long_calls"), &[]);
    let mut session = beneath_the_kernel(&target)?;
    session.until("a second in the kernel", |seen| program_and_kernel(seen.last()).1 > 1_000_000_000);
    assert_eq!(target.ask("short"), 0, "of {} calls", target.ask("calls"));
    let seen = session.finish();
    let (status, (program, kernel)) = (seen.last().status, program_and_kernel(seen.last()));
    assert_eq!((status.level, status.stops), (Level::User, 0), "{status:?}");
    assert!(seen.has(ProblemKind::Events));
    assert!(program * 5 < kernel, "{program} ns in its own code, {kernel} ns in the kernel: {status:?}");
    Ok(())
}

/// Guarantees: if the kernel may be sampled, the long system calls of a thread transfer all data, the thread is never
/// stopped, and it is sampled inside of the calls, with the kernel's frames before its own.
fn calls_are_sampled_in_the_kernel() -> Outcome {
    let mut target = RunningTarget::start(&compile::c("long_calls"), &[]);
    let mut session =
        TrapSession::with(target.pid(), Settings { rate_hertz: 997.0, max_cpu: 1.0, ..Settings::default() });
    session.until("a level", |seen| seen.lives.last().is_some_and(|life| life.status.ticks > 0));
    if session.seen.last().status.level < Level::Kernel {
        return Err(Untested("the kernel may not be seen".to_owned()));
    }
    let in_calls = |life: &ObservedLife| -> Vec<Vec<Location>> {
        let ran = life.samples.iter().filter(|observed| !observed.sample.blocked);
        ran.filter(|observed| observed.locations[0].is_kernel()).map(|observed| observed.locations.clone()).collect()
    };
    session.until("samples inside of calls", |seen| in_calls(seen.last()).len() >= 100);
    assert_eq!(target.ask("short"), 0, "of {} calls", target.ask("calls"));
    let seen = session.finish();
    assert_eq!(seen.last().status.stops, 0);
    let stacks = in_calls(seen.last());
    let mut within = 0;
    for stack in &stacks {
        let (kernel, program) = stack.split_at(stack.iter().take_while(|location| location.is_kernel()).count());
        assert!(program.iter().all(|location| location.mapping().is_some()), "{stack:x?}");
        assert!(program.len() > 1, "{stack:x?}");
        within += usize::from(kernel.len() > 1);
    }
    // At the start of a system call, only its entry is on the kernel's stack.
    assert!(within * 10 > stacks.len() * 9, "{within} of {}", stacks.len());
    Ok(())
}

/// Guarantees: if there are fewer file descriptors than running threads, the threads that ran most have the events,
/// even if others had them first; the lack is reported, the time without samples is counted, and no thread is stopped.
fn busy_threads_first() -> Outcome {
    compile::has("prlimit", "--version")?;
    let target = RunningTarget::start(&compile::c("unequal"), &["60", "2"]);
    let mut session = without_the_kernel(TrapSession::start)?;
    // The sampler reads its limit when it samples its first process.
    let limited = Command::new("prlimit").arg(format!("--pid={}", session.sampler())).arg("--nofile=64:64").status();
    assert!(limited.unwrap().success());
    session.watch(Select::Pid(target.pid()), CPU());
    session.until("a level", |seen| seen.lives.last().is_some_and(|life| life.status.ticks > 0));
    if session.seen.last().status.level != Level::User {
        return Err(Untested("the kernel permits another level without rights".to_owned()));
    }
    session.until("a lack", |seen| seen.has(ProblemKind::Lack));
    session.observe("always", 100);
    let seen = session.finish();
    let (life, status) = (seen.last(), seen.last().status);
    let message = &seen.problems.iter().find(|problem| problem.kind == ProblemKind::Lack).unwrap().message;
    assert!(message.contains("no file descriptor is left"), "{message}");
    assert!(status.stops == 0 && status.not_sampled_nano > 0, "{status:?}");
    let threads: BTreeSet<u32> = life.with("always").map(|observed| observed.thread.id).collect();
    assert_eq!(threads.len(), 2, "{}", life.top());
    Ok(())
}
