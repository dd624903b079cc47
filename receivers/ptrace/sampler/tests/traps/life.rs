//! Exec, exit, zombies, and reused ids of processes.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use profbridge_sampler::message::{Detached, Location, ProblemKind, Select, Settings, Stops};

use crate::{
    compile, process,
    runner::{Outcome, Untested, tests},
    session::{TrapSession, often, usual},
    target::RunningTarget,
};

tests![
    exits_while_sampled,
    exec_by_another_thread,
    exec_of_a_setuid_program,
    fork_storm,
    exit_code_is_the_parents,
    same_id_again,
    thirty_two_bits,
];

/// Guarantees: each process that is killed at any moment while it is sampled is reported as ended, without harm to the
/// sampler or to other sampled processes.
fn exits_while_sampled() {
    let steady = RunningTarget::start(&compile::c("busy"), &["1", "0"]);
    let mut session = TrapSession::of(steady.pid());
    session.until("the steady process", |seen| !seen.lives.is_empty());
    for round in 1..=20_u64 {
        let mut brief = RunningTarget::start(&compile::c("busy"), &["3", "3"]);
        let stops = if round % 2 == 0 { Stops::Always } else { usual().stops };
        session.watch(Select::Pid(brief.pid()), Settings { rate_hertz: 500.0, stops, ..Settings::default() });
        session.until("the brief process", |seen| seen.last().process.pid == brief.pid());
        session.listen(std::time::Duration::from_micros(round * 3571 % 30_000));
        if round == 20 {
            session.observe("leaf", 1);
        }
        brief.end();
        session.until("its end", |seen| seen.last().detached == Some(Detached::Exited));
    }
    let before = session.seen.lives[0].count("leaf");
    session.until("samples of the steady process", |seen| seen.lives[0].count("leaf") > before + 20);
    let seen = session.finish();
    assert_eq!(seen.lives.len(), 21);
    assert!(seen.lives[1..].iter().any(|life| life.count("leaf") > 0), "none of the brief ones was sampled");
}

/// Samples `exec_chain` until the last program of its chain, each of which is executed by a thread other than the
/// leader.
fn follow_chain(program: &Path, last: Option<&Path>, settings: Settings) -> crate::session::SeenEvents {
    let mut arguments = vec!["5".to_owned()];
    arguments.extend(last.map(|path| path.display().to_string()));
    let mut target = RunningTarget::launch(std::process::Command::new(program).args(arguments));
    target.wait_for("link 5");
    let mut session = TrapSession::with(target.pid(), settings);
    for left in (0..5).rev() {
        session
            .until("samples of a link", |seen| seen.lives.last().is_some_and(|life| life.count("link_of_chain") >= 10));
        let lives = session.seen.lives.len();
        target.say("");
        target.wait_for(&format!("link {left}"));
        session.until("the next link", |seen| {
            seen.lives.len() > lives && seen.lives[lives - 1].detached == Some(Detached::Executed)
        });
    }
    session.until("samples of the last link", |seen| seen.last().count("link_of_chain") >= 10);
    assert!(target.lives());
    session.finish()
}

/// Guarantees: a process in which a thread other than the first calls exec, five times in succession, reaches its last
/// program, although it has more running threads than there are processors, so that stops are pending when threads have
/// to end. Each program is reported as a separate process, with its own mappings and complete stacks. No data of one
/// program is attributed to another.
fn exec_by_another_thread() {
    for stops in [usual().stops, Stops::Always] {
        let settings = Settings { stops, ..Settings::default() };
        let seen = follow_chain(&compile::c("exec_chain"), None, settings);
        assert_eq!(seen.lives.len(), 6);
        for life in &seen.lives {
            assert_eq!(life.process.pid, seen.lives[0].process.pid);
            let share = life.complete_samples(life.with("link_of_chain"));
            assert!(share >= 0.95, "{share}\n{}", life.top());
            let unknown = |location: &Location| location.mapping().is_none() && !location.is_kernel();
            // Blocked threads may be read before the mappings of the program are known, so only running ones are
            // checked.
            let ran = life.samples.iter().filter(|observed| !observed.sample.blocked);
            let of_others: Vec<_> = ran.filter(|observed| observed.locations.iter().any(unknown)).collect();
            assert!(of_others.is_empty(), "{:?} of {}\n{}", of_others, life.samples.len(), life.top());
        }
    }
}

/// Guarantees: a target that executes a set-user-ID program continues to run, and a sampler that may trace other users
/// samples it with its new user.
fn exec_of_a_setuid_program() -> Outcome {
    if !nix::unistd::geteuid().is_root() {
        return Err(Untested("only root can give a program to another user".to_owned()));
    }
    let program = compile::c("exec_chain");
    let changed = compile::folder().join("exec_chain-setuid");
    fs::copy(&program, &changed).unwrap();
    std::os::unix::fs::chown(&changed, Some(65534), None).unwrap();
    fs::set_permissions(&changed, fs::Permissions::from_mode(0o4755)).unwrap();
    let seen = follow_chain(&program, Some(&changed), usual());
    let users: Vec<u32> = seen.lives.iter().map(|life| life.process.user).collect();
    assert_eq!(users, [0, 0, 0, 0, 0, 65534]);
    Ok(())
}

/// Guarantees: a process that forks as fast as it can is sampled at the usual rate, and none of its forks, children and
/// waits fails.
fn fork_storm() {
    let mut target = RunningTarget::start(&compile::c("fork_storm"), &[]);
    let mut session = TrapSession::of(target.pid());
    session.observe("parent_work", 150);
    target.ask_until("forks", 100);
    assert_eq!(target.ask("wrong"), 0);
    let seen = session.finish();
    assert_eq!(seen.lives.len(), 1, "children are not the target");
}

/// Guarantees: the parent of a process that ends while its threads are stopped for sampling gets the correct exit code.
fn exit_code_is_the_parents() {
    for _ in 0..10 {
        let spin = "trap 'exit 7' TERM; echo ready; while :; do :; done";
        let mut parent = RunningTarget::shell(&format!("sh -c \"{spin}\"; echo code $?"));
        let [child] = process::children(parent.pid())[..] else { panic!("one child") };
        let mut session = TrapSession::with(child, often());
        session.until("stops", |seen| seen.observations() > 5);
        kill(Pid::from_raw(child.cast_signed()), Signal::SIGTERM).unwrap();
        assert_eq!(parent.wait_for("code"), "7");
        session.until("its end", |seen| seen.last().detached == Some(Detached::Exited));
        session.finish();
    }
}

/// Guarantees: if a new process gets the id of a sampled one while the sampler is stopped, the two are never confused:
/// the old process is reported as ended, and nothing is reported of the new one.
fn same_id_again() -> Outcome {
    let clone_at = compile::c("clone_at");
    let other = compile::c("shares");
    let mut first = RunningTarget::start(&compile::c("busy"), &["2", "2"]);
    let pid = first.pid();
    let mut session = TrapSession::of(pid);
    session.observe("leaf", 20);
    let sampler = session.sampler();
    // The sampler is not stopped while it traces a thread: the end of a traced thread waits for its tracer.
    loop {
        kill(sampler, Signal::SIGSTOP).unwrap();
        while !process::states(session.sampler().as_raw().unsigned_abs()).chars().all(|state| state == 'T') {
            std::thread::yield_now();
        }
        if process::tracers(pid).is_empty() {
            break;
        }
        kill(sampler, Signal::SIGCONT).unwrap();
    }
    first.end();
    let mut command = std::process::Command::new(&clone_at);
    command.arg(pid.to_string()).arg(&other).arg("all");
    let mut second = RunningTarget::launch(&mut command);
    let started = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| second.wait_for("ready")));
    kill(sampler, Signal::SIGCONT).unwrap();
    if started.is_err() {
        return Err(Untested("a process id cannot be chosen (CAP_CHECKPOINT_RESTORE)".to_owned()));
    }
    assert_eq!(process::children(second.pid()), [pid]);
    session.until("the end of the first", |seen| seen.lives[0].detached == Some(Detached::Exited));
    // A target that gives a process id does not include later processes with the same id.
    session.listen(std::time::Duration::from_millis(500));
    let seen = session.finish();
    assert_eq!(seen.lives.len(), 1);
    let life = seen.last();
    for function in ["seventy", "alone_a", "alone_b", "recursion", "sleeper"] {
        assert_eq!(life.count(function), 0, "{}", life.top());
    }
    let known = ["leaf", "wait_forever", "main"];
    // An ending process may be sampled in the kernel when it has no memory any more.
    let programs =
        life.samples.iter().filter(|observed| !observed.locations.iter().all(|location| location.is_kernel()));
    let foreign = programs.filter(|o| !life.names(o).iter().any(|name| known.contains(&name.as_str())));
    let foreign: Vec<_> = foreign.map(|observed| life.names(observed)).collect();
    assert!(foreign.len() * 50 <= life.samples.len(), "{foreign:?}");
    Ok(())
}

/// The bytes of a 32-bit program for x86, since few machines have the libraries to build one: it prints "ready" and
/// spins.
fn i386_program() -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    const HEADERS: u32 = 52 + 32;
    let code: &[u8] = &[
        0xb8, 4, 0, 0, 0, // mov eax, 4 (write)
        0xbb, 1, 0, 0, 0, // mov ebx, 1
        0xb9, 0, 0, 0, 0, // mov ecx, text
        0xba, 6, 0, 0, 0, // mov edx, 6
        0xcd, 0x80, // int 0x80
        0xeb, 0xfe, // jmp to itself
    ];
    let mut code = code.to_vec();
    let text = BASE + HEADERS + u32::try_from(code.len()).unwrap();
    code[11..15].copy_from_slice(&text.to_le_bytes());
    let size = HEADERS + u32::try_from(code.len()).unwrap() + 6;
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    for half in [2_u16, 3] {
        file.extend(half.to_le_bytes()); // ET_EXEC, EM_386
    }
    for word in [1, BASE + HEADERS, 52, 0, 0] {
        file.extend(word.to_le_bytes()); // version, entry, program headers, section headers, flags
    }
    for half in [52_u16, 32, 1, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    for word in [1, 0, BASE, BASE, size, size, 5, 0x1000] {
        file.extend(word.to_le_bytes()); // PT_LOAD, readable and executable
    }
    file.extend(code);
    file.extend(b"ready\n");
    file
}

/// Guarantees: a 32-bit process is refused with a specific message, and none of its threads is traced.
fn thirty_two_bits() -> Outcome {
    let program = compile::folder().join("i386");
    fs::write(&program, i386_program()).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    if std::process::Command::new(&program)
        .arg("--never-read")
        .stdout(std::process::Stdio::null())
        .spawn()
        .map(|mut child| {
            child.kill().ok();
            child.wait()
        })
        .is_err()
    {
        return Err(Untested("the kernel runs no 32-bit programs".to_owned()));
    }
    let mut target = RunningTarget::start(&program, &[]);
    let mut session = TrapSession::of(target.pid());
    session.until("a problem", |seen| seen.has(ProblemKind::Architecture));
    assert!(session.seen.problems[0].message.contains("32-bit"), "{:?}", session.seen.problems);
    session.listen(std::time::Duration::from_millis(100));
    let seen = session.finish();
    assert!(seen.lives.iter().all(|life| life.samples.is_empty()));
    assert!(target.lives());
    Ok(())
}
