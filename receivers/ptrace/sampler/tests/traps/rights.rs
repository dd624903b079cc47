//! Rights that the kernel refuses, and what is sampled without them.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use profbridge_sampler::message::{ProblemKind, Settings, Stops, Trust};

use crate::{
    compile, process,
    runner::{Outcome, Untested, tests},
    session::TrapSession,
    target::RunningTarget,
};

tests![
    beside_another_tracer,
    another_tracer_comes_later,
    without_the_right_to_trace,
    in_a_filter_without_ptrace,
    other_namespaces_and_a_deleted_program,
    setuid_program_without_rights,
    levels_of_rights,
    locked_memory_is_used_up,
];

/// Guarantees: if running threads are sampled by stopping them, a process with another tracer is reported; its blocked
/// threads are sampled, its running ones are not, and the other tracer stays attached.
fn beside_another_tracer() {
    let mut target = RunningTarget::start(&compile::c("busy"), &["1", "3"]);
    let tracer = RunningTarget::start(&compile::c("tracer"), &[&target.pid().to_string()]);
    let settings = Settings { stops: Stops::Always, ..Settings::default() };
    let mut session = TrapSession::with(target.pid(), settings);
    session.until("a problem", |seen| seen.has(ProblemKind::Traced));
    session.ticks(120);
    let tracers = process::tracers(target.pid());
    assert!(tracers.len() == 5 && tracers.iter().all(|pid| *pid == tracer.pid().to_string()), "{tracers:?}");
    target.works();
    let seen = session.finish();
    let life = seen.last();
    assert!(life.count("wait_forever") > 100, "{}", life.top());
    assert!(life.status.refused_stops > 0 && life.status.stops == 0, "{:?}", life.status);
    assert!(life.samples.iter().all(|observed| observed.sample.blocked));
}

/// Guarantees: a tracer that attaches to a process whose threads are being stopped succeeds sooner or later (a stop
/// lasts microseconds); the sampler reports it and stops no more threads, and once the tracer is gone running threads
/// are sampled again.
fn another_tracer_comes_later() {
    let target = RunningTarget::start(&compile::c("busy"), &["1", "3"]);
    let settings = Settings { stops: Stops::Always, ..Settings::default() };
    let mut session = TrapSession::with(target.pid(), settings);
    session.observe("leaf", 20);
    let tracer = RunningTarget::start(&compile::c("tracer"), &[&target.pid().to_string()]);
    session.until("a problem", |seen| seen.has(ProblemKind::Traced));
    let count = session.seen.last().count("leaf");
    drop(tracer);
    session.until("samples again", |seen| seen.last().count("leaf") > count + 50);
    session.finish();
}

/// Checks that the user is root, which is needed to give rights away.
fn as_root() -> Result<(), Untested> {
    if nix::unistd::geteuid().is_root() {
        return compile::has("setpriv", "--version");
    }
    Err(Untested("only root can give up rights".to_owned()))
}

/// Starts this program under another program that changes its rights.
fn drive(wrapper: &Path, wrapper_arguments: &[&str], pids: &[u32]) -> RunningTarget {
    // A copy is used, since the build folder may be closed to other users.
    let copy = compile::folder().join("traps-of-others");
    if !copy.exists() {
        fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(wrapper);
    command.args(wrapper_arguments).arg(copy).arg("drive").args(pids.iter().map(u32::to_string)).current_dir("/");
    let mut driver = RunningTarget::launch(&mut command);
    driver.wait_for("ready");
    driver
}

/// The number of stops, of samples of blocked threads and of all samples, for the only process of a driver.
fn counts(lines: &[String]) -> [u64; 3] {
    let life = lines.iter().find(|line| line.starts_with("life")).unwrap_or_else(|| panic!("{lines:#?}"));
    let mut numbers = life.rsplit(' ').map(|number| number.parse().unwrap());
    std::array::from_fn(|_| numbers.next().unwrap())
}

/// Arguments for a user without any rights.
const NOBODY: [&str; 4] = ["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"];

/// Guarantees: without the right to trace a process, the sampler reports which right is missing, traces nothing, and
/// ends normally.
fn without_the_right_to_trace() -> Outcome {
    as_root()?;
    let mut target = RunningTarget::start(&compile::c("busy"), &["1", "1"]);
    let mut driver = drive(Path::new("setpriv"), &NOBODY, &[target.pid()]);
    driver.wait_for(&format!("saw {} Permission", target.pid()));
    driver.say("");
    let lines = driver.lines_until("done");
    let problem = lines.iter().find(|line| line.starts_with(&format!("problem {} Permission ", target.pid())));
    let problem = problem.unwrap_or_else(|| panic!("{lines:#?}"));
    assert!(problem.contains("CAP_SYS_PTRACE") || problem.contains("same user"), "{problem}");
    assert!(!lines.iter().any(|line| line.starts_with("life") && !line.contains(" 0 0 0")), "{lines:#?}");
    assert!(target.lives());
    Ok(())
}

/// Guarantees: if a filter refuses `ptrace` and `process_vm_readv`, as in containers, blocked threads are still sampled
/// through `/proc/PID/mem`, and no thread is stopped.
fn in_a_filter_without_ptrace() {
    let target = RunningTarget::start(&compile::c("busy"), &["1", "3"]);
    let mut driver = drive(&compile::c("without_ptrace"), &[], &[target.pid()]);
    driver.wait_for(&format!("saw {} sample", target.pid()));
    driver.say("");
    let lines = driver.lines_until("done");
    let [stops, blocked, samples] = counts(&lines);
    // Running threads are sampled too, if the filter permits perf events.
    assert!(samples >= blocked && blocked > 0 && stops == 0, "{lines:#?}");
}

/// Guarantees: a process in its own PID and mount namespaces, whose program was deleted and never visible from here, is
/// sampled with its own ids, the right file, and complete stacks with names.
fn other_namespaces_and_a_deleted_program() -> Outcome {
    let program = compile::c("busy");
    let script =
        format!("mount -t tmpfs none /mnt && cp {} /mnt/hidden && exec /mnt/hidden 1 1 unlink", program.display());
    let mut command = Command::new("unshare");
    command.args(["--fork", "--pid", "--mount", "--mount-proc", "--kill-child", "sh", "-c", &script]);
    let probe = Command::new("unshare").args(["--fork", "--pid", "--mount", "--mount-proc", "true"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return Err(Untested("namespaces cannot be made".to_owned()));
    }
    let mut target = RunningTarget::launch(&mut command);
    target.wait_for("ready");
    let [pid] = process::children(target.pid())[..] else { panic!("one child") };
    let mut session = TrapSession::of(pid);
    session.observe("leaf", 100);
    let seen = session.finish();
    let life = seen.last();
    assert_eq!((life.process.pid, life.process.namespace_pid), (pid, 1));
    assert!(life.process.executable.starts_with("/mnt/hidden"), "{}", life.process.executable);
    let share = life.complete_share(life.samples.iter());
    assert!(share >= 0.99, "{share}\n{}", life.top());
    for observed in &life.samples {
        let main = observed.thread.id == pid;
        assert_eq!(observed.thread.namespace_id == 1, main, "{:?}", observed.thread);
        // The shell and its tools had the lower ids.
        assert!(observed.thread.namespace_id < 20, "{:?}", observed.thread);
        assert_eq!(observed.trust, Trust::Complete);
    }
    let main = life.mappings.iter().map(|(mapping, _)| mapping).find(|mapping| mapping.main).unwrap();
    assert!(main.file.is_some() && main.htlhash.is_some(), "{main:?}");
    Ok(())
}

/// Guarantees: if a process executes a set-user-ID program that the sampler may not trace, the sampler reports this,
/// and the process is not affected.
fn setuid_program_without_rights() -> Outcome {
    as_root()?;
    let program = compile::c("exec_chain");
    let privileged = compile::folder().join("exec_chain-root");
    fs::copy(&program, &privileged).unwrap();
    fs::set_permissions(&privileged, fs::Permissions::from_mode(0o4755)).unwrap();
    let mut command = Command::new("setpriv");
    command
        .args(NOBODY.iter().filter(|argument| !argument.contains("bounding")))
        .arg(&program)
        .arg("1")
        .arg(&privileged);
    let mut target = RunningTarget::launch(command.current_dir("/"));
    target.wait_for("link 1");
    let mut driver = drive(Path::new("setpriv"), &NOBODY, &[target.pid()]);
    driver.wait_for(&format!("saw {} sample", target.pid()));
    target.say("");
    target.wait_for("link 0");
    let user = fs::read_to_string(format!("/proc/{}/status", target.pid())).unwrap();
    let user = user.lines().find(|line| line.starts_with("Uid:")).unwrap();
    if !user.contains("\t0\t") {
        return Err(Untested("the file system ignores the set-user-id bit".to_owned()));
    }
    driver.wait_for(&format!("saw {} Permission", target.pid()));
    driver.say("");
    let lines = driver.lines_until("done");
    assert!(lines.iter().any(|line| line.starts_with("life") && line.contains("Executed")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains(" Permission ")), "{lines:#?}");
    assert!(target.lives());
    assert_eq!(process::tracers(target.pid()), Vec::<String>::new());
    Ok(())
}

/// Arguments for a user with the right to sample the kernel, and no other.
const WITH_PERFMON: [&str; 6] = [
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=-all,+perfmon",
    "--ambient-caps=-all,+perfmon",
    "--bounding-set=-all,+perfmon",
];

/// Samples a process by a driver with other rights until it has a sample. Returns the last lines of the driver, and the
/// level.
fn driven(arguments: &[&str], target: &RunningTarget) -> (Vec<String>, String) {
    let mut driver = drive(Path::new("setpriv"), arguments, &[target.pid()]);
    driver.wait_for(&format!("saw {} sample", target.pid()));
    driver.say("");
    let lines = driver.lines_until("done");
    let last = lines.iter().find_map(|line| line.strip_prefix(&format!("level {} ", target.pid())));
    let level = last.unwrap_or_else(|| panic!("{lines:#?}")).to_owned();
    (lines, level)
}

/// Guarantees: with each setting of `kernel.perf_event_paranoid` that a machine may have, root and a user with only
/// CAP_PERFMON can sample the kernel; a user without any right has the level that the setting permits, the message
/// names the right for a better level, and no thread is stopped while events are permitted.
fn levels_of_rights() -> Outcome {
    as_root()?;
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    let paranoid = paranoid.map_err(|_| Untested("the kernel has no perf events".to_owned()))?;
    let paranoid: i32 = paranoid.trim().parse().unwrap();
    let probe = Command::new("setpriv").args(WITH_PERFMON).arg("true").output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return Err(Untested("CAP_PERFMON cannot be given".to_owned()));
    }
    let own = NOBODY.iter().filter(|argument| !argument.contains("bounding"));
    let mut command = Command::new("setpriv");
    let mut target = RunningTarget::launch(command.args(own).arg(compile::c("busy")).args(["1", "1"]).current_dir("/"));
    target.wait_for("ready");

    let (lines, of_root) = driven(&["--reuid=0"], &target);
    if of_root == "None" {
        return Err(Untested("root itself is permitted no perf events".to_owned()));
    }
    let (of_user, level) = driven(&WITH_PERFMON, &target);
    for (lines, level) in [(lines, of_root), (of_user, level)] {
        assert!(["Kernel", "Processors"].contains(&level.as_str()), "{lines:#?}");
    }
    let (lines, level) = driven(&NOBODY, &target);
    let permitted: &[&str] = match paranoid {
        ..=0 => &["Kernel", "Processors"],
        1 => &["Kernel"],
        2 => &["User"],
        // Kernels of some distributions refuse everything at this setting.
        _ => &["User", "None"],
    };
    assert!(permitted.contains(&level.as_str()), "{paranoid}: {lines:#?}");
    let told = lines.iter().any(|line| line.contains(" Events ") && line.to_lowercase().contains("cap_perfmon"));
    assert_eq!(told, paranoid > 1, "{lines:#?}");
    let stopped = lines.iter().any(|line| line.starts_with("life") && !line.ends_with(" 0"));
    assert!(!stopped || level == "None", "{lines:#?}");
    Ok(())
}

/// Guarantees: if a user has locked all the memory that the kernel allows for events, no thread is stopped instead: the
/// lack of memory is reported with a remedy, and blocked threads are sampled.
fn locked_memory_is_used_up() -> Outcome {
    as_root()?;
    // A user who has no events otherwise.
    const SOMEBODY: [&str; 5] = ["--memlock=0:0", "setpriv", "--reuid=64321", "--regid=64321", "--clear-groups"];
    compile::has("prlimit", "--version")?;
    let launch = |program: &str, arguments: &[&str]| {
        let mut command = Command::new("prlimit");
        RunningTarget::launch(command.args(SOMEBODY).arg(compile::c(program)).args(arguments).current_dir("/"))
    };
    let mut target = launch("busy", &["2", "2"]);
    target.wait_for("ready");
    let mut holder = launch("hold_rings", &[]);
    let answer = holder.line();
    if answer != "ready" {
        return Err(Untested(format!("memory for perf events is {answer}")));
    }
    let mut driver = drive(Path::new("prlimit"), &SOMEBODY, &[target.pid()]);
    driver.wait_for(&format!("saw {} Lack", target.pid()));
    driver.wait_for(&format!("saw {} sample", target.pid()));
    driver.say("");
    let lines = driver.lines_until("done");
    let lack = lines.iter().find(|line| line.starts_with(&format!("problem {} Lack ", target.pid())));
    let lack = lack.unwrap_or_else(|| panic!("{lines:#?}"));
    assert!(lack.contains("no more memory may be locked") && lack.contains("CAP_IPC_LOCK"), "{lack}");
    let [stops, blocked, samples] = counts(&lines);
    assert!(stops == 0 && blocked > 0 && samples == blocked, "{lines:#?}");
    target.works();
    Ok(())
}
