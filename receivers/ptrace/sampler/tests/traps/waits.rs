//! Threads that wait: they are never stopped, so the sampler does not disturb any of their system calls.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use profbridge_sampler::message::{Level, ProblemKind, Settings, Status};

use crate::{
    compile, process,
    runner::{Outcome, Untested, tests},
    session::{SeenEvents, TrapSession, usual},
    target::RunningTarget,
};

tests![
    no_system_call_fails_or_is_shortened,
    no_system_call_of_an_interpreter_fails_or_is_shortened,
    short_waits_are_not_interrupted,
    idle_threads_are_not_stopped,
    waits_are_where_the_threads_say,
    vfork_and_uninterruptible_sleep,
    frozen_by_the_unified_hierarchy,
    frozen_by_the_freezer,
];

/// The number of system calls in the matrix; each is made by its own thread.
const CALLS: usize = 54;

/// How many times each waiting thread must be examined.
const LOOKS: u32 = 8;

/// Starts a program that makes the system calls of the matrix. The argument is their duration in milliseconds.
type Start = fn(&str) -> RunningTarget;

/// Runs the matrix with calls of this duration. Returns the name, the result with the error, and the measured duration
/// of each call.
fn matrix(start: Start, milliseconds: f64, sampled: bool) -> (Vec<(String, String, f64)>, Option<SeenEvents>) {
    let mut target = start(&milliseconds.to_string());
    let mut session =
        sampled.then(|| TrapSession::with(target.pid(), Settings { rate_hertz: 250.0, ..Settings::default() }));
    if let Some(session) = &mut session {
        session.until("a first sample", |seen| seen.lives.last().is_some_and(|life| !life.samples.is_empty()));
    }
    target.say("go");
    let lines = target.lines_until("done");
    let calls = lines.iter().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        if words[1] == "absent" && !sampled {
            let error = nix::errno::Errno::from_raw(words[2].parse().unwrap());
            println!("untested here: {}: {error}", words[0]);
        }
        (words[0].to_owned(), words[1..3].join(" "), words[3].parse().unwrap())
    });
    (calls.collect(), session.map(TrapSession::finish))
}

/// Guarantees: none of 54 waiting system calls fails, returns another result, or returns earlier than without a
/// sampler, although its thread is examined many times meanwhile.
fn no_system_call_fails_or_is_shortened() {
    none_fails(|milliseconds| RunningTarget::start(&compile::c("matrix"), &[milliseconds]));
}

/// Guarantees: the same for system calls of a Python program's threads whose Python functions are read meanwhile: no
/// thread is stopped for that.
fn no_system_call_of_an_interpreter_fails_or_is_shortened() -> Outcome {
    compile::has("python3", "--version")?;
    let status = none_fails(|milliseconds| {
        let library = compile::c_with("matrix_library", "libmatrix.so", &["-shared", "-fPIC"]);
        let mut command = Command::new("python3");
        command.arg(compile::source("matrix.py")).arg(library).arg(milliseconds);
        let mut target = RunningTarget::launch(&mut command);
        target.wait_for("ready");
        target
    });
    assert_eq!(status.stops, 0, "{status:?}");
    assert!(status.interpreted > CALLS as u64, "{status:?}");
    Ok(())
}

/// Asserts that no system call of the matrix fails. Returns the last counters.
fn none_fails(start: Start) -> Status {
    // The calls are repeated with longer durations until the sampler had time to examine each: a call that was not
    // examined proves nothing.
    let mut milliseconds = 1000.0;
    loop {
        let (enough, status) = no_call_of_the_matrix_fails(start, milliseconds);
        if enough {
            return status;
        }
        milliseconds *= 2.0;
        assert!(milliseconds < 120_000.0, "not all threads were looked at {LOOKS} times");
    }
}

/// Asserts that examining threads does not change system calls of this duration. Returns whether each was examined
/// often enough, and the last counters.
fn no_call_of_the_matrix_fails(start: Start, milliseconds: f64) -> (bool, Status) {
    let (alone, _) = matrix(start, milliseconds, false);
    let (sampled, seen) = matrix(start, milliseconds, true);
    assert_eq!(alone.len(), CALLS);
    assert_eq!(sampled.len(), CALLS);
    for ((name, result, took), (_, sampled_result, sampled_took)) in alone.iter().zip(&sampled) {
        assert_eq!(result, sampled_result, "{name}: {:?}", seen.as_ref().map(|seen| seen.last().status));
        if !result.starts_with("absent") {
            // A timeout is measured in whole jiffies and may end up to one jiffy (4 ms at 250 Hz) early.
            assert!(*took > milliseconds - 5.0, "{name} took {took} ms without a sampler");
            assert!(*sampled_took > milliseconds - 5.0, "{name} took only {sampled_took} ms");
            // On a busy machine a wait may last much longer; but a wait that restarted at each examination would never
            // end.
        }
    }
    let seen = seen.unwrap();
    let life = seen.last();
    let mut looks: BTreeMap<u32, u32> = BTreeMap::new();
    for observed in &life.samples {
        if life.names(observed).iter().any(|name| name.starts_with("call_")) {
            *looks.entry(observed.thread.id).or_default() += observed.sample.observations;
        }
    }
    // Calls that this kernel does not have end at once.
    let absent = alone.iter().filter(|(_, result, _)| result.starts_with("absent")).count();
    (looks.values().filter(|count| **count >= LOOKS).count() >= CALLS - absent, life.status)
}

/// Guarantees: the sampler interrupts no wait of threads that wait for a few milliseconds at a time and compute in
/// between, and are therefore found both running and waiting.
fn short_waits_are_not_interrupted() {
    let mut target = RunningTarget::start(&compile::c("short_waits"), &[]);
    let mut session = TrapSession::with(target.pid(), Settings::default());
    session.ticks(300);
    target.ask_until("calls", 1000);
    assert_eq!(target.ask("interrupted"), 0, "{:?}", session.seen.last().status);
    session.finish();
}

/// Guarantees: all threads of an idle process are sampled with complete stacks, and none is stopped.
fn idle_threads_are_not_stopped() {
    let target = RunningTarget::start(&compile::c("busy"), &["0", "8"]);
    let mut session = TrapSession::with(target.pid(), Settings::default());
    session.ticks(200);
    let seen = session.finish();
    let life = seen.last();
    assert_eq!(life.status.stops, 0, "{:?}", life.status);
    let observations: u64 = life.samples.iter().map(|observed| u64::from(observed.sample.observations)).sum();
    // Threads that have been idle for a long time are examined less often; their samples have the weight of the ticks
    // between.
    let weight: u64 = life.samples.iter().map(|observed| observed.sample.weight_nano).sum();
    let wanted = 9 * life.status.ticks * life.period_nano;
    assert!(weight as f64 > 0.9 * wanted as f64, "{weight} of {wanted} ns, {observations} observations");
    assert!(life.samples.iter().all(|observed| observed.sample.blocked));
    let share = life.complete_share(life.samples.iter());
    assert!(share >= 0.99, "{share}\n{}", life.top());
    // An unchanged stack is a run: each thread has one sample in a batch for all its observations.
    let (samples, most) = (life.samples.len(), 9 * life.batches);
    assert!(samples <= most && observations >= life.status.ticks, "{samples} samples of {observations}, {most} runs");
}

/// Guarantees: each function of threads that are often preempted has the time that the threads' own clocks measure
/// (running, waiting for a CPU and asleep together), although most of it was spent waiting at a place where the thread
/// was not sampled last.
fn waits_are_where_the_threads_say() -> Outcome {
    const SECONDS: u64 = 10;
    let mut worst = f64::NAN;
    let mut text = String::new();
    // The threads of one program run are few, so samples of their running time are subject to chance.
    for _ in 0..3 {
        let mut target = RunningTarget::start(&compile::c("own_clock"), &[]);
        let mut session = TrapSession::of(target.pid());
        session.ticks(20);
        target.say(&SECONDS.to_string());
        let lines = target.lines_until("done");
        session.ticks(20);
        let seen = session.finish();
        let life = seen.last();
        if life.status.level == Level::None {
            return Err(Untested("no perf events are permitted".to_owned()));
        }
        worst = 0.0;
        for line in &lines {
            let words: Vec<&str> = line.split(' ').collect();
            let (thread, function): (u32, _) = (words[0].parse().unwrap(), words[1]);
            let of = life.with(function).filter(|observed| observed.thread.id == thread);
            let said = of.map(|observed| observed.sample.weight_nano).sum::<u64>() as f64 / 1e9;
            let took = words[2].parse::<f64>().unwrap() / 1e9;
            worst = f64::max(worst, (said - took).abs() / SECONDS as f64);
            text += &format!("{thread} {function}: {took:.3} s by its own clock, {said:.3} s sampled\n");
        }
        let status = life.status;
        assert!(status.recorded_nano > 10 * status.counted_nano, "{status:?}");
        if worst < 0.05 {
            return Ok(());
        }
    }
    panic!("{worst} of a thread in another function:\n{text}");
}

/// Guarantees: a thread in state D, which cannot be stopped in that state, does not keep the other threads from being
/// sampled, can continue, and has a complete stack, although `vfork` keeps its return address in a register.
fn vfork_and_uninterruptible_sleep() {
    let mut target = RunningTarget::start(&compile::c("vfork"), &[]);
    let mut session = TrapSession::of(target.pid());
    // The child of `vfork` ends on request, after the busy thread was observed many times: a sampler that waited for
    // the thread in state D would not observe any other thread until then.
    for _ in 0..3 {
        let before = session.seen.lives.last().map_or(0, |life| life.count("unaffected"));
        session.observe("unaffected", before + 80);
        assert!(process::states(target.pid()).contains('D'));
        target.say("");
        target.wait_for("ready");
    }
    let seen = session.finish();
    let life = seen.last();
    let threads: std::collections::BTreeSet<u32> = life.samples.iter().map(|observed| observed.thread.id).collect();
    assert_eq!(threads.len(), 3, "{}", life.top());
    let share = life.complete_share(life.with("wait_in_vfork"));
    let found = life.presence("wait_in_vfork");
    assert!(share >= 0.99 && found >= 0.9, "{share}, {found}\n{}", life.top());
}

/// A control group that is thawed and removed when this is dropped.
struct FreezerGroup(std::path::PathBuf);

impl FreezerGroup {
    fn make(hierarchy: &str) -> Result<Self, Untested> {
        let path = Path::new(hierarchy).join(format!("profbridge-{}", std::process::id()));
        fs::create_dir(&path)
            .map_err(|error| Untested(format!("no control group in {hierarchy} can be made: {error}")))?;
        Ok(Self(path))
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap();
    }

    fn until(&self, file: &str, text: &str) {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(120);
        while !fs::read_to_string(self.0.join(file)).unwrap().contains(text) {
            assert!(std::time::Instant::now() < end, "{file} never became {text}");
            std::thread::yield_now();
        }
    }
}

impl Drop for FreezerGroup {
    fn drop(&mut self) {
        // Only one of the two files exists. A group with processes cannot be removed, so these are moved to the parent
        // group first.
        fs::write(self.0.join("cgroup.freeze"), "0").ok();
        fs::write(self.0.join("freezer.state"), "THAWED").ok();
        for pid in fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default().lines() {
            fs::write(self.0.parent().unwrap().join("cgroup.procs"), pid).ok();
        }
        fs::remove_dir(&self.0).ok();
    }
}

/// Asserts that a frozen process is reported, does not block the sampler, and is sampled after it was thawed.
fn frozen(hierarchy: &str, file: &str, [frozen, thawed]: [&str; 2], [shows_file, shows]: [&str; 2]) -> Outcome {
    let group = FreezerGroup::make(hierarchy)?;
    if !group.0.join(file).exists() {
        return Err(Untested(format!("{hierarchy} has no {file}")));
    }
    let mut target = RunningTarget::start(&compile::c("busy"), &["2", "2"]);
    let steady = RunningTarget::start(&compile::c("shares"), &["all"]);
    group.write("cgroup.procs", &target.pid().to_string());
    group.write(file, frozen);
    group.until(shows_file, shows);
    let mut session = TrapSession::of(target.pid());
    session.until("a problem", |seen| seen.has(ProblemKind::Frozen));
    session.watch(profbridge_sampler::message::Select::Pid(steady.pid()), usual());
    session.until("samples of another process", |seen| seen.last().count("alone_a") >= 50);
    group.write(file, thawed);
    session.until("samples after the thaw", |seen| {
        seen.lives.iter().any(|life| life.process.pid == target.pid() && life.count("leaf") >= 20)
    });
    target.works();
    session.finish();
    Ok(())
}

/// Guarantees: a process frozen by the freezer of cgroup v2 is reported as frozen, does not delay the sampling of other
/// targets, and is sampled once it is thawed.
fn frozen_by_the_unified_hierarchy() -> Outcome {
    let mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    let hierarchy = mounts.iter().find(|path| Path::new(path).join("cgroup.controllers").exists());
    let hierarchy = hierarchy.ok_or_else(|| Untested("there is no unified hierarchy".to_owned()))?;
    frozen(hierarchy, "cgroup.freeze", ["1", "0"], ["cgroup.events", "frozen 1"])
}

/// Guarantees: the same for the freezer of cgroup v1, whose processes are in state D.
fn frozen_by_the_freezer() -> Outcome {
    frozen("/sys/fs/cgroup/freezer", "freezer.state", ["FROZEN", "THAWED"], ["freezer.state", "FROZEN"])
}
